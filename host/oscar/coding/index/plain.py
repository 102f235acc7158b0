"""Index codecs without a learnt model.

Four bytes a position (coo), one bit a place (bitmap), or the gaps between positions: Rice codes with the
best parameter of each stream. Roaring bitmaps in their portable form need the package pyroaring.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index.base import IndexCodec, damaged
from oscar.errors import ConfigError, install
from oscar.kernels import njit


class Coo(IndexCodec):
    """Each position as u32."""

    name: ClassVar[str] = "coo"
    kind: ClassVar[int] = 1

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        return positions.astype("<u4").view(np.uint8)

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        if body.size != 4 * count:
            raise damaged(f"{4 * count} bytes of {count} positions", f"{body.size}")
        return np.frombuffer(body.tobytes(), "<u4").astype(np.int64)


class Bitmap(IndexCodec):
    """One bit for each place, lowest bit first."""

    name: ClassVar[str] = "bitmap"
    kind: ClassVar[int] = 2

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        hit = np.zeros(size, np.uint8)
        hit[positions] = 1
        return np.packbits(hit, bitorder="little")

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        if body.size != -(-size // 8):
            raise damaged(f"a bitmap of {-(-size // 8)} bytes for {size} places", f"{body.size}")
        positions = np.flatnonzero(np.unpackbits(body, bitorder="little")).astype(np.int64, copy=False)
        if positions.size != count:
            raise damaged(f"a bitmap of {count} bits that are set", f"{positions.size}")
        return positions


PARAMETERS = 32  # 0 to 31
FAULTS = {-1: "a stream that holds all gaps", -2: "positions inside the space"}


class Gaps(IndexCodec):
    """A byte for the parameter, then each gap: its upper part in unary, its lower bits as they are."""

    name: ClassVar[str] = "gaps"
    kind: ClassVar[int] = 3

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        parameter, bits = choose(positions)
        out = np.zeros(1 + (bits + 7) // 8, np.uint8)
        out[0] = parameter
        _write(positions, parameter, out)
        return out

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        if not body.size or body[0] >= PARAMETERS:
            raise damaged(f"a Rice parameter of 0 to {PARAMETERS - 1}", body[:1].tobytes().hex() or "none")
        if count > 8 * body.size:  # a gap takes a bit at least: before room is made for them
            raise damaged(FAULTS[-1], "none")
        positions = np.empty(count, np.int64)
        used = _read(body, size, positions)
        if used < 0:
            raise damaged(FAULTS[used], "none")
        if body.size != 1 + (used + 7) // 8:
            raise damaged(f"{1 + (used + 7) // 8} bytes of {count} gaps", f"{body.size}")
        if used & 7 and body[-1] >> (used & 7):
            raise damaged("zeros after the last gap", f"0x{body[-1]:02x}")
        return positions


@njit(cache=True, nogil=True)
def choose(positions: Any) -> tuple[int, int]:
    """Return the parameter that takes the fewest bits, the lowest if several do, and those bits."""
    best, least = 0, -1
    for parameter in range(PARAMETERS):
        bits, before = len(positions) * (parameter + 1), -1
        for position in positions:
            bits += (position - before - 1) >> parameter
            before = position
        if least >= 0 and bits >= least:
            break  # bits fall, then rise: each step up adds one for each gap and saves ever less
        best, least = parameter, bits
    return best, least


@njit(cache=True, nogil=True)
def _write(positions: Any, parameter: int, out: Any) -> None:
    at, before = 8, -1
    for position in positions:
        gap = position - before - 1
        before = position
        for _ in range(gap >> parameter):
            out[at >> 3] |= np.uint8(1 << (at & 7))
            at += 1
        at += 1
        for k in range(parameter):
            out[at >> 3] |= np.uint8(((gap >> k) & 1) << (at & 7))
            at += 1


@njit(cache=True, nogil=True)
def _read(body: Any, size: int, positions: Any) -> int:
    """Fill `positions`; return the number of bits after the parameter, or a key of FAULTS."""
    parameter, at, end, before = np.int64(body[0]), 8, 8 * len(body), -1
    for j in range(len(positions)):
        upper = 0
        while at < end and (body[at >> 3] >> (at & 7)) & 1:
            upper += 1
            at += 1
        at += 1
        if at + parameter > end:
            return -1
        lower = 0
        for k in range(parameter):
            lower |= np.int64((body[at >> 3] >> (at & 7)) & 1) << k
            at += 1
        before += 1 + (upper << parameter) + lower
        if before >= size:
            return -2
        positions[j] = before
    return at - 8


class Roaring(IndexCodec):
    """Run-optimised bitmaps as pyroaring serialises them; raises ConfigError without that package."""

    name: ClassVar[str] = "roaring"
    kind: ClassVar[int] = 4

    def __init__(self) -> None:
        try:
            from pyroaring import BitMap
        except ImportError:
            raise ConfigError(
                "the index codec roaring needs the package pyroaring, which is not installed; "
                f"install it with: {install('peers')}"
            ) from None
        self.make: Any = BitMap

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        bitmap = self.make(positions.astype(np.uint32))
        bitmap.run_optimize()
        return np.frombuffer(bitmap.serialize(), np.uint8)

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        try:
            bitmap = self.make.deserialize(body.tobytes())
            if len(bitmap) != count:  # before it is expanded
                raise ValueError(f"{len(bitmap)} positions")
            positions = np.array(bitmap.to_array(), np.int64)
            again = bitmap.serialize()
        except (ValueError, IndexError, MemoryError, OverflowError) as error:
            raise damaged("a Roaring bitmap", f"{body.size} bytes that are none ({error})") from None
        if positions.size != count or again != body.tobytes():
            raise damaged(f"a Roaring bitmap of {count} positions", f"{positions.size}, or bytes after it")
        return positions
