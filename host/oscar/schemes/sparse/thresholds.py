"""Positions above a threshold, and the threshold that a number of values reach: exact, in few passes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from oscar.array import Array

SAMPLE = 4096  # values, about


# The bits of a float without its sign order as magnitudes do.


@njit(cache=True, nogil=True)
def _above(bits: Any, cut: Any, first: int) -> Any:
    """Where first + j the magnitude j reaches `cut`: flags, eight of which are looked at together."""
    whole = (len(bits) + 7) // 8
    flags = np.empty(8 * whole, np.uint8)
    flags[8 * (whole - 1) :] = 0
    for j in range(len(bits)):
        flags[j] = (bits[j] & np.uint32(0x7FFFFFFF)) >= cut
    words, count = flags.view(np.uint64), 0
    for w in range(whole):
        count += (words[w] * np.uint64(0x0101010101010101)) >> np.uint64(56)
    out, at = np.empty(count + 8, np.int64), 0
    for w in range(whole):
        if words[w] != 0:
            for j in range(w * 8, w * 8 + 8):  # without a branch: what is not set is written over
                out[at] = first + j
                at += flags[j]
    return out[:count]


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


def above(acc: Array, threshold: float, low: int = 0, high: int | None = None) -> Array:
    """Return where in low .. high the magnitudes of float32 `acc` reach `threshold`: int64, sorted.

    A zero is never chosen, whatever the threshold is.
    """
    cut = max(np.uint32(1), np.float32(threshold).view(np.uint32))
    found: Array = _above(acc[low:high].view(np.uint32), cut, low)
    return found


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


def reached_by_each(acc: Array, ranks: Array, low: int = 0, high: int | None = None) -> Array:
    """Return the magnitude of each of `ranks`, int64, rising, from 1: float32; 0 where fewer are not zero."""
    values, most = acc[low:high], int(ranks[-1])
    for guess in (_guess(values, most), 0.0):
        worth = np.sort(np.abs(values[above(values, guess)]).view(np.uint32))
        if worth.size >= most:
            break
    found = np.zeros(ranks.size, np.uint32)
    there = ranks <= worth.size
    found[there] = worth[worth.size - ranks[there]]
    return found.view(np.float32)


@njit(cache=True, nogil=True)
def _reaching(bits: Any, ranks: Any, at: Any) -> float:
    """About how many values reach `at`, all in a float's bits: linear between the rungs of every ladder."""
    total, octave = 0.0, 1 << 23
    for r in range(len(bits)):
        upper, below = np.int64(bits[r, 0]) + octave, 0.0  # none is an octave above the first rung
        for j in range(len(ranks)):
            here = np.int64(bits[r, j])
            if here <= at:
                if here > 0 and upper > at:
                    below += (ranks[j] - below) * (upper - at) / (upper - here)
                break
            upper, below = here, np.float64(ranks[j])
        total += below
    return total


@njit(cache=True, nogil=True)
def _wrong(ladders: Any) -> int:
    """The first worker whose magnitudes do not fall, or are none; -1: no one's."""
    for r in range(len(ladders)):
        before = np.float32(np.inf)
        for j in range(ladders.shape[1]):
            here = ladders[r, j]
            if not (0 <= here <= before) or here == np.inf:
                return r
            before = here
    return -1


@njit(cache=True, nogil=True)
def _level(bits: Any, ranks: Any, count: int) -> int:
    low, high = 0, 0x7F800000
    while high - low > 1:
        middle = (low + high) // 2
        if _reaching(bits, ranks, middle) >= count:
            low = middle
        else:
            high = middle
    return low


def wrong(ladders: Array) -> int | None:
    """Return the first worker whose ladder cannot be what `reached_by_each` returns, or None."""
    found = int(_wrong(ladders))
    return None if found < 0 else found


def level(ladders: Array, ranks: Array, count: int) -> float:
    """Return the threshold that about `count` values reach together, 0 where fewer are not zero.

    ladders: float32 [worker, rung], what `reached_by_each` found for the same ranks.
    """
    found = _level(np.ascontiguousarray(ladders).view(np.uint32), ranks, count)
    return float(np.uint32(found).view(np.float32))


@lru_cache(maxsize=8)
def rungs(count: int, workers: int) -> Array:
    """Return the ranks whose magnitudes say where `count` of all workers' values are: int64, rising.

    They rise by the square root of 2 from a sixteenth of an equal share to all of it.
    """
    steps = range(-8, math.ceil(2 * math.log2(workers)) + 1)
    ranks = {min(count, math.ceil(count / workers * 2 ** (step / 2))) for step in steps}
    found = np.array(sorted(ranks), np.int64)
    found.setflags(write=False)
    return found


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
