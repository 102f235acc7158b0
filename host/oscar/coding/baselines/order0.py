"""Baseline: order-0 rANS with a static table of the frame, which is sent with it.

A small value is a token of its own. Larger values share a token for each sign, exponent and top `mantissa`
bits; their other bits follow raw. The encoder tries mantissas and takes the smallest frame, tables included;
with a large mantissa every value is its own token. Frequencies have 12 bits. Four interleaved 32-bit states
(one below 4,096 values, where 12 bytes matter) take in 16-bit words (Duda 2013; Giesen, "Interleaved entropy
coders", 2014).

Payload: u8 mantissa + 1 (0: raw block); the table, a bit stream, low bits first: lowest token (zigzag) and
number of tokens - 1 in exponential Golomb code, then the differences of the frequencies, each in a code
fitted to those before it; the rANS states and words; the raw bits. A constant frame costs no bits;
`VALUES_PER_BYTE` bounds its size from below.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.baselines.blocks import (
    BlockCodec,
    check_density,
    check_length,
    damaged,
    frozen,
    histogram,
    padded,
    put,
    quantise,
    raw_bytes,
)
from oscar.coding.baselines.order0_kernels import (
    LANES,
    SCALE,
    decode,
    encode,
    extra_of,
    get_count,
    get_table,
    ideal_bits,
    put_count,
    put_table,
    tally,
    token_of,
)

MAX_MANTISSA = 30
MAX_TOKENS = SCALE // 2  # with more, the least frequency of 1 distorts the table
MIN_INTERLEAVED = 4096  # values from which four states are used
RANGE_ORDER = 5  # order of the exponential Golomb codes of lowest token and number of tokens


class Rans0(BlockCodec):
    """Codes with order-0 rANS and a transmitted table; lossless for any int32 values."""

    code = 9

    def _code(self, values: Array, width: int) -> bytes | None:
        limit = raw_bytes(values.size, width)
        model = _choose(*histogram(values), limit)
        if model is None:
            return None
        mantissa, lowest, frequencies, table = model
        out = np.zeros(limit, np.uint8)
        out[: len(table)] = np.frombuffer(table, np.uint8)
        end = encode(values, mantissa, lowest, frequencies, _lanes(values.size), out, len(table))
        return None if end < 0 else padded(out[:end].tobytes(), values.size)

    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        check_density(payload, count)
        mantissa = payload[0] - 1
        if mantissa > MAX_MANTISSA:
            raise damaged(f"payload mode is {payload[0]}, expected 0 to {MAX_MANTISSA + 1}")
        data = frozen(payload)
        at, lowest, frequencies = _read_table(data, mantissa)
        values = np.empty(count, np.int32)
        end = decode(data, at, mantissa, lowest, frequencies, _lanes(count), 1 << (width - 1), values)
        if end < 0:
            raise damaged(f"payload of {len(payload)} bytes does not hold {count} values of {width} bits")
        check_length(payload, count, end)
        return values


def _lanes(count: int) -> int:
    """Return the number of interleaved states for `count` values."""
    return LANES if count >= MIN_INTERLEAVED else 1


def _choose(distinct: Array, counts: Array, limit: int) -> tuple[int, int, Array, bytes] | None:
    """Return mantissa, lowest token, frequencies and table of least size; None if `limit` bytes is less."""
    best, least = None, 8.0 * limit
    for mantissa in range(MAX_MANTISSA + 1):
        lowest = int(token_of(int(distinct[0]), mantissa))
        highest = int(token_of(int(distinct[-1]), mantissa))
        if highest - lowest >= MAX_TOKENS:
            break  # a larger mantissa has more tokens
        tokens = np.zeros(highest - lowest + 1, np.int64)
        extra = tally(distinct, counts, mantissa, lowest, tokens)
        frequencies = np.zeros_like(tokens)
        quantise(tokens, SCALE, frequencies)
        table = _write_table(mantissa, lowest, frequencies)
        bits = ideal_bits(tokens, frequencies) + extra + 8.0 * len(table)
        if bits < least:
            best, least = (mantissa, lowest, frequencies, table), bits
        if extra == 0:
            break  # all values are tokens already
    return best


def _write_table(mantissa: int, lowest: int, frequencies: Array) -> bytes:
    """Return mode byte and table, padded to a whole byte; the last frequency is the rest of SCALE."""
    out = np.zeros(16 + 5 * frequencies.size, np.uint8)  # a difference takes at most 32 bits
    pos = put(out, 0, mantissa + 1, 8)
    pos = put_count(out, pos, 2 * lowest if lowest >= 0 else -2 * lowest - 1, RANGE_ORDER)
    pos = put_count(out, pos, frequencies.size - 1, RANGE_ORDER)
    pos = put_table(out, pos, frequencies[:-1])
    return out[: (pos + 7) // 8].tobytes()


def _read_table(data: Array, mantissa: int) -> tuple[int, int, Array]:
    """Return the offset behind the table, the lowest token and the frequencies; raises FrameError."""
    fold, pos = get_count(data, 8, RANGE_ORDER)
    lowest = (fold >> 1) ^ -(fold & 1)
    rest, pos = get_count(data, pos, RANGE_ORDER) if pos > 0 else (0, -1)
    if (
        pos < 0
        or rest >= MAX_TOKENS
        or max(extra_of(lowest, mantissa), extra_of(lowest + rest, mantissa)) > 31
    ):
        raise damaged(f"token table starts at {lowest} and has {rest + 1} of at most {MAX_TOKENS} tokens")
    frequencies = np.zeros(rest + 1, np.int64)
    pos = get_table(data, pos, frequencies[:-1], SCALE)
    frequencies[-1] = SCALE - frequencies.sum()
    if pos < 0 or frequencies[-1] <= 0:
        raise damaged(f"frequencies of the token table do not add up to {SCALE}")
    return (pos + 7) // 8, lowest, frequencies
