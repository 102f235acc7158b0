"""The position state: a running mean of each aggregated magnitude, which every node has for nothing.

Its 4-bit logarithmic class is the coder's position context (docs/protocol.md, "Position state").
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _observe(mean: Any, sums: Any) -> None:
    for j in range(len(sums)):
        m = np.int64(sums[j])
        m = min(m if m >= 0 else -m, np.int64(4095)) << 4
        mean[j] = np.int64(mean[j]) + ((m - np.int64(mean[j])) >> 3)


@njit(cache=True, nogil=True)
def _classes(mean: Any, out: Any) -> None:
    for j in range(len(mean)):
        m = np.int64(mean[j])
        c = 0
        while m > 0:
            m >>= 1
            c += 1
        out[j] = min(15, c)


class PositionState:
    """Running mean of |aggregated sum| per position, uint16 in sixteenths of a step."""

    def __init__(self, count: int) -> None:
        self.mean = np.zeros(count, np.uint16)
        self.classes = np.zeros(count, np.uint8)

    def observe(self, sums: np.ndarray) -> None:
        """Move an eighth of the way to the magnitudes of the aggregated `sums`."""
        _observe(self.mean, sums)
        _classes(self.mean, self.classes)

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

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {"mean": self.mean.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self.mean = state["mean"].copy()
        _classes(self.mean, self.classes)
