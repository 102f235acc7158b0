"""The passes over the sums of a call, from which the mean, the next steps and the position state follow."""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from oscar.array import Array
from oscar.cores import share, threads_for
from oscar.numerics.integers import sum_of_squares
from oscar.numerics.plans import ChunkPlan, in_order
from oscar.numerics.position import PositionState
from oscar.numerics.sum_kernels import PIECE, settle_range

if TYPE_CHECKING:
    from oscar.numerics.steps import StepTracker

NO_SUMS = np.empty(0, np.int16)
NO_MEANS = np.empty(0, np.uint16), np.empty(0, np.uint16), np.empty(0, np.uint8)  # of no position state


class Passes:
    """The passes of `sum_kernels.settle_range` over the sums of one call, in the natural order.

    They may run over values whose sums are final while others are due.

    Args:
        tracker: The steps of the tensors.
        came: The sums, in the order of `plan`.
        plan: None is the natural order.
        position: The position state that follows from the sums, or None.
    """

    def __init__(
        self, tracker: StepTracker, came: Array, plan: ChunkPlan | None, position: PositionState | None
    ) -> None:
        self._tracker, self._came, self._position = tracker, came, position
        self._places = (plan or in_order(came.size)).places
        self.sums, self.mean = tracker.room_for(came)
        before = tracker.previous
        self._before = NO_SUMS if before is None or before.dtype != np.int16 else before
        self._squares = np.zeros((len(tracker.sizes), 2), np.int64)
        self._done = 0
        self._follow_steps()

    def _follow_steps(self) -> None:
        self._rules = self._tracker.rules(self.sums)
        self._moving = NO_MEANS if self._position is None else self._position.begin()

    def through(self, end: int) -> None:
        """Make the passes over all values before `end` for which they were not made yet."""
        if end > self._done:
            self._over(self._done, end)
            self._done = end

    def renew(self, tensors: Collection[int]) -> None:
        """Make the passes anew over `tensors`, whose sums and steps are others now."""
        self._follow_steps()
        for t in tensors:
            first, end = self._tracker.offsets[t : t + 2].tolist()
            self._squares[t] = 0
            self._over(first, min(end, self._done))

    def _over(self, first: int, end: int) -> None:
        edges, nodes = self._tracker.offsets, float(self._tracker.nodes)
        given = edges, nodes, self._rules, self.sums, self.mean, self._before, *self._moving

        def part(_: int, low: int, high: int) -> Array:
            """Make the passes over the values from `low` to `high` after the first; return their squares."""
            squares = np.zeros_like(self._squares)
            settle_range(self._came, *self._places, first + low, first + high, *given, squares)
            return squares

        if first < end:
            self._squares += sum(share(part, end - first, threads_for(end - first), PIECE))

    def squares(self) -> list[tuple[int, int | None] | None]:
        """Return the sums of squares as `_observe_tensor` takes them, by tensor."""
        energies, changes = self._squares.T.tolist()
        known, lefts = self._rules.known.tolist(), self._rules.shifts[:, 0].tolist()
        return [
            (energy, change >> 2 * left) if fits else None
            for energy, change, left, fits in zip(energies, changes, lefts, known, strict=True)
        ]

    def energies(self) -> list[int]:
        """Return the sum of squares of each tensor's sums, after `through` has come to the end."""
        offsets, known = self._tracker.offsets.tolist(), self._rules.known
        energies = self._squares[:, 0].tolist()
        return [
            energy if fits else sum_of_squares(self.sums[first:end])
            for energy, fits, (first, end) in zip(energies, known.tolist(), pairwise(offsets), strict=True)
        ]
