"""Bundles of a memory of rows, and of its banks; docs/develop/engine.md, "Memory", says what comes when."""

from collections.abc import Sequence

from myhdl import SignalType

from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
from oscar_hdl.coder.encode.ports import CodedSource
from oscar_hdl.coder.ports import RawSource
from oscar_hdl.coder.unit.ports import THREAD_BITS, WIDTH
from oscar_hdl.nic.ports import (
    FORMAT_BITS,
    FRAME_ROW_BITS,
    ROW_BITS,
    STREAM_BITS,
    TENSOR_BITS,
    WIDTH_BITS,
    BankBlock,
    FloatReport,
    MadeRows,
    TopPort,
)
from oscar_hdl.streams.bundles import Bundle, Stream, bit, word

STREAM_LANES = STREAM_BITS // 16
DISTANCE_BITS = 3 * 32  # of a row
SYMBOL_BITS = 4
DESCRIPTOR_BITS = 11  # class, size << 4, top << 7
HEADER_BITS = 15  # class, size << 4, mean << 7, top << 11
GROUP_BITS = 16 * WIDTH  # values of eight lanes
DISTANCES_BITS = 3 * WIDTH
GROUPS = 4  # of eight lanes in a row, each with a memory of its own
MEAN_BITS = 4
NOT_FINITE = 0x8000  # in the place of an integer, which no quantised value is
WINDOW = 11  # turns in which a row that was given to a decoder isn't given again: its sums are on their way


class SideWrite:
    """A row's distances (`distances`) and header (`header`), or classes of 0 (`clear`), for a bank.

    clear: of the eight rows from `row` on that `lanes` u8 say. row, lanes: of all banks, each of which has
    strobes and data of its own.
    """

    def __init__(self, row: SignalType, lanes: SignalType) -> None:
        self.distances, self.header, self.clear = bit(), bit(), bit()
        self.row, self.lanes = row, lanes
        self.data, self.header_data = word(DISTANCE_BITS), word(HEADER_BITS)


class RowCommand:
    """Values from row `first` of a NIC's memory on, to be loaded, cleared or read; fields hold till done.

    adds: they are added to what memory holds.
    """

    def __init__(self, first_bits: int) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.first, self.count = word(first_bits), word(19)
        self.clear, self.adds = bit(), bit()


class FloatFormat(Bundle):
    """How the values of a packet come, and how they are quantised; fields hold until its command is done.

    base: exponent of the step, plus 150. limit: largest magnitude of an integer. least: the least right shift
    of a mantissa of 24 bits, with its upper bit set, that is not beyond it: 25 less the integer's bits.
    """

    format, base, least, limit = word(FORMAT_BITS), word(9), word(WIDTH_BITS), word(16)


class FloatPacket(FloatFormat):
    """What a packet of floats says besides.

    replaces: it does not add. bad: level until the next command, a value was NaN or Inf. report: what became
    of all packets.
    """

    tensor, replaces, bad, report = word(TENSOR_BITS), bit(), bit(), FloatReport()


class QuantisedWord:
    """Eight integers of each bank, the first bank lowest, and a mark for each that is not as it was.

    It has saturated and is odd, or it is NOT_FINITE, which stands for NaN or Inf.
    """

    def __init__(self, banks: int) -> None:
        self.data, self.marks = word(banks * STREAM_BITS), word(banks * STREAM_LANES)


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


class BankTurn(Bundle):
    """What a turn does: a source's header is read (phases 2 and 3), a position's row is given (3)."""

    headed2, headed3, row_goes3 = bit(), bit(), bit()


class GroupPort:
    """One of the two ports of the memories of eight lanes: the row, and what is read of it."""

    def __init__(self, row_bits: int) -> None:
        self.row, self.read, self.distances = word(row_bits), word(GROUP_BITS), word(DISTANCES_BITS)


class AddedRows:
    """Rows to which a loader adds, of all banks: none of them may be given to a decoder.

    on: level, in phase 2 of the turns from the one in which `row` may be read until the last one's sums and
    descriptor are written. row: the next one; last: those before it since this one may be under way.
    """

    def __init__(self, row_bits: int) -> None:
        self.on, self.row, self.last = bit(), word(row_bits), word(row_bits)


class BankAdds:
    """What a loader that adds tells a bank, and is told: the descriptor of a row of sums is written where
    `enable` is high in phase 0.

    row: of all banks, and rows, None where no loader adds. busy: in phase 2, the row of `rows` of phase 0 may
    not be read.
    """

    def __init__(self, row: SignalType, rows: AddedRows | None) -> None:
        self.enable, self.row, self.kind = bit(), row, word(DESCRIPTOR_BITS)
        self.rows, self.busy = rows, bit()


class RowAsk:
    """A row that somebody wants to read of a bank: `want` (level) with row and bank (a bit for each).

    taken: strobe; the next row may be wanted in the clock behind it. comes: level, in the four clocks in
    which RowsRead has it. Who takes a row of all banks at once says no bank.
    """

    def __init__(self, banks: int, row_bits: int) -> None:
        self.want, self.row, self.bank = bit(), word(row_bits), word(banks)
        self.taken, self.comes = bit(), bit()


