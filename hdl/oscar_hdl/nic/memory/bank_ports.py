"""Bundles of ports between a NIC's banks of rows and what loads and reads them."""

from __future__ import annotations

from myhdl import SignalType

from oscar_hdl.streams.bundles import bit, word

WORD_LANES = 4  # values of a word of a bank
WORD_BITS = 16 * WORD_LANES
PART_BITS = 3  # log2 of the words of a row
DESCRIPTOR_BITS = 7  # class, size << 4
HEADER_BITS = 11  # and mean << 7


class ValueWrite:
    """Four values for a bank; `enable` has a bit for each bank."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.enable, self.row, self.part = word(banks), word(row_bits), word(PART_BITS)
        self.data = word(WORD_BITS)


class SideWrite:
    """Four distances (`distances`) or a header (`header`) for a bank, or a class and size of 0 (`clear`)."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.distances, self.header, self.clear = word(banks), word(banks), word(banks)
        self.row, self.part = word(row_bits), word(PART_BITS)
        self.data, self.header_data = word(3 * WORD_LANES), word(HEADER_BITS)


class BankRead:
    """What is read of a bank beside the coder: a word of values, and a row's descriptor."""

    def __init__(self, row: SignalType, part: SignalType) -> None:
        self.row, self.part = row, part
        self.data, self.descriptor = word(WORD_BITS), word(DESCRIPTOR_BITS)


class RowCommand:
    """Values from row `first` of a NIC's memory on, to be loaded, cleared or read; fields hold till done."""

    def __init__(self, first_bits: int) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.first, self.count, self.clear = word(first_bits), word(19), bit()
