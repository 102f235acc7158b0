"""What is measured: Gloo's own AllReduce, a Communicator, and frames of its sizes without the coding."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.collective.actions import SENDS, Action, Op
from oscar.collective.executor import drive, execute
from oscar.collective.frames import FrameLog, Frames
from oscar.collective.node import Node
from oscar.collective.schedule import Schedule
from oscar.config import Config
from oscar.errors import OscarError
from oscar.numerics.renewal import places_of
from oscar.reducers.communicator import Communicator, PeerResult
from oscar.reducers.remote_wire import RemoteWire
from oscar.schemes.base import Channel
from oscar.schemes.exact import Exact
from oscar.schemes.registry import method_info
from oscar.transports.base import Transport
from oscar.transports.gloo import load_torch
from oscar.transports.keyed import secured
from oscar_lab.lab.settings import MethodSpec, method_config

TIMEOUT_S = 60.0
PLAIN_MESSAGES = 64  # of a scheme between two hosts, at most: sums, gathers and their lengths


@dataclass(frozen=True)
class Seat:
    """One rank's place in a case: the base configuration and its transport."""

    config: Config
    transport: Transport

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return self.transport.rank

    @property
    def hosts(self) -> int:
        """The number of ranks."""
        return self.transport.nodes


@dataclass(frozen=True)
class Sent:
    """What one rank sent in a run.

    payload: bytes above TCP, at least. frames: the coded ones.
    """

    payload: int
    messages: int
    frames: Frames | None = None


class LabMethod(ABC):
    """One way to reduce, on one rank; its methods are called in the order below, and only `run` is timed."""

    def __init__(self, spec: MethodSpec, seat: Seat) -> None:
        self.spec, self.seat = spec, seat

    @abstractmethod
    def prepare(self, tensors: Sequence[Array]) -> None:
        """Take this rank's gradient [tensor] (float32)."""

    @abstractmethod
    def run(self) -> None:
        """Reduce."""

    @abstractmethod
    def sent(self) -> Sent:
        """Return what this rank sent in the last run."""

    def mine(self) -> Array:
        """Return what this rank put into the sum, in some order that is equal on all ranks."""
        return np.zeros(0, np.int32)

    def wrong(self, all_of_them: Sequence[Array]) -> int:
        """Return how many of this rank's results differ from the sum of every rank's `mine`."""
        return 0

    def result(self) -> Array:
        """Return what must be the same on all ranks."""
        return np.zeros(0, np.int32)


