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
from oscar.coding.codec import Codec, framed
from oscar.coding.plain import BlockCodec, damaged, frozen, get, put, raw_bytes
from oscar.kernels import njit
from oscar_studies.codecs.blocks import bit_length, check_density, check_length, histogram, padded, quantise

SCALE_BITS = 12
SCALE = 1 << SCALE_BITS
LOWEST = 1 << 16  # rANS states lie in LOWEST .. LOWEST·2^16 - 1; 16-bit words move in and out
LANES = 4
PREFIX = 32  # longest unary part of a table entry; differences of counts up to 2^28 take 30
MAX_MANTISSA = 30
MAX_TOKENS = SCALE // 2  # with more, the least frequency of 1 distorts the table
MIN_INTERLEAVED = 4096  # values from which four states are used
RANGE_ORDER = 5  # order of the exponential Golomb codes of lowest token and number of tokens


@njit(cache=True, nogil=True)
def token_of(value: int, mantissa: int) -> int:
    """Return the token of a value: sign, exponent, and the top `mantissa` bits below the leading one."""
    size = abs(value)
    extra = max(0, bit_length(size) - mantissa - 1)
    token = (extra << mantissa) + (size >> extra)
    return token if value >= 0 else -token


@njit(cache=True, nogil=True)
def extra_of(token: int, mantissa: int) -> int:
    """Return how many raw bits follow a token."""
    return max(0, (abs(token) >> mantissa) - 1)


@njit(cache=True, nogil=True)
def put_count(out: Array, pos: int, value: int, order: int) -> int:
    """Write a count in exponential Golomb code of `order`: a unary length, then the bits."""
    value += 1 << order
    bits = bit_length(value) - 1
    pos = put(out, pos, (1 << (bits - order)) - 1, bits - order + 1)
    return put(out, pos, value - (1 << bits), bits)


@njit(cache=True, nogil=True)
def get_count(data: Array, pos: int, order: int) -> tuple[int, int]:
    """Return a count and the bit behind it; the bit is -1 if there is no count."""
    bits = order
    while get(data, pos, 1) == 1:
        bits += 1
        pos += 1
        if bits - order > PREFIX:
            return 0, -1
    return (1 << bits) + get(data, pos + 1, bits) - (1 << order), pos + 1 + bits


@njit(cache=True, nogil=True)
def put_table(out: Array, pos: int, counts: Array) -> int:
    """Write counts that vary smoothly: zigzag differences, each in a code fitted to those before it."""
    last = mean = 0
    for i in range(counts.size):
        step = counts[i] - last
        fold = 2 * step if step >= 0 else -2 * step - 1
        pos = put_count(out, pos, fold, bit_length(mean >> 3))
        mean += ((fold << 3) - mean) >> 2
        last = counts[i]
    return pos


@njit(cache=True, nogil=True)
def get_table(data: Array, pos: int, counts: Array, total: int) -> int:
    """Read the counts, 0 .. total, that `put_table` wrote; return the bit behind them, or -1 if invalid."""
    last = mean = 0
    for i in range(counts.size):
        fold, pos = get_count(data, pos, bit_length(mean >> 3))
        if pos < 0 or pos > 8 * data.size:
            return -1
        last += (fold >> 1) ^ -(fold & 1)
        if last < 0 or last > total:
            return -1
        mean += ((fold << 3) - mean) >> 2
        counts[i] = last
    return pos


@njit(cache=True, nogil=True)
def tally(distinct: Array, counts: Array, mantissa: int, lowest: int, tokens: Array) -> int:
    """Add the mass of each token to tokens[token - lowest]; return the raw bits of all values."""
    extra = 0
    for j in range(distinct.size):
        token = token_of(distinct[j], mantissa)
        tokens[token - lowest] += counts[j]
        extra += counts[j] * extra_of(token, mantissa)
    return extra


@njit(cache=True, nogil=True)
def ideal_bits(counts: Array, frequencies: Array) -> float:
    """Return the bits of all counts at probabilities frequency / SCALE."""
    bits = 0.0
    for i in range(counts.size):
        if counts[i] > 0:
            bits += counts[i] * (SCALE_BITS - np.log2(frequencies[i]))
    return bits


