"""Which parameters a module of FSDP2 reduces together, and where each lies in what it hands to its hook."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from oscar.errors import ConfigError
from oscar.transports.gloo import load_torch

Shape = tuple[int, ...]


def sharded_modules(model: Any) -> dict[str, Any]:
    """Return by name the modules of `model` that `fully_shard` was called on.

    Raises TypeError where there are none, ConfigError where parameters are replicated by FSDP itself.
    """
    from torch.distributed.fsdp import FSDPModule

    found = {name: module for name, module in model.named_modules() if isinstance(module, FSDPModule)}
    if not found:
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
    return found


def shapes_of(module: Any) -> list[Shape]:
    """Return the shapes of the padded shards of a module's own gradients, in the order that FSDP lays them.

    Those of modules below that are under fully_shard themselves are left to these.
    """
    return [_shard(parameter) for parameter in _own(module) if parameter.requires_grad]


def _own(module: Any) -> Iterator[Any]:
    """Yield the parameters that FSDP keeps with `module`: those of modules below it first."""
    from torch.distributed.fsdp import FSDPModule

    seen, modules = set(), []

    def visit(each: Any) -> None:
        seen.add(each)
        for child in each.children():
            if child not in seen and not isinstance(child, FSDPModule):
                visit(child)
        modules.append(each)

    visit(module)
    yielded = set()
    for each in modules:
        for parameter in each.parameters(recurse=False):
            if parameter not in yielded and hasattr(parameter, "device_mesh"):
                yielded.add(parameter)
                yield parameter


def _shard(parameter: Any) -> Shape:
    """Return the shape of a rank's padded part of a DTensor."""
    torch, (placement,) = load_torch()[0], parameter.placements
    shape, ranks = list(parameter.shape), parameter.device_mesh.size()
    dimension = getattr(placement, "dim", None)
    if dimension is None or not isinstance(parameter, torch.Tensor):
        return tuple(shape)
    shape[dimension] = math.ceil(shape[dimension] / ranks)
    return tuple(shape)
