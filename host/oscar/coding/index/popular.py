"""OSCAR's index codec: hits of positions, coded with how often positions of their class were hit before.

One object is one end of a link direction. Both ends learn the same from the streams that pass.
`Popularity` says how often each position was hit, equal on all nodes; its classes are the context.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.coding.index import popular_kernels as kernels
from oscar.coding.index.base import IndexCodec, check_size, damaged, first_wrong
from oscar.kernels import njit
from oscar.state import Reader, Saved, Stateful

CLASSES = 16
BITS = 15
FULL = (1 << BITS) - 1  # the share of a position that is always hit
MEMORY = 32  # iterations averaged: a plain mean at first, then each iteration moves a share by 1/32
LOW = 7  # bit lengths up to this one share class 1
MEMORY_LOG2 = 3  # log2: each stream replaces an eighth of the counts
UNIT = 4  # log2: counts are in sixteenths
MOST_COUNT = 1 << (32 + MEMORY_LOG2 + UNIT)
FAULTS = {-1: "all its positions", -2: "no bytes after its positions"}


class Popularity(Stateful):
    """Running share of iterations with a hit, uint16 in 1/32767, and its classes 0 (never hit) to 15.

    State is replicated: `observe` the same positions on all nodes. Neither array is ever written to.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "share": lambda held, saved: saved.array(np.uint16, held.share.shape, 0, FULL),
        "seen": lambda held, saved: saved.integer(0, MEMORY),
    }

    def __init__(self, size: int) -> None:
        check_size(size)
        self.share = np.zeros(size, np.uint16)
        self.seen = 0
        self.classes = np.zeros(size, np.uint8)

    def observe(self, positions: Array) -> None:
        """Add the hits of an iteration, ascending int64 positions; raises ValueError for others."""
        array = np.ascontiguousarray(positions)
        if array.ndim != 1 or array.dtype != np.int64:
            raise ValueError(f"positions are 1-D int64, got {array.ndim}-D {array.dtype}")
        if (at := first_wrong(array, self.share.size)) >= 0:
            raise ValueError(
                f"positions ascend and lie in 0 to {self.share.size - 1}: number {at} is {array[at]}"
            )
        self.seen = min(self.seen + 1, MEMORY)
        share, classes = np.empty_like(self.share), np.empty_like(self.classes)
        _observe(self.share, array, (1 << BITS) // self.seen, share, classes)
        self.share, self.classes = share, classes

    def _follow(self) -> None:
        self.classes = np.empty_like(self.share, np.uint8)
        _classify(self.share, self.classes)


@njit(cache=True, nogil=True)
def _observe(before: Any, positions: Any, rate: int, share: Any, classes: Any) -> None:
    step = np.int32(rate)
    for j in range(len(before)):
        held = np.int32(before[j])
        share[j] = held + np.int32(np.int32(-held * step) >> np.int32(BITS))
    for position in positions:
        held = np.int32(before[position])
        share[position] = held + np.int32(np.int32((np.int32(FULL) - held) * step) >> np.int32(BITS))
    _classify(share, classes)


@njit(cache=True, nogil=True)
def _classify(share: Any, classes: Any) -> None:
    """Classes are octaves of the odds: below one half by the share, above by what it lacks."""
    for j in range(len(share)):
        held = np.int32(share[j])
        rare = held < np.int32((FULL + 1) >> 1)
        rest = held if rare else np.int32(FULL) - held
        bits = (np.float32(np.float32(rest) + np.float32(0.5)).view(np.int32) >> 23) - 126  # its bit length
        beyond = max(np.int32(0), np.int32(bits - LOW))
        low = np.int32(max(np.int32(1), beyond)) if held > 0 else np.int32(0)
        classes[j] = low if rare else np.int32(15) - beyond


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
        checked = _checked(classes, size)
        room = 64 + 4 * positions.size + size // 64
        while True:
            out, seen = np.empty(room, np.uint8), np.zeros((2, CLASSES), np.int64)
            used = kernels.encode(positions, checked, self.counts, out, seen)
            if used >= 0:
                break
            room *= 4
        self.counts = moved(self.counts, seen)
        return out[:used]

    def _unpack(self, body: Array, count: int, size: int, classes: Array | None) -> Array:
        checked = _checked(classes, size)
        positions, seen = np.empty(count, np.int64), np.zeros((2, CLASSES), np.int64)
        fault = kernels.decode(body, checked, self.counts, positions, seen)
        if fault < 0:
            raise damaged(f"a stream of {count} positions with {FAULTS[fault]}", f"{body.size} bytes")
        self.counts = moved(self.counts, seen)
        return positions

    def _history(self, size: int, classes: Array | None) -> int:
        learnt = crc32(self.counts.astype("<i8").tobytes(), size & 0xFFFFFFFF)
        digest = crc32(_checked(classes, size), learnt)
        return (digest ^ digest >> 16) & 0xFFFF


def moved(counts: Array, seen: Array) -> Array:
    """Return the counts after a stream with these hits and places; a class without places keeps its own."""
    return np.where(seen[1] > 0, counts - (counts >> MEMORY_LOG2) + (seen << UNIT), counts)


def _checked(classes: Array | None, size: int) -> Array:
    if classes is None:
        return np.zeros(size, np.uint8)
    if classes.shape != (size,) or classes.dtype != np.uint8:
        raise ValueError(f"expected uint8 classes of {size} positions, got {classes.dtype} {classes.shape}")
    if size and classes.max() >= CLASSES:
        raise ValueError(f"classes are 0 to {CLASSES - 1}, got {classes.max()}")
    return np.ascontiguousarray(classes)