@njit(cache=True, nogil=True)
def encode(
    values: Array, mantissa: int, lowest: int, frequencies: Array, lanes: int, out: Array, at: int
) -> int:
    """Code the tokens from byte `at` on, then the raw bits; return the byte behind them, or -1 if full.

    rANS is last in, first out: values are coded backwards, words are stacked from the end of `out` downwards,
    and the stack is moved to its place at the end. Value i belongs to state i mod `lanes`.
    """
    below = np.zeros(frequencies.size, np.int64)
    for t in range(1, frequencies.size):
        below[t] = below[t - 1] + frequencies[t - 1]
    state = np.full(LANES, LOWEST, np.int64)
    top = out.size
    if at + 4 * lanes > top:
        return -1
    for i in range(values.size - 1, -1, -1):
        t = token_of(np.int64(values[i]), mantissa) - lowest
        f = frequencies[t]
        x = state[i % lanes]
        if x >= f << (32 - SCALE_BITS):
            top -= 2
            if top < at + 4 * lanes:
                return -1
            out[top] = x & 0xFF
            out[top + 1] = (x >> 8) & 0xFF
            x >>= 16
        quotient = x // f
        state[i % lanes] = (quotient << SCALE_BITS) + (x - quotient * f) + below[t]
    for lane in range(lanes):
        for byte in range(4):
            out[at + 4 * lane + byte] = (state[lane] >> (8 * byte)) & 0xFF
    at += 4 * lanes
    words = out.size - top
    for i in range(words):
        out[at + i] = out[top + i]
    out[at + words :] = 0
    pos = 8 * (at + words)
    for i in range(values.size):
        value = np.int64(values[i])
        extra = max(0, bit_length(abs(value)) - mantissa - 1)
        pos = put(out, pos, abs(value) & ((1 << extra) - 1), extra)
    return (pos + 7) >> 3 if pos >= 0 else -1


@njit(cache=True, nogil=True)
def decode(
    data: Array, at: int, mantissa: int, lowest: int, frequencies: Array, lanes: int, bound: int, out: Array
) -> int:
    """Fill int32 `out` with the values coded from byte `at` on; return the byte behind them.

    Returns -1 if the data ends before the values do, if the states do not end where the encoder began, or if
    a value is not in -bound .. bound - 1.
    """
    lookup = np.zeros(SCALE, np.uint16)
    below = np.zeros(frequencies.size, np.int64)
    reach = 0
    for t in range(frequencies.size):
        below[t] = reach
        lookup[reach : reach + frequencies[t]] = t
        reach += frequencies[t]
    if at + 4 * lanes > data.size:
        return -1
    state = np.zeros(LANES, np.int64)
    for lane in range(lanes):
        for byte in range(4):
            state[lane] |= np.int64(data[at + 4 * lane + byte]) << (8 * byte)
    at += 4 * lanes
    for i in range(out.size):
        x = state[i % lanes]
        slot = x & (SCALE - 1)
        t = lookup[slot]
        out[i] = t + lowest
        x = frequencies[t] * (x >> SCALE_BITS) + slot - below[t]
        if x < LOWEST:
            if at + 2 > data.size:
                return -1
            x = (x << 16) | (np.int64(data[at + 1]) << 8) | np.int64(data[at])
            at += 2
        state[i % lanes] = x
    for lane in range(lanes):  # the encoder began with this state; any other means damage
        if state[lane] != LOWEST:
            return -1
    pos = 8 * at
    for i in range(out.size):
        token = np.int64(out[i])  # int64, because -2^31 has no int32 magnitude
        extra = extra_of(token, mantissa)
        size = ((abs(token) - (extra << mantissa)) << extra) + get(data, pos, extra)
        pos += extra
        value = size if token >= 0 else -size
        if pos > 8 * data.size or value < -bound or value >= bound:
            return -1
        out[i] = value
    return (pos + 7) >> 3


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


def rans0() -> Codec:
    """Return rANS of one table for each frame, which is sent."""
    return framed("rans0", Rans0(), lossless=True)
