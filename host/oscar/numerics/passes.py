"""The passes over the sums of a call, from which the mean, the next steps and the position state follow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from oscar.array import Array
from oscar.cores import share, threads_for
from oscar.numerics.integers import sum_of_squares
from oscar.numerics.plans import ChunkPlan, in_order
from oscar.numerics.position import PositionState
from oscar.numerics.sum_kernels import PIECE, rescale, settle_range

if TYPE_CHECKING:
    from oscar.numerics.steps import StepTracker

NO_SUMS = np.empty(0, np.int16)
NO_MEANS = np.empty(0, np.uint16), np.empty(0, np.uint16), np.empty(0, np.uint8)  # of no position state


class Passes:
    """The passes of `sum_kernels.settle_range` over the sums of one call, in the natural order.

    They may run over values whose sums are final while others are due.

    Args:
        tracker: The steps of the tensors.
        reduced: The sums, in the order of `plan`.
        plan: None is the natural order.
        position: The position state that follows from the sums, or None.
    """

    def __init__(
        self, tracker: StepTracker, reduced: Array, plan: ChunkPlan | None, position: PositionState | None
    ) -> None:
        self._tracker, self._reduced, self._position = tracker, reduced, position
        self._places = (plan or in_order(reduced.size)).places
        self.sums, self.mean = tracker.room_for(reduced)
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

    def renew(self, changed: Mapping[int, int]) -> None:
        """Make the passes anew over tensors whose sums and steps are others now, after `through` all values.

        The call may still fail, so the position's means stay as they are. Rescaled copies of the changed
        tensors' means lie where the next ones go: a copy of all would take as long as quantising.

        Args:
            changed: By how much exponents rose, by tensor.
        """
        self._follow_steps()
        before, after, classes = self._moving
        for t, rise in changed.items():
            first, end = self._tracker.offsets[t : t + 2].tolist()
            self._squares[t] = 0
            after[first:end] = before[first:end]
            rescale(after[first:end], np.array([0, end - first]), np.array([rise]), classes[first:end])
            self._over(first, end, (after, after, classes))

    def _over(self, first: int, end: int, moving: tuple[Array, Array, Array] | None = None) -> None:
        edges, nodes = self._tracker.offsets, float(self._tracker.nodes)
        given = edges, nodes, self._rules, self.sums, self.mean, self._before, *(moving or self._moving)

        def part(_: int, low: int, high: int) -> Array:
            """Make the passes over the values from `low` to `high` after the first; return their squares."""
            squares = np.zeros_like(self._squares)
            settle_range(self._reduced, *self._places, first + low, first + high, *given, squares)
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
