"""Hashes of a count sketch: where a run of indices lands in a row, and the sign of every index.

Both are random polynomials of degree 3 modulo the Mersenne prime 2^31 - 1, so 4-wise independent. They are
computed, not tabulated. Along consecutive runs the third difference of such a polynomial is constant: three
additions modulo the prime give the next value, and no multiplication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit, part

PRIME = (1 << 31) - 1
RUN = 16  # consecutive indices that land in consecutive cells
DEGREE = 3
STREAM = 0x5E7C  # second word of the Philox key: coefficients of sketches


@dataclass(frozen=True)
class SketchHashes:
    """The coefficients of every row, constant term first: uint32 [rows, 4], below the prime.

    places: polynomials of the number of a run, index // RUN. signs: polynomials of the index.
    """

    places: Array
    signs: Array

    @staticmethod
    def draw(rows: int, seed: int, draw: int = 0) -> SketchHashes:
        """Return the hashes of `seed`; each `draw` (0 or more) gives hashes of their own."""
        # 64 bits modulo the prime: coefficients are equally likely to within 2^-33.
        key, counter = np.array([seed, STREAM], np.uint64), np.array([0, 0, 0, draw], np.uint64)
        bits = np.random.Philox(key=key, counter=counter).random_raw(rows * 2 * (DEGREE + 1))
        both = (bits % np.uint64(PRIME)).astype(np.uint32).reshape(2, rows, DEGREE + 1)
        return SketchHashes(both[0], both[1])


@part
def polynomial(c: Any, x: Any) -> Any:
    """Value at x < 2^31 - 1 of the polynomial with coefficients c[0..3], modulo 2^31 - 1, uint64."""
    p, shift = np.uint64(PRIME), np.uint64(31)
    h = np.uint64(c[3])
    for k in (2, 1, 0):
        h = h * np.uint64(x) + np.uint64(c[k])  # below 2^62: 2^31 stands for 1
        h = (h & p) + (h >> shift)
        h = min(h, h - p)  # unsigned: a difference below 0 wraps to a large number
    return h


@njit(cache=True, nogil=True)
def differences(c: Any, first: int, step: int, out: Any) -> None:
    """Set out[0..3] to the polynomial at `first` and its differences of order 1 to 3 over `step`."""
    p = np.uint64(PRIME)
    for k in range(4):
        # No index is beyond the prime; only the points that differences are taken over are.
        out[k] = np.uint32(polynomial(c, (np.uint64(first) + np.uint64(k * step)) % p))
    for order in range(1, 4):
        for k in range(3, order - 1, -1):
            a, b = np.uint64(out[k]), np.uint64(out[k - 1])
            out[k] = np.uint32(a - b if a >= b else a + p - b)
