"""OSCAR's index codec: hits of positions, coded with how often positions of their class were hit before.

One object is one end of a link direction. Both ends learn the same from the streams that pass.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.coding.index import popular_kernels as kernels
from oscar.coding.index.base import IndexCodec, damaged
from oscar.coding.index.popularity import CLASSES
from oscar.state import Reader, Saved, Stateful

MEMORY = 3  # log2: each stream replaces an eighth of the counts
UNIT = 4  # log2: counts are in sixteenths
MOST_COUNT = 1 << (32 + MEMORY + UNIT)
FAULTS = {-1: "all its positions", -2: "no bytes behind its positions"}


def _read_counts(codec: Popular, saved: Saved) -> Array:
    return saved.array(np.int64, (2, CLASSES), 0, MOST_COUNT)


class Popular(Stateful, IndexCodec):
    """Range coding of hits by class. `counts`: int64 [2][16], hits and places of each class, decaying.

    A stream that raises leaves the counts as they were.
    """

    name: ClassVar[str] = "popular"
    kind: ClassVar[int] = 5
    STATE: ClassVar[dict[str, Reader]] = {"counts": _read_counts}

    def __init__(self) -> None:
        self.counts = np.zeros((2, CLASSES), np.int64)

    def _pack(self, positions: Array, size: int, classes: Array | None) -> Array:
        found = _checked(classes, size)
        room = 64 + 4 * positions.size + size // 64
        while True:
            out, seen = np.empty(room, np.uint8), np.zeros((2, CLASSES), np.int64)
            used = kernels.encode(positions, found, self.counts, out, seen)
            if used >= 0:
                break
            room *= 4
        self.counts = moved(self.counts, seen)
        return out[:used]

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        found = _checked(classes, size)
        positions, seen = np.empty(count, np.int64), np.zeros((2, CLASSES), np.int64)
        fault = kernels.decode(body, found, self.counts, positions, seen)
        if fault < 0:
            raise damaged(f"a stream of {count} positions with {FAULTS[fault]}", f"{body.size} bytes")
        self.counts = moved(self.counts, seen)
        return positions

    def _history(self, size: int, classes: Array | None) -> int:
        learnt = crc32(self.counts.astype("<i8").tobytes(), size & 0xFFFFFFFF)
        found = crc32(_checked(classes, size), learnt)
        return (found ^ found >> 16) & 0xFFFF


def moved(counts: Array, seen: Array) -> Array:
    """Return the counts after a stream with these hits and places; a class without places keeps its own."""
    return np.where(seen[1] > 0, counts - (counts >> MEMORY) + (seen << UNIT), counts)


def _checked(classes: Array | None, size: int) -> Array:
    if classes is None:
        return np.zeros(size, np.uint8)
    if classes.shape != (size,) or classes.dtype != np.uint8:
        raise ValueError(f"expected uint8 classes of {size} positions, got {classes.dtype} {classes.shape}")
    if size and classes.max() >= CLASSES:
        raise ValueError(f"classes are 0 to {CLASSES - 1}, got {classes.max()}")
    return np.ascontiguousarray(classes)
