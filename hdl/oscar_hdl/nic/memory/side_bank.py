"""Distances, means and descriptors of a bank of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, FOUR, SYMBOL_BITS, TURNS
from oscar_hdl.nic.memory.bank_top import largest
from oscar_hdl.nic.memory.side_four import Described, DescriptorWrite, side_four
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def symbol_of(descriptor: Any, symbol: Any) -> Any:
    """Give the largest symbol that a descriptor tells."""

    @always_comb
    def cut() -> None:
        symbol.next = descriptor[11:7]

    return cut


@block
def live_row(descriptors: Sequence[Any], hot: Any, live: Any) -> Any:
    """Say whether the row whose bit of `hot` is 1 has a class above 0."""
    ROWS = len(descriptors)
    lives = word(ROWS)

    @always_comb
    def look() -> None:
        for row in range(ROWS):
            lives.next[row] = hot[row] and descriptors[row][4:] != 0

    @always_comb
    def join() -> None:
        live.next = lives != 0

    return look, join


@block
def one_of_four(clk: Any, descriptors: Sequence[Any], lane: Any, chosen: Any) -> Any:
    """Choose one of a memory's four descriptors by the two lower bits of `lane`, a clock later."""

    first, second, third, fourth = descriptors

    @always(clk.posedge)
    def choose() -> None:
        if lane[1]:
            chosen.next = third
            if lane[0]:
                chosen.next = fourth
        else:
            chosen.next = first
            if lane[0]:
                chosen.next = second

    return choose


@block
def row_means(clk: Any, write: Any, look: Any, found: Any, *, index: int) -> Any:
    """Keep each row's mean; found u4 is that of the row that was in `look` (a register) two clocks before."""
    at, enable, data = word(len(look)), bit(), word(4)
    memory = block_ram(clk, enable, at, data, read_at=look, read=found)

    @always(clk.posedge)
    def put() -> None:
        at.next = write.row
        data.next = write.header_data[11:7]
        enable.next = write.header[index]

    return memory, put


@block
def describe(valid: Any, row: Any, row_top: Any, row_size: Any, row_class: Any, all: Any) -> Any:
    """Give all that says what a row is like."""

    @always_comb
    def join() -> None:
        all.next = concat(valid, row, row_top, row_size, row_class)

    return join


@block
def keep_described(clk: Any, clocks: Any, all: Any, kept: Any) -> Any:
    """Keep a row that is described in a clock of phase 0 modulo 4, until the next such."""
    ROW_BITS = len(kept.row)
    ROW_END = DESCRIPTOR_BITS + ROW_BITS

    @always(clk.posedge)
    def keep() -> None:
        if clocks.is_0:
            kept.valid.next = all[ROW_END]
            kept.row.next = all[ROW_END:DESCRIPTOR_BITS]
            kept.data.next = all[DESCRIPTOR_BITS:]

    return keep


@block
def descriptor_writes(
    clk: Any, clocks: Any, write: Any, sums: Any, raw_sums: Any, described: Any, *, index: int
) -> Any:
    """Give what is to be written of descriptors, two clocks later: of a SideWrite, engines, the raw decoder.

    sums, raw_sums: Described. described: DescriptorWrite.
    """
    ROW_BITS, LANES = len(write.row), TURNS * FOUR
    one, clears, row, data = bit(), word(LANES), word(ROW_BITS), word(DESCRIPTOR_BITS)

    @always(clk.posedge)
    def choose() -> None:
        one.next = False
        clears.next = 0
        row.next = write.row
        data.next = 0
        if clocks.is_1:
            one.next = write.header[index]
            if write.header[index]:
                data.next = concat(write.header_data[15:11], write.header_data[7:])
            if write.clear[index]:
                clears.next = write.lanes
        elif clocks.is_3:
            one.next = sums.valid
            row.next = sums.row
            data.next = sums.data
        elif clocks.is_0:
            one.next = raw_sums.valid
            row.next = raw_sums.row
            data.next = raw_sums.data

    @always(clk.posedge)
    def find() -> None:
        for lane in range(LANES):
            described.lanes.next[lane] = clears[lane] or (one and row[5:] == lane)
        described.group.next = row[ROW_BITS:5]
        described.data.next = data

    return choose, find


