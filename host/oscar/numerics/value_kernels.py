"""The passes over all values where each has a step of its own, compiled; docs/protocol.md has the rules.

Each kernel gives the bits of the NumPy or integer expression it names. The step of a value is 2^(e + k): e is
the exponent of its tensor, the shift k is its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.kernels import njit
from oscar.numerics.plans import scatter_range
from oscar.numerics.quantiser_kernels import MOST_SHIFT, power
from oscar.numerics.sum_kernels import PIECE, find_classes

EXPECTED = 4096  # A of a value whose step is right
LOW, HIGH = 2436, 6889  # A within 0.75 octaves of it
MOST_SIZE = 32767  # magnitude of a sum, in energies: those of a piece add up within int64
ROOT = 181, 7  # sqrt(2) is 181 / 2^7
WORD, REST = 32, (1 << 32) - 1


@njit(cache=True, nogil=True)
def settle_values(
    came: Any, places: Any, granule: int, low: int, high: int, sums: Any, scale: Any, mean: Any,
    rule: Any, old: Any, moved: Any, shifts: Any, shifted: Any, classes: Any,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Do all that follows from the sums of the values `low` to `high` of a tensor; return their energies.

    Each of the two comes as multiples of 2^WORD and the rest, since those of a whole tensor exceed int64.

    Of all values are: came, places, granule, sums, mean: as of `settle_range`; old and moved, uint16: A, and
    room for the next one; shifts and shifted, int8: k, and room for the next one; classes, uint8, written.
    scale: nodes, step, as float64. rule: `weight` and `cap` of a sum, or no step: A and k stay.
    """
    nodes, step = scale
    weight, cap = rule
    scatter_range(came, places, granule, low, high, sums)
    to_means_each(sums[low:high], nodes, step, shifts[low:high], mean[low:high])
    if weight == 0:
        moved[low:high] = old[low:high]
        shifted[low:high] = shifts[low:high]
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    fine, coarse, fine_rest, coarse_rest = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for first in range(low, high, PIECE):
        last = min(high, first + PIECE)
        here, into = old[first:last], moved[first:last]
        found = _energies(sums[first:last], shifts[first:last])
        fine, fine_rest = fine + (found[0] >> WORD), fine_rest + (found[0] & REST)
        coarse, coarse_rest = coarse + (found[1] >> WORD), coarse_rest + (found[1] & REST)
        move(sums[first:last], here, shifts[first:last], weight, cap, into, shifted[first:last])
        find_classes(into, classes[first:last])
    return fine, fine_rest, coarse, coarse_rest


@njit(cache=True, nogil=True)
def to_means_each(sums: Any, nodes: float, step: float, shifts: Any, out: Any) -> None:
    """Write float32(sums / nodes * (step * 2^shifts)) to `out`, rounded once."""
    for i in range(sums.size):
        out[i] = np.float32(np.float64(sums[i]) / nodes * (step * np.float64(power(shifts[i]))))


@njit(cache=True, nogil=True)
def _energies(sums: Any, shifts: Any) -> tuple[int, int]:
    """Return the sums of (S 2^(k + MOST_SHIFT))^2 where k < 0, and of (S 2^k)^2 elsewhere, of a piece."""
    fine, coarse = np.int64(0), np.int64(0)
    for i in range(sums.size):
        size = min(abs(np.int64(sums[i])), np.int64(MOST_SIZE))
        k = np.int64(shifts[i])
        square = size * size << 2 * (k + MOST_SHIFT if k < 0 else k)
        fine += square if k < 0 else np.int64(0)
        coarse += square if k >= 0 else np.int64(0)
    return fine, coarse


@njit(cache=True, nogil=True)
def move(sums: Any, mean: Any, shifts: Any, weight: Any, cap: Any, out: Any, shifted: Any) -> None:
    """Write the next A to `out` and the next k to `shifted`; weight, cap: int32."""
    for i in range(sums.size):
        counted = np.int32(np.int32(min(abs(np.int32(sums[i])), cap)) * weight)
        size = min(np.int32(counted >> 8), np.int32(65535))
        held = np.int32(mean[i])
        held = np.int32(held + np.int32(np.int32(size - held) >> 3))
        root = np.float32(np.float32(np.int32(held * np.int32(ROOT[0])) >> ROOT[1]) + np.float32(0.5))
        octaves = np.int32(np.int32(root.view(np.int32) >> 23) - np.int32(126 + 13))
        octaves = octaves if held < LOW or held >= HIGH else np.int32(0)
        shift = np.int32(shifts[i])
        after = min(np.int32(MOST_SHIFT), max(np.int32(-MOST_SHIFT), np.int32(shift + octaves)))
        rise = np.int32(after - shift)
        out[i] = np.int32(held >> max(rise, np.int32(0))) << max(np.int32(-rise), np.int32(0))
        shifted[i] = after
