"""Index codecs without a model: four bytes a position (coo), or one bit a place (bitmap)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index.base import IndexCodec, damaged


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
