"""The process group that torchft's Manager configures anew for each quorum."""

from __future__ import annotations

import logging
import weakref
from collections import Counter
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp
from torchft.process_group import ProcessGroupGloo, create_store_client

from oscar.adapters.torch.arguments import default_config
from oscar.adapters.torch.bypass import ring_bytes
from oscar.adapters.torch.staging import Staging
from oscar.adapters.torchft.quorum import Quorum
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.numerics.tensors import CODED, name_of

CODED_OPS = ("SUM", "AVG", "PREMUL_SUM")
WIDE = ("float64", "complex32", "complex64", "complex128")
ADDED_BY_GLOO = (*CODED, *WIDE, "int8", "uint8", "int32", "int64", "bool")
LEAST = 1024  # values; Gloo is faster below
SMALL, ALONE = "small", "one replica"  # reasons that are expected, and not told
UNNAMED = (
    "no name, and this group has no order: it is coded without state, and without error feedback; call "
    "name_next(name) before its allreduce, or make the group with ordered=True"
)
LOG = logging.getLogger("oscar.torchft")


class ProcessGroupOscar(ProcessGroupGloo):
    """A process group for `Manager(pg=...)`: large float tensors are coded, all else goes over Gloo.

    State (error feedback, step size, tables) belongs to a tensor's name (`name_next`), which torchft's DDP
    classes give, or to its place in the step if the group is ordered, as it is for DiLoCo and LocalSGD. Other
    tensors are coded without state, which takes more bytes and a message more. All replicas reduce the same
    tensors in one order. All state lives for one quorum. `coded_values`, `uncoded_values` (by reason) and
    `sent_bytes` count since the group was made.

    Args:
        config: Codec or scheme and its options; None takes ASC with error feedback. DiLoCo's
            pseudo-gradients bear `quantiser.coarseness` 1.
        timeout: Longest wait for a replica; None takes `transport.timeout_s`, by default 60 s, as
            torchft's own groups do.
        least: Number of values of the smallest coded tensor.
        fragments: Number of DiLoCo's fragments, which are synchronised in turn.
        parameters: Tensors are parameters, of which the change against the last mean is coded. DiLoCo and
            LocalSGD that are made on this group's Manager set both.
        ordered: All steps reduce the same tensors in one order; True with any of the two.

    Raises:
        ConfigError: For keyed frames, and in `configure`, on all replicas, where two have other versions
            or configurations.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        timeout: timedelta | None = None,
        least: int = LEAST,
        fragments: int = 1,
        parameters: bool = False,
        ordered: bool = False,
    ) -> None:
        if least < 1 or fragments < 1:
            raise ValueError(f"expected least and fragments of 1 at least, got {least} and {fragments}")
        self.config = default_config() if config is None else config
        if self.config.transport.security != "none":
            raise ConfigError(
                f"transport.security is {self.config.transport.security}, but Gloo sends for this group, "
                "too, and has no key: set it to none, and use a network that encrypts"
            )
        if timeout is None:
            timeout = timedelta(seconds=self.config.transport.timeout_s)
        super().__init__(timeout=timeout)
        self.least, self.fragments, self.parameters = least, fragments, parameters
        self.ordered, self._places_fixed = ordered, ordered or parameters or fragments > 1
        self.coded_values = 0
        self.uncoded_values: Counter[str] = Counter()  # by reason
        self.coded_bytes = self.plain_bytes = 0
        self._told: set[str] = set()
        self._next_name: str | None = None  # of the next tensor
        self._models = 0  # that torchft's DDP has on this group
        self._quorum: Quorum | None = None
        self._failure: Exception | None = None  # why there is no quorum, after there was one
        self._finaliser: weakref.finalize[Any, Any] | None = None
        self._begin()

    def reduces(self, *, fragments: int, parameters: bool) -> None:
        """Say what will be reduced. Raises ConfigError where replicas have agreed on something else."""
        if self._quorum is not None and (fragments, parameters) != (self.fragments, self.parameters):
            raise ConfigError(
                f"expected DiLoCo or LocalSGD before the first quorum, got one that reduces with fragments="
                f"{fragments}, parameters={parameters}, while replicas agreed on {self.fragments} and "
                f"{self.parameters}: make it before the Manager starts a quorum, or give both options to "
                "ProcessGroupOscar"
            )
        self.fragments, self.parameters, self._places_fixed = fragments, parameters, True

    def name_next(self, name: str) -> None:
        """Name the tensor of the next `allreduce`: its state follows the name, not its place in the step.

        Args:
            name: Equal on all replicas, such as that of the parameter; once in a step.
        """
        self._next_name = name

    def next_model(self) -> int:
        """Return a number for a model under torchft's DDP: equal on replicas that make them in one order."""
        self._models += 1
        return self._models

    def forget(self) -> None:
        """Drop what error feedback carries over: for a training loop that skips the optimiser's step.

        A replica may call it alone. Tables and step sizes stay.
        """
        if self._quorum is not None:
            self._quorum.forget()

    def getBackendName(self) -> str:
        """Return the name by which torch knows this group."""
        return "torchft-oscar"

    @property
    def sent_bytes(self) -> int:
        """Bytes that this replica has sent for AllReduces; what Gloo sends is reckoned as a ring's."""
        alive = 0 if self._quorum is None else self._quorum.sent_bytes
        return self.coded_bytes + alive + self.plain_bytes

    def configure(
        self, store_addr: str, replica_id: str, rank: int, world_size: int, *args: Any, **kwargs: Any
    ) -> None:
        """Drop all coder state and meet the replicas of another quorum; see torchft. Collective.

        Raises ConfigError on all of them where one has another version or configuration, and OscarError if
        a replica does not arrive, or the store is lost, within `timeout`.
        """
        self._leave(OscarError(f"rank {rank}: the process group was configured for another quorum"))
        self._begin()
        try:
            super().configure(store_addr, replica_id, rank, world_size, *args, **kwargs)
            if world_size > 1:
                names = ("least", "fragments", "parameters", "ordered")
                quorum = Quorum(
                    self.config, create_store_client(f"{store_addr}/oscar", timeout=self._timeout), rank,
                    world_size, timeout_s=self._timeout.total_seconds(), relative=self.parameters,
                    extra={f"torchft.{name}": getattr(self, name) for name in names},
                )  # fmt: skip
                self._quorum = quorum
                gone = OscarError("the process group has gone")
                self._finaliser = weakref.finalize(self, quorum.end, gone)
            self._failure = None
        except Exception as error:
            self._failure = error
            LOG.error("rank %d of %d: no quorum: %s: %s", rank, world_size, type(error).__name__, error)
            raise

    def _begin(self) -> None:
        self._turn = self._calls = 0  # steps of this quorum, and coded tensors of this step
        self._stepped = False  # whether this step has reduced anything, coded or not
        self._next_name = None

    def _leave(self, why: Exception) -> None:
        quorum, self._quorum, self._failure = self._quorum, None, why
        if quorum is not None:
            quorum.end(why)
            self.coded_bytes += quorum.sent_bytes
        if self._finaliser is not None:
            self._finaliser.detach()

    def abort(self, errored: bool = True) -> None:
        """End all AllReduces at once, with an error; the next `configure` begins anew."""
        self._leave(OscarError("the process group was aborted"))
        super().abort(errored)

    def shutdown(self) -> None:
        """End the coder's thread and all groups."""
        self._leave(OscarError("the process group was shut down"))
        super().shutdown()

    def errored(self) -> Exception | None:
        """Return what ended this quorum's AllReduces, or None, once the step's tensors are reduced.

        This is the end of a step: torchft asks here, and nowhere else, before it commits one.
        """
        if self._failure is not None:
            return self._failure
        if self._quorum is None:
            return None
        self._quorum.drain()
        if self._stepped:  # a fragment of which nothing is coded has its turn, too
            self._turn, self._calls, self._stepped = self._turn + 1, 0, False
        return self._quorum.error

    def allreduce(self, tensors: list[Any], opts: Any) -> Any:
        """Reduce a tensor in place and return a Work; see torchft. Lists of several tensors go over Gloo.

        Raises TypeError for dtypes and layouts that Gloo does not reduce either.
        """
        if any(hasattr(tensor, "to_local") for tensor in tensors):
            raise TypeError("expected plain tensors, got a DTensor; give to_local()")
        self._stepped = True
        name, self._next_name = self._next_name, None
        operation = getattr(opts, "reduceOp", opts)
        reason = self._reason(tensors, operation)
        if reason is not None:
            return self._uncoded(tensors, opts, reason)
        if self._quorum is None and self._failure is not None:
            raise OscarError(f"this process group has no quorum: {self._failure}") from self._failure
        if self._quorum is None:
            raise OscarError("this process group has no quorum: configure it first (torchft's Manager does)")
        before, after = 1.0, float(self._quorum.nodes)
        if kind_of(operation) == "AVG":
            after = 1.0
        elif kind_of(operation) == "PREMUL_SUM":
            before = factor_of(operation)
        (tensor,) = tensors
        key = name
        if key is None:
            key = f"{self._turn % self.fragments}.{self._calls}"
            self._calls += 1
        known = self._places_fixed or name is not None
        if not known and UNNAMED not in self._told:
            self._told.add(UNNAMED)
            LOG.warning("tensor %s of %s values has %s", key, f"{tensor.numel():,}", UNNAMED)
        self.coded_values += tensor.numel()
        return self._quorum.reduce(tensor.detach(), key, before, after, keeps=known)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any) -> Any:
        """Reduce tensors uncompressed, over Gloo."""
        self._stepped = True
        self._count(tensors, "allreduce_coalesced")
        return super().allreduce_coalesced(tensors, opts)

    def _reason(self, tensors: list[Any], operation: Any) -> str | None:
        """Return why tensors go uncompressed, or None."""
        first, kind = tensors[0], kind_of(operation)
        if self._pg is not None and self.size() == 1:
            return ALONE
        if len(tensors) != 1:
            return f"{len(tensors)} tensors at once"
        if kind not in CODED_OPS:
            return f"the op {kind}"
        if first.layout != torch.strided:
            return f"the layout {first.layout}"
        if first.device.type not in Staging.DEVICES:
            return f"the device {first.device.type}"
        if name_of(first.dtype) not in CODED:
            return f"the dtype {first.dtype}"
        return SMALL if first.numel() < self.least else None

    def _uncoded(self, tensors: list[Any], opts: Any, reason: str) -> Any:
        for tensor in tensors:
            _check_taken(tensor)
        self._count(tensors, reason)
        operation = getattr(opts, "reduceOp", opts)
        if kind_of(operation) == "PREMUL_SUM":  # Gloo has none
            for tensor in tensors:
                tensor.mul_(factor_of(operation))
            opts = torch.distributed.AllreduceOptions()
            opts.reduceOp = ReduceOp.SUM
        return super().allreduce(tensors, opts)

    def _count(self, tensors: list[Any], reason: str) -> None:
        """Count what goes uncompressed, and say once why."""
        values = sum(tensor.numel() for tensor in tensors)
        self.uncoded_values[reason] += values
        nodes = self.size() if self._pg is not None else 1
        self.plain_bytes += ring_bytes(sum(map(_bytes_of, tensors)), nodes)
        if reason not in (SMALL, ALONE) and reason not in self._told:
            self._told.add(reason)
            LOG.warning(
                "%s values go uncompressed, as all later ones will: %s is not coded", f"{values:,}", reason
            )


