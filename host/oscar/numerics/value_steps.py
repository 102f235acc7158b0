"""A step for each value: how far it is from the tensor's, which every node derives from the sums.

docs/protocol.md, "A step per value", has the rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.numerics.quantiser_kernels import MOST_SHIFT
from oscar.numerics.sum_kernels import find_classes
from oscar.numerics.value_kernels import EXPECTED
from oscar.state import Reader, Stateful

FIRST_SHIFT = -2  # a training begins with fine steps
MOST_WEIGHT = 1 << 24
FALL = 3  # the variance of a tensor falls by an eighth of the way: rows that rest come back
GROWTH = 256  # times the nodes: a tensor whose variance grew by more is asked for anew


class Moving(NamedTuple):
    """Arrays of all values as `settle_values` takes them: A, room for the next, k, room, classes."""

    mean: Array
    moved: Array
    shifts: Array
    shifted: Array
    classes: Array


def rule_of(coarseness: float, nodes: int) -> tuple[np.int32, np.int32]:
    """Return what a step counts in A, times 256, and the least sum that counts as the most."""
    expected = math.sqrt(2 * nodes / math.pi) / coarseness  # magnitude of a sum, in steps
    weight = min(MOST_WEIGHT, max(1, round(256 * EXPECTED / expected)))
    return np.int32(weight), np.int32(MOST_WEIGHT // weight + 1)


class ValueSteps(Stateful):
    """A (uint16), the shift k (int8) and the position class (uint8) of each value; replicated."""

    STATE: ClassVar[dict[str, Reader]] = {
        "mean": lambda own, saved: saved.array(np.uint16, own.classes.shape),
        "shifts": lambda own, saved: saved.array(np.int8, own.classes.shape, -MOST_SHIFT, MOST_SHIFT),
    }

    def __init__(self, count: int) -> None:
        self.mean = np.full(count, EXPECTED, np.uint16)
        self.shifts = np.full(count, FIRST_SHIFT, np.int8)
        self.classes = np.empty(count, np.uint8)
        self._spare: tuple[Array, Array] | None = None  # those before these: pages stay mapped
        self._follow()

    def begin(self) -> Moving:
        """Return the present state and room for the next."""
        if self._spare is None or self._spare[0] is self.mean or self._spare[1] is self.shifts:
            self._spare = np.empty_like(self.mean), np.empty_like(self.shifts)
        return Moving(self.mean, self._spare[0], self.shifts, self._spare[1], self.classes)

    def end(self) -> None:
        """Take over what was written since `begin`; what was before stays until the next one."""
        assert self._spare is not None
        present = self.mean, self.shifts
        (self.mean, self.shifts), self._spare = self._spare, present

    def rebase(self, offsets: Array, rises: Sequence[int]) -> None:
        """Follow a change of tensors' exponents: values keep their steps, where shifts reach them."""
        for t, rise in enumerate(rises):
            if rise == 0:
                continue
            here = slice(offsets[t], offsets[t + 1])
            wanted = self.shifts[here].astype(np.int32) - rise
            shifts = np.clip(wanted, -MOST_SHIFT, MOST_SHIFT)
            coarser = np.clip(shifts - wanted, -16, 16)
            mean = self.mean[here].astype(np.int64) << np.maximum(-coarser, 0) >> np.maximum(coarser, 0)
            self.mean[here], self.shifts[here] = np.minimum(mean, 65535), shifts
            find_classes(self.mean[here], self.classes[here])

    def digest(self, before: int) -> int:
        """Return 32 bits of what the next steps depend on, and of `before`."""
        return crc32(self.shifts, crc32(self.mean, before))

    def _follow(self) -> None:
        find_classes(self.mean, self.classes)
