"""Rows for raw_decoder and raw_packer, lane by lane, of banks that read and write eight lanes a clock."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import RawPosition, RawSource, SumPort
from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.nic.memory.ports import DISTANCES_BITS, GROUP_BITS, GroupWrite, RowAsk, RowsRead, SideWrite
from oscar_hdl.nic.memory.row_lines import bank_row
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.bundles import lane as part
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.zero import zero

LAST = 31
DISTANCE_BITS, VALUE_BITS = DISTANCES_BITS // WIDTH, GROUP_BITS // WIDTH
LANE_BITS = DISTANCE_BITS + VALUE_BITS


@block
def bank_of(clk, base, bank, *, block_bits: int, skip_bits: int):
    """Give the bank of a block, a bit for each, of the block's first row."""
    BANKS, LOW, HIGH = len(bank), block_bits, block_bits + skip_bits

    if skip_bits == 0:

        @always(clk.posedge)
        def find():
            bank.next = 1
    else:

        @always(clk.posedge)
        def find():
            for i in range(BANKS):
                bank.next[i] = base[HIGH:LOW] == i

    return find


@block
def kept_lanes(clk, rst, put, eight, take, lane, number, *, down: bool):
    """Keep two rows, of four words of eight lanes each, and give the lanes of one.

    put: strobe, the next word is `eight`. take: strobe, the lanes of the last row come, one a clock from
    three clocks behind it on: from the last one to the first (down) or the other way. number u5: how many
    come before the one of two clocks later.
    """
    BITS, END, HIGHEST = len(lane), len(eight), len(eight) - len(lane)
    memory, top, kept, moved = ([word(END) for _ in range(8)], word(END), word(END), word(END))
    write_at, read_at, half, backwards = word(3), word(3), bit(), word(5)

    if down:

        @always_comb
        def order():
            read_at.next = concat(half, backwards[5:3])
            moved.next = concat(kept[HIGHEST:], kept[END:HIGHEST])

        @always(clk.posedge)
        def give():
            lane.next = kept[END:HIGHEST]
    else:

        @always_comb
        def order():
            read_at.next = concat(half, number[5:3])
            moved.next = concat(kept[BITS:], kept[END:BITS])

        @always(clk.posedge)
        def give():
            lane.next = kept[BITS:]

    @always_comb
    def look():
        top.next = memory[read_at]
        backwards.next = ~number

    @always(clk.posedge)
    def move():
        if put:
            memory[write_at].next = eight
            write_at.next = write_at + 1
        number.next = number + 1
        if take:
            number.next = 0
            half.next = not write_at[2]
        kept.next = moved
        if number[3:] == 0:
            kept.next = top
        if rst:
            write_at.next = 0

    return order, give, look, move


@block
def raw_ask(
    clk, rst, port, base, waits, ask: RowAsk, put, put_mean, came, *, block_bits: int, skip_bits: int
):
    """Ask for the row that a raw unit wants, or the 32 of a header, and say when all is there.

    waits: level, the row must not be read yet; a header may.
    port: RawPosition or RawSource; with `header` all rows of the group are read for their means. put: strobe,
    eight lanes of the row come; put_mean: row `came` u5 of a header.
    """
    heads, wanted, left, beat, wants = bit(), word(len(port.row)), word(5), word(2), bit()
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}
    parts = [bank_row(base, wanted, ask.row, **placing), bank_of(clk, base, ask.bank, **placing)]

    @always_comb
    def show():
        ask.want.next = wants and (heads or not waits)
        put.next = ask.comes and not heads
        put_mean.next = ask.comes and heads and beat == 0

    @always(clk.posedge)
    def request():
        if port.ask:
            heads.next = port.header
            wanted.next = port.row
            left.next = 0
            if port.header:
                left.next = LAST
            wants.next = True
        elif ask.taken:
            left.next = left - 1
            if heads:
                wanted.next = wanted + 1
            if left == 0:
                wants.next = False
        if rst:
            wants.next = False

    @always(clk.posedge)
    def receive():
        beat.next = 0
        if ask.comes:
            beat.next = beat + 1
        if ask.comes and beat == 3:
            came.next = came + 1
            if not heads or came == LAST:
                port.ok.next = True
        if port.ask or port.take or rst:
            port.ok.next = False
            came.next = 0

    return parts, show, request, receive


@block
def lane_of(value, distance, both):
    """Give a lane: its distance above its value."""

    @always_comb
    def join():
        both.next = concat(distance, value)

    return join


