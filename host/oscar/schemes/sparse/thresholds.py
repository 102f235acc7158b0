"""Positions above a threshold, and the threshold that a number of values reach: exact, in few passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from oscar.array import Array

SAMPLE = 4096  # values, about
WORD = 8  # flags that are looked at together


# The bits of a float without its sign order as magnitudes do.


@njit(cache=True, nogil=True)
def _flag(bits: Any, cut: Any, out: Any) -> None:
    for j in range(len(bits)):
        out[j] = (bits[j] & np.uint32(0x7FFFFFFF)) >= cut


@njit(cache=True, nogil=True)
def _nth(bits: Any, count: int) -> Any:
    """The bits of the magnitude of rank `count`, digit by digit: many equal ones cost no more."""
    prefix, left = np.uint32(0), count
    for shift, width in ((20, 11), (10, 10), (0, 10)):
        seen = np.zeros(1 << width, np.int32)
        above_it = np.uint32(shift + width)
        for j in range(len(bits)):
            magnitude = bits[j] & np.uint32(0x7FFFFFFF)
            if magnitude >> above_it == prefix >> above_it:
                seen[(magnitude >> np.uint32(shift)) & np.uint32((1 << width) - 1)] += 1
        digit = (1 << width) - 1
        while seen[digit] < left:
            left -= seen[digit]
            digit -= 1
        prefix |= np.uint32(digit) << np.uint32(shift)
    return prefix


@njit(cache=True, nogil=True)
def _collect(words: Any, flags: Any, first: int, out: Any) -> None:
    """Write first + j for every flag j that is set; most words have none."""
    at = 0
    for w in range(len(words)):
        if words[w] != 0:
            for j in range(w * 8, w * 8 + 8):
                if flags[j]:
                    out[at] = first + j
                    at += 1


def above(acc: Array, threshold: float, low: int = 0, high: int | None = None) -> Array:
    """Return where in low .. high the magnitudes of float32 `acc` reach `threshold`: int64, sorted.

    A zero is never chosen, whatever the threshold is.
    """
    bits = acc[low:high].view(np.uint32)
    cut = max(np.uint32(1), np.float32(threshold).view(np.uint32))
    flags = np.zeros(-(-bits.size // WORD) * WORD, np.bool_)
    _flag(bits, cut, flags)
    out = np.empty(np.count_nonzero(flags), np.int64)
    _collect(flags.view(np.uint64), flags, low, out)
    return out


def _nth_largest(values: Array, count: int) -> float:
    return float(np.uint32(_nth(values.view(np.uint32), count)).view(np.float32))


def reached_by(acc: Array, count: int, low: int = 0, high: int | None = None) -> float:
    """Return the largest threshold that `count` magnitudes in low .. high reach: an exact quantile.

    It is 0 where fewer are not zero. A sample says which few values are worth a look.
    """
    values = acc[low:high]
    if count <= 0:
        return math.inf
    for guess in (_guess(values, count), 0.0):
        worth = values[above(values, guess)]
        if worth.size >= count:
            return _nth_largest(worth, count)
    return 0.0


def _guess(values: Array, count: int) -> float:
    """Return a threshold that most probably somewhat more than `count` magnitudes reach."""
    step = values.size // SAMPLE | 1  # odd: rows have even lengths
    sample = values[::step]
    expected = count / step
    wanted = int(expected + 3 * math.sqrt(expected)) + 4
    return _nth_largest(sample, wanted) if wanted < sample.size else 0.0


def top(acc: Array, count: int, low: int = 0, high: int | None = None) -> Array:
    """Return the sorted positions, int64, of the `count` largest magnitudes in low .. high.

    Zeros are left out; of equals the first come first.
    """
    threshold = reached_by(acc, count, low, high)
    positions = above(acc, threshold, low, high)
    surplus = positions.size - count
    if surplus <= 0 or threshold == 0:
        return positions
    last = np.flatnonzero(np.abs(acc[positions]) == np.float32(threshold))[-surplus:]
    return np.delete(positions, last)