class GlooMethod(LabMethod):
    """torch.distributed.all_reduce. For int8, values are quantised before the timed run; sums fit int8."""

    def prepare(self, tensors: Sequence[Array]) -> None:
        torch, _ = load_torch()
        flat = np.concatenate([tensor.ravel() for tensor in tensors])
        if self.spec.dtype == "int8":
            limit = 127 // self.seat.hosts
            sigma = float(np.sqrt(np.mean(np.square(flat), dtype=np.float64))) or 1.0
            self._mine = np.clip(np.rint(flat * (limit / (4 * sigma))), -limit, limit).astype(np.int8)
        else:
            self._mine = flat
        self._tensor = torch.from_numpy(self._mine.copy()).to(getattr(torch, self.spec.dtype))
        self._mine = self._tensor.float().numpy().copy() if self.spec.dtype == "bfloat16" else self._mine

    def run(self) -> None:
        _, distributed = load_torch()
        distributed.all_reduce(self._tensor)

    def sent(self) -> Sent:
        """Return what a ring sends; Gloo's halves are rings."""
        hosts, size = self.seat.hosts, self._tensor.numel() * self._tensor.element_size()
        return Sent(2 * (hosts - 1) * (size // hosts), 8 * hosts)

    def mine(self) -> Array:
        return self._mine

    def wrong(self, all_of_them: Sequence[Array]) -> int:
        """Return how many are off: by anything in int8, by more than N roundings in floating point."""
        came = self.result()
        if self.spec.dtype == "int8":
            return int(np.count_nonzero(came != _total(all_of_them)))
        total, size = (_total(map(f, all_of_them)) for f in (np.asarray, np.abs))
        epsilon = 2.0**-24 if self.spec.dtype == "float32" else 2.0**-8
        return int(np.count_nonzero(np.abs(came - total) > len(all_of_them) * epsilon * size))

    def result(self) -> Array:
        values: Array = (self._tensor.float() if self.spec.dtype == "bfloat16" else self._tensor).numpy()
        return values


def _total(arrays: Any) -> Array:
    """Return the sum, in float64 or int64."""
    total: Array | None = None
    for array in arrays:
        wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        total = wide if total is None else np.add(total, wide, out=total)
    if total is None:
        raise ValueError("expected the values of one rank at least")
    return total


class CheckedWire(RemoteWire):
    """Leaves a rank's integers as they are: sums are checked against them. That is one more copy a call."""

    keeps: ClassVar[bool] = True


class CheckedCommunicator(Communicator):
    """A Communicator whose integers are still there after a call."""

    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> CheckedWire:
        return CheckedWire(self.party, channels, self._schedule(self.nodes, 0))


class OscarMethod(LabMethod):
    """A Communicator with the method's changes to the configuration; the whole call is timed."""

    def __init__(self, spec: MethodSpec, seat: Seat) -> None:
        super().__init__(spec, seat)
        self.config = method_config(seat.config, spec, seat.hosts)
        wire = self.config.transport
        transport = secured(seat.transport, wire.security, key=wire.key, pad=wire.pad, timeout_s=TIMEOUT_S)
        self.communicator = CheckedCommunicator(self.config, transport, timeout_s=TIMEOUT_S)
        self._last: PeerResult | None = None

    def prepare(self, tensors: Sequence[Array]) -> None:
        self._tensors, self._last = tensors, None

    def run(self) -> None:
        self._last = self.communicator.allreduce(self._tensors)

    def _done(self) -> PeerResult:
        if self._last is None:
            raise OscarError(f"{self.spec.name}: expected a run before its results are asked for")
        return self._last

    @property
    def schedule(self) -> Schedule:
        """Who sent what to whom in the last run."""
        return self.communicator.states[0].wire.channels["sums"].schedule

    @property
    def _node(self) -> Node:
        """The node, which holds this rank's own values and the sums, both in plan order."""
        (node,) = self.communicator.states[0].wire.links["sums"]
        return node

    def sent(self) -> Sent:
        stats = self._done().stats
        messages = len(stats.frames) + (stats.exchange_bytes > 0) * self.seat.hosts
        return Sent(stats.sent_bytes, messages, stats.frames)

    def mine(self) -> Array:
        return self._node.local

    def wrong(self, all_of_them: Sequence[Array]) -> int:
        """Count wrong values; those that a lossy codec changes are wrong, too.

        Sums of new steps, which were agreed upon within the call, are those of other integers.
        """
        scheme = self.communicator.states[0].scheme
        differ = self._node.result() != _total(all_of_them)
        if isinstance(scheme, Exact) and scheme.plan is not None:
            differ[places_of(scheme.steps, scheme.plan, scheme.renewed)] = False
        return int(np.count_nonzero(differ))

    def result(self) -> Array:
        """Return the mean that the training would apply."""
        return np.concatenate([mean.ravel() for mean in self._done().mean])


class SchemeMethod(OscarMethod):
    """A Communicator whose method is a scheme: what it sums is its own, so that ranks are compared alone."""

    def sent(self) -> Sent:
        """Return what this rank sent; each message of a scheme is a few messages to every other host."""
        stats, every = self._done().stats, PLAIN_MESSAGES * (self.seat.hosts - 1)
        return Sent(stats.sent_bytes, len(stats.frames) + every)

    def mine(self) -> Array:
        return np.zeros(0, np.int32)

    def wrong(self, all_of_them: Sequence[Array]) -> int:
        """Return 0: a test of the scheme says whether its sums are right."""
        return 0


class _Sizes:
    """Performs actions on frames of known sizes, without content."""

    def __init__(self, rank: int, frames: Frames) -> None:
        self.rank, self.sizes = rank, frames.sizes()
        self._most = int(frames["bytes"].max(initial=0))
        self._room = memoryview(bytes(self._most))

    def count(self, action: Action) -> int:
        """Return the bytes of the action's frame."""
        sender = action.peer if action.op in (Op.POST_RECV, Op.WAIT) else self.rank
        return self.sizes.get((int(action.phase), sender, action.chunk, action.sub), (0, 0))[1]

    def coding_work(self, action: Action) -> None:
        """Return None: nothing is coded."""

    def cap(self, action: Action) -> int:
        return self._most

    def receive(self, action: Action, frame: bytes) -> None:
        """Do nothing: the frame holds no values."""

    def perform(self, action: Action) -> memoryview | None:
        return self._room[: self.count(action)] if action.op in SENDS else None


class ReplayMethod(LabMethod):
    """Frames of the sizes of coded ones, by the same schedule: what a NIC with the codec would send."""

    def __init__(self, spec: MethodSpec, seat: Seat) -> None:
        super().__init__(spec, seat)
        self._frames: Frames | None = None

    def load(self, frames: Frames, schedule: Schedule) -> None:
        """Take the frames of all hosts, and the schedule that sent them."""
        self._frames, self._schedule = frames, schedule
        self._sizes = _Sizes(self.seat.rank, frames)
        self.seat.transport.meet(schedule.peers(self.seat.rank))

    def prepare(self, tensors: Sequence[Array]) -> None:
        """Do nothing: a replay has sizes alone."""

    def run(self) -> None:
        if self._frames is None:
            raise OscarError(f"{self.spec.name}: expected the frames of {self.spec.of!r}; measure it first")
        seat, deadline = self.seat, time.monotonic() + TIMEOUT_S
        actions = self._schedule.actions(seat.rank)

        def wait(action: Action) -> memoryview:
            return seat.transport.wait(action.peer, action.tag, deadline, "a frame of the replay")

        drive(execute(self._sizes, actions, seat.transport, FrameLog()), wait)
        seat.transport.flush(deadline)

    def sent(self) -> Sent:
        if self._frames is None:
            return Sent(0, 0)
        own = self._frames.of_sender(self.seat.rank)
        return Sent(own.bytes, len(own), own)


def make_method(spec: MethodSpec, seat: Seat) -> LabMethod:
    """Return the method that `spec` describes, on the rank of `seat`."""
    if (
        spec.kind == "oscar"
        and method_info(method_config(seat.config, spec, seat.hosts).method).codec is None
    ):
        return SchemeMethod(spec, seat)
    kinds: dict[str, type[LabMethod]] = {"gloo": GlooMethod, "oscar": OscarMethod, "replay": ReplayMethod}
    return kinds[spec.kind](spec, seat)
