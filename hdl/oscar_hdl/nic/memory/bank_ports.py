"""Bundles of ports between a NIC's banks of rows and what loads and reads them, and whose clock is which.

A bank's word is four lanes of a row, in eight memories side by side: memory m has lanes 4 m to 4 m + 3. What
comes in which clock of `phase` modulo 4 is in docs/engine.md, "Banks of rows".
"""

from __future__ import annotations

from myhdl import Signal, SignalType, modbv

from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

STREAM_LANES = STREAM_BITS // 16
FOUR = 4  # lanes of a bank's word
TURNS = 8  # of four clocks: words of a row, memories of a bank, engines that one can serve
POSITION_FOUR, FOUR_BITS, SOURCE_FOUR = 4 * FOUR, 16 * FOUR, 19 * FOUR
HALF_BITS = 16 * 16  # values of half a row
DISTANCE_BITS = 3 * 32  # of a row
SYMBOL_BITS = 4
DESCRIPTOR_BITS = 11  # class, size << 4, top << 7
HEADER_BITS = 15  # class, size << 4, mean << 7, top << 11


def bank_count(engines: int) -> int:
    """Return how many banks serve so many engines, 2, 4, 8 .. 64; engine e has bank e modulo that."""
    if engines < 2 or engines & (engines - 1):
        raise ValueError(f"memory serves 2, 4, 8 .. engines, got {engines}")
    return max(1, engines // TURNS)


class ValueWrite:
    """Half a row of values for a bank; `enable` has a bit for each bank."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.enable, self.row, self.half = word(banks), word(row_bits), bit()
        self.data = word(HALF_BITS)


class SideWrite:
    """A row's distances (`distances`) and header (`header`), or classes of 0 (`clear`), for a bank.

    clear: of the rows of the group of `row` that `lanes` has bits for. kind: all of a header but the mean.
    """

    def __init__(self, banks: int, row_bits: int) -> None:
        self.distances, self.header, self.clear = word(banks), word(banks), word(banks)
        self.kind = word(banks)
        self.row, self.lanes = word(row_bits), word(32)
        self.data, self.header_data = word(DISTANCE_BITS), word(HEADER_BITS)


class BankRead:
    """What is read of a bank beside the coder.

    row: its halves are `data`, in clocks of phases 1 and 2 behind it. described: a row whose descriptor is
    there in the four clocks from the next phase 3 on. top_row: of a group of 32, whose largest symbol is
    `top` eight clocks behind its phase 1. All rows hold from a phase 2 to a phase 1.
    """

    def __init__(
        self, row: SignalType, described: SignalType, top_row: SignalType, *, bits: int = HALF_BITS
    ) -> None:
        self.row, self.described, self.top_row = row, described, top_row
        self.data, self.descriptor, self.top = word(bits), word(DESCRIPTOR_BITS), word(SYMBOL_BITS)


class BankClocks:
    """Whose clock it is, of all that a bank has once; made by bank_clocks.

    Words have a bit for each place in the bank's turns. phases: of each memory and each place of all banks,
    one behind the other: u5, the phase of the clock behind this one.
    """

    def __init__(self, banks: int) -> None:
        self.phases = [Signal(modbv(1)[5:]) for _ in range(2 * TURNS * banks)]
        self.turn, self.is_0, self.is_1, self.is_2, self.is_3 = word(3), bit(), bit(), bit(), bit()
        self.takes = word(TURNS)  # in phase 0 modulo 4: who takes a row; until the next
        self.sums = word(TURNS)  # in phase 1: who takes sums
        self.describes = word(TURNS)  # in phase 0: who describes a row
        self.raw_down, self.raw_up = word(TURNS), word(TURNS)  # what raw units get, in phases 1, 2
        # Whose descriptor is looked for: an engine's decoder's, frame_top's, the reader's, raw units'.
        self.looks = word(5)


class MemoryClocks:
    """Whose clock it is at one of a bank's eight memories; made by memory_clocks.

    looks: a bit for whom values are read in this clock: source, sums, reader, the raw decoder's sums, the raw
    packer; the first three are those of phases 0, 1 and 2, too. raw_writes: it is a turn of the raw decoder.
    """

    def __init__(self) -> None:
        self.is_0, self.is_1, self.is_2, self.is_3 = bit(), bit(), bit(), bit()
        self.looks, self.raw_writes = word(5), bit()


class PlaceClocks:
    """From which memory a place's lanes come; made by place_clocks.

    source, position: a bit for each memory. local, totals: bits for turn_back.
    """

    def __init__(self) -> None:
        self.source, self.position, self.local, self.totals = word(TURNS), word(TURNS), word(3), word(3)


class RowCommand:
    """Values from row `first` of a NIC's memory on, to be loaded, cleared or read; fields hold till done."""

    def __init__(self, first_bits: int) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.first, self.count, self.clear = word(first_bits), word(19), bit()
