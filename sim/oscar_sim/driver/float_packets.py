"""A part of a gradient as packets of floats: one for each tensor (docs/reference/float-packets.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oscar.coding.asc.params import LANES
from oscar_sim.driver.row_packets import Quantised


class FloatPacket(NamedTuple):
    """A packet: its first row, counted from that of the part; float32 values, and how they are quantised.

    shared: values of another tensor lie in its first row, in the place of its leading zeros.
    """

    row: int
    values: np.ndarray
    how: Quantised
    shared: bool


@dataclass
class Floats:
    """Gradients as they come from training, in the order of a plan, and their tensors' steps.

    values: of each node, flat float32. offsets: where tensors begin, and the end. exponents: of their steps.
    saturated: how many values of each node saturate.
    """

    values: list[np.ndarray]
    offsets: Sequence[int]
    exponents: Sequence[int | None]
    saturated: list[int]
    format: int
    bits: int

    def packets(self, rank: int, first: int, count: int, *, rows: int) -> Iterator[FloatPacket]:
        """Yield packets of a node's values from number `first` on; rows: a packet begins at a multiple."""
        step, flat = rows * LANES, self.values[rank]
        for tensor, exponent in enumerate(self.exponents):
            low, high = max(first, self.offsets[tensor]), min(first + count, self.offsets[tensor + 1])
            if low < high:
                begin = (low - first) // step * step
                zeros = np.zeros(low - first - begin, np.float32)
                how = Quantised(self.format, exponent, self.bits, tensor)
                yield FloatPacket(
                    begin // LANES, np.concatenate([zeros, flat[low:high]]), how, zeros.size > 0
                )
