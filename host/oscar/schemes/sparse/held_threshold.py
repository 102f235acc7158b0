"""Thresholds that hold for many iterations: one for ever, or one that is taken anew every L iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from oscar.array import Array
from oscar.schemes.sparse.shared_threshold import SharedThreshold, first_threshold, read_threshold
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker
from oscar.schemes.sparse.thresholds import above, reached_by
from oscar.state import Reader, optional


class HardThreshold(SharedThreshold):
    """One threshold for ever, for all workers.

    "released": 1 / (2 sqrt k). "corrected": what N k of all workers' values reach in the first iteration in
    which not all is zero.
    """

    name: ClassVar[str] = "hard-threshold"
    Options = SparseOptions

    @property
    def due(self) -> bool:
        """Whether the shared threshold is taken anew in this iteration."""
        return not self.threshold

    @property
    def _held(self) -> int:
        """Values to be chosen behind the warm-up: a threshold that is held is not one of the warm-up."""
        return min(self.values, max(1, int(self.options.density * self.values))) if self.values else 0

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        threshold = yield from self._current(worker, acc)
        return above(acc, threshold)

    def _current(self, worker: Any, acc: Array) -> Any:
        if self.options.controller == "released":
            return first_threshold(max(1, self._held))
        if self.once("due", lambda: self.due):
            yield from self.agree(worker, acc, self.nodes * self._held, 0, self.values)
        return self.current


@dataclass(frozen=True)
class DctThresholdOptions(SparseOptions):
    """Options of dct-threshold. every: iterations for which a threshold holds (L)."""

    every: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"expected every >= 1, got {self.every}")


class DctWorker(SparseWorker):
    """A worker with a threshold of its own."""

    STATE: ClassVar[dict[str, Reader]] = SparseWorker.STATE | {"threshold": optional(read_threshold)}

    def __init__(self, rank: int, values: int) -> None:
        super().__init__(rank, values)
        self.threshold: float | None = None
        self.next_threshold: float | None = None

    def commit(self) -> None:
        """See Member.commit."""
        super().commit()
        self.threshold = self.next_threshold

    def _follow(self) -> None:
        super()._follow()
        self.next_threshold = self.threshold


class DctThreshold(HardThreshold):
    """Dynamic communication thresholding: the threshold of the k largest, taken every L iterations.

    "released": each worker's own. "corrected": one for all, which N k values reach.
    """

    name: ClassVar[str] = "dct-threshold"
    Options = DctThresholdOptions

    def make_worker(self, rank: int) -> DctWorker:
        """See Scheme.make_worker."""
        return DctWorker(rank, self.values)

    @property
    def due(self) -> bool:
        """See HardThreshold."""
        return not self.threshold or self.iteration % self.options.every == 0

    def _current(self, worker: Any, acc: Array) -> Any:
        if self.options.controller == "corrected":
            yield from super()._current(worker, acc)
            return self.current
        held = worker.threshold
        if not held or self.iteration % self.options.every == 0:
            held = reached_by(acc, self._held)
        worker.next_threshold = held
        return held