class Adding:
    """What a loader needs to add: a turn in which a row is read, and what is read of each bank.

    olds: u128 of each bank, from nine clocks behind `taken` on. busy: level, in phase 2, the next row may not
    be read. Else it is for all banks.
    """

    def __init__(
        self, ask: RowAsk, olds: Sequence[SignalType], rows: AddedRows, banks: Sequence[BankAdds]
    ) -> None:
        self.ask, self.olds, self.rows, self.banks, self.busy = ask, olds, rows, banks, bit()


class LoadedWord:
    """A word of GroupWrite that waits for its clock, and its row."""

    def __init__(self, row_bits: int) -> None:
        self.enable, self.data, self.row = bit(), word(GROUP_BITS), word(row_bits)


class BankLanes(Bundle):
    """Eight lanes of rows: of source and position from phase 2 on, of the reader from 0 on.

    hidden: from phase 3 on, the reader's values are 0.
    """

    source, source_distances = word(GROUP_BITS), word(DISTANCES_BITS)
    local, distances = word(GROUP_BITS), word(DISTANCES_BITS)
    shown, hidden = word(GROUP_BITS), bit()


class GroupWrite:
    """Values to load: with `enable` in phases 1, 2, 3, 0, eight lanes each of the row in phase 1.

    row: of all banks, each of which has an `enable` and data of its own.
    """

    def __init__(self, row: SignalType) -> None:
        self.enable, self.row, self.data = bit(), row, word(GROUP_BITS)


class GroupRead:
    """A row to read, of all banks, which holds from a phase 0 to a phase 3, and what a bank gives of it.

    descriptor: in the next turn; data: in the turn behind it, eight lanes a clock, 0 of a row of class 0.
    """

    def __init__(self, row: SignalType) -> None:
        self.row, self.descriptor, self.data = row, word(DESCRIPTOR_BITS), word(GROUP_BITS)


class BankTop:
    """The largest symbol of rows of a bank: ask (strobe) with the first of `words` times eight rows.

    row, words: of all banks, each of which looks at them with its own `ask`. known: strobe; symbol holds from
    there until the next ask.
    """

    def __init__(self, row: SignalType, words: SignalType) -> None:
        self.ask, self.row, self.words = bit(), row, words
        self.known, self.symbol = bit(), word(SYMBOL_BITS)


class RowsRead(Bundle):
    """What was read of a bank: eight lanes a clock."""

    data = word(GROUP_BITS)


class LineRead:
    """The same of all banks, side by side, the first one lowest: values and descriptors."""

    def __init__(self, banks: int) -> None:
        self.data, self.descriptor = word(banks * GROUP_BITS), word(banks * DESCRIPTOR_BITS)


class BankLoads:
    """What is loaded into a bank."""

    def __init__(self, values: GroupWrite, side: SideWrite, added: BankAdds) -> None:
        self.values, self.side, self.added = values, side, added


class UnitRows:
    """Ports of all barrel units: lists with an element for each bank."""

    def __init__(
        self, positions: Sequence[CodedPosition], decode_blocks: Sequence[BankBlock],
        sums: Sequence[CodedSums], sources: Sequence[CodedSource], encode_blocks: Sequence[BankBlock],
    ) -> None:  # fmt: skip
        self.positions, self.decode_blocks, self.sums = positions, decode_blocks, sums
        self.sources, self.encode_blocks = sources, encode_blocks


class RawRows:
    """The rows of raw_packer, and the first one of its block, held from start to done."""

    def __init__(self, source: RawSource, first: SignalType) -> None:
        self.source, self.first = source, first


class PlannedRows:
    """Rows for the planner: whether those that are read now count (level), and the stream of their values."""

    def __init__(self, counts: SignalType, words: Stream) -> None:
        self.counts, self.words = counts, words


class MemoryPort:
    """Memory's side of a nic_core (docs/develop/engine.md, "NIC core and units").

    phase u4 (out). rows, raw: rows of units, and of raw_packer. top: the largest symbol of a frame to send.
    clear: strobe, clear_rows u14 rows from clear_row u20 on are to read as zeros; both hold until `cleared`
    (strobe). rows_rst (out): resets what takes packets of rows. bad_packets u3: strobes, to be counted.
    planned: sums for the next plan. made: packets of rows that count for a list. floats: what became of
    packets of floats.
    """

    def __init__(
        self, rows: UnitRows, raw: RawRows, top: TopPort, planned: PlannedRows, made: MadeRows,
        floats: FloatReport,
    ) -> None:  # fmt: skip
        self.phase, self.rows, self.raw, self.top = word(4), rows, raw, top
        self.clear, self.cleared = bit(), bit()
        self.clear_row, self.clear_rows = word(ROW_BITS), word(FRAME_ROW_BITS)
        self.rows_rst, self.bad_packets, self.planned, self.made = bit(), word(3), planned, made
        self.floats = floats


class RowCommands:
    """What is loaded and read: three commands side by side."""

    def __init__(self, load_values: RowCommand, load_side: RowCommand, unload: RowCommand) -> None:
        self.load_values, self.load_side, self.unload = load_values, load_side, unload
