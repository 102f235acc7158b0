"""Rows for raw_decoder and raw_packer, lane by lane, of banks that read and write eight lanes a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.barrel.ports import WIDTH
from oscar_hdl.coder.ports import RawPosition, RawSource, SumPort
from oscar_hdl.nic.memory.bank_ports import SideWrite
from oscar_hdl.nic.memory.barrel_ports import DISTANCES_BITS, GROUP_BITS, GroupWrite, RowAsk, RowsRead
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined

LAST = 31
DISTANCE_BITS, VALUE_BITS = DISTANCES_BITS // WIDTH, GROUP_BITS // WIDTH
LANE_BITS = DISTANCE_BITS + VALUE_BITS


@block
def bank_row(base: Any, row: Any, found: Any, *, block_bits: int, skip_bits: int) -> Any:
    """Leave out the bits of a row's number that choose its bank.

    base: first row of the block in the NIC's memory, a multiple of 2^block_bits; row: u12, in the block.
    Above block_bits come skip_bits that say the bank; what is above these, and the row, are left.
    """
    LOW = block_bits + skip_bits
    TOP = LOW + len(found) - block_bits
    if len(base) < TOP:
        raise ValueError(f"rows of the memory's {TOP} bits need bases as wide, got {len(base)} bits")
    if not 5 <= block_bits <= min(12, len(found)):
        raise ValueError(f"a block has 2^5 to 2^12 rows and fits a bank, got 2^{block_bits}")

    if TOP == LOW:

        @always_comb
        def place() -> None:
            found.next = row[block_bits:]
    else:

        @always_comb
        def place() -> None:
            found.next = concat(base[TOP:LOW], row[block_bits:])

    return place


@block
def bank_of(clk: Any, base: Any, bank: Any, *, block_bits: int, skip_bits: int) -> Any:
    """Give the bank of a block, a bit for each, of the block's first row."""
    BANKS, LOW, HIGH = len(bank), block_bits, block_bits + skip_bits

    if skip_bits == 0:

        @always(clk.posedge)
        def find() -> None:
            bank.next = 1
    else:

        @always(clk.posedge)
        def find() -> None:
            for i in range(BANKS):
                bank.next[i] = base[HIGH:LOW] == i

    return find


@block
def kept_lanes(
    clk: Any, rst: Any, put: Any, eight: Any, take: Any, lane: Any, number: Any, *, down: bool
) -> Any:
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
        def order() -> None:
            read_at.next = concat(half, backwards[5:3])
            moved.next = concat(kept[HIGHEST:], kept[END:HIGHEST])

        @always(clk.posedge)
        def give() -> None:
            lane.next = kept[END:HIGHEST]
    else:

        @always_comb
        def order() -> None:
            read_at.next = concat(half, number[5:3])
            moved.next = concat(kept[BITS:], kept[END:BITS])

        @always(clk.posedge)
        def give() -> None:
            lane.next = kept[BITS:]

    @always_comb
    def look() -> None:
        top.next = memory[read_at]
        backwards.next = ~number

    @always(clk.posedge)
    def move() -> None:
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
    clk: Any, rst: Any, port: Any, base: Any, ask: RowAsk, put: Any, put_mean: Any, came: Any, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Ask for the row that a raw unit wants, or the 32 of a header, and say when all is there.

    port: RawPosition or RawSource; with `header` all rows of the group are read for their means. put: strobe,
    eight lanes of the row come; put_mean: row `came` u5 of a header.
    """
    heads, wanted, left, beat = bit(), word(len(port.row)), word(5), word(2)
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}
    parts = [bank_row(base, wanted, ask.row, **placing), bank_of(clk, base, ask.bank, **placing)]

    @always_comb
    def show() -> None:
        put.next = ask.comes and not heads
        put_mean.next = ask.comes and heads and beat == 0

    @always(clk.posedge)
    def request() -> None:
        if port.ask:
            heads.next = port.header
            wanted.next = port.row
            left.next = 0
            if port.header:
                left.next = LAST
            ask.want.next = True
        elif ask.taken:
            left.next = left - 1
            if heads:
                wanted.next = wanted + 1
            if left == 0:
                ask.want.next = False
        if rst:
            ask.want.next = False

    @always(clk.posedge)
    def receive() -> None:
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
def lane_of(data: Any, distances: Any, both: Any, *, lane: int) -> Any:
    """Give one of eight lanes: its distance above its value."""
    VALUE, VALUE_END = VALUE_BITS * lane, VALUE_BITS * (lane + 1)
    DISTANCE, DISTANCE_END = DISTANCE_BITS * lane, DISTANCE_BITS * (lane + 1)

    @always_comb
    def join() -> None:
        both.next = concat(distances[DISTANCE_END:DISTANCE], data[VALUE_END:VALUE])

    return join


@block
def raw_decode_rows(
    clk: Any, rst: Any, position: RawPosition, sums: SumPort, base: Any, ask: RowAsk, found: RowsRead, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Give the raw decoder distances, local values, and means of the last header's group."""
    put, put_mean, came, number = bit(), bit(), word(5), word(5)
    lane, eight, local = word(LANE_BITS), word(LANE_BITS * WIDTH), word(VALUE_BITS)
    means, look_at, mean = [word(4) for _ in range(32)], word(5), word(4)
    taken, heads, lanes = word(5), bit(), [word(LANE_BITS) for _ in range(WIDTH)]
    parts = [
        raw_ask(
            clk, rst, position, base, ask, put, put_mean, came, block_bits=block_bits, skip_bits=skip_bits
        ),
        joined(lanes, eight),
        [lane_of(found.data, found.distances, one, lane=i) for i, one in enumerate(lanes)],
        kept_lanes(clk, rst, put, eight, position.take, lane, number, down=True),
    ]

    @always(clk.posedge)
    def keep() -> None:
        if put_mean:
            means[came].next = found.mean
        if position.take:
            taken.next = position.row[5:]
            heads.next = position.header

    # A lane comes two clocks behind its number, and its mean with it.
    @always(clk.posedge)
    def look() -> None:
        look_at.next = taken
        if heads:
            look_at.next = LAST - number
        mean.next = means[look_at]

    @always(clk.posedge)
    def give() -> None:
        position.data.next = concat(modbv(0)[1:], lane[LANE_BITS:VALUE_BITS])
        if heads:
            position.data.next = mean
        elif number == 2:
            position.mean.next = mean
        local.next = lane[VALUE_BITS:]
        sums.local.next = local

    return parts, keep, look, give


