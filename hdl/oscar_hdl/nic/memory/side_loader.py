"""Distances, means and descriptors from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import DISTANCE_BITS, HEADER_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

ROWS_BITS = 15
DISTANCES_AT = 32  # in a row's word
GROUP = 32


@block
def side_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_side: Any, write: Any, behind: Any, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Write what belongs to a frame's rows but their values, in four clocks a row.

    command: RowCommand, whose first row begins a group of 32; with `clear`, only descriptors of rows
    (class, size, top) become 0, in four clocks a group.
    s_axis_side: Stream(128), a word a row: its header (class, size << 4, mean << 7, top << 11), and from bit
    32 on the 32 distances in three bits each, the first in the lowest bits; tlast is not looked at. A word is
    taken in a clock of phase 0 modulo 4. Headers behind the last row become 0 to the end of its group, in
    four clocks each, while `behind` (level). write: SideWrite, in clocks of phase 1 modulo 4.
    """
    BANKS, END = len(write.header), DISTANCES_AT + DISTANCE_BITS
    # What is done: a command begins (clocks since then), rows come, groups are cleared, one of these or rows
    # behind those that came are written; what is done next is the last.
    begun, reading, clearing, running, final = word(3), bit(), bit(), bit(), bit()
    restart, forward, tick, go = bit(), bit(), bit(), bit()
    bank, row = word(BANKS), word(len(write.row))
    left, before, ending, fewer, at_end = word(ROWS_BITS), word(ROWS_BITS), bit(), bit(), bit()
    # Of a group that is cleared: eights of rows that are all cleared; the one of which some are; how many.
    all_of, part_of, some = word(4), word(4), word(8)

    walk = row_walk(
        clk, restart, command.first, forward, command.clear, bank, row, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        behind.next = running and not reading and not clearing
        s_axis_side.tready.next = reading and tick
        go.next = tick and running and (s_axis_side.tvalid or not reading)
        before.next = left - 1
        if command.clear:
            before.next = left - GROUP

    # A row takes four clocks, so what follows from `left` and `row` is there in time.
    @always(clk.posedge)
    def measure() -> None:
        tick.next = phase[2:] == 3
        ending.next = left <= 1
        fewer.next = left <= GROUP
        at_end.next = row[5:] == 31
        final.next = (ending or (running and not reading)) and at_end
        if command.clear:
            final.next = fewer
        for eight in range(4):
            all_of.next[eight] = left[ROWS_BITS:3] > eight
            part_of.next[eight] = left[ROWS_BITS:3] == eight
        for lane in range(8):
            some.next[lane] = left[3:] > lane

    @always(clk.posedge)
    def count() -> None:
        if go:
            left.next = before
        if command.start:
            left.next = (command.count + 31) >> 5

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.data.next = s_axis_side.tdata[END:DISTANCES_AT]
        write.header_data.next = s_axis_side.tdata[HEADER_BITS:]
        if not reading:
            write.header_data.next = 0
        for lane in range(GROUP):
            write.lanes.next[lane] = all_of[lane // 8] or (part_of[lane // 8] and some[lane % 8])

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = False
        forward.next = False
        write.header.next = 0
        write.clear.next = 0
        write.distances.next = 0
        begun.next = concat(begun[2:], command.start)
        if command.start:
            command.idle.next = False
            restart.next = True
        if begun[2]:
            running.next = True
            reading.next = not command.clear
            clearing.next = command.clear
        if go:
            forward.next = True
            if clearing:
                write.clear.next = bank
            else:
                write.header.next = bank
            if reading:
                write.distances.next = bank
                reading.next = not ending
            if final:
                reading.next = False
                clearing.next = False
                running.next = False
                command.done.next = True
                command.idle.next = True
        if rst:
            begun.next = 0
            reading.next = False
            clearing.next = False
            running.next = False
            write.header.next = 0
            write.clear.next = 0
            write.distances.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, measure, count, data, control
