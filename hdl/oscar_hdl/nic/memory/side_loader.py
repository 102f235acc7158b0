"""Distances, means and descriptors from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.memory.bank_ports import DISTANCE_BITS, HEADER_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "ROW", "HALF", "BEHIND", "CLEAR")
ROWS_BITS = 15
DISTANCES_AT = 32  # in a row's word
SECOND_AT = DISTANCES_AT + DISTANCE_BITS


@block
def side_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_side: Any, write: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Write what belongs to a frame's rows but their values, in four clocks a row.

    command: RowCommand; with `clear`, only class and size of rows become 0, of blocks that lie side by side
    in their banks at once, in two clocks; `first` is a block's then.
    s_axis_side: Stream(128), a word a row: its header (class, size << 4, mean << 7), and from bit 32 on the
    32 distances in three bits each, the first in the lowest bits; tlast is not looked at. A word is taken in
    a clock of even phase. Headers behind the last row become 0 to the end of its group, in two clocks each.
    write: SideWrite, in clocks of odd phase.
    """
    BANKS = len(write.header)
    BLOCKS_BITS = max(20 - (5 + block_bits), skip_bits) + 1
    TURN_END = block_bits + skip_bits
    VALUES_LOG2 = 5 + block_bits  # of a block
    ALL_BUT_ONE = (1 << VALUES_LOG2) - 1
    state = Signal(States.IDLE)
    restart, forward, at_end = bit(), bit(), bit()
    bank, row = word(BANKS), word(len(write.row))
    left, before, ending, go = word(ROWS_BITS), word(ROWS_BITS), bit(), bit()
    rest = word(DISTANCE_BITS)
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
        s_axis_side.tready.next = state == States.ROW and not phase[0]
        go.next = not phase[0] and (s_axis_side.tvalid or state != States.ROW)

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.half.next = state == States.HALF
        write.data.next = s_axis_side.tdata[SECOND_AT:DISTANCES_AT]
        write.header_data.next = s_axis_side.tdata[HEADER_BITS:]
        if state == States.HALF:
            write.data.next = rest
        elif state != States.ROW:
            write.header_data.next = 0
        if go and state == States.ROW:
            rest.next = s_axis_side.tdata[:SECOND_AT]

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
            if not phase[0]:  # so that banks to clear are known
                state.next = States.ROW
                if command.clear:
                    state.next = States.CLEAR
        elif not go:
            forward.next = False
        elif state == States.CLEAR:
            write.clear.next = banks
            forward.next = True
            if cleared:
                state.next = States.IDLE
                command.done.next = True
                command.idle.next = True
        elif state == States.ROW:
            write.header.next = bank
            write.distances.next = bank
            state.next = States.HALF
        else:
            forward.next = True
            state.next = States.ROW
            if state == States.BEHIND:
                write.header.next = bank
                state.next = States.BEHIND
            else:
                write.distances.next = bank
                left.next = before
                if ending:
                    state.next = States.BEHIND
            if (ending or state == States.BEHIND) and row[5:] == 31:
                state.next = States.IDLE
                command.done.next = True
                command.idle.next = True
        if rst:
            state.next = States.IDLE
            write.header.next = 0
            write.clear.next = 0
            write.distances.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, data, look, clear_banks, control
