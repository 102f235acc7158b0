"""A bank of rows for a barrel encoder and a barrel decoder (docs/develop/engine.md, "Banks of rows")."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.nic.memory import ports
from oscar_hdl.nic.memory.bank_kinds import KindWrite, bank_kinds, kind_writes
from oscar_hdl.nic.memory.bank_means import ROW_LOG2, bank_means
from oscar_hdl.nic.memory.bank_requests import bank_requests, thread_rows
from oscar_hdl.nic.memory.bank_values import bank_values
from oscar_hdl.nic.memory.ports import DESCRIPTOR_BITS, MEAN_BITS, SYMBOL_BITS
from oscar_hdl.nic.memory.rows_under_way import rows_under_way
from oscar_hdl.streams.bundles import bit, lane, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.largest import largest

KINDS_BITS = DESCRIPTOR_BITS * WIDTH
SOURCE_BITS, POSITION_BITS = 19, 4  # of a lane
VALUE_BITS, DISTANCE_BITS, KIND_BITS, HEAD_BITS = 16, 3, 7, 11  # a header: class, size << 4, mean << 7
TREE = 4  # clocks from the descriptors of eight rows to the largest symbol


@block
def bank_turns(clk, rst, phase, source, position, hit3, turn):
    """Decide which of the requests that are looked at are answered.

    source, position: BankRequest. A source's header and a position's row need the same memory for a turn: the
    header goes first, then the row. hit3: the row may not be read yet. turn: BankTurn.
    """
    owed, row3, header3 = bit(), bit(), bit()

    @always_comb
    def serve():
        turn.headed2.next = source.some and source.header and source.read and not owed
        source.served.next = turn.headed3 or not header3
        position.served.next = not row3 or not (hit3 or turn.headed3)
        turn.row_goes3.next = position.some and row3 and not hit3 and not turn.headed3

    @always(clk.posedge)
    def keep():
        if phase[2:] == 2:
            turn.headed3.next = turn.headed2
            header3.next = source.header and source.read
            row3.next = position.read and not position.header
        if phase[2:] == 3:
            if turn.row_goes3:
                owed.next = False
            elif position.some and row3 and turn.headed3:
                owed.next = True
        if rst:
            owed.next = False

    return serve, keep


@block
def source_lane(value, upper, distance, header, headed, data):
    """Give one of eight lanes of a row, or of a header, in whose upper bits anything may be: the value's."""

    @always_comb
    def join():
        data.next = concat(distance, value)
        if headed:
            data.next = concat(distance, upper, header)

    return join


@block
def position_lane(distance, mean, headed, data):
    """Give one of eight lanes of a row, or of a header."""

    @always_comb
    def join():
        data.next = concat(modbv(0)[1:], distance)
        if headed:
            data.next = mean

    return join


@block
def header_lane(clk, kind, mean, header):
    """Give the header of one of eight rows, a clock later."""

    @always(clk.posedge)
    def join():
        header.next = concat(mean, kind)

    return join


@block
def source_lanes(clk, words, distances, kinds, means, headed, data):
    """Give eight lanes of a row, or of the header whose kinds u88 and means u32 came a clock before.

    words u128, distances u24, data: 8 x u19.
    """
    headers, header = [word(HEAD_BITS) for _ in range(WIDTH)], word(HEAD_BITS * WIDTH)
    lanes = [word(SOURCE_BITS) for _ in range(WIDTH)]
    parts = []
    for i, one in enumerate(headers):
        kind = kinds(DESCRIPTOR_BITS * i + KIND_BITS, DESCRIPTOR_BITS * i)
        parts.append(header_lane(clk, kind, lane(means, i, MEAN_BITS), one))
    for i, one in enumerate(lanes):
        value, upper = lane(words, i, VALUE_BITS), words(VALUE_BITS * (i + 1), VALUE_BITS * i + HEAD_BITS)
        of_lane = lane(distances, i, DISTANCE_BITS), lane(header, i, HEAD_BITS)
        parts.append(source_lane(value, upper, *of_lane, headed, one))
    return parts, joined(headers, header), joined(lanes, data)


@block
def position_lanes(distances, means, headed, data):
    """Give eight lanes of a row, or of a header. distances u24, means u32, data: 8 x u4."""
    lanes = [word(POSITION_BITS) for _ in range(WIDTH)]
    parts = [
        position_lane(lane(distances, i, DISTANCE_BITS), lane(means, i, MEAN_BITS), headed, one)
        for i, one in enumerate(lanes)
    ]
    return parts, joined(lanes, data)


