"""Which values are probably not zero: the top k of a running mean that every node has."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numba import njit

from oscar.array import Array
from oscar.state import Reader, Saved, Stateful, natural, optional


@njit(cache=True, nogil=True)
def _observe(magnitude: Any, mean: Any, weight: Any) -> None:
    """Move the running magnitudes; what was not sent counts as 0; float32, one value at a time."""
    for j in range(len(mean)):
        magnitude[j] += (abs(mean[j]) - magnitude[j]) * weight


@njit(cache=True, nogil=True)
def _cut(bits: Any, count: int) -> Any:
    """The value of rank `count`, by two histograms of 16 bits: floats from 0 up order as their bits do."""
    high, low = np.zeros(1 << 16, np.int64), np.zeros(1 << 16, np.int64)
    for j in range(len(bits)):
        high[bits[j] >> np.uint32(16)] += 1
    top, left = (1 << 16) - 1, count
    while high[top] < left:
        left -= high[top]
        top -= 1
    for j in range(len(bits)):
        if bits[j] >> np.uint32(16) == np.uint32(top):
            low[bits[j] & np.uint32(0xFFFF)] += 1
    bottom = (1 << 16) - 1
    while low[bottom] < left:
        left -= low[bottom]
        bottom -= 1
    return np.uint32((top << 16) | bottom), left


@njit(cache=True, nogil=True)
def _above(bits: Any, cut: Any, ties: int, out: Any) -> None:
    at = 0
    for j in range(len(bits)):
        if bits[j] > cut or (bits[j] == cut and ties > 0):
            ties -= bits[j] == cut
            out[at] = j
            at += 1


def largest(magnitude: Array, count: int) -> Array:
    """Return the sorted positions, int64, of the `count` largest of float32 values from 0 up.

    Of equals the first come first, so that all nodes choose alike.
    """
    if count >= magnitude.size:
        return np.arange(magnitude.size)
    if count <= 0:
        return np.zeros(0, np.int64)
    bits = magnitude.view(np.uint32)
    cut, ties = _cut(bits, count)
    out = np.empty(count, np.int64)
    _above(bits, cut, ties, out)
    return out


def _read_positions(chosen: Any, saved: Saved) -> Array:
    positions = saved.array(np.int64, (chosen.count,), 0, chosen.magnitude.size - 1)
    if (np.diff(positions) <= 0).any():
        raise saved.refuse("positions that rise", "others")
    return positions


class ProbableNonZeros(Stateful):
    """Running mean of |mean gradient| per value, and the share of values with the largest: replicated.

    weight: of a new magnitude in the running mean. hysteresis: a value that is in counts as (1 + hysteresis)
    times as large. every: iterations between two choices. Nothing is chosen before the first `observe`.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "magnitude": lambda chosen, saved: saved.array(np.float32, chosen.magnitude.shape, 0),
        "positions": optional(_read_positions),
        "age": natural,
    }

    def __init__(
        self, values: int, *, share: float, weight: float = 0.1, hysteresis: float = 0.0, every: int = 1
    ) -> None:
        if not 0 <= share <= 1 or not 0 < weight <= 1 or hysteresis < 0 or every < 1:
            raise ValueError(
                "expected 0 <= share <= 1, 0 < weight <= 1, hysteresis >= 0 and every >= 1, got "
                f"{share}, {weight}, {hysteresis} and {every}"
            )
        self.count = int(share * values + 0.5)
        self.weight, self.hysteresis, self.every = np.float32(weight), np.float32(hysteresis), every
        self.magnitude = np.zeros(values, np.float32)
        self.positions: Array | None = None
        self.age = 0

    def observe(self, mean: Array) -> None:
        """See the mean gradient, float32, of all values (0: not sent); choose, if it is time."""
        first, self.magnitude = self.positions is None, self.magnitude.copy()
        _observe(self.magnitude, mean, np.float32(1) if first else self.weight)
        self.age += 1
        if first or self.age >= self.every:
            self._choose()

    def _choose(self) -> None:
        scores = self.magnitude
        if self.positions is not None and self.hysteresis > 0:
            scores = scores.copy()
            scores[self.positions] *= 1 + self.hysteresis
        self.positions, self.age = largest(scores, self.count), 0

    @property
    def others(self) -> Array:
        """The positions that are not chosen, sorted."""
        if self.positions is None:
            return np.arange(self.magnitude.size)
        rest = np.ones(self.magnitude.size, np.bool_)
        rest[self.positions] = False
        return np.flatnonzero(rest)
