"""Code the positions that workers send, and sum values at positions that all workers know.

Values travel as floats, as 8-bit integers, or coded by ASC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.coding.index import IndexCodec, Popular, Popularity, make_index
from oscar.coding.index.popular import MOST_COUNT
from oscar.errors import FrameError
from oscar.numerics.position import PositionState
from oscar.numerics.saturation import Saturation
from oscar.schemes.base import RIDE_BITS, Message
from oscar.schemes.fields import field_bits
from oscar.schemes.grid import Attempt, Grid, GridSteps, rises
from oscar.state import PART, Reader, Stateful, absent, optional


class GatheredIndex(Stateful):
    """The index codec of gathered positions, with its replicated state. All workers see all streams.

    counts: for `popular`, the counts learned from each worker's streams, int64 [nodes, 2, 16]. Only `observe`
    changes state, so a failed iteration leaves it as it was.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "popularity": absent("for a codec without classes"),
        "counts": optional(
            lambda index, saved: saved.array(np.int64, index.counts.shape, 0, MOST_COUNT),
            when=lambda index: index.counts is not None,
            without="without classes",
        ),
    }

    def __init__(self, name: str, size: int, nodes: int) -> None:
        self.name, self.size, self.nodes = name, size, nodes
        learns = name == Popular.name
        self.popularity = Popularity(size) if learns else None
        self.counts = np.stack([Popular().counts] * nodes) if learns else None
        self._moved: Array | None = None

    def _end(self, rank: int) -> IndexCodec:
        end = make_index(self.name)
        if isinstance(end, Popular) and self.counts is not None:
            end.counts = self.counts[rank]
        return end

    @property
    def _classes(self) -> Array | None:
        return None if self.popularity is None else self.popularity.classes

    def encode(self, rank: int, positions: Array) -> Array:
        """Return the stream of the sorted positions of `rank`. The state stays."""
        return self._end(rank).encode(positions, self.size, self._classes)

    def decode_one(self, rank: int, stream: Array) -> Array:
        """Return the positions of one worker's stream. The state stays. Raises FrameError."""
        return self._end(rank).decode(stream, self.size, self._classes)

    def decode(self, streams: Sequence[Array]) -> list[Array]:
        """Return all workers' positions, by rank. Raises FrameError."""
        ends = [self._end(rank) for rank in range(self.nodes)]
        pairs = zip(ends, streams, strict=True)
        result = []
        for rank, (end, stream) in enumerate(pairs):
            try:
                result.append(end.decode(stream, self.size, self._classes))
            except FrameError as error:
                raise FrameError(f"rank {rank} sent positions that cannot be read: {error}") from None
        counts = [end.counts for end in ends if isinstance(end, Popular)]
        self._moved = np.stack(counts) if counts else None
        return result

    def observe(self, union: Array) -> None:
        """Update the state by the last decoded streams and the sorted union of their positions."""
        if self.popularity is not None and self._moved is not None:
            self.counts, self._moved = self._moved, None
            self.popularity.observe(union)

    def _follow(self) -> None:
        self._moved = None


Form = Literal["fp32", "int8", "asc"]
FORMS: tuple[Form, ...] = get_args(Form)
CHANNEL = "values"
BITS = 8  # bits of one worker's integer
RIDE_CLASS = 15  # position class of the integers that ride along in a coded frame


@dataclass(frozen=True, eq=False)
class Summed:
    """The result of a sum. mean: float32 at the positions. sent: this worker's contribution, float32.

    lost: the loss by clipping. grid, sums, ride: of integer sums; None for floats.
    """

    mean: Array
    sent: Array
    lost: Saturation
    grid: Grid | None = None
    sums: Array | None = None
    ride: Array | None = None


class ValueSum(Stateful):
    """The replicated state behind the sums: a step for each tensor, and position classes.

    form: "fp32", "int8" or "asc".
    sizes: values of each tensor; one entry gives all values the same step.
    coarseness: step size / root mean square of the sent values.
    density: approximate share of the values that a worker sends.
    bits: bits of one worker's integer.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "steps": PART,
        "position": absent("for values that are not coded"),
    }

    def __init__(
        self,
        form: Form,
        sizes: Sequence[int],
        nodes: int,
        *,
        coarseness: float,
        density: float = 1.0,
        bits: int = BITS,
    ) -> None:
        self.form, self.values, self.nodes, self.bits = form, sum(sizes), nodes, bits
        self.limit = (1 << (bits - 1)) - 1
        # The grid averages over all values, sent or not, so its root mean square is sqrt(density) too small.
        ride_bits = field_bits(self.limit, nodes) if form == "asc" else RIDE_BITS
        self.steps = GridSteps(sizes, nodes, coarseness / math.sqrt(density), ride_bits)
        self.position = PositionState(self.values) if form == "asc" else None

    def messages(
        self, acc: Array, positions: Array, context: Callable[[], Array]
    ) -> Generator[Message, Any, Summed]:
        """Yield the sum message of `acc` at sorted `positions`. `context` returns `classes(positions)`."""
        if self.form == "fp32":
            own = acc[positions]
            total = yield Message(CHANNEL, own)
            return Summed(total / np.float32(self.nodes), own, Saturation())
        selected = np.zeros(self.values, np.float32)
        selected[positions] = acc[positions]
        summed: Summed

        def attempt(grid: Grid) -> Attempt:
            nonlocal summed
            integers, lost = grid.quantise(acc, self.limit, indices=positions)
            summed = yield from self.integers(
                grid, integers, grid.ride(selected, lost), lost, positions, context
            )
            assert summed.ride is not None
            return summed.ride

        yield from self.steps.settle(selected, self.limit, attempt)
        return summed

    def integers(
        self,
        grid: Grid,
        integers: Array,
        ride: Array,
        lost: Saturation,
        positions: Array,
        context: Callable[[], Array],
    ) -> Generator[Message, Any, Summed]:
        """Yield the sum message of `integers`, quantised by `grid` at `positions`, with `ride` appended."""
        if self.form == "int8":
            bits = field_bits(self.limit, self.nodes)
            total = yield Message(CHANNEL, integers, bits=bits, ride=ride)
        else:
            data = np.concatenate([integers, np.minimum(ride, self.limit)])
            total = yield Message(CHANNEL, data, bits=self.bits, coded=True, context=context())
        sums = total[: positions.size]
        mean = grid.dequantise(sums, self.nodes, indices=positions)
        sent = grid.dequantise(integers, 1, indices=positions)
        return Summed(mean, sent, lost, grid, sums, total[positions.size :])

    def classes(self, positions: Array) -> Array:
        """Return the position classes of a coded message: of values at `positions`, then of its riders."""
        assert self.position is not None
        riders = np.full(self.steps.riders, RIDE_CLASS, np.uint8)
        return np.concatenate([self.position.classes[positions], riders])

    def observe(self, summed: Summed, positions: Array) -> None:
        """Advance the state by the sums of an iteration."""
        if summed.grid is None or summed.sums is None or summed.ride is None:
            return
        self.steps.observe(summed.grid, summed.ride)
        if self.position is not None:
            sums = np.zeros(self.values, np.int32)
            sums[positions] = summed.sums
            self.position.rescale(self.steps.offsets, rises(self.steps.before, summed.grid.exponents))
            self.position.observe(sums)
            self.position.rescale(self.steps.offsets, rises(summed.grid.exponents, self.steps.exponents))