@block
def bank_top(clk, rst, phase, port, free, at, found):
    """Find the largest symbol of rows: look at eight descriptors in a clock of phase 3 or 0 with `free`.

    port: BankTop. at: which eight; found u88: their descriptors, three clocks later.
    """
    ROW_BITS = len(port.row)
    symbols, most = [word(SYMBOL_BITS) for _ in range(WIDTH)], word(SYMBOL_BITS)
    busy, left, asks, marks = bit(), word(len(port.words)), bit(), word(3 + TREE)
    # A clock later: a block RAM is far from who compares.
    ends = range(DESCRIPTOR_BITS, KINDS_BITS + 1, DESCRIPTOR_BITS)
    parts = [
        copied(clk, found(end, end - SYMBOL_BITS), symbol) for end, symbol in zip(ends, symbols, strict=True)
    ]
    tree = largest(clk, symbols, most)

    @always_comb
    def look():
        asks.next = busy and left != 0 and free and (phase[2:] == 3 or phase[2:] == 0)

    @always(clk.posedge)
    def go():
        port.known.next = False
        marks.next = (marks << 1) | asks
        if asks:
            at.next = at + 1
            left.next = left - 1
        if busy and left == 0 and marks == 0:
            busy.next = False
            port.known.next = True
        if port.ask:
            busy.next = True
            at.next = port.row[ROW_BITS:ROW_LOG2]
            left.next = port.words
            port.symbol.next = 0
        elif marks[2 + TREE] and most > port.symbol:
            port.symbol.next = most
        if rst:
            busy.next = False
            port.known.next = False
            marks.next = 0

    return parts, tree, look, go


@block
def row_bank(
    clk, rst, phase, position, decode_blocks, sums, source, encode_blocks, loads: ports.BankLoads, read, top,
    *, block_bits: int,
):  # fmt: skip
    """Serve both units, a loader and a reader.

    phase: of the units. position: CodedPosition, sums: CodedSums, source: CodedSource; decode_blocks,
    encode_blocks: BankBlock. loads: side rows in clocks of phase 1, which clears eight rows at a time.
    read: GroupRead. top: BankTop.
    The bank has 2^n rows, n the bits of read.row; blocks have 2^block_bits.
    """
    ROWS, values, side, added = len(read.row), loads.values, loads.side, loads.added
    comes, from_source = ports.BankArrival(ROWS, MEAN_BITS), ports.BankArrival(ROWS, MEAN_BITS + 4)
    wanted, sent = ports.BankRequest(ROWS, MEAN_BITS), ports.BankRequest(ROWS, MEAN_BITS + 4)
    change = KindWrite(ROWS)
    turn, lanes, hit3 = ports.BankTurn(), ports.BankLanes(), bit()
    row3, header3, header1 = word(ROWS), bit(), bit()
    sum_row, described_row = word(ROWS), word(ROWS)
    source_class, source_mean, mean = word(4), word(MEAN_BITS), word(MEAN_BITS)
    found = word(KINDS_BITS)
    means, means_later, source_means = (word(MEAN_BITS * WIDTH) for _ in range(3))
    headed1, headed_lanes, means_lanes = bit(), bit(), bit()
    live, free, top_at = bit(), bit(), word(ROWS - 3)

    parts = [
        bank_requests(clk, rst, phase, position, decode_blocks, comes, wanted, block_bits=block_bits),
        bank_requests(clk, rst, phase, source, encode_blocks, from_source, sent, block_bits=block_bits),
        bank_turns(clk, rst, phase, sent, wanted, hit3, turn),
        rows_under_way(clk, rst, phase, wanted.row, row3, turn.row_goes3, added, hit3),
        thread_rows(clk, decode_blocks, sums.thread, sums.row, sum_row, block_bits=block_bits),
        thread_rows(
            clk, decode_blocks, sums.described_thread, sums.described_row, described_row,
            block_bits=block_bits,
        ),
        bank_values(clk, phase, sent.row, wanted.row, sums, sum_row, values, side, read.row, lanes),
        kind_writes(clk, phase, side, sums, described_row, added, change),
        bank_kinds(
            clk, phase, change, from_source.row, turn, sent.row, wanted.row, top_at, read, source_class,
            found, live,
        ),
        bank_means(
            clk, phase, side, from_source.row, comes.asked, wanted.row, sent.row, source_mean, mean, means,
            source_means,
        ),
        bank_top(clk, rst, phase, top, free, top_at, found),
        copied(clk, means, means_later),
        source_lanes(
            clk, lanes.source, lanes.source_distances, found, source_means, headed_lanes, source.data
        ),
        position_lanes(lanes.distances, means_later, means_lanes, position.data),
    ]  # fmt: skip

    @always_comb
    def tell():
        from_source.found.next = concat(source_mean, source_class)
        comes.found.next = mean
        source.row_class.next = sent.info[4:]
        source.mean.next = sent.info[8:4]
        position.mean.next = wanted.info
        free.next = not turn.headed3
        position.local.next = 0
        if live:
            position.local.next = lanes.local
        read.data.next = lanes.shown

    # What is read in phase 3 is there in the next phase 2.
    @always(clk.posedge)
    def follow():
        if phase[2:] == 2:
            lanes.hidden.next = read.descriptor[4:] == 0
            row3.next = wanted.row
            header3.next = wanted.header
        if phase[2:] == 0:
            header1.next = header3
            headed1.next = turn.headed3
        if phase[2:] == 1:
            headed_lanes.next = headed1
            means_lanes.next = header1

    return parts, tell, follow
