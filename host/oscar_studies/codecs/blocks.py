"""Parts that coding baselines share: padding to the density bound, histograms, and tables of frequencies.

A legal payload carries at most `VALUES_PER_BYTE` values a byte, so a forged count cannot make a few bytes
allocate gigabytes. A static code needs no bits for a constant chunk: encoders then pad with zero bytes up to
the bound, and the padding counts as payload.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.plain import damaged
from oscar.kernels import njit
from oscar.numerics.integers import extremes

VALUES_PER_BYTE = 4096


def padded(payload: bytes, count: int) -> bytes:
    """Return the payload, padded with zero bytes up to the density bound."""
    return payload.ljust(-(-count // VALUES_PER_BYTE), b"\0")


def check_length(payload: memoryview, count: int, used: int) -> None:
    """Raise FrameError unless `used` bytes, padded to the density bound, are all of the payload."""
    expected = max(used, -(-count // VALUES_PER_BYTE))
    if len(payload) != expected:
        raise damaged(f"{count} values end at byte {expected}, payload has {len(payload)}")


def check_density(payload: memoryview, count: int) -> None:
    """Raise FrameError if the payload is too short for `count` values; called before any allocation."""
    if count > VALUES_PER_BYTE * len(payload):
        raise damaged(
            f"{len(payload)} payload bytes carry at most {VALUES_PER_BYTE * len(payload)} values, "
            f"header announces {count}"
        )


def signed_bits(values: Array) -> int:
    """Return the fewest bits, at least 1, that hold all values of a non-empty array in two's complement."""
    low, high = extremes(values)
    return 1 + max(high, -1 - low, 0).bit_length()


def histogram(values: Array) -> tuple[Array, Array]:
    """Return the distinct values of a non-empty int32 array, ascending, and their counts, both int64."""
    low, high = extremes(values)
    if high - low < 1 << 20:  # counting is faster than sorting while the counters fit the cache
        counts = np.zeros(high - low + 1, np.int64)
        count_values(values, low, counts)
        distinct = np.flatnonzero(counts)
        return distinct + low, counts[distinct]
    distinct, counts = np.unique(values, return_counts=True)
    return distinct.astype(np.int64), counts.astype(np.int64)


@njit(cache=True, nogil=True)
def count_values(values: Array, low: int, counts: Array) -> None:
    """Add the histogram of `values` - `low` to `counts`, which covers their range."""
    for i in range(values.size):
        counts[values[i] - low] += 1


@njit(cache=True, nogil=True)
def bit_length(value: int) -> int:
    """Return the bit length of a non-negative integer; 0 for 0."""
    bits = 0
    while value > 0:
        bits += 1
        value >>= 1
    return bits


@njit(cache=True, nogil=True)
def quantise(counts: Array, total: int, frequencies: Array) -> None:
    """Share `total` among the counts for the least code length; each non-zero count gets at least 1.

    The best shares are round(count / step) for one common step at which they sum to `total`; bisection finds
    it. Symbols tied at the last step get the remainder in order. There must be at least one non-zero count
    and at most `total`.
    """
    size = counts.sum()
    fine, coarse = size / (2.0 * total), 2.0 * size  # steps: shares sum to >= total, <= total
    for _ in range(60):
        step = 0.5 * (fine + coarse)
        shares = 0
        for c in counts:
            if c > 0:
                shares += max(1, int(c / step + 0.5))
        if shares > total:
            fine = step
        else:
            coarse = step
            if shares == total:
                break
    left = total
    for i in range(counts.size):
        frequencies[i] = max(1, int(counts[i] / coarse + 0.5)) if counts[i] > 0 else 0
        left -= frequencies[i]
    for i in range(counts.size):
        more = min(left, max(1, int(counts[i] / fine + 0.5)) - frequencies[i]) if counts[i] > 0 else 0
        if more > 0:
            frequencies[i] += more
            left -= more
    frequencies[np.argmax(counts)] += left  # 0, unless 60 bisections did not separate two steps
