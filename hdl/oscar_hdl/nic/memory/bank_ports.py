"""Bundles of ports between a NIC's banks of rows and what loads and reads them, and whose clock is which.

A bank's word is half a row. Phases modulo 4 (docs/engine.md, "Banks"): units ask for positions and sources in
0, for sums in 1. A loader writes halves in every second clock, values in even ones and all else in odd ones;
a reader's row is looked at in 2 and 3.
"""

from __future__ import annotations

from myhdl import SignalType

from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

STREAM_LANES = STREAM_BITS // 16
HALF_LANES = 16
FOUR = 4  # lanes that a unit has of a word, and words of so many lanes in a half
HALF_BITS = 16 * HALF_LANES
DISTANCE_BITS = 3 * HALF_LANES  # of half a row
DESCRIPTOR_BITS = 7  # class, size << 4
HEADER_BITS = 11  # and mean << 7
POSITION_PHASE, SUM_PHASE, SOURCE_PHASE = 0, 1, 0  # modulo 4


class ValueWrite:
    """Half a row of values for a bank; `enable` has a bit for each bank."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.enable, self.row, self.half = word(banks), word(row_bits), bit()
        self.data = word(HALF_BITS)


class SideWrite:
    """Half a row of distances (`distances`), a header (`header`) or a class of 0 (`clear`) for a bank."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.distances, self.header, self.clear = word(banks), word(banks), word(banks)
        self.row, self.half = word(row_bits), bit()
        self.data, self.header_data = word(DISTANCE_BITS), word(HEADER_BITS)


class BankRead:
    """What is read of a bank beside the coder.

    row: its halves are `data`, in clocks of phases 1 and 2 behind it. described: a row whose descriptor is
    there in the four clocks from the next phase 2 on. Both rows hold from a phase 2 to a phase 1.
    """

    def __init__(self, row: SignalType, described: SignalType, *, bits: int = HALF_BITS) -> None:
        self.row, self.described = row, described
        self.data, self.descriptor = word(bits), word(DESCRIPTOR_BITS)


class RowCommand:
    """Values from row `first` of a NIC's memory on, to be loaded, cleared or read; fields hold till done."""

    def __init__(self, first_bits: int) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.first, self.count, self.clear = word(first_bits), word(19), bit()
