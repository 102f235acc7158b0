"""The quantiser's passes over all values, compiled; each gives the bits of the NumPy expression it names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

FLOAT32_MAX = np.finfo(np.float32).max
NORMAL_EXPONENTS = range(-126, 127)  # of which 2^e and 2^-e are normal float32: products are rounded once


@njit(cache=True, nogil=True)
def round_to_grid(tensor: Any, factor: Any, step: Any, limit: Any, out: Any, keep: Any) -> int:
    """Write the nearest integers of `tensor * factor` to `out`; return how many saturated at `limit`.

    tensor: float32, flat; factor, step, limit: float32, step = 1 / factor; out: int32 or int16; keep:
    float32, receives what rounding and clipping lost, or has no values.
    """
    clipped = 0
    for i in range(tensor.size):
        rounded = np.rint(tensor[i] * factor)
        bounded = min(max(rounded, -limit), limit)
        clipped += rounded != bounded
        out[i] = np.int32(bounded)
    if keep.size:
        for i in range(tensor.size):
            keep[i] = tensor[i] - np.float32(out[i]) * step
    return clipped


@njit(cache=True, nogil=True)
def all_finite(values: Any) -> bool:
    """Return np.isfinite(values).all() of flat float32."""
    good = True
    for i in range(values.size):
        good &= np.abs(values[i]) <= FLOAT32_MAX
    return good


@njit(cache=True, nogil=True)
def round_with_residual(
    tensor: Any, residual: Any, factor: Any, step: Any, limit: Any, out: Any, keep: Any
) -> int:
    """Do add_bounded and then round_to_grid in one pass over memory; `keep` has room for all values."""
    clipped = 0
    for i in range(tensor.size):
        value = min(max(tensor[i] + residual[i], -FLOAT32_MAX), FLOAT32_MAX)
        rounded = np.rint(value * factor)
        bounded = min(max(rounded, -limit), limit)
        clipped += rounded != bounded
        integer = np.int32(bounded)  # of -0.0 as of 0.0
        out[i] = integer
        keep[i] = value - np.float32(integer) * step
    return clipped


@njit(cache=True, nogil=True)
def add_bounded(tensor: Any, residual: Any, out: Any) -> None:
    """Write tensor + residual (float32), at most the largest float32 in magnitude, to `out`."""
    for i in range(tensor.size):
        out[i] = min(max(tensor[i] + residual[i], -FLOAT32_MAX), FLOAT32_MAX)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # a statistic: its last bits may differ
def energy_beyond(tensor: Any, edge: float) -> float:
    """Return the sum of squares, in float64, of what magnitudes have beyond `edge`, a float64."""
    lost = 0.0
    for i in range(tensor.size):
        beyond = np.abs(np.float64(tensor[i])) - edge
        beyond = beyond if beyond > 0.0 else 0.0
        lost += beyond * beyond
    return lost


@njit(cache=True, nogil=True)
def to_means(sums: Any, nodes: Any, step: Any, out: Any) -> None:
    """Write float32(sums / nodes * step) to `out`, rounded once; nodes, step: float64, the latter 2^e."""
    for i in range(sums.size):
        out[i] = np.float32(np.float64(sums[i]) / nodes * step)


@njit(cache=True, nogil=True)
def squares_of_changes(sums: Any, before: Any, left: int, right: int) -> tuple[int, int]:
    """Return the sums of squares of int16 `sums` and of `(sums << left) - (before << right)`.

    Exact for shifts of up to 1 bit and 2^28 values.
    """
    energy, change = np.int64(0), np.int64(0)
    for i in range(sums.size):
        value = np.int64(sums[i])
        difference = (value << left) - (np.int64(before[i]) << right)
        energy += value * value
        change += difference * difference
    return energy, change
