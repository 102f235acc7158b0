"""A step for each value: how far it is from the tensor's, which every node derives from the sums.

protocol.md, "A step per value", has the rules. The passes over all values are compiled. Each kernel
gives the bits of the NumPy or integer expression it names. The step of a value is 2^(e + k): e is the
exponent of its tensor, the shift k is its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.kernels import njit, part
from oscar.numerics.plans import scatter_range
from oscar.numerics.quantiser_kernels import MOST_SHIFT, power
from oscar.numerics.sum_kernels import PIECE, find_classes
from oscar.state import Reader, Stateful

EXPECTED = 4096  # A of a value whose step is right
LOW, HIGH = 2436, 6889  # A within 0.75 octaves of it
MOST_SIZE = 32767  # magnitude of a sum, in energies: those of a piece add up within int64
ROOT = 181, 7  # sqrt(2) is 181 / 2^7
WORD, REST = 32, (1 << 32) - 1


@njit(cache=True, nogil=True)
def settle_values(
    reduced: Any, places: Any, granule: int, low: int, high: int, sums: Any, scale: Any, mean: Any,
    rule: Any, old: Any, moved: Any, shifts: Any, shifted: Any, classes: Any,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Do all that follows from the sums of the values `low` to `high` of a tensor; return their energies.

    Each of the two comes as multiples of 2^WORD and the rest, since those of a whole tensor exceed int64.

    Of all values are: reduced, places, granule, sums, mean: as of `settle_range`; old, moved, uint16: A, and
    room for the next; shifts and shifted, int8: k, and room for the next; classes, uint8, written.
    scale: nodes, step, as float64. rule: `weight` and `cap` of a sum, or no step: A and k stay.
    """
    nodes, step = scale
    weight, cap = rule
    scatter_range(reduced, places, granule, low, high, sums)
    to_means_each(sums[low:high], nodes, step, shifts[low:high], mean[low:high])
    if weight == 0:
        moved[low:high] = old[low:high]
        shifted[low:high] = shifts[low:high]
        return np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    fine, coarse, fine_rest, coarse_rest = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for first in range(low, high, PIECE):
        last = min(high, first + PIECE)
        here, into = old[first:last], moved[first:last]
        energies = _energies(sums[first:last], shifts[first:last])
        fine, fine_rest = fine + (energies[0] >> WORD), fine_rest + (energies[0] & REST)
        coarse, coarse_rest = coarse + (energies[1] >> WORD), coarse_rest + (energies[1] & REST)
        move(sums[first:last], here, shifts[first:last], weight, cap, into, shifted[first:last])
        find_classes(into, classes[first:last])
    return fine, fine_rest, coarse, coarse_rest


@part
def to_means_each(sums: Any, nodes: float, step: float, shifts: Any, out: Any) -> None:
    """Write float32(sums / nodes * (step * 2^shifts)) to `out`, rounded once."""
    for i in range(sums.size):
        out[i] = np.float32(np.float64(sums[i]) / nodes * (step * np.float64(power(shifts[i]))))


@njit(cache=True, nogil=True)
def _energies(sums: Any, shifts: Any) -> tuple[int, int]:
    """Return the sums of (S 2^(k + MOST_SHIFT))^2 where k < 0, and of (S 2^k)^2 elsewhere, of a piece."""
    fine, coarse = np.int64(0), np.int64(0)
    for i in range(sums.size):
        size = min(abs(np.int64(sums[i])), np.int64(MOST_SIZE))
        k = np.int64(shifts[i])
        square = size * size << 2 * (k + MOST_SHIFT if k < 0 else k)
        fine += square if k < 0 else np.int64(0)
        coarse += square if k >= 0 else np.int64(0)
    return fine, coarse


@njit(cache=True, nogil=True)
def move(sums: Any, mean: Any, shifts: Any, weight: Any, cap: Any, out: Any, shifted: Any) -> None:
    """Write the next A to `out` and the next k to `shifted`; weight, cap: int32."""
    for i in range(sums.size):
        counted = np.int32(np.int32(min(abs(np.int32(sums[i])), cap)) * weight)
        size = min(np.int32(counted >> 8), np.int32(65535))
        held = np.int32(mean[i])
        held = np.int32(held + np.int32(np.int32(size - held) >> 3))
        root = np.float32(np.float32(np.int32(held * np.int32(ROOT[0])) >> ROOT[1]) + np.float32(0.5))
        octaves = np.int32(np.int32(root.view(np.int32) >> 23) - np.int32(126 + 13))
        octaves = octaves if held < LOW or held >= HIGH else np.int32(0)
        shift = np.int32(shifts[i])
        after = min(np.int32(MOST_SHIFT), max(np.int32(-MOST_SHIFT), np.int32(shift + octaves)))
        rise = np.int32(after - shift)
        out[i] = np.int32(held >> max(rise, np.int32(0))) << max(np.int32(-rise), np.int32(0))
        shifted[i] = after


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
