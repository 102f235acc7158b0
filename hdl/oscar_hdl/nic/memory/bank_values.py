"""Values and distances of a bank that serves barrel units: a memory for each eight lanes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.barrel_ports import DISTANCES_BITS, GROUP_BITS, GROUPS, GroupPort
from oscar_hdl.streams.bundles import bit, word


@block
def dual_ram(
    clk: Any, at: Any, write: Any, data: Any, read: Any, other_at: Any, other_write: Any, other_data: Any,
    other_read: Any,
) -> Any:  # fmt: skip
    """Keep a word for each address, for two ports: at, write, data, read are of one, other_.. of the other.

    at: register. write: strobe, the word at `at` becomes data. read: the word there, two clocks later.
    Nothing sensible is read of a word that is written in that clock. Only one port writes in a clock, and the
    code says so: synthesis would else have the ports compare their addresses.
    """
    width, depth = len(data), len(at)
    if not width == len(read) == len(other_data) == len(other_read) or depth != len(other_at):
        raise ValueError("data and addresses of both ports have the same widths")
    memory = [word(width) for _ in range(1 << depth)]
    fetched, other_fetched = word(width), word(width)

    @always(clk.posedge)
    def access() -> None:
        if write:
            memory[at].next = data
        elif other_write:
            memory[other_at].next = other_data
        fetched.next = memory[at]
        other_fetched.next = memory[other_at]
        read.next = fetched
        other_read.next = other_fetched

    return access


@block
def next_row(clk: Any, before: Any, after: Any) -> Any:
    """Give a row number to the next memory, a clock later."""

    @always(clk.posedge)
    def move() -> None:
        after.next = before

    return move


@block
def group_memory(
    clk: Any, phase: Any, up: Any, down: Any, write: Any, puts_side: Any, side_data: Any, puts_total: Any, *,
    index: int, group: int,
) -> Any:  # fmt: skip
    """Keep eight lanes of each row.

    up, down: GroupPort. write: GroupWrite, whose data are up's. puts_side: bit `group`, distances are
    written; side_data: of the row, for four clocks. puts_total: for four clocks, sums are written, which are
    down's data.
    """
    FIRST = group  # so many clocks behind the first memory's on one port
    LOW, HIGH = DISTANCES_BITS * group, DISTANCES_BITS * (group + 1)
    LAST = GROUPS - 1 - group  # behind the last memory's on the other
    put, put_sums, put_side, never = bit(), bit(), bit(), bit()
    distances, nothing = word(DISTANCES_BITS), word(DISTANCES_BITS)

    values = dual_ram(clk, up.row, put, up.data, up.read, down.row, put_sums, down.data, down.read)
    sides = dual_ram(clk, up.row, put_side, distances, up.distances, down.row, never, nothing, down.distances)

    @always_comb
    def cut() -> None:
        distances.next = side_data[HIGH:LOW]
        put_side.next = puts_side[FIRST]

    @always(clk.posedge)
    def enable() -> None:
        put.next = write.enable[index] and phase[2:] == (3 + FIRST) % GROUPS
        put_sums.next = puts_total and phase[2:] == (3 + LAST) % GROUPS
        never.next = False
        nothing.next = 0

    return values, sides, cut, enable


@block
def word_of(clk: Any, phase: Any, parts: Sequence[Any], chosen: Any, *, first: int, up: bool) -> Any:
    """Give a word of each of four memories, a clock later: in phase `first` of the first or last."""
    one, two, three, four = parts if up else parts[::-1]
    FIRST, SECOND, THIRD = first % GROUPS, (first + 1) % GROUPS, (first + 2) % GROUPS

    @always(clk.posedge)
    def choose() -> None:
        chosen.next = four
        if phase[2:] == FIRST:
            chosen.next = one
        elif phase[2:] == SECOND:
            chosen.next = two
        elif phase[2:] == THIRD:
            chosen.next = three

    return choose


@block
def bank_values(
    clk: Any, phase: Any, source_row2: Any, position_row2: Any, sums: Any, sum_row: Any, write: Any,
    side: Any, read_row: Any, lanes: Any, *, index: int,
) -> Any:  # fmt: skip
    """Keep values and distances, and give eight lanes of a row a clock.

    source_row2, position_row2: rows to be read, in phase 2. sums: BarrelSums; sum_row: the row in the bank.
    write: GroupWrite, side: SideWrite. read_row: of GroupRead. lanes: BankLanes, of source and position five
    clocks behind their rows, the last lanes first for positions.
    """
    ROW_BITS = len(read_row)
    loaded, total1, total2 = word(GROUP_BITS), word(GROUP_BITS), word(GROUP_BITS)
    total_valid1, total_row1, read_row_before = bit(), word(ROW_BITS), word(ROW_BITS)
    side_data, puts_side = word(len(side.data)), word(GROUPS)
    ups = [GroupPort(ROW_BITS, loaded) for _ in range(GROUPS)]
    downs = [GroupPort(ROW_BITS, total2) for _ in range(GROUPS)]
    up, down = ups[0].row, downs[GROUPS - 1].row
    up_words, down_words = [port.read for port in ups], [port.read for port in downs]
    up_sides, down_sides = [port.distances for port in ups], [port.distances for port in downs]

    memories = [
        group_memory(
            clk, phase, ups[g], downs[g], write, puts_side, side_data, total_valid1, index=index, group=g
        )
        for g in range(GROUPS)
    ]
    chains = [next_row(clk, one.row, other.row) for one, other in pairwise(ups)]
    chains += [next_row(clk, one.row, other.row) for one, other in pairwise(downs[::-1])]
    words = [
        word_of(clk, phase, up_words, lanes.source, first=1, up=True),
        word_of(clk, phase, down_words, lanes.local, first=1, up=False),
        word_of(clk, phase, up_sides, lanes.source_distances, first=1, up=True),
        word_of(clk, phase, down_sides, lanes.distances, first=1, up=False),
        word_of(clk, phase, up_words, lanes.shown, first=3, up=True),
        word_of(clk, phase, up_sides, lanes.shown_distances, first=3, up=True),
    ]

    # The rows of memory 0 and of the last one; each next one looks at them a clock later.
    @always(clk.posedge)
    def look() -> None:
        up.next = source_row2
        if phase[2:] == 3:
            up.next = write.row
        elif phase[2:] == 0:
            up.next = read_row_before
        elif phase[2:] == 1:
            up.next = side.row
        down.next = position_row2
        if phase[2:] == 3:
            down.next = total_row1

    @always(clk.posedge)
    def take() -> None:
        loaded.next = write.data
        total1.next = sums.total
        total2.next = total1
        if phase[2:] == 2:
            total_valid1.next = sums.valid
            total_row1.next = sum_row
        if phase[2:] == 3:
            read_row_before.next = read_row
        if phase[2:] == 1:
            side_data.next = side.data
        puts_side.next = concat(puts_side[GROUPS - 1 :], False)
        if phase[2:] == 1 and side.distances[index]:
            puts_side.next = concat(puts_side[GROUPS - 1 :], True)

    return memories, chains, words, look, take
