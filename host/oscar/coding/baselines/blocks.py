"""Parts that the baseline codecs share: bit fields, the raw block, and the density bound.

The payload of a compressing codec starts with a mode byte; mode 0 is the raw block, `width` bits a value.
Without values there is no payload. A legal payload carries at most `VALUES_PER_BYTE` values a byte, so a
forged count cannot make a few bytes allocate gigabytes. A static code needs no bits for a constant chunk:
encoders then pad with zero bytes up to the bound, and the padding counts as payload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Domain
from oscar.errors import FrameError
from oscar.kernels import njit
from oscar.numerics.integers import extremes

RAW = 0  # mode byte of the raw block
VALUES_PER_BYTE = 4096


class BlockCodec(ABC):
    """A codec of integers that sends the raw block where coding does not make a frame smaller."""

    domain: Domain = "int"

    def pack(self, values: Array, width: int) -> bytes:
        if not values.size:
            return b""
        coded = self._code(values, width)
        return raw_block(values, width) if coded is None else coded

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        if not count or not len(payload) or payload[0] == RAW:
            return open_raw(payload, count, width)
        return self._open(payload, count, width)

    def max_payload(self, count: int, width: int) -> int:
        return raw_bytes(count, width)

    @abstractmethod
    def _code(self, values: Array, width: int) -> bytes | None:
        """Return a payload whose first byte is not RAW; None if the raw block is no larger."""

    @abstractmethod
    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        """Return the values of a payload from `_code`, or raise FrameError, whatever bytes come."""


def damaged(what: str) -> FrameError:
    """Return the error for a payload that no encoder of this package wrote."""
    return FrameError(f"{what}: damaged or forged on the way; resend")


def raw_bytes(count: int, width: int) -> int:
    """Return the bytes of the raw block, the most that a compressing codec sends."""
    return 1 + (count * width + 7) // 8 if count else 0


def raw_block(values: Array, width: int) -> bytes:
    """Return the raw block of int32 `values` that fit `width` bits."""
    out = np.zeros(raw_bytes(values.size, width), np.uint8)
    pack_fields(values, 1 << (width - 1), width, out[1:])
    return out.tobytes()


def open_raw(payload: memoryview, count: int, width: int) -> Array:
    """Return the int32 values of a raw block; raises FrameError unless its length is exact."""
    if len(payload) != raw_bytes(count, width):
        raise damaged(
            f"raw block of {count} values of {width} bits has {raw_bytes(count, width)} bytes, "
            f"payload has {len(payload)}"
        )
    out = np.empty(count, np.int32)
    unpack_fields(frozen(payload)[1:], 1 << (width - 1), width, out)
    return out


def frozen(payload: bytes | memoryview) -> Array:
    """Return the bytes as read-only uint8, so that kernels are compiled for one type only."""
    array = np.frombuffer(payload, np.uint8)
    array.flags.writeable = False
    return array


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


def check_range(values: Array, width: int) -> Array:
    """Return decoded integers; raises FrameError if one does not fit `width` bits."""
    if values.size and width < 8 * values.dtype.itemsize:
        low, high = extremes(values)
        if low < -(1 << (width - 1)) or high >= 1 << (width - 1):
            raise damaged(f"frame of {width}-bit values decodes to {low} ... {high}")
    return values


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
def put(out: Array, pos: int, value: int, bits: int) -> int:
    """Write a field at bit `pos` of zeroed bytes, low bits first; return the bit behind it, or -1 if full.

    A `pos` of -1 stays -1, so that a caller can check once, after the last field.
    """
    if pos < 0 or pos + bits > 8 * out.size:
        return -1
    while bits > 0:
        shift = pos & 7
        take = min(8 - shift, bits)
        out[pos >> 3] |= (value & ((1 << take) - 1)) << shift
        value >>= take
        pos += take
        bits -= take
    return pos


@njit(cache=True, nogil=True)
def get(data: Array, pos: int, bits: int) -> int:
    """Return the field at bit `pos`; bits behind the end read as 0, so callers check the last position."""
    value = 0
    done = 0
    while done < bits and 0 <= pos < 8 * data.size:
        shift = pos & 7
        take = min(8 - shift, bits - done)
        value |= ((np.int64(data[pos >> 3]) >> shift) & ((1 << take) - 1)) << done
        pos += take
        done += take
    return value


@njit(cache=True, nogil=True)
def pack_fields(values: Array, bias: int, width: int, out: Array) -> None:
    """Write value + bias of each value in `width` bits."""
    pos = 0
    for i in range(values.size):
        pos = put(out, pos, np.int64(values[i]) + bias, width)


@njit(cache=True, nogil=True)
def unpack_fields(data: Array, bias: int, width: int, out: Array) -> None:
    """Read the values that `pack_fields` wrote."""
    for i in range(out.size):
        out[i] = get(data, i * width, width) - bias


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
