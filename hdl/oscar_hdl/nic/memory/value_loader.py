"""Values from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "WRITE")
LEFT_BITS = 19


@block
def value_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_values: Any, write: Any, *, block_bits: int,
    skip_bits: int, odd: bool = False,
) -> Any:  # fmt: skip
    """Write a frame's values, four every second clock, and zeros to the end of its last row.

    command: RowCommand of one value or more; `clear` is ignored. s_axis_values: Stream(64), ceil(count / 4)
    words of four values, the first in the lowest bits; tlast is not looked at. write: ValueWrite, in clocks
    of odd phases (even ones, if `odd`). block_bits, skip_bits: see row_walk.
    """
    BANKS, ODD = len(write.enable), int(odd)
    state = Signal(States.IDLE)
    restart, forward, at_end = bit(), bit(), bit()
    bank, row, part = word(BANKS), word(len(write.row)), word(3)
    left, ending = word(LEFT_BITS), bit()

    walk = row_walk(
        clk, restart, command.first, forward, None, bank, row, at_end, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        ending.next = left <= 4

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.part.next = part
        write.data.next = 0
        if s_axis_values.tready:
            write.data.next = s_axis_values.tdata
            if left == 3:
                write.data.next = concat(modbv(0)[16:], s_axis_values.tdata[48:])
            elif left == 2:
                write.data.next = concat(modbv(0)[32:], s_axis_values.tdata[32:])
            elif left == 1:
                write.data.next = concat(modbv(0)[48:], s_axis_values.tdata[16:])

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = False
        forward.next = False
        write.enable.next = 0
        if state == States.IDLE:
            if command.start:
                command.idle.next = False
                restart.next = True
                left.next = command.count
                state.next = States.FIRST
        elif state == States.FIRST:
            part.next = 0
            if phase[0] == ODD:
                state.next = States.WRITE
        elif phase[0] != ODD:
            s_axis_values.tready.next = left != 0
        elif not s_axis_values.tvalid and s_axis_values.tready:
            s_axis_values.tready.next = False  # a word comes in such a clock or two later
        else:
            s_axis_values.tready.next = False
            write.enable.next = bank
            part.next = part + 1
            left.next = left - 4
            if part == 7:
                forward.next = True
            if ending:
                left.next = 0
                if part == 7:
                    state.next = States.IDLE
                    command.done.next = True
                    command.idle.next = True
        if rst:
            state.next = States.IDLE
            s_axis_values.tready.next = False
            write.enable.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, data, control
