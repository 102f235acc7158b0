"""Distances, means and descriptors from a stream into a NIC's banks of rows for barrel units."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import DISTANCE_BITS, HEADER_BITS
from oscar_hdl.nic.memory.clear_walk import EIGHT, clear_walk
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

ROWS_BITS = 15
DISTANCES_AT = 32  # in a row's word


@block
def side_in(
    clk: Any, rst: Any, phase: Any, command: Any, held: Any, s_axis_side: Any, write: Any, behind: Any, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Write what belongs to a frame's rows but their values, in four clocks a row.

    command: RowCommand, whose first row begins a group of 32; with `clear`, only descriptors of rows
    (class, size, top) become 0, from the first row of a block on: eight of each bank in four clocks.
    held: level, nothing is written in the clock behind this one. s_axis_side: Stream(128), a word a row: its
    header (class, size << 4, mean << 7, top << 11), and from bit 32 on the 32 distances in three bits each,
    the first in the lowest bits; tlast is not looked at. A word is taken in a clock of phase 0 modulo 4.
    Headers behind the last row become 0 to the end of its group, in four clocks each, while `behind` (level).
    write: SideWrite, in clocks of phase 1 modulo 4.
    """
    BANKS, END = len(write.header), DISTANCES_AT + DISTANCE_BITS
    # What is done: a command begins (clocks since then), rows come, rows are cleared, one of these or rows
    # behind those that came are written; what is done next is the last.
    begun, reading, clearing, running, final = word(3), bit(), bit(), bit(), bit()
    restart, forward, tick, go = bit(), bit(), bit(), bit()
    bank, row = word(BANKS), word(len(write.row))
    clear_bank, clear_row, clear_lanes, clear_final = word(BANKS), word(len(write.row)), word(EIGHT), bit()
    left, ending, at_end = word(ROWS_BITS), bit(), bit()
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}

    walks = [
        row_walk(clk, restart, command.first, forward, None, bank, row, **placing),
        clear_walk(
            clk, restart, command.first, left, forward, clear_bank, clear_row, clear_lanes, clear_final,
            **placing,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        behind.next = running and not reading and not clearing
        s_axis_side.tready.next = reading and tick and not held
        go.next = tick and running and not held and (s_axis_side.tvalid or not reading)

    # A row takes four clocks, so what follows from `left` and `row` is there in time.
    @always(clk.posedge)
    def measure() -> None:
        tick.next = phase[2:] == 3
        ending.next = left <= 1
        at_end.next = row[5:] == 31
        final.next = (ending or (running and not reading)) and at_end

    @always(clk.posedge)
    def count() -> None:
        if go and not clearing:
            left.next = left - 1
        if command.start:
            left.next = (command.count + 31) >> 5

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        if clearing:
            write.row.next = clear_row
        write.data.next = s_axis_side.tdata[END:DISTANCES_AT]
        write.header_data.next = s_axis_side.tdata[HEADER_BITS:]
        if not reading:
            write.header_data.next = 0
        write.lanes.next = clear_lanes

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
                write.clear.next = clear_bank
            else:
                write.header.next = bank
            if reading:
                write.distances.next = bank
                reading.next = not ending
            if (clearing and clear_final) or (not clearing and final):
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

    return walks, show, measure, count, data, control
