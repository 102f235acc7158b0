"""Distances, means and descriptors from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.memory.bank_ports import DISTANCE_BITS, HEADER_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "ROW", "BEHIND", "CLEAR")
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
    state = Signal(States.IDLE)
    restart, forward, tick, go = bit(), bit(), bit(), bit()
    running, reading = bit(), bit()  # in ROW, BEHIND and CLEAR; in ROW
    bank, row = word(BANKS), word(len(write.row))
    left, before, ending, fewer = word(ROWS_BITS), word(ROWS_BITS), bit(), bit()
    whole, some = bit(), word(6)  # of the group that would be cleared: all its rows, or so many

    walk = row_walk(
        clk, restart, command.first, forward, command.clear, bank, row, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        behind.next = state == States.BEHIND
        s_axis_side.tready.next = reading and tick

    @always_comb
    def look() -> None:
        go.next = tick and running and (s_axis_side.tvalid or not reading)
        before.next = left - 1
        if command.clear:
            before.next = left - GROUP

    # A row takes four clocks, so what follows from `left` is there in time.
    @always(clk.posedge)
    def measure() -> None:
        tick.next = phase[2:] == 3
        ending.next = left <= 1
        fewer.next = left <= GROUP
        whole.next = left >= GROUP
        some.next = left[5:]

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
            write.lanes.next[lane] = whole or some > lane

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = False
        forward.next = False
        write.header.next = 0
        write.clear.next = 0
        write.distances.next = 0
        if state == States.IDLE:
            if command.start:
                command.idle.next = False
                restart.next = True
                state.next = States.FIRST
        elif state == States.FIRST:
            if not restart:
                running.next = True
                reading.next = not command.clear
                state.next = States.ROW
                if command.clear:
                    state.next = States.CLEAR
        elif go:
            forward.next = True
            if state == States.CLEAR:
                write.clear.next = bank
                if fewer:
                    running.next = False
                    state.next = States.IDLE
                    command.done.next = True
                    command.idle.next = True
            else:
                write.header.next = bank
                if state == States.ROW:
                    write.distances.next = bank
                    if ending:
                        reading.next = False
                        state.next = States.BEHIND
                if (ending or state == States.BEHIND) and row[5:] == 31:
                    running.next = False
                    state.next = States.IDLE
                    command.done.next = True
                    command.idle.next = True
        if rst:
            running.next = False
            reading.next = False
            state.next = States.IDLE
            write.header.next = 0
            write.clear.next = 0
            write.distances.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, look, measure, count, data, control
