"""Bundles of a bank of rows that serves barrel units; docs/engine.md, "Memory", says what comes when."""

from __future__ import annotations

from myhdl import SignalType

from oscar_hdl.coder.barrel.ports import THREAD_BITS, WIDTH
from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, SYMBOL_BITS
from oscar_hdl.streams.bundles import bit, word

GROUP_BITS = 16 * WIDTH  # values of eight lanes
DISTANCES_BITS = 3 * WIDTH
GROUPS = 4  # of eight lanes in a row, each with a memory of its own
MEAN_BITS = 4
WINDOW = 11  # turns in which a row that was given to a decoder isn't given again: its sums are on their way


class BankRequest:
    """The request that is looked at in a turn: `some` in phases 2 and 3, the rest in phase 2.

    served: it is answered, in phase 3. info: what was looked up when it came, in phase 0.
    """

    def __init__(self, row_bits: int, info_bits: int) -> None:
        self.some, self.thread, self.row = bit(), word(THREAD_BITS), word(row_bits)
        self.header, self.read, self.adopt, self.served = bit(), bit(), bit(), bit()
        self.info = word(info_bits)


class BankArrival:
    """The request that came: `asked` is its row in phase 0, `row` from phase 1 on; `found` is of phase 3."""

    def __init__(self, row_bits: int, info_bits: int) -> None:
        self.asked, self.row, self.found = word(row_bits), word(row_bits), word(info_bits)


class BankTurn:
    """What a turn does: a source's header is read (phases 2 and 3), a position's row is given (3)."""

    def __init__(self) -> None:
        self.headed2, self.headed3, self.row_goes3 = bit(), bit(), bit()


class GroupPort:
    """One of the two ports of the memories of eight lanes: row, values to write, and what is read of it."""

    def __init__(self, row_bits: int, data: SignalType) -> None:
        self.row, self.data = word(row_bits), data
        self.read, self.distances = word(GROUP_BITS), word(DISTANCES_BITS)


class BankLanes:
    """Eight lanes of rows: of source and position from phase 2 on, of the reader from 0 on."""

    def __init__(self) -> None:
        self.source, self.source_distances = word(GROUP_BITS), word(DISTANCES_BITS)
        self.local, self.distances = word(GROUP_BITS), word(DISTANCES_BITS)
        self.shown = word(GROUP_BITS)


class GroupWrite:
    """Values to load: with `enable` in phases 3, 0, 1, 2, eight lanes each of the row in phase 3."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.enable, self.row, self.data = word(banks), word(row_bits), word(GROUP_BITS)


class GroupRead:
    """A row to read, which holds from a phase 0 to a phase 3, and what the bank gives of it.

    descriptor: in the next turn; data: in the one behind it, eight lanes a clock.
    """

    def __init__(self, row_bits: int) -> None:
        self.row, self.descriptor, self.data = word(row_bits), word(DESCRIPTOR_BITS), word(GROUP_BITS)


class BankTop:
    """The largest symbol of rows of a bank: ask (strobe) with the first of `words` times eight rows.

    known: strobe; symbol holds from there until the next ask.
    """

    def __init__(self, row_bits: int) -> None:
        self.ask, self.row, self.words = bit(), word(row_bits), word(row_bits - 2)
        self.known, self.symbol = bit(), word(SYMBOL_BITS)
