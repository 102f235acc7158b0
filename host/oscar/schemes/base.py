"""The interface of schemes: messages from workers to AllReduce, and the mean gradient from their sums.

A codec (oscar.coding) changes how integers are coded on one link. A scheme changes which numbers are reduced.
It turns a gradient into a few buffers. AllReduce combines them (sum, or, max) without knowing their meaning.
The scheme turns the combined buffers into a mean gradient. The coded ring is the scheme `exact`. Every scheme
runs over every wire. docs/reference/schemes.md has the contract.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.codec import Codec
from oscar.collective.schedule import Schedule
from oscar.errors import FrameError
from oscar.numerics.meanwhile import Meanwhile
from oscar.numerics.member import Member
from oscar.numerics.plans import ChunkPlan
from oscar.numerics.quantiser import sum_width
from oscar.numerics.quantiser_kernels import hold_within
from oscar.numerics.saturation import Saturation
from oscar.numerics.tensors import MATTERS, energies, growth, offsets_of, shrink
from oscar.state import Reader, Stateful, crc, natural, optional

Op = Literal["sum", "or", "max", "gather", "agree", "exchange"]
Answer = Array | list[Array] | tuple[Array, int]
T = TypeVar("T")

RIDE_BITS = 16
# Largest magnitude of a value in a residual. A sum of 2^32 such values (over ranks, rows and factors) still
# fits float32. So one call with huge values cannot make the mean of later, ordinary values overflow.
MOST_WAITING = np.float32(2.0**96)
# A tensor's residual that is over MOST_OWED times as large as its gradient would drown it, and is dropped.
MOST_OWED = 4.0
# A gradient over SPIKE times as large as usual leaves nothing new in the residual. The usual size falls by
# FADE in a call: slowly enough to cover losses that take turns, and fast enough that a spike of 10 times
# shows where training makes gradients smaller. A spike raises it by GROWTH only, so that three calls of a
# spike do not become usual.
SPIKE, FADE, GROWTH = 4.0, 0.95, 1.5
ADVICE = (
    "give the scheme wider fields or cells, a larger coarseness, or error feedback "
    "(docs/reference/schemes.md)"
)


@dataclass(frozen=True)
class Message:
    """One buffer per worker, which an AllReduce combines element by element. All workers have equal shapes.

    Attributes:
        channel: A name that is unique in the iteration. Links keep their learned state under this name.
        data: 1-D. Its dtype follows `op`:
            "sum" of integers: int32, sent in fields of `bits` (docs/reference/schemes.md, "Fields").
            "sum" and "max" of floats: float32, with `bits` of 32.
            "or": bool, with `bits` of 1.
            "gather", "agree", "exchange": uint8. Nothing is combined. Each worker receives a list of buffers
            by source, and lengths may differ.
        op: "gather" hands every worker's buffer to all. "agree" is a gather of the few bytes that workers
            need before they quantise. Its bytes are counted apart from frames. "exchange" hands each worker
            its own part.
        bits: Width of the fields.
        ride: A few small integers, int32, appended to an integer sum to save a message. Their fields have
            RIDE_BITS, whatever `bits` is.
        coded: The sum travels as coded frames by a schedule, as `Scheme.channels` says.
        context: Position class 0 .. 15 of every value, uint8, equal on all workers. For coded sums.
        plan: How values are dealt to chunks, equal on all workers. None: the configured plan, without costs.
        planned: `data` and `context` already lie in the order of `plan`, and so do the sums, which may take
            the place of `data` and which the next call overwrites. Otherwise sums come back in the natural
            order.
        meanwhile: Work that a rank may do while the frames of a coded, planned message are due.
        notice: Bits that travel in the frames of a coded message beside the sums
            (docs/reference/protocol.md). The answer is then a pair: the sums, and the OR of all workers'
            bits. None: the answer is the sums.
        aside: The bytes of a plain sum count with those of "agree", and not as frames.
        parts: For "exchange", the length of the buffer for every worker. `data` is their concatenation.
    """

    channel: str
    data: Array = field(repr=False)
    op: Op = "sum"
    bits: int = 32
    ride: Array | None = field(default=None, repr=False)
    coded: bool = False
    context: Array | None = field(default=None, repr=False)
    plan: ChunkPlan | None = field(default=None, repr=False)
    planned: bool = False
    meanwhile: Meanwhile | None = field(default=None, repr=False)
    notice: int | None = None
    aside: bool = False
    parts: tuple[int, ...] = ()

    def part(self, worker: int) -> Array:
        """Return the part of an exchange that goes to `worker`."""
        first = sum(self.parts[:worker])
        return self.data[first : first + self.parts[worker]]


@dataclass(frozen=True)
class Channel:
    """The codec and the schedule of all coded messages with one channel name.

    Attributes:
        codec: Codec of the frames.
        schedule: Who sends which chunk to whom.
        width: A function from a number of workers to the bits of a raw sum of their values.
        plan: The chunk plan of messages that bring no plan.
        granule: Values in a block of that plan.
    """

    codec: Codec
    schedule: Schedule
    width: Callable[[int], int]
    plan: str = "equal"
    granule: int = 256


class Worker(Member):
    """The state of one rank under a scheme.

    Attributes:
        usual: Root mean square of this rank's usual gradient. None before the first gradient.
        integers: int32, flat. The integers that a lossless scheme quantised in this iteration, for
            `Scheme.is_exact`.
        carried: The part of the residual that this iteration adds to the gradient.
    """

    STATE: ClassVar[dict[str, Reader]] = Member.STATE | {
        "usual": optional(lambda _, saved: saved.number(0.0, math.inf))
    }
    integers: Array | None = None

    def __init__(self, rank: int, values: int | None = None) -> None:
        super().__init__(rank, values)
        self.usual: float | None = None
        self._next_usual: float | None = None
        self._spike = False
        self._idle: list[slice] = []  # the tensors that wait, because their gradient is zero
        self.carried: Array | None = None

    def receive(self, values: Array, offsets: Array, *, patient: bool) -> None:
        """Decide which part of the residual to add to `values`, the gradient, and whether that is a spike.

        patient: whether values may wait for many iterations, see `Scheme.patient`.
        """
        energy = energies(values, offsets)
        self.dropped, self._idle, self.carried = Saturation(), [], self.residual
        if self.residual is not None:
            waiting = energies(self.residual, offsets)
            idle = (energy == 0) & (waiting > 0)
            excess = (waiting > MOST_OWED**2 * energy) & (waiting > MATTERS * energy.sum())
            excess &= ~idle & (not patient)
            if idle.any() or excess.any():
                assert self.residual is not None
                self.carried = self.residual.copy()
                for t in np.flatnonzero(idle | excess):
                    here = slice(int(offsets[t]), int(offsets[t + 1]))
                    self.carried[here] = 0
                    if idle[t]:
                        self._idle.append(here)
                lost = float(waiting[excess].sum())
                self._report(lost, lost + float(energy.sum()), int(excess.argmax()) if lost else -1)
        # A spike must not become usual, so it moves the usual size by GROWTH only.
        size = math.sqrt(float(energy.sum()) / max(1, values.size))
        usual, self._energy = self.usual or 0.0, size * size
        self._spike = usual > 0 and size > SPIKE * usual
        self._next_usual = self.usual
        if size:
            self._next_usual = GROWTH * usual if self._spike else max(size, FADE * usual)

    def _report(self, lost: float, whole: float, tensor: int = -1) -> None:
        if lost:
            share = min(1.0, lost / whole) if whole else 1.0
            self.dropped += Saturation(0, share, tensor, share)

    def bound(self) -> None:
        """Bound the pending residual: a spike leaves nothing new, and that of an idle tensor stays."""
        if self.pending is None:
            return
        # Another rank's spike may leave its traces here, through a scale that is shared.
        usual = self.usual or 0.0
        self._spike |= usual > 0 and growth(self.pending, self.carried) > SPIKE * usual
        if self._spike:
            self._shrink(self.pending, self.carried)
        for here in self._idle:
            assert self.residual is not None
            self.pending[here] += self.residual[here]

    def _shrink(self, pending: Array, before: Array | None) -> None:
        """Bring each value that a spike left to between 0 and the value that waited before."""
        self._report(shrink(pending, before), self._energy * pending.size)

    def commit(self) -> None:
        """Make the pending values the new residual, clipped to +-MOST_WAITING."""
        if self.pending is not None:
            hold_within(self.pending, MOST_WAITING)
        super().commit()
        self.carried, self.usual = self.residual, self._next_usual

    def corrected(self, values: Array) -> Array:
        """Return `values` plus the part of the residual that is due. Never writes to `values`."""
        return values if self.carried is None else values + self.carried

    def forget(self) -> None:
        """See Member.forget. The usual size of the gradient stays."""
        super().forget()
        self.carried = None

    def _follow(self) -> None:
        super()._follow()
        self.carried, self._next_usual = self.residual, self.usual


Messages = Generator[Message, Any, None]  # each yield returns the result of Wire.combine for this worker


@dataclass(frozen=True)
class NoOptions:
    """Options of a scheme that has none."""


class Scheme(Stateful, ABC):
    """The rules of one scheme and its replicated state: equal on all nodes, one copy per process.

    In every iteration, each worker's `messages` runs to its end; then `finish` runs once. State changes in
    `finish`, in `Worker.commit`, and when an "agree" has been received. If the iteration fails, the reducer
    restores the old state. The result of `finish` depends only on the combined buffers and on the replicated
    state, so all nodes end bit-identical.

    Args:
        options: An instance of the class's `Options`.
        shapes: The shape of each tensor, in the order of the flat gradient.
        nodes: Number of workers.
        seed: Seed of all random draws.
    """

    name: ClassVar[str]
    STATE: ClassVar[dict[str, Reader]] = {"iteration": natural}  # subclasses add theirs
    Options: ClassVar[type[Any]] = NoOptions  # a frozen dataclass with a default for every option
    clips: ClassVar[bool] = False  # True: clipping is part of the method, so saturation raises no warning
    advice: ClassVar[str] = ADVICE  # the remedy that a saturation warning names
    patient: bool = False  # True: values may wait in a residual for many iterations
    lossless: ClassVar[bool] = False  # True: integer sums equal those of a plain AllReduce after quantisation

    def __init__(self, options: Any, *, shapes: Sequence[tuple[int, ...]], nodes: int, seed: int) -> None:
        self.options = options
        self.shapes = [tuple(shape) for shape in shapes]
        self.sizes = sizes_of(self.shapes)
        self.offsets = offsets_of(self.sizes)
        self.values = int(self.offsets[-1])
        self.nodes, self.seed = nodes, seed
        self.iteration = 0
        self._memory: dict[str, Any] = {}
        self._setup()

    def _setup(self) -> None:
        """Make the state of this scheme. Sizes, nodes and options are set before. Raises ValueError."""

    def make_worker(self, rank: int) -> Any:
        """Return the Member of `rank`."""
        return Worker(rank, self.values)

    def start(self, worker: Any, tensors: Sequence[Array]) -> Messages:
        """Run the generator `messages` for flat `tensors`, and bound what the worker carries over."""
        values = join(tensors)
        worker.receive(values, self.offsets, patient=self.patient)
        yield from self.messages(worker, values)
        worker.bound()

    @abstractmethod
    def messages(self, worker: Any, values: Array) -> Messages:
        """Yield this worker's messages one by one. Each yield returns the combined message.

        values: float32, flat, finite; never written to. All workers yield the same channels in the same
        order. The combined messages may decide which channels follow. Sets `worker.pending` and
        `worker.saturation`.
        """

    @abstractmethod
    def finish(self, totals: Sequence[Any]) -> Array:
        """Return the mean gradient, float32, flat, from the combined messages, and advance the state.

        totals: the combined messages that all workers received alike, in order. Exchanges are left out.
        """

    @property
    def finds_bad(self) -> bool:
        """True if `start` raises GradientError itself on NaN and Inf, so that nobody need look before."""
        return False

    @property
    def bounded(self) -> bool:
        """True if the mean, and all floats of the state, are finite for all finite gradients."""
        return False

    def caution(self) -> str | None:
        """Return a warning about training with these options, or None. It is shown as a CautionWarning."""
        return None

    def once(self, key: str, compute: Callable[[], T]) -> T:
        """Return `compute()`. It runs once per iteration; all workers of a process share the result."""
        if key not in self._memory:
            self._memory[key] = compute()
        result: T = self._memory[key]
        return result

    def again(self) -> None:
        """Drop the results of `once` before the iteration's messages are sent again, once for all workers."""
        if "again" not in self._memory:
            self._memory.clear()
            self._memory["again"] = True

    def forget(self) -> None:
        """Drop the results of `once`, because the iteration is over or has failed."""
        self._memory.clear()

    def coded_channels(self) -> dict[str, int]:
        """Return, for each channel with coded messages, the bits of one worker's integers."""
        return {}

    def channels(self, default: Channel) -> dict[str, Channel]:
        """Return the Channel of each channel with coded messages. `default` is ASC as configured."""
        return {
            name: replace(default, width=partial(sum_width, bits))
            for name, bits in self.coded_channels().items()
        }

    def digests(self) -> dict[str, int]:
        """Return a 32-bit digest of each part of the replicated state. All nodes must have equal digests."""
        return {part: crc(value) for part, value in self.snapshot().items()}  # the snapshot copies no array

    def is_exact(self, workers: Sequence[Any]) -> bool:
        """Return True if the last iteration's sums equal the summed integers of all `workers`."""
        sums, integers = self.reference_sums(), [worker.integers for worker in workers]
        if not self.lossless or sums is None or any(part is None for part in integers):
            return False
        return bool(np.array_equal(np.sum(integers, axis=0, dtype=np.int64), sums))

    def reference_sums(self) -> Array | None:
        """Return the last iteration's integer sums of a lossless scheme, or None for other schemes."""
        return None


def join(tensors: Sequence[Array]) -> Array:
    """Return flat tensors as one float32 array."""
    return np.concatenate(list(tensors)) if tensors else np.zeros(0, np.float32)


def handed(channel: str, parts: Sequence[Array]) -> Message:
    """Return the message that hands parts[rank], uint8, to each rank."""
    return Message(
        channel, np.concatenate(parts), "exchange", bits=8, parts=tuple(part.size for part in parts)
    )


def check_bytes(data: Array, size: int, source: int) -> None:
    """Raise FrameError unless `source` sent `size` bytes."""
    if data.size != size:
        raise FrameError(
            f"rank {source} sent {data.size} bytes, expected {size}: all ranks must reduce the same tensors "
            "with the same options"
        )
