"""The AllReduce between hosts of a model that FSDP2 shards inside each.

`Shards` knows which parameters a module of FSDP2 reduces together, and where each lies in what the hook gets.
"""

from __future__ import annotations

import io
import logging
import math
from collections import Counter
from functools import partial
from typing import Any

import numpy as np

from oscar.adapters.torch.arguments import default_config
from oscar.adapters.torch.saving import packed, read_tree
from oscar.adapters.torch.staging import Staging
from oscar.adapters.torch.state import ADVICE
from oscar.array import Array
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.kernels import log_compiling
from oscar.numerics.tensors import split, why_uncoded
from oscar.reducers.communicator import Communicator
from oscar.transports.gloo import load_torch, ranks_of, timeout_for
from oscar.transports.tcp import TcpTransport

Shape = tuple[int, ...]
PLAIN = "fp32"  # method of what goes uncompressed over the same transport
PARTS = "gradients of some of a module's trained parameters alone have no state"
LOG = logging.getLogger("oscar.torch_fsdp")


class Shards:
    """The parameters that FSDP reduces for `module`, without those of modules below under fully_shard.

    shapes: of the parameters' padded shards on this rank, in the order in which FSDP lays out gradients.
    """

    def __init__(self, module: Any) -> None:
        self._groups = _groups_of(module)
        self._parameters = [parameter for group in self._groups for parameter in group.fsdp_params]
        self.shapes = [_shard(parameter.sharded_param) for parameter in self._parameters]

    def trained(self) -> list[int]:
        """Return the numbers of the parameters that had a gradient to compute in this backward pass."""
        # Autograd saw the unsharded parameter where FSDP has made one.
        seen = (getattr(each, "_unsharded_param", each.sharded_param) for each in self._parameters)
        return [number for number, parameter in enumerate(seen) if parameter.requires_grad]

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


def _shard(parameter: Any) -> Shape:
    """Return the shape of a rank's padded part of a DTensor."""
    (placement,) = parameter.placements
    shape, ranks = list(parameter.shape), parameter.device_mesh.size()
    dimension = getattr(placement, "dim", None)
    if dimension is not None:
        shape[dimension] = math.ceil(shape[dimension] / ranks)
    return tuple(shape)


def between_hosts(model: Any, hosts: Any, config: Config | None = None) -> HostExchange:
    """Send the gradients of `model` through OSCAR between hosts; FSDP2 goes on to shard inside each.

    A partner may be silent for `transport.timeout_s`, by default for the timeout of the group. Collective
    between the ranks of `hosts`. Returns what holds the state: to be saved with a checkpoint, and to be
    closed.

    Args:
        model: `fully_shard` was called on it, and on modules of it, with a mesh of one dimension, inside
            a host.
        hosts: The other dimension: a DeviceMesh, or a group of torch.distributed, of the ranks that hold
            the same shard.
        config: Codec or scheme and its options; None takes ASC with error feedback.

    Raises:
        TypeError: For a model without fully_shard.
        ConfigError: Where FSDP replicates it, where ranks differ, and for keyed frames.
    """
    return HostExchange(model, hosts, config)


