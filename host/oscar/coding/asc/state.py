"""What both ends of a link direction learn: a histogram for each table row (docs/asc.md, "State")."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.asc.params import PRIOR, SYMBOLS, TABLE_ROWS, AscParams
from oscar.state import Reader, Saved, Stateful

MOST = (1 << 16) - 1  # of a row's sum


def _read_hist(state: TableState, saved: Saved) -> Array:
    """Read histograms; the arithmetic of frequencies and the checksum hold for rows of 16 bits."""
    hist = saved.array(np.int64, (TABLE_ROWS, SYMBOLS), 0, MOST)
    largest = int(hist.sum(axis=1).max())
    if largest > MOST:
        raise saved.refuse(f"rows that sum to at most {MOST}", str(largest))
    return hist


@dataclass
class TableState(Stateful):
    """One table set. Each frame works on a `copy`, so that a failed frame leaves this set as it was.

    hist: int64 [32][16], contexts of values, then of row classes; sequence: frames coded so far modulo 2^16.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hist": _read_hist,
        "sequence": lambda state, saved: saved.integer(0, 0xFFFF),
    }

    hist: np.ndarray
    sequence: int = 0

    @classmethod
    def initial(cls) -> TableState:
        """Return the state before the first frame."""
        return cls(np.array([(*row, *[0] * (SYMBOLS - len(row))) for row in PRIOR], np.int64))

    def copy(self) -> TableState:
        """Return an independent copy."""
        return TableState(self.hist.copy(), self.sequence)

    def checksum(self, params: AscParams) -> int:
        """Return 16 bits over everything the next frame is coded with."""
        crc = zlib.crc32(self.hist.astype("<u2").tobytes(), params.fingerprint)
        return (crc ^ (crc >> 16)) & 0xFFFF
