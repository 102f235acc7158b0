"""Which parameters a module of FSDP2 reduces together, and where each lies in what it hands to its hook."""

from __future__ import annotations

import math
from typing import Any

from oscar.errors import ConfigError, OscarError

Shape = tuple[int, ...]


class Shards:
    """The parameters that FSDP reduces for `module`, without those of modules below under fully_shard.

    shapes: of the parameters' padded shards on this rank, in the order in which FSDP lays out gradients.
    """

    def __init__(self, module: Any) -> None:
        self._groups = _groups_of(module)
        self._held = [parameter for group in self._groups for parameter in group.fsdp_params]
        self.shapes = [_shard(parameter.sharded_param) for parameter in self._held]

    def trained(self) -> list[int]:
        """Return the numbers of the parameters that had a gradient to compute in this backward pass."""
        return [number for number, each in enumerate(self._held) if _live(each).requires_grad]

    @property
    def adds(self) -> bool:
        """Whether the user set a divide factor: FSDP then has divided by all of it, and hosts add."""
        return any(group.gradient_divide_factor is not None for group in self._groups)


def shards_of(model: Any) -> dict[str, tuple[Any, Shards]]:
    """Return by name the modules of `model` that `fully_shard` was called on, and their shards.

    Raises TypeError where there are none, ConfigError where parameters are replicated by FSDP itself.
    """
    from torch.distributed.fsdp import FSDPModule

    modules = {name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    if not modules:
        raise TypeError(
            f"expected a model with modules under fully_shard, got a {type(model).__name__} without any: "
            "call fully_shard(module, mesh=mesh[...]) first"
        )
    for name, parameter in model.named_parameters():
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and mesh.ndim != 1:
            raise ConfigError(
                f"expected parameters on a mesh of one dimension, inside a host, got {name} on one of "
                f"{mesh.ndim}: FSDP then reduces between hosts itself; call fully_shard with the inner mesh"
            )
    return {name: (module, Shards(module)) for name, module in modules.items()}


def _groups_of(module: Any) -> list[Any]:
    """Return FSDP's groups of a module's own parameters: none or one, except with meshes by parameter.

    PyTorch has no public way to ask which parameters these are, nor for their divide factor.
    """
    try:
        state = module._get_fsdp_state()
        if hasattr(state, "_fsdp_param_groups"):
            groups = list(state._fsdp_param_groups)
        else:  # PyTorch 2.8 and 2.9
            groups = [group for group in [state._fsdp_param_group] if group is not None]
        for group in groups:
            _ = group.fsdp_params, group.gradient_divide_factor
    except AttributeError as error:
        raise OscarError(
            f"expected the FSDP2 of PyTorch 2.8 or later, got one with other internals ({error}); install a "
            "release of PyTorch that this version was tested with"
        ) from None
    return groups


def _live(held: Any) -> Any:
    """Return the parameter that autograd saw: unsharded where that was made."""
    return getattr(held, "_unsharded_param", held.sharded_param)


def _shard(parameter: Any) -> Shape:
    """Return the shape of a rank's padded part of a DTensor."""
    (placement,) = parameter.placements
    shape, ranks = list(parameter.shape), parameter.device_mesh.size()
    dimension = getattr(placement, "dim", None)
    if dimension is not None:
        shape[dimension] = math.ceil(shape[dimension] / ranks)
    return tuple(shape)
