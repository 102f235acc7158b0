"""Thresholds that hold for many iterations: for the whole training, or renewed every L iterations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from oscar.array import Array
from oscar.schemes.sparse.micro import SharedThreshold, first_threshold, read_threshold
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker
from oscar.schemes.sparse.thresholds import above, reached_by
from oscar.state import Reader, optional


class HardThreshold(SharedThreshold):
    """Use one threshold for all workers and the whole training.

    controller: "released" sets it to 1 / (2 sqrt k). "corrected" sets it so that N k values of all workers
    reach it, in the first iteration with a non-zero value.
    """

    name: ClassVar[str] = "hard-threshold"
    Options = SparseOptions

    @property
    def due(self) -> bool:
        """Whether this iteration finds a new shared threshold."""
        return not self.threshold

    @property
    def _held(self) -> int:
        """Values to choose after the warm-up. A threshold that stays ignores the warm-up's density."""
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
    """Options of the scheme `dct-threshold`: SparseOptions and the time between thresholds.

    every: iterations for which a threshold holds (L). Lower it if gradients change quickly; raise it to save
        time in choosing.
    """

    every: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.every < 1:
            raise ValueError(f"expected every >= 1, got {self.every}")


class DctWorker(SparseWorker):
    """A worker with its own threshold."""

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
    """Dynamic communication thresholding: a threshold that k values reach, renewed every L iterations.

    controller: "released" gives each worker its own threshold. "corrected" gives all workers one threshold,
    which N k values of all workers reach.
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

    def observe(self, counts: Array, united: Array) -> None:
        """See Sparsifier.observe. A threshold that no value reached, as after a spike, holds no longer."""
        if not counts.any():
            self.threshold = None

    def _current(self, worker: Any, acc: Array) -> Any:
        if self.options.controller == "corrected":
            yield from super()._current(worker, acc)
            return self.current
        held = worker.threshold
        if not held or self.iteration % self.options.every == 0:
            held = reached_by(acc, self._held)
        worker.next_threshold = held
        return held
