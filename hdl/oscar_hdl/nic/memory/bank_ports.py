"""Commands for a NIC's memory of rows, and what all of its banks look at."""

from __future__ import annotations

from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

STREAM_LANES = STREAM_BITS // 16
DISTANCE_BITS = 3 * 32  # of a row
SYMBOL_BITS = 4
DESCRIPTOR_BITS = 11  # class, size << 4, top << 7
HEADER_BITS = 15  # class, size << 4, mean << 7, top << 11


class SideWrite:
    """A row's distances (`distances`) and header (`header`), or classes of 0 (`clear`), for a bank.

    clear: of the eight rows from `row` on that the lower eight of `lanes` say. kind: all of a header but the
    mean.
    """

    def __init__(self, banks: int, row_bits: int) -> None:
        self.distances, self.header, self.clear = word(banks), word(banks), word(banks)
        self.kind = word(banks)
        self.row, self.lanes = word(row_bits), word(32)
        self.data, self.header_data = word(DISTANCE_BITS), word(HEADER_BITS)


class RowCommand:
    """Values from row `first` of a NIC's memory on, to be loaded, cleared or read; fields hold till done."""

    def __init__(self, first_bits: int) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.first, self.count, self.clear = word(first_bits), word(19), bit()