@block
def raw_encode_rows(
    clk: Any, rst: Any, source: RawSource, base: Any, ask: RowAsk, found: RowsRead, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Give the raw packer values."""
    put, put_mean, came, number, lane = bit(), bit(), word(5), word(5), word(VALUE_BITS)
    parts = [
        raw_ask(clk, rst, source, base, ask, put, put_mean, came, block_bits=block_bits, skip_bits=skip_bits),
        kept_lanes(clk, rst, put, found.data, source.take, lane, number, down=False),
    ]

    @always(clk.posedge)
    def give() -> None:
        source.data.next = concat(modbv(0)[DISTANCE_BITS:], lane)
        source.mean.next = 0

    return parts, give


@block
def raw_sum_rows(
    clk: Any, rst: Any, phase: Any, sums: SumPort, base: Any, held: Any, writes: Any, values: GroupWrite,
    side: SideWrite, *, block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Gather the raw decoder's sums, and write a row of them when it is described.

    writes: level in the four clocks of the writes; held: in the clock before each of them.
    """
    memory, gathered, full = [word(GROUP_BITS) for _ in range(8)], word(GROUP_BITS), bit()
    write_at, read_at, number, half, beat = word(3), word(3), word(3), bit(), word(2)
    pending, row, bank = bit(), word(len(sums.described_row)), word(len(values.enable))
    found = word(len(values.row))
    KEPT = GROUP_BITS - VALUE_BITS
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}
    parts = [bank_row(base, row, found, **placing), bank_of(clk, base, bank, **placing)]

    @always(clk.posedge)
    def gather() -> None:
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
    def wait() -> None:
        if phase[2:] == 1:
            held.next = pending
            pending.next = False
        if sums.described:
            pending.next = True
            half.next = not half
            row.next = sums.described_row
            side.header_data.next = concat(sums.row_top, modbv(0)[4:], sums.row_size, sums.row_class)
        if rst:
            pending.next = False
            held.next = False
            half.next = True

    # The last eight lanes came first.
    @always_comb
    def look() -> None:
        read_at.next = concat(half, beat)

    @always_comb
    def turn() -> None:
        beat.next = phase[2:] ^ 1

    @always(clk.posedge)
    def put() -> None:
        writes.next = held
        values.data.next = memory[read_at]
        values.row.next = found
        side.row.next = found
        values.enable.next = 0
        side.kind.next = 0
        if held:
            values.enable.next = bank
            if phase[2:] == 0:
                side.kind.next = bank

    return parts, gather, wait, look, turn, put
