"""How often each position was hit, equal on all nodes; its classes are the context of `popular`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index.base import check_size, first_wrong
from oscar.kernels import njit
from oscar.state import Reader, Stateful

CLASSES = 16
BITS = 15
FULL = (1 << BITS) - 1  # the share of a position that is always hit
MEMORY = 32  # iterations averaged: a plain mean at first, then each iteration moves a share by 1/32
LOW = 7  # bit lengths up to this one share class 1


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
