"""The position state: a running mean of each aggregated magnitude, which every node has at no cost.

Its 4-bit logarithmic class is the coder's position context (docs/protocol.md, "Position state").
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numba import njit

from oscar.state import Reader, Stateful


@njit(cache=True, nogil=True)
def _observe(mean: Any, sums: Any, out: Any, classes: Any) -> None:
    for j in range(len(sums)):
        m = np.int32(sums[j])
        m = np.int32(min(m if m >= 0 else np.int32(-m), np.int32(4095)) << 4)
        moved = np.int32(np.int32(mean[j]) + (np.int32(m - np.int32(mean[j])) >> 3))
        out[j] = moved
        classes[j] = _class(moved)


@njit(cache=True, nogil=True)
def _classes(mean: Any, out: Any) -> None:
    for j in range(len(mean)):
        out[j] = _class(mean[j])


@njit(cache=True, nogil=True)
def _class(mean: Any) -> int:
    """Return the bit length of a mean, 15 at most: its exponent as a float, which vectors have at once."""
    bits = np.float32(np.float32(mean) + np.float32(0.5)).view(np.int32)  # the half gives 0 an exponent, too
    return min(np.int32(15), np.int32((bits >> 23) - 126))


class PositionState(Stateful):
    """Running mean of |aggregated sum| per position, uint16 in sixteenths of a step."""

    STATE: ClassVar[dict[str, Reader]] = {
        "mean": lambda position, saved: saved.array(np.uint16, position.classes.shape)
    }

    def __init__(self, count: int) -> None:
        self.mean = np.zeros(count, np.uint16)
        self.classes = np.zeros(count, np.uint8)
        self._spare: np.ndarray | None = (
            None  # the means before these; two arrays take turns, so that pages stay mapped
        )

    def observe(self, sums: np.ndarray) -> None:
        """Move an eighth of the way to the magnitudes of the aggregated `sums`.

        The means before this call stay as they are until the next call.
        """
        if self._spare is None or self._spare is self.mean:
            self._spare = np.empty_like(self.mean)
        _observe(self.mean, sums, self._spare, self.classes)
        self.mean, self._spare = self._spare, self.mean

    def rescale(self, offsets: np.ndarray, rises: list[int]) -> None:
        """Follow a change of step: where tensor t's exponent rose by rises[t], means fall by as many bits."""
        for t, rise in enumerate(rises):
            if rise == 0:
                continue
            part = self.mean[offsets[t] : offsets[t + 1]]
            if rise > 0:
                part >>= min(rise, 16)
            else:
                part[:] = np.minimum(part.astype(np.uint32) << min(-rise, 16), 65535)
        if any(rises):
            _classes(self.mean, self.classes)

    def _follow(self) -> None:
        _classes(self.mean, self.classes)
