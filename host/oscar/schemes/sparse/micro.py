"""MiCRO and ExDyna: every worker owns a range, another one in each iteration; one threshold holds for all."""

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
    """Options of micro. partition: "range", equal ranges, or "learnt", ranges of equal running hit counts."""

    partition: str = "range"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one("partition", self.partition, get_args(Partition))


class Micro(SharedThreshold):
    """Rank r chooses from range (t + r) mod N what reaches the threshold: no position is chosen twice."""

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
        if not (corrected or positions.size) and high > low:  # the published rule sends something
            positions = np.array([low + self.iteration % (high - low)], np.int64)
        return positions

    def observe(self, counts: Array, united: Array) -> None:
        """See Sparsifier.observe."""
        if self.options.controller == "released":
            self.threshold = released(self.current, int(counts.sum()), self.count)
        self.ranges.observe(self.iteration, counts, united)


@dataclass(frozen=True)
class ExDynaOptions(SparseOptions):
    """Options of exdyna.

    partition: "learnt", ranges of equal running hit counts, or "released", where neighbours hand over a block
    at a time. blocks: of "released"; 0: 1,024, or as many as there are values.
    """

    partition: str = "learnt"
    blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one("partition", self.partition, get_args(ExDynaPartition))
        if self.blocks < 0:
            raise ValueError(f"expected blocks >= 0, got {self.blocks}")


class ExDyna(Micro):
    """MiCRO whose ranges follow what has been chosen."""

    name: ClassVar[str] = "exdyna"
    Options = ExDynaOptions

    def _make_ranges(self) -> Ranges:
        if self.options.partition == "learnt":
            return LearntRanges(self.values, self.nodes)
        return MovedRanges(self.values, self.nodes, self.options.blocks)