@block
def raw_decode_rows(
    clk, rst, position: RawPosition, sums: SumPort, base, under_way, written, busy, ask: RowAsk,
    found: RowsRead, *, block_bits: int, skip_bits: int,
):  # fmt: skip
    """Give the raw decoder distances, local values, and means of the last header's group.

    under_way: level, a loader adds to rows, and none is read. written: strobe, a row's sums are. busy: level,
    a row was asked for whose sums aren't.
    """
    put, put_mean, came, number = bit(), bit(), word(5), word(5)
    lane, eight, local = word(LANE_BITS), word(LANE_BITS * WIDTH), word(VALUE_BITS)
    means, look_at, mean = [word(4) for _ in range(32)], word(5), word(4)
    taken, heads, lanes, owed = word(5), bit(), [word(LANE_BITS) for _ in range(WIDTH)], word(3)
    parts = [
        raw_ask(
            clk, rst, position, base, under_way, ask, put, put_mean, came, block_bits=block_bits,
            skip_bits=skip_bits,
        ),
        joined(lanes, eight),
        [
            lane_of(part(found.data, i, VALUE_BITS), part(found.distances, i, DISTANCE_BITS), one)
            for i, one in enumerate(lanes)
        ],
        kept_lanes(clk, rst, put, eight, position.take, lane, number, down=True),
    ]  # fmt: skip

    @always(clk.posedge)
    def count():
        busy.next = owed != 0
        if position.ask and not position.header:
            if not written:
                owed.next = owed + 1
        elif written:
            owed.next = owed - 1
        if rst:
            owed.next = 0

    @always(clk.posedge)
    def keep():
        if put_mean:
            means[came].next = found.mean
        if position.take:
            taken.next = position.row[5:]
            heads.next = position.header

    # A lane comes two clocks behind its number, and its mean with it.
    @always(clk.posedge)
    def look():
        look_at.next = taken
        if heads:
            look_at.next = LAST - number
        mean.next = means[look_at]

    @always(clk.posedge)
    def give():
        position.data.next = concat(modbv(0)[1:], lane[LANE_BITS:VALUE_BITS])
        if heads:
            position.data.next = mean
        elif number == 2:
            position.mean.next = mean
        local.next = lane[VALUE_BITS:]
        sums.local.next = local

    return parts, count, keep, look, give


@block
def raw_encode_rows(
    clk, rst, source: RawSource, base, ask: RowAsk, found: RowsRead, *, block_bits: int, skip_bits: int
):
    """Give the raw packer values."""
    put, put_mean, came, number, lane, never = bit(), bit(), word(5), word(5), word(VALUE_BITS), bit()
    parts = [
        raw_ask(
            clk, rst, source, base, never, ask, put, put_mean, came, block_bits=block_bits,
            skip_bits=skip_bits,
        ),
        zero(clk, never),
        kept_lanes(clk, rst, put, found.data, source.take, lane, number, down=False),
    ]  # fmt: skip

    @always(clk.posedge)
    def give():
        source.data.next = concat(modbv(0)[DISTANCE_BITS:], lane)
        source.mean.next = 0

    return parts, give


@block
def raw_sum_rows(
    clk, rst, phase, sums: SumPort, base, wants, held, writes, written, bank, values: GroupWrite,
    side: SideWrite, *, block_bits: int, skip_bits: int,
):  # fmt: skip
    """Gather the raw decoder's sums, and write a row of them when it is described.

    wants: level in phase 2 of the turn in which no row to be loaded may begin; it would be written in the
    same clocks as this one. writes: level in the four clocks of the writes; held: in the clock before each of
    them. written: strobe behind the writes. bank: a bit for each; of values and side those that `writes`.
    """
    memory, gathered, full = [word(GROUP_BITS) for _ in range(8)], word(GROUP_BITS), bit()
    write_at, read_at, number, half, beat = word(3), word(3), word(3), bit(), word(2)
    pending, begins, waited, row = bit(), bit(), bit(), word(len(sums.described_row))
    found = word(len(values.row))
    KEPT = GROUP_BITS - VALUE_BITS
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}
    parts = [bank_row(base, row, found, **placing), bank_of(clk, base, bank, **placing)]

    @always(clk.posedge)
    def gather():
        full.next = sums.valid and number == WIDTH - 1
        if sums.valid:
            gathered.next = concat(gathered[KEPT:], sums.total)
            number.next = number + 1
        if full:
            memory[write_at].next = gathered
            write_at.next = write_at + 1
        if rst:
            full.next = False
            number.next = 0
            write_at.next = 0

    @always(clk.posedge)
    def wait():
        if phase[2:] == 1:
            wants.next = pending
            pending.next = False
        if phase[2:] == 3:
            begins.next = wants
            waited.next = begins
            held.next = waited
        if sums.described:
            pending.next = True
            half.next = not half
            row.next = sums.described_row
            side.header_data.next = concat(sums.row_top, modbv(0)[4:], sums.row_size, sums.row_class)
        if rst:
            pending.next = False
            wants.next = False
            begins.next = False
            waited.next = False
            held.next = False
            half.next = True

    # The last eight lanes came first.
    @always_comb
    def look():
        read_at.next = concat(half, beat)

    @always_comb
    def turn():
        beat.next = ~phase[2:]

    @always(clk.posedge)
    def put():
        writes.next = held
        values.data.next = memory[read_at]
        values.row.next = found
        values.enable.next = held
        side.kind.next = held and phase[2:] == 0
        written.next = held and phase[2:] == 3

    return parts, gather, wait, look, turn, put
