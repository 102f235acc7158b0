"""Distances, means and descriptors from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.bank_ports import HEADER_BITS
from oscar_hdl.nic.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "HEADER", "DISTANCES", "BEHIND")
ROWS_BITS = 15


@block
def side_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_side: Any, write: Any, *, block_bits: int,
    skip_bits: int, odd: bool = False,
) -> Any:  # fmt: skip
    """Write what belongs to a frame's rows, one item every second clock: 18 clocks a row.

    command: RowCommand; with `clear`, only class and size of rows become 0, those of all banks at once.
    s_axis_side: Stream(64), three words a row: its header (class, size << 4, mean << 7), then the 32
    distances in four bits each, the first in the lowest bits; tlast is not looked at. Headers behind the last
    row become 0 to the end of its group. write: SideWrite, in clocks of odd phases (even ones, if `odd`).
    """
    BANKS, ODD = len(write.header), int(odd)
    ALL, SKIPPED = (1 << BANKS) - 1, min(((1 << skip_bits) - 1) << block_bits, (1 << ROWS_BITS) - 2)
    state = Signal(States.IDLE)
    restart, forward, at_end = bit(), bit(), bit()
    bank, row, part = word(BANKS), word(len(write.row)), word(3)
    left, ending, go = word(ROWS_BITS), bit(), bit()
    rest = word(48)

    walk = row_walk(
        clk, restart, command.first, forward, command.clear, bank, row, at_end, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        ending.next = left <= 1 or (command.clear and at_end and left <= 1 + SKIPPED)
        go.next = phase[0] == ODD and (s_axis_side.tvalid or not s_axis_side.tready)

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.part.next = part
        write.header_data.next = 0
        if s_axis_side.tready:
            write.header_data.next = s_axis_side.tdata[HEADER_BITS:]
        write.data.next = concat(rest[15:12], rest[11:8], rest[7:4], rest[3:])
        if s_axis_side.tready:
            write.data.next = concat(
                s_axis_side.tdata[15:12], s_axis_side.tdata[11:8], s_axis_side.tdata[7:4],
                s_axis_side.tdata[3:],
            )  # fmt: skip
        if go:
            rest.next = concat(rest[16:], rest[48:16])
            if s_axis_side.tready:
                rest.next = s_axis_side.tdata[64:16]

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
                left.next = (command.count + 31) >> 5
                state.next = States.FIRST
        elif state == States.FIRST:
            part.next = 0
            if phase[0] == ODD:
                state.next = States.HEADER
        elif phase[0] != ODD:
            s_axis_side.tready.next = (
                state == States.HEADER or (state == States.DISTANCES and part[2:] == 0)
            ) and not command.clear
        elif not go:
            s_axis_side.tready.next = False  # a word comes in such a clock or two later
        else:
            s_axis_side.tready.next = False
            if state == States.DISTANCES:
                write.distances.next = bank
                part.next = part + 1
            elif command.clear:
                write.clear.next = ALL
            else:
                write.header.next = bank
            if state == States.HEADER and not command.clear:
                state.next = States.DISTANCES
            elif state != States.DISTANCES or part == 7:
                forward.next = True
                left.next = left - 1
                if command.clear and at_end:
                    left.next = left - (1 + SKIPPED)
                if ending:
                    left.next = 0
                    state.next = States.BEHIND
                elif state == States.DISTANCES:
                    state.next = States.HEADER
                if ending and (command.clear or row[5:] == 31):
                    state.next = States.IDLE
                    command.done.next = True
                    command.idle.next = True
        if rst:
            state.next = States.IDLE
            s_axis_side.tready.next = False
            write.header.next = 0
            write.clear.next = 0
            write.distances.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, data, control
