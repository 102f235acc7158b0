"""The scheme seam: what workers hand to plain AllReduces, and what every node makes of the results.

A codec (oscar.coding) changes how integers look on one link. A scheme changes *what* is reduced: it turns a
gradient into a few buffers that AllReduce combines (sum, or, max) without knowing what they mean, and turns
the combined buffers into a mean gradient. The coded ring is a scheme too: `exact`. The same scheme runs over
any wire. docs/schemes.md has the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from oscar.array import Array, offsets_of, sizes_of
from oscar.coding.codec import Codec
from oscar.collective.schedule import Schedule
from oscar.numerics.member import Member
from oscar.numerics.plans import ChunkPlan
from oscar.numerics.quantiser import sum_width
from oscar.numerics.quantiser_kernels import hold_within
from oscar.state import Reader, Stateful, crc, natural

Op = Literal["sum", "or", "max", "gather", "agree", "exchange"]
Answer = Array | list[Array]
T = TypeVar("T")

RIDE_BITS = 16
# Of what waits in a residual, in magnitude. 2^32 of them add up within float32, over ranks, rows and factors:
# what a call with huge values left over cannot make the mean of ordinary ones overflow.
MOST_WAITING = np.float32(2.0**96)
ADVICE = "give the scheme wider fields or cells, a larger coarseness, or error feedback (docs/schemes.md)"


@dataclass(frozen=True)
class Message:
    """One buffer per worker, which an AllReduce combines element by element; equal shapes on all workers.

    channel: a name that is unique in the iteration; what a link learns is kept under it. data: 1-D; int32 for
    "sum" of integers in fields of `bits` (docs/schemes.md, "Fields"), float32 for "sum" and "max" of floats
    (`bits` is 32), bool for "or" (`bits` is 1), uint8 for the ops that combine nothing and hand over a list
    of buffers by source, each of its own length. "gather" hands every worker's buffer to all. "agree" is a
    gather of the few bytes that workers need before they can quantise; it is counted apart from frames.
    "exchange" hands each worker what is for it: `parts` are the lengths of a buffer for every worker, one
    behind the other in `data`. ride: int32, appended to a sum of integers in fields of RIDE_BITS, whatever
    `bits` is: a few small integers that are not worth a message of their own. coded: a sum goes as coded
    frames by a schedule, as `Scheme.channels` says; `context` is then the position class 0 .. 15 of every
    value, uint8, and `plan` how values are dealt to chunks (None: the configured plan, without costs), both
    the same on all workers. planned: data already lies in the order of `plan`; sums come back in the natural
    order.
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
    parts: tuple[int, ...] = ()

    def part(self, worker: int) -> Array:
        """Return what an exchange has for `worker`."""
        first = sum(self.parts[:worker])
        return self.data[first : first + self.parts[worker]]


@dataclass(frozen=True)
class Channel:
    """How the coded messages of one name travel, by which schedule.

    width(workers): bits of a raw sum of so many workers' values. plan, granule: for messages without a plan.
    """

    codec: Codec
    schedule: Schedule
    width: Callable[[int], int]
    plan: str = "equal"
    granule: int = 256


class Worker(Member):
    """What one rank alone has under a scheme.

    `integers`: int32, flat, what a lossless scheme has quantised this iteration, so that its sums can be
    checked.
    """

    integers: Array | None = None

    def commit(self) -> None:
        """Keep what the iteration left over, within MOST_WAITING."""
        if self.pending is not None:
            hold_within(self.pending, MOST_WAITING)
        super().commit()

    def corrected(self, values: Array) -> Array:
        """Return `values` plus the residual, where there is one; never writes to `values`."""
        return values if self.residual is None else values + self.residual


Messages = Generator[Message, Any, None]  # each is answered by what Wire.combine returns for this worker


class Scheme(Stateful, ABC):
    """The rules of one scheme, and its replicated state: equal on all nodes, held once per process.

    sizes: values of each tensor, in the order of the flat gradient. Every iteration, each worker's
    `messages` runs to its end, then `finish` once. State moves in `finish` and `Worker.commit`, and where an
    "agree" has been received; the reducer takes it back where an iteration fails. Whatever `finish` returns
    depends on nothing but the combined buffers and the replicated state: all nodes end bit-identical.
    """

    name: ClassVar[str]
    STATE: ClassVar[dict[str, Reader]] = {"iteration": natural}  # subclasses add theirs
    Options: ClassVar[type[Any]]  # a frozen dataclass with a default for every option
    clips: ClassVar[bool] = False  # clipping is a part of the method: no warning is due
    advice: ClassVar[str] = ADVICE  # what to set against saturation
    lossless: ClassVar[bool] = False  # after quantisation: the integers summed are those of a plain AllReduce

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
        """Make what this scheme needs; sizes, nodes and options are known. Raises ValueError."""

    def make_worker(self, rank: int) -> Any:
        """Return the Member of `rank`."""
        return Worker(rank, self.values)

    def start(self, worker: Any, tensors: Sequence[Array]) -> Messages:
        """Return `messages` of flat `tensors`."""
        return self.messages(worker, join(tensors))

    @abstractmethod
    def messages(self, worker: Any, values: Array) -> Messages:
        """Yield what this worker contributes, one message after the other; receive each one combined.

        values: float32, flat, finite; never written to. All workers yield the same channels in the same
        order; what they received may decide which. Sets `worker.pending` and `worker.saturation`.
        """

    @abstractmethod
    def finish(self, totals: Sequence[Any]) -> Array:
        """Return the mean gradient, float32, flat, from the combined messages; move the state on.

        totals: what all workers were handed alike; exchanges are left out.
        """

    def caution(self) -> str | None:
        """Return what to know before training with these options, or None: a CautionWarning."""
        return None

    def once(self, key: str, compute: Callable[[], T]) -> T:
        """Return `compute()`, computed once per iteration: all workers of a process share the result."""
        if key not in self._memory:
            self._memory[key] = compute()
        found: T = self._memory[key]
        return found

    def forget(self) -> None:
        """Drop what `once` keeps: the iteration is over, or has failed."""
        self._memory.clear()

    def coded_channels(self) -> dict[str, int]:
        """Return the bits of a worker's integers by channel, for channels that may be coded."""
        return {}

    def channels(self, default: Channel) -> dict[str, Channel]:
        """Return how coded messages travel, by channel; `default`: ASC as it is configured."""
        return {
            name: replace(default, width=partial(sum_width, bits))
            for name, bits in self.coded_channels().items()
        }

    def digests(self) -> dict[str, int]:
        """Return 32 bits of each part of the replicated state, which must be equal on all nodes."""
        return {part: crc(held) for part, held in self.snapshot().items()}  # nothing is copied

    def is_exact(self, workers: Sequence[Any]) -> bool:
        """Whether the last iteration's sums are those of the integers that `workers`, all of them, had."""
        sums, own = self.reference_sums(), [worker.integers for worker in workers]
        if not self.lossless or sums is None or any(integers is None for integers in own):
            return False
        return bool(np.array_equal(np.sum(own, axis=0, dtype=np.int64), sums))

    def reference_sums(self) -> Array | None:
        """Return the last iteration's sums as integers, for schemes that are lossless; else None."""
        return None


def join(tensors: Sequence[Array]) -> Array:
    """Return flat tensors as one float32 array."""
    return np.concatenate(list(tensors)) if tensors else np.zeros(0, np.float32)
