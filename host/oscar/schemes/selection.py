"""Choose the values that are probably not zero: the k largest of a running mean that every node has."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.state import Reader, Saved, Stateful, natural, optional


@njit(cache=True, nogil=True)
def _observe(magnitude: Any, mean: Any, weight: Any) -> None:
    """Update the running magnitudes in float32, value by value. Values that were not sent count as 0."""
    for j in range(len(mean)):
        magnitude[j] += (abs(mean[j]) - magnitude[j]) * weight


@njit(cache=True, nogil=True)
def _cut(bits: Any, count: int) -> Any:
    """Return the bits of the `count`-th largest value, and how many values equal to it are among the largest.

    Non-negative floats have the order of their bits. One histogram finds the high 16 bits, a second one the
    low 16 bits.
    """
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
    """Return the sorted positions, int64, of the `count` largest of non-negative float32 values.

    Among equal values, lower positions win, so all nodes choose alike.
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
    """Keep a running mean of |mean gradient| per value, and choose the share of values with the largest mean.

    The state is replicated. Before the first `observe`, nothing is chosen (`positions` is None).

    share: chosen values / all values. weight: weight of a new magnitude in the running mean.
    hysteresis: chosen values count as (1 + hysteresis) times as large, so the choice changes less often.
    every: iterations between two choices.
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
        """Add a mean gradient, float32, of all values (0: not sent). Choose anew if it is time."""
        first, self.magnitude = self.positions is None, self.magnitude.copy()
        _observe(self.magnitude, mean, np.float32(1) if first else self.weight)
        self.age += 1
        if first or self.age >= self.every:
            self._choose()

    def rescale(self, shifts: Array) -> None:
        """Multiply each value's running mean by 2^shift, at most to the largest float32."""
        with np.errstate(over="ignore", under="ignore"):
            self.magnitude = np.minimum(np.ldexp(self.magnitude, shifts), np.finfo(np.float32).max)

    def _choose(self) -> None:
        scores = self.magnitude
        if self.positions is not None and self.hysteresis > 0:
            scores = scores.copy()
            scores[self.positions] *= 1 + self.hysteresis
        self.positions, self.age = largest(scores, self.count), 0

    @property
    def others(self) -> Array:
        """The sorted positions that are not chosen."""
        if self.positions is None:
            return np.arange(self.magnitude.size)
        rest = np.ones(self.magnitude.size, np.bool_)
        rest[self.positions] = False
        return np.flatnonzero(rest)
