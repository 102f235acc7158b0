"""Distances, means and descriptors from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.memory.bank_ports import HEADER_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "HEADER", "DISTANCES", "BEHIND", "CLEAR")
ROWS_BITS = 15


@block
def side_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_side: Any, write: Any, *, block_bits: int,
    skip_bits: int, odd: bool = False,
) -> Any:  # fmt: skip
    """Write what belongs to a frame's rows, one item every second clock: 18 clocks a row.

    command: RowCommand; with `clear`, only class and size of rows become 0, of blocks that lie side by side
    in their banks at once; `first` is a block's then.
    s_axis_side: Stream(64), three words a row: its header (class, size << 4, mean << 7), then the 32
    distances in four bits each, the first in the lowest bits; tlast is not looked at. Headers behind the last
    row become 0 to the end of its group. write: SideWrite, in clocks of odd phases (even ones, if `odd`).
    """
    BANKS, ODD = len(write.header), int(odd)
    BLOCKS_BITS = max(20 - (5 + block_bits), skip_bits) + 1
    TURN_END = block_bits + skip_bits
    VALUES_LOG2 = 5 + block_bits  # of a block
    ALL_BUT_ONE = (1 << VALUES_LOG2) - 1
    state = Signal(States.IDLE)
    restart, forward, at_end = bit(), bit(), bit()
    bank, row, part = word(BANKS), word(len(write.row)), word(3)
    left, before, ending, go = word(ROWS_BITS), word(ROWS_BITS), bit(), bit()
    rest = word(48)
    # To clear: blocks from the round's first bank on, the frame's first bank in its first round, the banks
    # in which it has this row; whether the round is its last, whether the row is the last of its last block.
    ceiling, blocks, reach = word(20), word(BLOCKS_BITS), word(BLOCKS_BITS)
    low, banks = word(skip_bits), word(BANKS)
    final, last, cleared = bit(), bit(), bit()
    last_row = word(block_bits)

    walk = row_walk(
        clk, restart, command.first, forward, command.clear, bank, row, at_end, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        ending.next = left <= 1
        before.next = left - 1
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

    @always_comb
    def look() -> None:
        ceiling.next = command.count + ALL_BUT_ONE
        final.next = reach <= BANKS
        last.next = final and row[block_bits:] == last_row
        cleared.next = final and (at_end or (last and reach == low + 1))

    @always(clk.posedge)
    def clear_banks() -> None:
        blocks.next = ceiling[20:VALUES_LOG2]
        for i in range(BANKS):
            banks.next[i] = i >= low and (not final or i < reach)
        if state == States.FIRST:
            low.next = command.first[TURN_END:block_bits]
            reach.next = blocks + command.first[TURN_END:block_bits]
            last_row.next = before[block_bits:]
        elif go and state == States.CLEAR:
            if at_end:
                low.next = 0
                reach.next = reach - BANKS
            elif last:
                reach.next = reach - 1

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
                if command.clear:
                    state.next = States.CLEAR
        elif phase[0] != ODD:
            s_axis_side.tready.next = state == States.HEADER or (state == States.DISTANCES and part[2:] == 0)
        elif not go:
            s_axis_side.tready.next = False  # a word comes in such a clock or two later
        elif state == States.CLEAR:
            write.clear.next = banks
            forward.next = True
            if cleared:
                state.next = States.IDLE
                command.done.next = True
                command.idle.next = True
        else:
            s_axis_side.tready.next = False
            if state == States.DISTANCES:
                write.distances.next = bank
                part.next = part + 1
            else:
                write.header.next = bank
            if state == States.HEADER:
                state.next = States.DISTANCES
            elif state == States.BEHIND or part == 7:
                forward.next = True
                left.next = before
                state.next = States.HEADER
                if ending:
                    left.next = 0
                    state.next = States.BEHIND
                    if row[5:] == 31:
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

    return walk, show, data, look, clear_banks, control
