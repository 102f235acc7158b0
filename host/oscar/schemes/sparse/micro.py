"""MiCRO and ExDyna: every worker chooses from its own range, with one threshold for all workers.

Ranges rotate, so that no position is chosen twice: they are equal, moved or learnt. They are replicated
state: they follow from the workers' counts and the union, which all nodes know. The threshold comes from
gathered exact quantiles, or from the published rule.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError
from oscar.numerics.plans import Cuts, splitter
from oscar.schemes.base import Message
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker, Sparsifier, check_one
from oscar.schemes.sparse.thresholds import above, level, reached_by_each, rungs, wrong
from oscar.state import PART, Reader, Saved, Stateful, optional

LARGEST = float(np.finfo(np.float32).max)


def first_threshold(count: int) -> float:
    """Return the first threshold of the published rules: 1 / (2 sqrt count)."""
    return 1 / (2 * math.sqrt(count)) if count else 0.0


def released(threshold: float, chosen: int, count: int) -> float:
    """Return the next threshold by the published rule, including its flaw.

    If `chosen` is within a tenth of `count`, the threshold only rises. The authors' code also has a fine step
    down, but its condition is never true.
    """
    exam = chosen / max(1, count)
    factor = 1.005 if exam > 1.1 else 0.995 if exam <= 1 / 1.1 else 1.00125
    return min(threshold * factor, LARGEST)


def ladders_of(streams: Sequence[Array], count: int) -> Array:
    """Return the magnitudes that ranks sent, float32 [rank, count]. GradientError names an invalid rank."""
    bad = next((rank for rank, stream in enumerate(streams) if stream.size != 4 * count), None)
    if bad is None:
        result: Array = np.concatenate(streams).view("<f4").reshape(-1, count).astype(np.float32, copy=False)
        bad = wrong(result)
        if bad is None:
            return result
    raise GradientError(
        f"rank {bad}: expected {count} falling magnitudes, got {streams[bad].size} bytes with other content: "
        "all ranks must run the same version and configuration"
    )


def read_threshold(scheme: Any, saved: Saved) -> float:
    """Return a threshold of a saved state."""
    return saved.number(0.0, LARGEST)


class SharedThreshold(Sparsifier):
    """A sparsifier with a threshold that is equal on all nodes; None before the first one.

    With `controller: corrected`, the wanted number of values reaches it in each iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {"threshold": optional(read_threshold)}

    def _setup(self) -> None:
        super()._setup()
        self.threshold: float | None = None

    def agree(
        self, worker: SparseWorker, acc: Array, count: int, low: int, high: int
    ) -> Generator[Message, Any, None]:
        """Set a threshold that about `count` values of all workers reach, each in its own low .. high.

        Every worker sends its exact magnitudes at a few ranks. With a count of 0, nothing changes.
        """
        if not count:
            return
        ranks = rungs(count, self.nodes)
        data = reached_by_each(acc, ranks, low, high).astype("<f4", copy=False).view(np.uint8)
        streams = yield Message("thresholds", data, "agree", bits=8)
        find = lambda: level(ladders_of(streams, ranks.size), ranks, count)  # noqa: E731
        self.threshold = self.once("threshold", find)

    @property
    def current(self) -> float:
        """The threshold of this iteration. It begins as in the published rules."""
        return first_threshold(self.count) if self.threshold is None else self.threshold


BLOCKS = 1024  # ExDyna's number of blocks
GRANULE = 128  # values of a block of LearntRanges
ALIGNED = 32  # ExDyna's blocks have a multiple of so many values, if they have as many
UNIT = 16  # fraction bits of a running count
WEIGHT = 2  # the weight of a new count is 2^-WEIGHT
LEAST, MOST = 1 << (UNIT - 2), 1 << (UNIT + 2)  # limits of an activity: 1/4 and 4
IDLE = 1311  # 0.02 hits with UNIT fraction bits: the cost of a block without a chosen position


class Ranges(Stateful):
    """Equal ranges. Rank r owns range (t + r) mod N in iteration t."""

    def __init__(self, values: int, nodes: int) -> None:
        self.values, self.nodes = values, nodes

    def bounds(self, iteration: int) -> Array:
        """Return the first position of each range and the end of the last one, int64 [nodes + 1]."""
        return np.arange(self.nodes + 1) * self.values // self.nodes

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """Advance the state, given each rank's number of chosen positions and the union of positions."""


def _read_edges(ranges: Any, saved: Saved) -> Array:
    edges = saved.array(np.int64, (ranges.nodes + 1,), 0, ranges.blocks)
    if edges[0] != 0 or edges[-1] != ranges.blocks or (np.diff(edges) < 0).any():
        raise saved.refuse(f"edges that rise from 0 to {ranges.blocks}", "others")
    return edges


class MovedRanges(Ranges):
    """ExDyna's ranges: runs of equal blocks. Neighbours of unequal counts hand over a block per iteration.

    edges: int64 [nodes + 1], in blocks. The last block has the remainder.
    """

    STATE: ClassVar[dict[str, Reader]] = {"edges": _read_edges}

    def __init__(self, values: int, nodes: int, blocks: int = 0) -> None:
        super().__init__(values, nodes)
        if blocks > values:
            raise ValueError(
                f"expected at most as many blocks as there are values, {values}, got {blocks}; leave "
                "blocks at 0 to have as many as fit"
            )
        self.blocks = blocks or min(BLOCKS, values)
        each = values // max(1, self.blocks)
        self.block = each // ALIGNED * ALIGNED or each
        self.edges = np.arange(nodes + 1) * self.blocks // nodes

    def bounds(self, iteration: int) -> Array:
        """See Ranges."""
        bounds = self.edges * self.block
        bounds[self.edges == self.blocks] = self.values
        return bounds

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """See Ranges."""
        by_range = np.roll(counts, iteration % self.nodes)
        self.edges = move_one(self.edges, by_range, self.block, self.values)


