"""Uncompressed links: what "no compression" means in each of its forms.

fp32 is the reference. bf16 and fp16 are what mixed-precision training sends. int16 and int32 are the
quantised sums as they are. int8 shows the cost of naive narrowing: partial sums of int8 gradients do not fit
int8, so it clips, counts what it clipped, and the sums are wrong by that much.
"""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.baselines.blocks import check_range, damaged
from oscar.coding.codec import Domain


class _Items:
    """One item of `dtype` for each value, little-endian."""

    dtype: str
    domain: Domain = "int"

    def max_payload(self, count: int, width: int) -> int:
        return count * np.dtype(self.dtype).itemsize

    def _items(self, payload: memoryview, count: int) -> Array:
        """Return `count` items of the payload; raises FrameError unless they are the whole of it."""
        size = self.max_payload(count, 0)
        if len(payload) != size:
            raise damaged(f"{count} values of {self.dtype} take {size} bytes, payload has {len(payload)}")
        return np.frombuffer(payload, self.dtype)


class Fp32(_Items):
    """float32, bit for bit."""

    code, dtype = 1, "<f4"
    domain: Domain = "float"

    def pack(self, values: Array, width: int) -> bytes:
        return values.astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        return self._items(payload, count).astype(np.float32)


class _Clipping(_Items):
    """Counts what an encoder clips; each encoder needs an instance of its own.

    saturated: values so far; lost: the shares of energy that frames lost, each times the frame's values.
    """

    def __init__(self) -> None:
        self.saturated, self.lost = 0, 0.0

    def _count(self, values: Array, clipped: Array, limit: float) -> None:
        """Count the `clipped` (bool) of `values`, whose magnitudes beyond `limit` are cut to it."""
        beyond = int(np.count_nonzero(clipped))
        if not beyond:
            return
        self.saturated += beyond
        wide = np.abs(values[np.isfinite(values)].astype(np.float64))
        cut = np.maximum(wide - limit, 0)
        self.lost += values.size * float(np.vdot(cut, cut) / np.vdot(wide, wide))


class Bf16(_Clipping):
    """bfloat16: the upper half of a float32, rounded to nearest even by integer arithmetic on the bits.

    A finite value above the largest bfloat16 becomes that one, not Inf, and is counted in `saturated`; Inf
    and NaN stay what they are.
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
    """IEEE half precision, rounded to nearest even.

    A finite value beyond 65,504 is clipped and counted in `saturated` (gradients do reach there without loss
    scaling); below 6e-8 it becomes 0. Inf and NaN stay.
    """

    code, dtype = 3, "<f2"
    domain: Domain = "float"
    limit = np.float32(65504)

    def pack(self, values: Array, width: int) -> bytes:
        # Small values vanish and NaN stays NaN, as they should.
        with np.errstate(under="ignore", invalid="ignore"):
            clipped = (np.abs(values) > self.limit) & np.isfinite(values)
            self._count(values, clipped, float(self.limit))
            return np.where(clipped, np.copysign(self.limit, values), values).astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        with np.errstate(invalid="ignore"):  # a forged payload may hold a signalling NaN
            return self._items(payload, count).astype(np.float32)


class Int16(_Items):
    """Two bytes per value; raises ValueError on frames of more than 16 bits, whatever is in them."""

    code, dtype, bits = 4, "<i2", 16
    narrow = True  # takes and returns items as they are, without a copy

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
    """Four bytes per value: every sum this system can make."""

    code, dtype, bits = 5, "<i4", 32


class Int8(_Clipping):
    """One byte per value, SATURATING at +-127: a clipped partial sum stays wrong on all nodes."""

    code, dtype = 6, "<i1"

    def pack(self, values: Array, width: int) -> bytes:
        self._count(values, (values > 127) | (values < -127), 127.0)
        return np.clip(values, -127, 127).astype(self.dtype).tobytes()

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        return check_range(self._items(payload, count).astype(np.int32), width)
