"""Bundles of a bank of rows that serves barrel units; docs/engine.md, "Memory", says what comes when."""

from __future__ import annotations

from collections.abc import Sequence

from myhdl import SignalType

from oscar_hdl.coder.barrel.ports import THREAD_BITS, WIDTH
from oscar_hdl.coder.barrel_decode.ports import BarrelPosition, BarrelSums
from oscar_hdl.coder.barrel_encode.ports import BarrelSource
from oscar_hdl.coder.ports import RawPosition, RawSource, SumPort
from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, SYMBOL_BITS, RowCommand
from oscar_hdl.nic.ports import BankBlock
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
        self.header, self.read, self.served = bit(), bit(), bit()
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
    """One of the two ports of the memories of eight lanes: the row, and what is read of it."""

    def __init__(self, row_bits: int) -> None:
        self.row, self.read, self.distances = word(row_bits), word(GROUP_BITS), word(DISTANCES_BITS)


class LoadedWord:
    """A word of GroupWrite that waits for its clock, and its row."""

    def __init__(self, row_bits: int) -> None:
        self.enable, self.data, self.row = bit(), word(GROUP_BITS), word(row_bits)


class BankLanes:
    """Eight lanes of rows: of source and position from phase 2 on, of the reader from 0 on.

    hidden: from phase 3 on, the reader's values are 0.
    """

    def __init__(self) -> None:
        self.source, self.source_distances = word(GROUP_BITS), word(DISTANCES_BITS)
        self.local, self.distances = word(GROUP_BITS), word(DISTANCES_BITS)
        self.shown, self.shown_distances, self.hidden = word(GROUP_BITS), word(DISTANCES_BITS), bit()


class GroupWrite:
    """Values to load: with `enable` in phases 3, 0, 1, 2, eight lanes each of the row in phase 3."""

    def __init__(self, banks: int, row_bits: int) -> None:
        self.enable, self.row, self.data = word(banks), word(row_bits), word(GROUP_BITS)


class GroupRead:
    """A row to read, of all banks, which holds from a phase 0 to a phase 3, and what a bank gives of it.

    descriptor, mean: in the next turn, mean from its phase 2 on; data, distances: in the turn behind it,
    eight lanes a clock. data are 0 of a row of class 0.
    """

    def __init__(self, row: SignalType) -> None:
        self.row, self.descriptor, self.mean = row, word(DESCRIPTOR_BITS), word(MEAN_BITS)
        self.data, self.distances = word(GROUP_BITS), word(DISTANCES_BITS)


class BankTop:
    """The largest symbol of rows of a bank: ask (strobe) with the first of `words` times eight rows.

    row, words: of all banks, each of which looks at them with its own `ask`. known: strobe; symbol holds from
    there until the next ask.
    """

    def __init__(self, row: SignalType, words: SignalType) -> None:
        self.ask, self.row, self.words = bit(), row, words
        self.known, self.symbol = bit(), word(SYMBOL_BITS)


class RowAsk:
    """A row that somebody wants to read of a bank: `want` (level) with row and bank (a bit for each).

    taken: strobe; the next row may be wanted in the clock behind it. comes: level, in the four clocks in
    which RowsRead has it.
    """

    def __init__(self, banks: int, row_bits: int) -> None:
        self.want, self.row, self.bank = bit(), word(row_bits), word(banks)
        self.taken, self.comes = bit(), bit()


class RowsRead:
    """What was read of a bank: eight lanes a clock; descriptor and mean in the first three of four."""

    def __init__(self) -> None:
        self.data, self.distances = word(GROUP_BITS), word(DISTANCES_BITS)
        self.descriptor, self.mean = word(DESCRIPTOR_BITS), word(MEAN_BITS)


class BarrelUnits:
    """Ports of all barrel units: lists with an element for each bank."""

    def __init__(
        self, positions: Sequence[BarrelPosition], decode_blocks: Sequence[BankBlock],
        sums: Sequence[BarrelSums], sources: Sequence[BarrelSource], encode_blocks: Sequence[BankBlock],
    ) -> None:  # fmt: skip
        self.positions, self.decode_blocks, self.sums = positions, decode_blocks, sums
        self.sources, self.encode_blocks = sources, encode_blocks


class RawUnits:
    """Ports of raw_decoder and raw_packer, and the first rows of their blocks, held from start to done."""

    def __init__(
        self, position: RawPosition, sums: SumPort, source: RawSource, decode_row: SignalType,
        encode_row: SignalType,
    ) -> None:  # fmt: skip
        self.position, self.sums, self.source = position, sums, source
        self.decode_row, self.encode_row = decode_row, encode_row


class RowCommands:
    """What is loaded and read: three commands side by side."""

    def __init__(self, load_values: RowCommand, load_side: RowCommand, unload: RowCommand) -> None:
        self.load_values, self.load_side, self.unload = load_values, load_side, unload
