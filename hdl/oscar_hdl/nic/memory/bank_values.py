"""Values and distances of a bank that serves barrel units: a memory for each eight lanes."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always, block, concat

from oscar_hdl.nic.memory.ports import DISTANCES_BITS, GROUP_BITS, GROUPS, GroupPort, LoadedWord
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, lane, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.zero import zero


@block
def next_or_loaded(clk, phase, before, loaded, after, *, first: int):
    """Give a row number to the next memory, a clock later, but in phase `first` the one that is loaded."""

    @always(clk.posedge)
    def move():
        after.next = before
        if phase[2:] == first:
            after.next = loaded

    return move


@block
def group_memory(
    clk, phase, up, down, enable, loaded, puts_total, total, puts_side, side_data, *, group: int
):
    """Keep eight lanes of each row.

    up, down: GroupPort; values are written by down, distances by up. enable, loaded: of GroupWrite, in the
    phase before the one behind that of sums. puts_total: for four clocks, sums are written, which are total.
    puts_side: bit `group`, distances are written; side_data: of the row, for four clocks.
    """
    LAST = GROUPS - 1 - group  # so many clocks behind the last memory's on the port `down`
    put, data = bit(), word(GROUP_BITS)

    values = block_ram(clk, put, down.row, data, read_at=up.row, read=up.read, found=down.read)
    sides = block_ram(
        clk, puts_side(group), up.row, lane(side_data, group, DISTANCES_BITS), read_at=down.row,
        read=down.distances, found=up.distances,
    )  # fmt: skip

    @always(clk.posedge)
    def choose():
        data.next = loaded
        put.next = enable and phase[2:] == LAST
        if phase[2:] == (3 + LAST) % GROUPS:
            data.next = total
            put.next = puts_total

    return values, sides, choose


@block
def word_of(clk, phase, parts: Sequence, hidden, chosen, *, first: int, up: bool):
    """Give a word of each of four memories, a clock later: in phase `first` of the first or last.

    hidden: level, 0 instead of it.
    """
    one, two, three, four = parts if up else parts[::-1]
    FIRST, SECOND, THIRD = first % GROUPS, (first + 1) % GROUPS, (first + 2) % GROUPS

    @always(clk.posedge)
    def choose():
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
def bank_values(clk, phase, source_row2, position_row2, sums, sum_row, write, side, read_row, lanes):
    """Keep values and distances, and give eight lanes of a row a clock.

    source_row2, position_row2: rows to be read, in phase 2. sums: CodedSums; sum_row: the row in the bank.
    write: GroupWrite, side: SideWrite. read_row: of GroupRead. lanes: BankLanes, of source and position five
    clocks behind their rows, the last lanes first for positions.
    """
    ROW_BITS = len(read_row)
    total1, held = word(GROUP_BITS), LoadedWord(ROW_BITS)
    total_valid1, total_row1, read_row_before = bit(), word(ROW_BITS), word(ROW_BITS)
    side_data, puts_side, never = word(len(side.data)), word(GROUPS), bit()
    ups, downs = ([GroupPort(ROW_BITS) for _ in range(GROUPS)] for _ in range(2))
    up, down, held_row = ups[0].row, downs[GROUPS - 1].row, held.row
    up_words, down_words = [port.read for port in ups], [port.read for port in downs]
    up_sides, down_sides = [port.distances for port in ups], [port.distances for port in downs]

    # Words of a row are written in the order in which they come, not in that in which sums pass on that port.
    loaded = [held.data, write.data, held.data, write.data]
    enables = [held.enable, write.enable, held.enable, write.enable]
    to_write = total_valid1, total1, puts_side, side_data
    memories = [
        group_memory(clk, phase, ups[g], downs[g], enables[g], loaded[g], *to_write, group=g)
        for g in range(GROUPS)
    ]
    chains = [copied(clk, one.row, other.row) for one, other in pairwise(ups)]
    chains += [
        next_or_loaded(clk, phase, downs[g + 1].row, held_row, downs[g].row, first=GROUPS - 1 - g)
        for g in range(GROUPS - 1)
    ]
    words = [
        zero(clk, never),
        word_of(clk, phase, up_words, never, lanes.source, first=1, up=True),
        word_of(clk, phase, down_words, never, lanes.local, first=1, up=False),
        word_of(clk, phase, up_sides, never, lanes.source_distances, first=1, up=True),
        word_of(clk, phase, down_sides, never, lanes.distances, first=1, up=False),
        word_of(clk, phase, up_words, lanes.hidden, lanes.shown, first=3, up=True),
    ]

    @always(clk.posedge)
    def take():
        # The rows of memory 0 and of the last one; each next one looks at them a clock later.
        up.next = source_row2
        if phase[2:] == 0:
            up.next = read_row_before
        elif phase[2:] == 1:
            up.next = side.row
        down.next = position_row2
        if phase[2:] == 3:
            down.next = total_row1
        elif phase[2:] == 0:
            down.next = held_row
        total1.next = sums.total
        if phase[2:] == 2:
            total_valid1.next = sums.valid
            total_row1.next = sum_row
        if phase[2:] == 3:
            read_row_before.next = read_row
        if phase[2:] == 1:
            side_data.next = side.data
            held.row.next = write.row  # until all its words are written; the first and third for two clocks
        if phase[0]:
            held.data.next = write.data
            held.enable.next = write.enable
        puts_side.next = concat(puts_side[GROUPS - 1 :], False)
        if phase[2:] == 1 and side.distances:
            puts_side.next = concat(puts_side[GROUPS - 1 :], True)

    return memories, chains, words, take