def _check_taken(tensor: Any) -> None:
    """Raise TypeError where neither OSCAR nor Gloo reduces a tensor."""
    if tensor.device.type == "meta":
        raise TypeError("expected a tensor with values, got one on meta")
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(
            f"expected a dense tensor or a sparse one in COO layout, got {tensor.layout}; convert it with "
            "to_sparse_coo() or to_dense()"
        )
    name = name_of(tensor.dtype)
    if name not in ADDED_BY_GLOO or (tensor.is_sparse and name.startswith("complex")):
        sparse = "sparse " if tensor.is_sparse else ""
        raise TypeError(f"expected a tensor that Gloo adds, got a {sparse}one of {name}; convert it first")


def _bytes_of(tensor: Any) -> int:
    """Return the bytes of a tensor's values, with the positions of a sparse one."""
    if not tensor.is_sparse:
        return int(tensor.nbytes)
    return int(tensor._values().nbytes + tensor._indices().nbytes)


def kind_of(operation: Any) -> str:
    """Return the name of a ReduceOp; `ReduceOp.SUM == ReduceOp(ReduceOp.SUM)` is False, names are equal."""
    return str(getattr(operation, "op", operation).name)


def factor_of(operation: Any) -> float:
    """Return the factor of a PREMUL_SUM."""
    return float(operation.__getstate__()[1])