@block
def side_bank(
    clk: Any, clocks: Any, memories: Sequence[Any], rows: Any, sums: Sequence[Any],
    described_rows: Sequence[Any], raw_described: Any, raw_row: Any, raw_sums: Any, values: Sequence[Any],
    position_fours: Sequence[Any], source_fours: Sequence[Any], live: Any, live_later: Any, mean: Any,
    source_mean: Any, write: Any, read: Any, *, index: int,
) -> Any:  # fmt: skip
    """Keep all of a bank's rows but values.

    memories: MemoryClocks. sums, raw_sums: SumPorts, of which described_rows and raw_row are the rows in the
    bank, raw_described: strobe. values: fours as the value bank shows them, position_fours, source_fours: see
    side_four.
    live: three clocks behind the clock of phase modulo 4 which is 0: the row whose turn it is to be taken by
    an engine's decoder has a class above 0; 3: the raw units' rows. live_later: the same, a clock later.
    mean, source_mean u4: of the row that enters a ring three clocks before; mean in phase 1 modulo 4: of the
    raw decoder's row.
    write: SideWrite, in clocks of phase 1 modulo 4. read: BankRead.
    """
    ROW_BITS, GROUPS = len(write.row), len(write.row) - 5
    ALL_BITS = DESCRIPTOR_BITS + ROW_BITS + 1
    everything, raw_all, chosen = [word(ALL_BITS) for _ in sums], word(ALL_BITS), word(ALL_BITS)
    engine_row, raw_described_row = Described(ROW_BITS), Described(ROW_BITS)
    described = DescriptorWrite(ROW_BITS)
    group_means, gathered = word(4 * FOUR), word(4 * (FOUR - 1))
    look_row, look_group, lane_2, lane_3 = word(ROW_BITS), word(GROUPS), word(5), word(5)
    hot_3, hot_4, looked = word(TURNS * FOUR), word(TURNS), word(DESCRIPTOR_BITS)
    nearer = [word(DESCRIPTOR_BITS) for _ in range(TURNS)]
    descriptors = [word(DESCRIPTOR_BITS) for _ in range(TURNS * FOUR)]
    tops = [word(SYMBOL_BITS) for _ in range(TURNS * FOUR)]
    mean_row, source_row, entering, next_look = (word(ROW_BITS) for _ in range(4))
    position_enters, source_enters = rows.position[0], rows.source[0]
    LANES = TURNS * FOUR

    parts = [
        describe(port.described, row, port.row_top, port.row_size, port.row_class, one)
        for port, row, one in zip(sums, described_rows, everything, strict=True)
    ]
    parts += [
        describe(raw_described, raw_row, raw_sums.row_top, raw_sums.row_size, raw_sums.row_class, raw_all),
        hot_tree(None, everything, clocks.describes, chosen),
        keep_described(clk, clocks, chosen, engine_row),
        keep_described(clk, clocks, raw_all, raw_described_row),
        descriptor_writes(clk, clocks, write, engine_row, raw_described_row, described, index=index),
        row_means(clk, write, mean_row, mean, index=index),
        row_means(clk, write, source_row, source_mean, index=index),
    ]
    fours = [
        side_four(
            clk, memories[m], rows, write, group_means, described, look_group, values[m], position_fours[m],
            source_fours[m], descriptors[FOUR * m : FOUR * (m + 1)], index=index, four=m,
        )
        for m in range(TURNS)
    ]  # fmt: skip

    compare = [symbol_of(descriptor, one) for descriptor, one in zip(descriptors, tops, strict=True)]
    compare.append(largest(clk, tops, read.top))
    # A descriptor is chosen of 32 in two clocks; whether its row is live has to be known after one.
    choose = [
        one_of_four(clk, descriptors[FOUR * m : FOUR * (m + 1)], lane_3, nearer[m]) for m in range(TURNS)
    ]
    wanted = [entering, read.top_row, read.described, rows.raw_sums, rows.raw_source]
    choose.append(hot_tree(None, wanted, clocks.looks, next_look))
    choose += [hot_tree(None, nearer, hot_4, looked), live_row(descriptors, hot_3, live)]

    @always_comb
    def split() -> None:
        entering.next = position_enters[ROW_BITS:]
        look_group.next = look_row[ROW_BITS:5]
        group_means.next = concat(write.header_data[11:7], gathered)

    @always(clk.posedge)
    def look() -> None:
        look_row.next = next_look
        lane_2.next = look_row[5:]
        lane_3.next = lane_2
        for lane in range(LANES):
            hot_3.next[lane] = lane_2 == lane
        for memory in range(TURNS):
            hot_4.next[memory] = lane_3[5:2] == memory
        mean_row.next = entering
        if clocks.is_2:
            mean_row.next = rows.raw_position[ROW_BITS:]
        source_row.next = source_enters[ROW_BITS:]

    @always(clk.posedge)
    def show() -> None:
        live_later.next = live
        if clocks.is_2:
            read.descriptor.next = looked

    @always(clk.posedge)
    def gather_means() -> None:
        if clocks.is_1 and write.header[index]:
            gathered.next = concat(write.header_data[11:7], gathered[12:4])

    return parts, fours, compare, choose, split, look, show, gather_means
