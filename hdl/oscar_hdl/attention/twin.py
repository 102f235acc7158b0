"""Attention of one query in integers, as the unit beside a memory computes it, bit for bit.

docs/reference/attention.md has the arithmetic, why its sums fit their widths, and the bound on its error.
"""

import math
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
LANES = 8  # values of a word of 64 bits
LEAST_WORDS, MOST_WORDS = 8, 16  # of a row: 64 to 128 values
MOST_ROWS = 1 << 16
MANTISSA_BITS, LEAST_SHIFT, SHIFT_BITS = 16, 15, 5
FRACTION_BITS = 8  # of an octave: 256 weights
WEIGHT_BITS = 32
OUT_BITS = 8  # of fraction
# 2^(f / 256), 16 bits: the weights of an octave, before they are moved up to WEIGHT_BITS.
WEIGHTS = tuple(math.floor(2.0 ** (15 + f / 256)) for f in range(1 << FRACTION_BITS))
ERROR = 0.19  # of V's last place: the largest distance from exact attention, for all input


@dataclass(frozen=True)
class Attended:
    """What a unit says of a query.

    values: (d,) int16, V's last place is 256. top: the largest octave of a score; total: all weights, in
    units of 2^-31 of that octave. From both follows how much parts of a context weigh (`merged`).
    """

    values: Array
    top: int
    total: int

    def as_floats(self) -> Array:
        """Return the values in units of V's last place."""
        return self.values / (1 << OUT_BITS)


def scale_of(octaves: float) -> tuple[int, int]:
    """Return mantissa and shift of a factor: `octaves` for each unit of a score.

    The usual factor is log2(e) / sqrt(d), times the steps of Q and K. Raises ValueError outside of
    2^-39 to 2^-7.
    """
    if not octaves > 0 or not math.isfinite(octaves):
        raise ValueError(f"attention: expected a factor above 0, got {octaves}")
    fraction, exponent = math.frexp(octaves)
    mantissa = round(fraction * (1 << MANTISSA_BITS))
    shift = MANTISSA_BITS - exponent - FRACTION_BITS
    if mantissa == 1 << MANTISSA_BITS:
        mantissa, shift = mantissa >> 1, shift - 1
    if not LEAST_SHIFT <= shift < LEAST_SHIFT + (1 << SHIFT_BITS):
        raise ValueError(f"attention: a factor of {octaves:g} octaves a unit of a score is out of reach")
    return mantissa, shift


def attend_many(
    query: Array, keys: Array, values: Array, mantissa: Array, shift: Array
) -> tuple[Array, Array, Array]:
    """Return what units say of n queries with t rows each: values (n, d), top (n,), total (n,).

    query: (n, d) int8; keys, values: (n, t, d) int8; mantissa, shift: (n,) as of scale_of.
    Raises ValueError for shapes that a unit does not take.
    """
    n, rows, width = keys.shape
    if query.shape != (n, width) or values.shape != keys.shape:
        raise ValueError(
            f"attention: shapes {query.shape}, {keys.shape}, {values.shape} do not belong together"
        )
    if width % LANES or not LEAST_WORDS <= width // LANES <= MOST_WORDS or not 1 <= rows <= MOST_ROWS:
        raise ValueError(
            f"attention: expected 64, 72, .. 128 values and 1 to {MOST_ROWS} rows, got {width} and {rows}"
        )
    # Sums of products stay below 2^24, where float32 is exact, and fast.
    scores = (keys.astype(np.float32) @ query.astype(np.float32)[:, :, None])[:, :, 0].astype(np.int64)
    steps = scores * np.asarray(mantissa, np.int64)[:, None] >> np.asarray(shift, np.int64)[:, None]
    octaves, table = steps >> FRACTION_BITS, np.array(WEIGHTS, np.int64) << WEIGHT_BITS - MANTISSA_BITS
    weights = table[steps & ((1 << FRACTION_BITS) - 1)]
    tops = np.maximum.accumulate(octaves, axis=1)
    rises = np.minimum(np.diff(tops, axis=1, prepend=tops[:, :1]), 63)
    weights >>= np.minimum(tops - octaves, 63)
    total, sums = np.zeros(n, np.int64), np.zeros((n, width), np.int64)
    for row in range(rows):
        total = (total >> rises[:, row]) + weights[:, row]
        sums = (sums >> rises[:, row, None]) + weights[:, row, None] * values[:, row].astype(np.int64)
    whole, rest = np.divmod(np.abs(sums), total[:, None])
    halves = (whole << OUT_BITS + 1) + (rest << OUT_BITS + 1) // total[:, None]
    out = np.sign(sums) * (halves + 1 >> 1)
    return out.astype(np.int16), tops[:, -1], total


def attend(query: Array, keys: Array, values: Array, mantissa: int, shift: int) -> Attended:
    """Return what a unit says of one query: (d,), of (t, d) keys and values; see attend_many."""
    out, top, total = attend_many(
        query[None], keys[None], values[None], np.array([mantissa]), np.array([shift])
    )
    return Attended(out[0], int(top[0]), int(total[0]))


def merged(parts: list[Attended]) -> Array:
    """Return the attention to a context whose rows several units had, in units of V's last place."""
    top = max(part.top for part in parts)
    weights = np.array([math.ldexp(part.total, part.top - top) for part in parts])
    return np.average([part.as_floats() for part in parts], axis=0, weights=weights)
