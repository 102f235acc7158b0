"""Descriptors of a bank that serves barrel units: eight memories, row r in memory r mod 8."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.nic.memory.bank_means import ROW_LOG2
from oscar_hdl.nic.memory.ports import DESCRIPTOR_BITS
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined


class KindWrite:
    """Descriptors to be written: rows of a word whose bit of `lanes` is 1."""

    def __init__(self, row_bits: int) -> None:
        self.row, self.one = word(row_bits), bit()
        self.clears, self.data = word(WIDTH), word(DESCRIPTOR_BITS)


@block
def kind_lane(clk, enable, write_at, data, look_at, found, alive, seen):
    """Keep every eighth descriptor: `found` is of look_at, `seen` of write_at, each two clocks later.

    alive: the class of what is found is above 0.
    """
    memory = block_ram(clk, enable, write_at, data, read_at=look_at, read=found, found=seen)

    @always_comb
    def cut():
        alive.next = found[4:] != 0

    return memory, cut


@block
def kind_writes(clk, phase, side, sums, sum_row, added, change):
    """Gather what is to be written: of BankAdds `added` in phase 0, SideWrite `side` in phase 1, CodedSums
    `sums` in phase 2.

    sum_row: the row in the bank of what is described. change: KindWrite, a clock later.
    """

    @always(clk.posedge)
    def choose():
        change.row.next = side.row
        change.one.next = phase[2:] == 1 and side.header
        change.clears.next = 0
        if phase[2:] == 1 and side.clear:
            change.clears.next = side.lanes
        change.data.next = 0
        if phase[2:] == 2:
            change.row.next = sum_row
            change.one.next = sums.described
            change.data.next = concat(sums.row_top, sums.row_size, sums.row_class)
        elif phase[2:] == 0:
            change.row.next = added.row
            change.one.next = added.enable
            change.data.next = added.kind
        elif side.header:
            change.data.next = concat(side.header_data[15:11], side.header_data[7:])

    return choose


@block
def kind_of(parts: Sequence, lane, kind):
    """Give the part that `lane` u3 says."""
    one, two, three, four, five, six, seven, eight = parts

    @always_comb
    def choose():
        kind.next = one
        if lane == 1:
            kind.next = two
        elif lane == 2:
            kind.next = three
        elif lane == 3:
            kind.next = four
        elif lane == 4:
            kind.next = five
        elif lane == 5:
            kind.next = six
        elif lane == 6:
            kind.next = seven
        elif lane == 7:
            kind.next = eight

    return choose


@block
def bank_kinds(
    clk, phase, change, source_row1, turn, header_row2, position_row2, top_at, read, source_class, found, live
):
    """Keep descriptors.

    change: KindWrite, of phases 1 to 3. source_row1: its class is in source_class in phase 3.
    turn: BankTurn; where a source's header is read, of the group of header_row2, eight of its descriptors
    are in each of the four clocks from the next phase 1 on in `found` u88. Else position_row2 of phase 2 is
    looked at: live, from the next phase 2 on, whether its class is above 0; and words top_at of phases 3 and
    0 are in found in phases 2 and 3. read: GroupRead.
    """
    ROW_BITS = len(read.row)
    AT_BITS = ROW_BITS - ROW_LOG2
    look_at, write_at, lanes, data = word(AT_BITS), word(AT_BITS), word(WIDTH), word(DESCRIPTOR_BITS)
    row_enable, row_at, row_data = bit(), word(ROW_BITS), word(4)
    founds, seens = ([word(DESCRIPTOR_BITS) for _ in range(WIDTH)] for _ in range(2))
    alive = [bit() for _ in range(WIDTH)]
    live_hot3, lives, lane, kind = word(WIDTH), word(WIDTH), word(ROW_LOG2), word(DESCRIPTOR_BITS)

    memories = [
        kind_lane(clk, lanes(i), write_at, data, look_at, founds[i], alive[i], seens[i]) for i in range(WIDTH)
    ]
    classes = block_ram(clk, row_enable, row_at, row_data, read_at=source_row1, read=source_class)
    parts = [joined(founds, found), kind_of(seens, lane, kind)]

    @always(clk.posedge)
    def write():
        data.next = change.data
        write_at.next = change.row[ROW_BITS:ROW_LOG2]
        if phase[2:] == 0:
            write_at.next = read.row[ROW_BITS:ROW_LOG2]
        for i in range(WIDTH):
            lanes.next[i] = change.clears[i] or (change.one and change.row[ROW_LOG2:] == i)
        row_at.next = change.row
        row_data.next = change.data[4:]
        row_enable.next = change.one

    @always(clk.posedge)
    def look():
        if phase[2:] == 2:
            look_at.next = position_row2[ROW_BITS:ROW_LOG2]
            if turn.headed2:
                look_at.next = header_row2[ROW_BITS:ROW_LOG2]
            for i in range(WIDTH):
                live_hot3.next[i] = position_row2[ROW_LOG2:] == i
        elif turn.headed3:
            look_at.next = look_at + 1
        else:
            look_at.next = top_at

    @always_comb
    def compare():
        for i in range(WIDTH):
            lives.next[i] = live_hot3[i] and alive[i]

    @always(clk.posedge)
    def show():
        if phase[2:] == 1:
            live.next = lives != 0
        if phase[2:] == 0:
            lane.next = read.row[ROW_LOG2:]
        if phase[2:] == 3:
            read.descriptor.next = kind

    return memories, classes, parts, write, look, compare, show
