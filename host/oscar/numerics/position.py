"""The position state: a running mean of each aggregated magnitude, which every node has at no cost.

Its 4-bit logarithmic class is the coder's position context (docs/reference/protocol.md, "Position state").
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from oscar.numerics.sum_kernels import find_classes, observe, rescale
from oscar.numerics.tensors import Room
from oscar.state import Reader, Stateful, crc


class PositionState(Stateful):
    """Running mean of |aggregated sum| per position, uint16 in sixteenths of a step."""

    STATE: ClassVar[dict[str, Reader]] = {
        "mean": lambda position, saved: saved.array(np.uint16, position.classes.shape)
    }

    def __init__(self, count: int) -> None:
        self.mean = np.zeros(count, np.uint16)
        self.classes = np.zeros(count, np.uint8)
        # The means before these. Arrays take turns, so that pages stay mapped.
        self._spare: np.ndarray | None = None
        self._renewed = Room(most=3)

    def observe(self, sums: np.ndarray) -> None:
        """Move an eighth of the way to the magnitudes of the aggregated `sums`."""
        observe(sums, *self.begin())
        self.end()

    def begin(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the means, room for the next ones, and the classes, as `sum_kernels.observe` takes them."""
        if self._spare is None or self._spare is self.mean:
            self._spare = np.empty_like(self.mean)
        return self.mean, self._spare, self.classes

    def end(self) -> None:
        """Take over the means that were written since `begin`; those before stay until the next one."""
        assert self._spare is not None
        self.mean, self._spare = self._spare, self.mean

    def rescale(self, offsets: np.ndarray, rises: list[int]) -> None:
        """Follow a change of step: where tensor t's exponent rose by rises[t], means fall by as many bits."""
        if any(rises):
            rescale(self.mean, offsets, np.array(rises, np.int64), self.classes)

    def renew(self, offsets: np.ndarray, rises: list[int]) -> None:
        """Follow a change of step within a call, which may fail: the present means stay as they are."""
        self.mean, before = self._renewed.take(self.mean.size, np.uint16), self.mean
        self.mean[:] = before
        self.rescale(offsets, rises)

    def digest(self) -> int:
        """Return the CRC-32 of all classes."""
        return crc(self.classes)

    def _follow(self) -> None:
        find_classes(self.mean, self.classes)
