"""Codecs without compression, one for each number format, and Zstandard on prepared data.

fp32 is the reference. bf16 and fp16 are what mixed-precision training sends. int16 and int32 send the
quantised sums unchanged. int8 shows the cost of narrowing: partial sums of int8 gradients do not fit int8, so
it clips them, counts the clipped values, and the sums are wrong by the clipped part.

The payload of a compressing codec (`BlockCodec`) starts with a mode byte; mode 0 is the raw block, `width`
bits a value. Without values there is no payload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import zstandard

from oscar.array import Array
from oscar.coding.codec import Domain
from oscar.errors import FrameError
from oscar.kernels import njit
from oscar.numerics.integers import extremes

RAW = 0  # mode byte of the raw block
BYTES_PER_BYTE = 32768  # most bytes that a payload byte can hold: a run-length block has 4 bytes for 128 KiB
MAX_WINDOW = 1 << 27  # bytes; every zstd decoder must accept it, and level 1 needs 512 KiB


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


def check_range(values: Array, width: int) -> Array:
    """Return decoded integers; raises FrameError if one does not fit `width` bits."""
    if values.size and width < 8 * values.dtype.itemsize:
        low, high = extremes(values)
        if low < -(1 << (width - 1)) or high >= 1 << (width - 1):
            raise damaged(f"frame of {width}-bit values decodes to {low} ... {high}")
    return values


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


class _Items:
    """Sends one little-endian item of `dtype` for each value."""

    dtype: str
    domain: Domain = "int"

    def max_payload(self, count: int, width: int) -> int:
        return count * np.dtype(self.dtype).itemsize

    def _items(self, payload: memoryview, count: int) -> Array:
        """Return `count` items of the payload; raises FrameError unless they are all of it."""
        size = self.max_payload(count, 0)
        if len(payload) != size:
            raise damaged(f"{count} values of {self.dtype} take {size} bytes, payload has {len(payload)}")
        return np.frombuffer(payload, self.dtype)


class Fp32(_Items):
    """Sends float32 values bit for bit."""

    code, dtype = 1, "<f4"
    domain: Domain = "float"

    def pack(self, values: Array, width: int) -> bytes:
        return values.astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        return self._items(payload, count).astype(np.float32)


class _Clipping(_Items):
    """A codec that counts the values it clips; each encoder needs an instance of its own.

    saturated: values clipped so far
    lost: sum over the frames of the share of energy that a frame lost, times its number of values
    """

    def __init__(self) -> None:
        self.saturated, self.lost = 0, 0.0

    def _count(self, values: Array, clipped: Array, limit: float) -> None:
        """Count the `clipped` (bool) of `values`, whose magnitudes are cut to `limit`."""
        beyond = int(np.count_nonzero(clipped))
        if not beyond:
            return
        self.saturated += beyond
        wide = np.abs(values[np.isfinite(values)].astype(np.float64))
        cut = np.maximum(wide - limit, 0)
        self.lost += values.size * float(np.vdot(cut, cut) / np.vdot(wide, wide))


class Bf16(_Clipping):
    """Sends bfloat16: the upper half of a float32, rounded to nearest even in integer arithmetic.

    A finite value above the largest bfloat16 is clipped to it and counted in `saturated`; Inf and NaN stay.
    """

    code, dtype = 2, "<u2"
    domain: Domain = "float"
    limit = float.fromhex("0x1.fep127")

    def pack(self, values: Array, width: int) -> bytes:
        bits = values.view(np.uint32)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        finite = magnitude < 0x7F800000
        clipped = finite & (magnitude > 0x7F7F7FFF)  # would round up to Inf
        self._count(values, clipped, self.limit)
        odd = (magnitude >> np.uint32(16)) & np.uint32(1)
        rounded = (magnitude + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        rounded[clipped] = 0x7F7F
        special = (magnitude >> np.uint32(16)) | ((magnitude > 0x7F800000).astype(np.uint32) << np.uint32(6))
        halves = np.where(finite, rounded, special) | ((bits >> np.uint32(16)) & np.uint32(0x8000))
        return halves.astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        halves = self._items(payload, count).astype(np.uint32)
        return (halves << np.uint32(16)).view(np.float32)


class Fp16(_Clipping):
    """Sends IEEE half precision, rounded to nearest even.

    A finite value beyond 65,504 is clipped and counted in `saturated`; gradients reach such values without
    loss scaling. A magnitude below 3e-8 becomes 0. Inf and NaN stay.
    """

    code, dtype = 3, "<f2"
    domain: Domain = "float"
    limit = np.float32(65504)

    def pack(self, values: Array, width: int) -> bytes:
        # Small values may become 0, and NaN stays NaN.
        with np.errstate(under="ignore", invalid="ignore"):
            clipped = (np.abs(values) > self.limit) & np.isfinite(values)
            self._count(values, clipped, float(self.limit))
            return np.where(clipped, np.copysign(self.limit, values), values).astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        with np.errstate(invalid="ignore"):  # a forged payload may hold a signalling NaN
            return self._items(payload, count).astype(np.float32)


class Int16(_Items):
    """Sends two bytes for each value; raises ValueError for frames of more than 16 bits."""

    code, dtype, bits = 4, "<i2", 16
    narrow = True  # takes and returns int16 without a copy

    def pack(self, values: Array, width: int) -> memoryview:
        if width > self.bits:
            raise ValueError(
                f"int{self.bits} carries up to {self.bits} bits, this chunk needs {width}; use int32"
            )
        return np.ascontiguousarray(values, self.dtype).view(np.uint8).data

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        if width > self.bits:
            raise damaged(f"int{self.bits} carries up to {self.bits} bits, header announces {width}")
        return check_range(self._items(payload, count), width)


class Int32(Int16):
    """Sends four bytes for each value, enough for every sum."""

    code, dtype, bits = 5, "<i4", 32


class Int8(_Clipping):
    """Sends one byte for each value, clipped to +-127; a clipped partial sum stays wrong on all nodes."""

    code, dtype = 6, "<i1"

    def pack(self, values: Array, width: int) -> bytes:
        self._count(values, (values > 127) | (values < -127), 127.0)
        return np.clip(values, -127, 127).astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        return check_range(self._items(payload, count).astype(np.int32), width)


class Zstd(BlockCodec):
    """Byte planes at level 1 of Zstandard, the fastest general-purpose compressor; lossless for any int32.

    Values are mapped to zigzag order (0, -1, 1, -2 ...) and split into as few byte planes as hold the frame.
    On Laplace and Gaussian values, 20,000 a frame, one byte of zigzag and of two's complement are within
    0.5 %. With two bytes (sigma 30), plain little-endian int16 takes 9.7 bits a value, its two planes 8.6,
    and the planes of zigzag 6.96 (entropy 6.8). A fair comparison should not profit from the plain form.

    Payload: u8 number of planes (0: raw block), then one zstd frame without content size or checksum, which
    the OSCAR frame has. zstd stores at best 128 KiB in 4 bytes, so count x planes is at most 32,768 per
    payload byte.
    """

    code = 10
    level = 1

    def _code(self, values: Array, width: int) -> bytes | None:
        fold = ((values << 1) ^ (values >> 31)).view(np.uint32)
        planes = max(1, (int(fold.max()).bit_length() + 7) // 8)
        source = fold.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :planes].T
        compressor = zstandard.ZstdCompressor(
            level=self.level, write_content_size=False, write_checksum=False
        )
        payload = bytes([planes]) + compressor.compress(np.ascontiguousarray(source).tobytes())
        return payload if len(payload) < raw_bytes(values.size, width) else None

    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        planes, size = payload[0], payload[0] * count
        if planes > 4 or not 0 < size <= BYTES_PER_BYTE * len(payload):
            raise damaged(
                f"{len(payload)} bytes carry 1 to 4 planes of at most {BYTES_PER_BYTE * len(payload)} "
                f"bytes in all, got {planes} of {count} values"
            )
        raw = np.frombuffer(inflate(payload[1:], size), np.uint8).reshape(planes, count)
        parts = np.zeros((count, 4), np.uint8)
        parts[:, :planes] = raw.T
        fold = parts.view("<u4").ravel().astype(np.uint32)
        values = (fold >> np.uint32(1)) ^ (np.uint32(0) - (fold & np.uint32(1)))
        return check_range(values.view(np.int32), width)


def inflate(data: memoryview, size: int) -> bytes:
    """Return exactly `size` bytes from one zstd frame; raises FrameError for anything else."""
    try:
        # A content size in the frame would override max_output_size, and it cannot be trusted.
        if zstandard.get_frame_parameters(data).content_size != zstandard.CONTENTSIZE_UNKNOWN:
            raise damaged("zstd frame announces its own size, OSCAR's do not")
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        out: bytes = decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise damaged(f"zstd frame of {len(data)} bytes for {size} does not open ({error})") from None
    if len(out) != size:
        raise damaged(f"zstd frame holds {len(out)} bytes, its header announced {size}")
    return out
