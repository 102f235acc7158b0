"""Exact integer arithmetic, from which the step of a tensor is derived."""

from __future__ import annotations

import numpy as np


def floor_log2(numerator: int, denominator: int) -> int:
    """Return floor(log2(numerator / denominator)) of positive integers, exactly."""
    guess = numerator.bit_length() - denominator.bit_length()
    high = numerator << max(0, -guess)
    low = denominator << max(0, guess)
    return guess if high >= low else guess - 1


def sum_of_squares(values: np.ndarray) -> int:
    """Return the exact sum of squares of integers of up to 40 bits, as a Python integer."""
    wide = values.astype(np.int64)
    if max(int(wide.max(initial=0)), -int(wide.min(initial=0))) < 1 << 24:
        return _dot(wide, wide)
    high, low = wide >> 16, wide & 0xFFFF
    return (_dot(high, high) << 32) + (_dot(high, low) << 17) + _dot(low, low)


def _dot(a: np.ndarray, b: np.ndarray) -> int:
    """Return the exact inner product of integers of up to 24 bits."""
    size = 1 << 14  # 2 x 24 + 14 bits fit int64
    return sum(int(np.dot(a[at : at + size], b[at : at + size])) for at in range(0, a.size, size))