class HostExchange:
    """The state of `between_hosts`: the coder's of each parameter's shard, and counts.

    `coded_values`, `uncoded_values` (by reason) and `sent_bytes` are of this rank. As an entry of what
    torch.distributed.checkpoint saves it has each rank's own part.
    """

    def __init__(self, model: Any, hosts: Any, config: Config | None = None) -> None:
        group = hosts.get_group() if hasattr(hosts, "get_group") else hosts
        modules = shards_of(model)
        chosen = default_config() if config is None else config
        if chosen.transport.security != "none":
            raise ConfigError(
                f"transport.security is {chosen.transport.security}, but FSDP itself sends inside a host, "
                "and has no key: set it to none, and use a network that encrypts"
            )
        self._dist = load_torch()[1]
        self._group, self._staging = group, Staging()
        self.config = chosen.variant(nodes=len(ranks_of(group)))
        self.error: Exception | None = None
        self.coded_values = self.sent_bytes = 0
        self.uncoded_values: Counter[str] = Counter()  # by reason
        self._shards: dict[str, Shards] = {name: shards for name, (_, shards) in modules.items()}
        self.shapes: dict[str, list[Shape]] = {name: shards.shapes for name, shards in self._shards.items()}
        self._transport = TcpTransport(group)
        log_compiling(self._transport.rank)
        try:
            timeout_s = timeout_for(group, self.config.transport.given_timeout_s)
            shapes = {name: list(map(list, each)) for name, each in self.shapes.items()}
            extra = {"fsdp.shards": shapes}
            self._coded = Communicator(self.config, self._transport, timeout_s=timeout_s, extra=extra)
            plain = Config(method=PLAIN, nodes=self.config.nodes)
            self._plain = Communicator(plain, self._transport, timeout_s=timeout_s)
            self.rank, self.nodes = self._coded.rank, self._coded.nodes
            for name, (module, _) in modules.items():
                module.set_all_reduce_hook(partial(self.reduce, name))
        except BaseException:
            self._transport.close()
            raise

    def reduce(self, name: str, gradient: Any) -> None:
        """Make `gradient`, a module's flat shard, its mean over all hosts, in place; FSDP's hook.

        It becomes the sum where the module has a divide factor, as with native HSDP. Raises TypeError for
        dtypes that nothing reduces.
        """
        if self.error is not None:
            raise OscarError(f"the exchange between hosts failed before ({self.error}); {ADVICE}")
        try:
            self._reduce(name, gradient)
        except Exception as error:
            self.error = error
            for communicator in (self._coded, self._plain):
                if communicator.failed is None:
                    communicator.give_up(error)
            raise

    def _reduce(self, name: str, gradient: Any) -> None:
        shards = self._shards[name]
        trained, times = shards.trained(), self.nodes if shards.adds else 1
        shapes = [shards.shapes[number] for number in trained]
        whole = gradient.numel() == sum(map(math.prod, shapes))
        reason = self._reason(gradient)
        if reason is not None:
            self._count(name, gradient, reason)
            self._dist.all_reduce(gradient, group=self._group)
            if times == 1:
                gradient.div_(self.nodes)
            return
        values = self._staging.fetch(gradient, self._staging.mark(gradient))
        if whole:
            mean = self._mean(self._coded, self._key(name, trained), split(values, shapes))
            self.coded_values += gradient.numel()
        else:
            self._count(name, gradient, PARTS)
            mean = self._mean(self._plain, f"{name} {gradient.numel()}", [values])
        self._staging.put(gradient, mean if times == 1 else mean * np.float32(times))

    def _key(self, name: str, trained: list[int]) -> str:
        """Return the name of a state: each set of parameters that is trained together has one."""
        if len(trained) == len(self.shapes[name]):
            return name
        return f"{name} {','.join(map(str, trained))}"

    def _mean(self, communicator: Communicator, key: str, tensors: list[Array]) -> Array:
        result = communicator.allreduce(tensors, key=key)
        self.sent_bytes += result.stats.sent_bytes
        return np.concatenate([tensor.reshape(-1) for tensor in result.mean])

    @staticmethod
    def _reason(gradient: Any) -> str | None:
        """Return why torch reduces a gradient, or None; raises TypeError where torch cannot either."""
        if gradient.dtype.itemsize == 1:
            raise TypeError(
                f"expected gradients of a dtype that torch adds between hosts, got {gradient.dtype}; set "
                "MixedPrecisionPolicy(reduce_dtype=torch.float32)"
            )
        reason = why_uncoded(gradient.dtype)
        if reason is None and gradient.device.type not in Staging.DEVICES:
            reason = f"gradients on {gradient.device.type} are not coded"
        return reason

    def _count(self, name: str, gradient: Any, reason: str) -> None:
        if not self.uncoded_values[reason] and self.rank == 0:
            LOG.warning(
                "module %s: %s values go uncompressed, as all later ones will: %s",
                repr(name), f"{gradient.numel():,}", reason,
            )  # fmt: skip
        self.uncoded_values[reason] += gradient.numel()

    def forget(self) -> None:
        """Drop what error feedback carries over: for a training loop that skips the optimiser's step.

        A rank may call it alone. Tables and step sizes stay.
        """
        self._coded.forget()

    def state_dict(self) -> dict[str, bytes]:
        """Return this rank's state under a name of its own: text and tensors, as torch.save writes them.

        Raises OscarError after a failure: some modules have moved on then.
        """
        if self.error is not None:
            raise OscarError(f"the exchange between hosts failed before ({self.error}); {ADVICE}")
        file = io.BytesIO()
        load_torch()[0].save(packed(self._coded.state_dict(), self.config.method), file)
        return {self._name: file.getvalue()}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned on this rank.

        Raises ConfigError, and changes nothing, where it is of another configuration, rank or world size.
        """
        try:
            read = load_torch()[0].load(io.BytesIO(state[self._name]), weights_only=True)
        except Exception as error:
            raise ConfigError(
                f"expected a saved exchange with an entry {self._name}, got what cannot be read ({error!r}): "
                "resume with as many ranks as the run that saved it, or leave the exchange's state out"
            ) from None
        self._coded.load_state_dict(read_tree(read, self.config.method).value)

    @property
    def _name(self) -> str:
        return f"rank {self._dist.get_rank()} of {self._dist.get_world_size()}"

    def close(self) -> None:
        """End the private group; may be repeated. The end of the process does it, too.

        FSDP has no way to take its hooks off: they stay, and a later backward raises OscarError.
        """
        self._transport.close()

    def __enter__(self) -> HostExchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
