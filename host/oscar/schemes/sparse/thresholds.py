"""Find positions and moments above a threshold, and the threshold that so many values reach; all exact."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit, part

SAMPLE = 4096  # approximate number of values in a sample


# The bits of floats, without the sign bit, have the order of magnitudes. So kernels compare integers.


@njit(cache=True, nogil=True)
def _above(bits: Any, cut: Any, first: int) -> Any:
    """Return the positions first + j at which magnitude j reaches `cut`.

    The first pass writes a flag byte per value. Later passes read eight flags as one word: one multiplication
    counts them, and words without a flag are skipped.
    """
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
            for j in range(w * 8, w * 8 + 8):  # branch-free: the next write replaces an unset position
                out[at] = first + j
                at += flags[j]
    return out[:count]


@njit(cache=True, nogil=True)
def _nth(bits: Any, count: int) -> Any:
    """Return the bits of the `count`-th largest magnitude, digit by digit. Ties cost no extra time."""
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
    """Return the sorted positions, int64, in low .. high at which magnitudes of `acc` reach `threshold`.

    Zeros are never chosen, whatever the threshold is.
    """
    cut = max(np.uint32(1), np.float32(threshold).view(np.uint32))
    result: Array = _above(acc[low:high].view(np.uint32), cut, low)
    return result


def _nth_largest(values: Array, count: int) -> float:
    return float(np.uint32(_nth(values.view(np.uint32), count)).view(np.float32))


def reached_by(acc: Array, count: int, low: int = 0, high: int | None = None) -> float:
    """Return the largest threshold that `count` magnitudes in low .. high reach: an exact quantile.

    It is 0 if fewer values are non-zero. A sample gives a guess, so that only few values are searched.
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
    """Return a threshold that probably a few more than `count` magnitudes reach."""
    step = values.size // SAMPLE | 1  # odd, since row lengths are even: the sample visits all columns
    sample = values[::step]
    expected = count / step
    wanted = int(expected + 3 * math.sqrt(expected)) + 4
    return _nth_largest(sample, wanted) if wanted < sample.size else 0.0


def reached_by_each(acc: Array, ranks: Array, low: int = 0, high: int | None = None) -> Array:
    """Return the magnitudes at `ranks`, float32; 0 beyond the non-zeros. ranks: int64, rising, from 1."""
    values, most = acc[low:high], int(ranks[-1])
    for guess in (_guess(values, most), 0.0):
        worth = np.sort(np.abs(values[above(values, guess)]).view(np.uint32))
        if worth.size >= most:
            break
    result = np.zeros(ranks.size, np.uint32)
    there = ranks <= worth.size
    result[there] = worth[worth.size - ranks[there]]
    return result.view(np.float32)


@part
def _reaching(bits: Any, ranks: Any, at: Any) -> float:
    """Return about how many values reach `at` (bits of a float), by linear interpolation in every ladder."""
    total, octave = 0.0, 1 << 23
    for r in range(len(bits)):
        upper, below = np.int64(bits[r, 0]) + octave, 0.0  # assume no value an octave above the first rung
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
    """Return the first worker whose magnitudes do not fall or are not finite, or -1."""
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
    result = int(_wrong(ladders))
    return None if result < 0 else result


def level(ladders: Array, ranks: Array, count: int) -> float:
    """Return the threshold that about `count` values of all workers reach; 0 if fewer are non-zero.

    ladders: float32 [worker, rung], the results of `reached_by_each` for the same ranks.
    """
    result = _level(np.ascontiguousarray(ladders).view(np.uint32), ranks, count)
    return float(np.uint32(result).view(np.float32))


@lru_cache(maxsize=8)
def rungs(count: int, workers: int) -> Array:
    """Return the ranks at which a worker reports its magnitudes: int64, rising.

    They rise by a factor of sqrt(2), from a sixteenth of count / workers up to `count`.
    """
    steps = range(-8, math.ceil(2 * math.log2(workers)) + 1)
    ranks = {min(count, math.ceil(count / workers * 2 ** (step / 2))) for step in steps}
    result = np.array(sorted(ranks), np.int64)
    result.setflags(write=False)
    return result


def top(acc: Array, count: int, low: int = 0, high: int | None = None) -> Array:
    """Return the sorted positions, int64, of the `count` largest magnitudes in low .. high.

    Zeros are left out. Among equal magnitudes, lower positions win.
    """
    threshold = reached_by(acc, count, low, high)
    positions = above(acc, threshold, low, high)
    surplus = positions.size - count
    if surplus <= 0 or threshold == 0:
        return positions
    last = np.flatnonzero(np.abs(acc[positions]) == np.float32(threshold))[-surplus:]
    return np.delete(positions, last)


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