def move_one(edges: Array, counts: Array, block: int, values: int) -> Array:
    """Return the edges after ExDyna's rule, which visits neighbours in order. counts: by range."""
    edges, running = edges.copy(), counts.astype(np.float64)
    nodes, total = len(counts), int(counts.sum())
    mean, moved = total / nodes, block * total / max(1, values)
    least = max(1, int(edges[-1]) // (4 * nodes))
    for i in range(nodes - 1):
        j = i + 1
        if running[i] > 1.05 * mean and running[j] < mean / 1.05 and edges[j] - edges[i] > least:
            edges[j] -= 1
            running[i], running[j] = running[i] - moved, running[j] + moved
        elif running[j] > 1.05 * mean and running[i] < mean / 1.05 and edges[j + 1] - edges[j] > least:
            edges[j] += 1
            running[i], running[j] = running[i] + moved, running[j] - moved
    return edges


class LearntRanges(Ranges):
    """Ranges of equal expected counts, cut between blocks by the chunk plan's splitter.

    hits: int64 by block, running counts of chosen positions, in 2^-16. activity: int64 by rank, running count
    of its choices / mean over ranks, in 2^-16. Some ranks have larger gradients for a while.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hits": lambda ranges, saved: saved.array(np.int64, ranges.hits.shape, 0, ranges.granule << UNIT),
        "activity": lambda ranges, saved: saved.array(np.int64, (ranges.nodes,), LEAST, MOST),
    }

    def __init__(self, values: int, nodes: int) -> None:
        super().__init__(values, nodes)
        self.granule = max(1, min(GRANULE, values // (BLOCKS // GRANULE * nodes)))
        self.hits = np.full(-(-values // self.granule), IDLE, np.int64)
        self.activity = np.full(nodes, 1 << UNIT, np.int64)

    def bounds(self, iteration: int) -> Array:
        """See Ranges. A rank that chooses many values gets a range with few hits."""
        weights = np.roll((1 << 2 * UNIT) // self.activity, iteration % self.nodes)
        edges = (0, *np.cumsum(weights).tolist())
        plan = splitter(self.values, Cuts(edges, edges[-1]), self.granule, self.hits)
        return np.array(plan.bounds, np.int64)

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """See Ranges."""
        seen = np.bincount(united // self.granule, minlength=self.hits.size) << UNIT
        self.hits = self.hits + ((np.maximum(seen, IDLE) - self.hits) >> WEIGHT)
        share = (self.nodes * counts << UNIT) // max(1, int(counts.sum()))
        moved = self.activity * share.clip(LEAST, MOST) >> UNIT
        self.activity = (self.activity + ((moved - self.activity) >> WEIGHT)).clip(LEAST, MOST)


Partition = Literal["range", "learnt"]
ExDynaPartition = Literal["released", "learnt"]


@dataclass(frozen=True)
class MicroOptions(SparseOptions):
    """Options of the scheme `micro`: SparseOptions and the ranges.

    partition: "range" cuts equal ranges. "learnt" cuts ranges of equal running hit counts; choose it where
        large values cluster in a few tensors.
    """

    partition: str = "range"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one("partition", self.partition, get_args(Partition))


class Micro(SharedThreshold):
    """In iteration t, rank r chooses the values of range (t + r) mod N that reach the threshold.

    So no position is chosen twice.
    """

    name: ClassVar[str] = "micro"
    Options: ClassVar[type[Any]] = MicroOptions
    STATE: ClassVar[dict[str, Reader]] = SharedThreshold.STATE | {"ranges": PART}

    def _setup(self) -> None:
        super()._setup()
        self.ranges = self._make_ranges()

    def _make_ranges(self) -> Ranges:
        kind = LearntRanges if self.options.partition == "learnt" else Ranges
        return kind(self.values, self.nodes)

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        own = (self.iteration + worker.rank) % self.nodes
        cut = lambda: self.ranges.bounds(self.iteration).tolist()  # noqa: E731
        low, high = self.once("bounds", cut)[own : own + 2]
        corrected = self.options.controller == "corrected"
        if corrected:
            yield from self.agree(worker, acc, self.count, low, high)
        positions = above(acc, self.current, low, high)
        if not (corrected or positions.size) and high > low:  # the published rule never sends an empty set
            positions = np.array([low + self.iteration % (high - low)], np.int64)
        return positions

    def observe(self, counts: Array, united: Array) -> None:
        """See Sparsifier.observe."""
        if self.options.controller == "released":
            self.threshold = released(self.current, int(counts.sum()), self.count)
        self.ranges.observe(self.iteration, counts, united)


@dataclass(frozen=True)
class ExDynaOptions(SparseOptions):
    """Options of the scheme `exdyna`: SparseOptions and the ranges.

    partition: "learnt" cuts ranges of equal running hit counts. "released" is the published rule: neighbours
        hand over one block at a time. Choose it for comparison only.
    blocks: number of blocks of "released". 0: 1,024, or the number of values if it is smaller.
    """

    partition: str = "learnt"
    blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one("partition", self.partition, get_args(ExDynaPartition))
        if self.blocks < 0:
            raise ValueError(f"expected blocks >= 0, got {self.blocks}")


class ExDyna(Micro):
    """MiCRO with ranges that follow the counts of chosen positions."""

    name: ClassVar[str] = "exdyna"
    Options = ExDynaOptions

    def _make_ranges(self) -> Ranges:
        if self.options.partition == "learnt":
            return LearntRanges(self.values, self.nodes)
        return MovedRanges(self.values, self.nodes, self.options.blocks)
