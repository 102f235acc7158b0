"""What both ends of a link direction learn: histograms, context map, shift (docs/asc.md, "State")."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.asc.params import (
    CONTEXTS,
    HIST_BITS,
    LEARN_FIRST,
    LEARN_WINDOW,
    PRIOR,
    SYMBOLS,
    WEIGHT,
    AscParams,
    initial_map,
)  # fmt: skip
from oscar.state import Reader, Saved, Stateful, natural

MAX_SHIFT = 15
MOST_OBSERVED = 1 << 40  # of a cell: the arithmetic of learn_map then fits int64


def _read_hist(state: TableState, saved: Saved) -> Array:
    """Read histograms; kernels make a row of frequencies of a row whose sum has HIST_BITS bits at most."""
    most = (1 << HIST_BITS) - 1
    hist = saved.array(np.int64, (CONTEXTS, SYMBOLS), 0, most)
    largest = int(hist.sum(axis=1).max())
    if largest > most:
        raise saved.refuse(f"rows that sum to at most {most}", str(largest))
    return hist


@dataclass
class TableState(Stateful):
    """One table set. Each frame works on a `copy`, so that a failed frame leaves this set as it was.

    hist: int64 [16][16]; cmap: uint8 [256]; shift: int64 [1]; sums, counts: int64 [256], what the next
    context map is learnt from; seen: values coded so far; sequence: frames coded so far modulo 2^16.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hist": _read_hist,
        "cmap": lambda state, saved: saved.array(np.uint8, (256,), 0, CONTEXTS - 1),
        "shift": lambda state, saved: saved.array(np.int64, (1,), 0, MAX_SHIFT),
        "sums": lambda state, saved: saved.array(np.int64, (256,), 0, MOST_OBSERVED * max(WEIGHT)),
        "counts": lambda state, saved: saved.array(np.int64, (256,), 0, MOST_OBSERVED),
        "seen": natural,
        "sequence": lambda state, saved: saved.integer(0, 0xFFFF),
    }

    hist: np.ndarray
    cmap: np.ndarray
    shift: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    seen: int = 0
    sequence: int = 0

    @classmethod
    def initial(cls, params: AscParams) -> TableState:
        """Return the state before the first frame."""
        return cls(
            hist=np.tile(np.array(PRIOR, np.int64), (CONTEXTS, 1)),
            cmap=np.array(initial_map(params), np.uint8),
            shift=np.zeros(1, np.int64),
            sums=np.zeros(256, np.int64),
            counts=np.zeros(256, np.int64),
        )

    def copy(self) -> TableState:
        """Return an independent copy."""
        arrays = self.hist.copy(), self.cmap.copy(), self.shift.copy(), self.sums.copy(), self.counts.copy()
        return TableState(*arrays, self.seen, self.sequence)

    def checksum(self, params: AscParams) -> int:
        """Return 16 bits over everything the next frame is coded with."""
        crc = zlib.crc32(self.hist.astype("<u2").tobytes(), params.fingerprint)
        crc = zlib.crc32(bytes([int(self.shift[0])]), zlib.crc32(self.cmap.tobytes(), crc))
        return (crc ^ (crc >> 16)) & 0xFFFF

    def _next_map(self) -> int:
        return max(LEARN_FIRST, 1 << self.seen.bit_length())

    def learning(self, params: AscParams, count: int) -> bool:
        """Whether a frame of `count` values is observed for the next context map."""
        return params.learns and self._next_map() - self.seen <= max(LEARN_WINDOW, count)

    def advance(self, params: AscParams, count: int, learning: bool) -> bool:
        """Count a finished frame; return whether the context map is to be learnt now."""
        due = self._next_map()
        self.seen += count
        self.sequence = (self.sequence + 1) & 0xFFFF
        return learning and self.seen >= due

    def adapt_shift(self, nonzero: int, weight: int) -> None:
        """Keep the mean non-zero magnitude in symbols within 16..63; a new shift restarts the tables.

        nonzero, weight: how many symbols of the frame were not 0, and the sum of their WEIGHTs.
        """
        if nonzero == 0:
            return
        size, shift = (weight // (16 * nonzero)).bit_length(), int(self.shift[0])
        if size > 6:
            target = min(15, shift + size - 6)
        elif size < 5:
            target = max(0, shift + size - 5)
        else:
            return
        if target != shift:
            self.shift[0] = target
            self.hist[:] = PRIOR
