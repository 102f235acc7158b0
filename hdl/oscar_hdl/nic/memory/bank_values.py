"""Values and distances of a bank that serves barrel units: a memory for each eight lanes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.barrel_ports import DISTANCES_BITS, GROUP_BITS, GROUPS, GroupPort, LoadedWord
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.zero import zero


@block
def next_row(clk: Any, before: Any, after: Any) -> Any:
    """Give a row number to the next memory, a clock later."""

    @always(clk.posedge)
    def move() -> None:
        after.next = before

    return move


@block
def next_or_loaded(clk: Any, phase: Any, before: Any, loaded: Any, after: Any, *, first: int) -> Any:
    """Give a row number to the next memory, a clock later, but in phase `first` the one that is loaded."""
    FIRST = first

    @always(clk.posedge)
    def move() -> None:
        after.next = before
        if phase[2:] == FIRST:
            after.next = loaded

    return move


@block
def loaded_words(clk: Any, phase: Any, write: Any, held: LoadedWord, row: Any, *, index: int) -> Any:
    """Keep the second and the fourth word of a row for two clocks, and its number for four more."""

    @always(clk.posedge)
    def keep() -> None:
        if not phase[0]:
            held.data.next = write.data
            held.enable.next = write.enable[index]
        if phase[2:] == 3:
            held.row.next = write.row
            row.next = held.row

    return keep


@block
def group_memory(
    clk: Any, phase: Any, up: Any, down: Any, enable: Any, loaded: Any, puts_total: Any, total: Any,
    puts_side: Any, side_data: Any, *, group: int,
) -> Any:  # fmt: skip
    """Keep eight lanes of each row.

    up, down: GroupPort; values are written by down, distances by up. enable, loaded: of GroupWrite, in the
    phase before the one behind that of sums. puts_total: for four clocks, sums are written, which are total.
    puts_side: bit `group`, distances are written; side_data: of the row, for four clocks.
    """
    FIRST = group  # so many clocks behind the first memory's on one port
    LOW, HIGH = DISTANCES_BITS * group, DISTANCES_BITS * (group + 1)
    LAST = GROUPS - 1 - group  # behind the last memory's on the other
    put, put_side, data, distances = bit(), bit(), word(GROUP_BITS), word(DISTANCES_BITS)

    values = block_ram(clk, put, down.row, data, read_at=up.row, read=up.read, found=down.read)
    sides = block_ram(
        clk, put_side, up.row, distances, read_at=down.row, read=down.distances, found=up.distances
    )

    @always_comb
    def cut() -> None:
        distances.next = side_data[HIGH:LOW]
        put_side.next = puts_side[FIRST]

    @always(clk.posedge)
    def choose() -> None:
        data.next = loaded
        put.next = enable and phase[2:] == LAST
        if phase[2:] == (3 + LAST) % GROUPS:
            data.next = total
            put.next = puts_total

    return values, sides, cut, choose


@block
def word_of(
    clk: Any, phase: Any, parts: Sequence[Any], hidden: Any, chosen: Any, *, first: int, up: bool
) -> Any:  # fmt: skip
    """Give a word of each of four memories, a clock later: in phase `first` of the first or last.

    hidden: level, 0 instead of it.
    """
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
        if hidden:
            chosen.next = 0

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
    total1, held, row_before, here = word(GROUP_BITS), LoadedWord(ROW_BITS), word(ROW_BITS), bit()
    total_valid1, total_row1, read_row_before = bit(), word(ROW_BITS), word(ROW_BITS)
    side_data, puts_side, never = word(len(side.data)), word(GROUPS), bit()
    ups, downs = ([GroupPort(ROW_BITS) for _ in range(GROUPS)] for _ in range(2))
    up, down = ups[0].row, downs[GROUPS - 1].row
    up_words, down_words = [port.read for port in ups], [port.read for port in downs]
    up_sides, down_sides = [port.distances for port in ups], [port.distances for port in downs]

    # Words of a row are written in the order in which they come, not in that in which sums pass on that port.
    loaded = [write.data, held.data, write.data, held.data]
    enables = [here, held.enable, here, held.enable]
    loaded_rows = [write.row, held.row, held.row, row_before]
    memories = [
        group_memory(
            clk,
            phase,
            ups[g],
            downs[g],
            enables[g],
            loaded[g],
            total_valid1,
            total1,
            puts_side,
            side_data,
            group=g,
        )
        for g in range(GROUPS)
    ]
    chains = [next_row(clk, one.row, other.row) for one, other in pairwise(ups)]
    chains += [
        next_or_loaded(clk, phase, downs[g + 1].row, loaded_rows[g], downs[g].row, first=GROUPS - 1 - g)
        for g in range(GROUPS - 1)
    ]
    chains.append(loaded_words(clk, phase, write, held, row_before, index=index))
    words = [
        zero(clk, never),
        word_of(clk, phase, up_words, never, lanes.source, first=1, up=True),
        word_of(clk, phase, down_words, never, lanes.local, first=1, up=False),
        word_of(clk, phase, up_sides, never, lanes.source_distances, first=1, up=True),
        word_of(clk, phase, down_sides, never, lanes.distances, first=1, up=False),
        word_of(clk, phase, up_words, lanes.hidden, lanes.shown, first=3, up=True),
        word_of(clk, phase, up_sides, never, lanes.shown_distances, first=3, up=True),
    ]

    # The rows of memory 0 and of the last one; each next one looks at them a clock later.
    @always_comb
    def cut() -> None:
        here.next = write.enable[index]

    @always(clk.posedge)
    def look() -> None:
        up.next = source_row2
        if phase[2:] == 0:
            up.next = read_row_before
        elif phase[2:] == 1:
            up.next = side.row
        down.next = position_row2
        if phase[2:] == 3:
            down.next = total_row1
        elif phase[2:] == 0:
            down.next = row_before

    @always(clk.posedge)
    def take() -> None:
        total1.next = sums.total
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

    return memories, chains, words, cut, look, take
