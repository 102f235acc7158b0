"""The tables that both ends of a link direction learn (docs/reference/asc.md, "State")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from isal.isal_zlib import crc32

from oscar.array import Array
from oscar.coding.asc.params import FORMAT, PRIOR, SYMBOLS, TABLE_ROWS, AscParams
from oscar.state import Reader, Saved, Stateful

MOST = (1 << 16) - 1  # largest sum of a histogram row


def _read_hist(state: TableState, saved: Saved) -> Array:
    """Read saved histograms; frequencies and checksum are only right for rows whose sum fits 16 bits."""
    hist = saved.array(np.int64, (TABLE_ROWS, SYMBOLS), 0, MOST)
    largest = int(hist.sum(axis=1).max())
    if largest > MOST:
        raise saved.refuse(f"rows that sum to at most {MOST}", str(largest))
    return hist


@dataclass
class TableState(Stateful):
    """One table set. A frame works on a `copy`, so that a frame that fails leaves the set unchanged.

    hist: int64 [32][16], one histogram for each context of values, then for each context of row classes
    sequence: number of frames coded so far, modulo 2^16
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

    def checksum(self, params: AscParams, version: int = FORMAT) -> int:
        """Return a 16-bit checksum of everything that the next frame is coded with."""
        start = params.fingerprint if version == FORMAT else params.fingerprint_of(version)
        crc = crc32(self.hist.astype("<u2"), start)
        return (crc ^ (crc >> 16)) & 0xFFFF
