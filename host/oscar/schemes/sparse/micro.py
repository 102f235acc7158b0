"""MiCRO and ExDyna: every worker chooses from its own range, with one threshold. Ranges rotate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.schemes.sparse.ranges import LearntRanges, MovedRanges, Ranges
from oscar.schemes.sparse.shared_threshold import SharedThreshold, released
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker, check_one
from oscar.schemes.sparse.thresholds import above
from oscar.state import PART, Reader

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
