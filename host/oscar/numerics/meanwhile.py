"""Work of a call that is done while frames are due: passes over the sums that are final already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.numerics.plans import ChunkPlan

BITE = 1 << 18  # values of one turn: some .2 ms, for which a frame that comes must wait


@njit(cache=True, nogil=True)
def _reach(places: Any, granule: int, values: int, lows: Any, highs: Any, at: int) -> int:
    """Return up to where, in the natural order, all values from `at` on lie within plan-order ranges."""
    while at < values:
        block = at // granule
        place = places[block] + at - block * granule
        within = np.int64(0)
        for i in range(lows.size):
            if lows[i] <= place < highs[i]:
                within = highs[i] - place
        if within == 0:
            return at
        at += min(within, min(values, (block + 1) * granule) - at)
    return at


class Meanwhile:
    """What one rank does of a call while it waits for frames.

    settle: is called as settle(sums, end) when all sums before `end`, in
    the natural order, are final; sums lie in the order of `plan`.
    """

    def __init__(self, plan: ChunkPlan, settle: Callable[[Array, int], object]) -> None:
        self._plan, self._settle = plan, settle
        self._sums = np.zeros(0, np.int16)
        self._ranges: list[tuple[int, int]] = []  # final, in plan order; those that touch are one
        self._final = self._settled = 0  # values, in the natural order

    def final(self, sums: Array, low: int, high: int) -> None:
        """Note that no frame will read or change the values `low` to `high` of `sums`, in plan order."""
        self._sums = sums
        for held in [held for held in self._ranges if held[1] == low or held[0] == high]:
            self._ranges.remove(held)
            low, high = min(low, held[0]), max(high, held[1])
        self._ranges.append((low, high))

    def work(self) -> bool:
        """Do a little of what can be done now; return whether there was anything."""
        if self._final - self._settled < BITE and self._ranges:
            places, granule = self._plan.places
            lows, highs = np.array(self._ranges, np.int64).T.copy()
            self._final = _reach(places, granule, self._plan.bounds[-1], lows, highs, self._final)
        if self._final - self._settled < BITE:
            return False
        self._settled += BITE
        self._settle(self._sums, self._settled)
        return True
