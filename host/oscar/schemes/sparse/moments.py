"""Compute count, sum and energy of magnitudes above a threshold, in a fixed order of additions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.array import Array

LANES = 8  # partial sums, so that the loop vectorises; value j belongs to partial sum j mod LANES


@njit(cache=True, nogil=True)
def _moments(values: Any, base: float, out: Any) -> None:
    whole = len(values) // 8 * 8
    for j in range(0, whole, 8):
        for lane in range(8):
            over = abs(np.float64(values[j + lane])) - base
            over_or_0 = over if over >= 0.0 else 0.0
            out[0, lane] += 1.0 if over >= 0.0 else 0.0
            out[1, lane] += over_or_0
            out[2, lane] += over_or_0 * over_or_0
    for j in range(whole, len(values)):
        over = abs(np.float64(values[j])) - base
        if over >= 0.0:
            out[0, j - whole] += 1.0
            out[1, j - whole] += over
            out[2, j - whole] += over * over


def moments(values: Array, base: float = 0.0) -> tuple[int, float, float]:
    """Return how many magnitudes of float32 values reach `base`, and sum and energy of their excess over it.

    Partial sums are added in order, so equal values give equal bits.
    """
    out = np.zeros((3, LANES))
    _moments(values, base, out)
    count, total, energy = (sum(lanes.tolist()) for lanes in out)
    return int(count), total, energy
