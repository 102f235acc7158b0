"""What both ends of a link direction learn: histograms and shift (docs/format2.md, "State")."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.state import Reader, Saved, Stateful
from oscar_hdl.format2.params import CONTEXT_MAP, CONTEXTS, HIST_BITS, PRIOR, SYMBOLS, AscParams

MAX_SHIFT = 15


def _read_hist(state: TableState, saved: Saved) -> Array:
    """Read histograms; a lane makes a row of frequencies of a row whose sum has HIST_BITS bits at most."""
    most = (1 << HIST_BITS) - 1
    hist = saved.array(np.int64, (CONTEXTS, SYMBOLS), 0, most)
    largest = int(hist.sum(axis=1).max())
    if largest > most:
        raise saved.refuse(f"rows that sum to at most {most}", str(largest))
    return hist


@dataclass
class TableState(Stateful):
    """One table set. Each frame works on a `copy`, so that a failed frame leaves this set as it was.

    hist: int64 [16][16]; shift: int64 [1]; sequence: frames coded so far modulo 2^16.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hist": _read_hist,
        "shift": lambda state, saved: saved.array(np.int64, (1,), 0, MAX_SHIFT),
        "sequence": lambda state, saved: saved.integer(0, 0xFFFF),
    }

    hist: np.ndarray
    shift: np.ndarray
    sequence: int = 0

    @classmethod
    def initial(cls) -> TableState:
        """Return the state before the first frame."""
        return cls(np.tile(np.array(PRIOR, np.int64), (CONTEXTS, 1)), np.zeros(1, np.int64))

    def copy(self) -> TableState:
        """Return an independent copy."""
        return TableState(self.hist.copy(), self.shift.copy(), self.sequence)

    def checksum(self, params: AscParams) -> int:
        """Return 16 bits over everything the next frame is coded with."""
        crc = zlib.crc32(self.hist.astype("<u2").tobytes(), params.fingerprint)
        crc = zlib.crc32(bytes([*CONTEXT_MAP, int(self.shift[0])]), crc)
        return (crc ^ (crc >> 16)) & 0xFFFF

    def advance(self) -> None:
        """Count a finished frame."""
        self.sequence = (self.sequence + 1) & 0xFFFF

    def adapt_shift(self, nonzero: int, weight: int) -> None:
        """Keep the mean non-zero magnitude in symbols within 16..63; a new shift restarts the tables.

        nonzero, weight: how many symbols of the frame were not 0, and the sum of their WEIGHTs.
        """
        if nonzero == 0:
            return
        size, shift = (weight // (16 * nonzero)).bit_length(), int(self.shift[0])
        if size > 6:
            target = min(MAX_SHIFT, shift + size - 6)
        elif size < 5:
            target = max(0, shift + size - 5)
        else:
            return
        if target != shift:
            self.shift[0] = target
            self.hist[:] = PRIOR
