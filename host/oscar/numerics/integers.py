"""Exact integer arithmetic, from which the step of a tensor is derived, and checks of integers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from oscar.kernels import njit

BLOCK = 1 << 16  # values whose sums stay in the second-level cache


def floor_log2(numerator: int, denominator: int) -> int:
    """Return floor(log2(numerator / denominator)) of positive integers, exactly."""
    guess = numerator.bit_length() - denominator.bit_length()
    high = numerator << max(0, -guess)
    low = denominator << max(0, guess)
    return guess if high >= low else guess - 1


def least_exponent(size: Fraction) -> int:
    """Return the least exponent whose power of two is no less than `size`, which is above 0."""
    floor = floor_log2(size.numerator, size.denominator)
    return floor + (size > Fraction(2) ** floor)


def sum_of_squares(values: np.ndarray) -> int:
    """Return the exact sum of squares of integers of up to 40 bits, as a Python integer."""
    if values.dtype.char in "hi" and values.dtype.isnative and values.flags.carray and values.ndim == 1:
        high, low = _squares(values)
        return (int(high) << 32) + int(low)
    wide = values.astype(np.int64)
    if max(int(wide.max(initial=0)), -int(wide.min(initial=0))) < 1 << 24:
        return _dot(wide, wide)
    high, low = wide >> 16, wide & 0xFFFF
    return (_dot(high, high) << 32) + (_dot(high, low) << 17) + _dot(low, low)


def add_up(parts: Sequence[np.ndarray], total: np.ndarray) -> bool:
    """Return whether `total` is exactly the sum of `parts`: integers of up to 32 bits, 1-D, of one length."""
    narrow = all(part.dtype == np.int16 for part in parts) and len(parts) < 1 << 16
    sums = np.empty(min(BLOCK, total.size), np.int32 if narrow else np.int64)
    for at in range(0, total.size, BLOCK):
        expected = sums[: total.size - at]
        expected[:] = 0
        for part in parts:
            _add(part[at : at + BLOCK], expected)
        if not _equal(total[at : at + BLOCK], expected):
            return False
    return True


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether two 1-D arrays of one dtype hold the same bits."""
    return a.size == b.size and bool(_equal(a.view(np.uint8), b.view(np.uint8)))


@njit(cache=True, nogil=True)
def _add(values: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] += values[i]


@njit(cache=True, nogil=True)
def _equal(a: Any, b: Any) -> bool:
    same = True
    for i in range(a.size):
        same &= a[i] == b[i]
    return same


@njit(cache=True, nogil=True)
def _squares(values: Any) -> tuple[int, int]:
    """Return the sum of squares of int16 or int32 in two words of 32 bits: the upper one, and the lower."""
    high, low = np.int64(0), np.int64(0)
    for i in range(values.size):
        square = np.int64(values[i]) * np.int64(values[i])
        high += square >> 32
        low += square & np.int64(0xFFFFFFFF)
    return high, low


def _dot(a: np.ndarray, b: np.ndarray) -> int:
    """Return the exact inner product of integers of up to 24 bits."""
    size = 1 << 14  # 2 x 24 + 14 bits fit int64
    return sum(int(np.dot(a[at : at + size], b[at : at + size])) for at in range(0, a.size, size))


def extremes(values: np.ndarray) -> tuple[int, int]:
    """Return the least and the largest of integers, 0 and 0 of none; int16 and int32 take one pass."""
    if values.size == 0:
        return 0, 0
    if values.dtype.char in "hi" and values.dtype.isnative and values.flags.carray and values.ndim == 1:
        low, high = _extremes(values)
        return int(low), int(high)
    return int(values.min()), int(values.max())


@njit(cache=True, nogil=True)
def _extremes(values: Any) -> tuple[int, int]:
    low = high = values[0]
    for i in range(values.size):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high
