"""Values from a stream into a NIC's banks of rows."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.memory.bank_ports import STREAM_LANES
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "WRITE")
LEFT_BITS = 17  # words of 2^18 values, and one more bit


@block
def value_loader(
    clk: Any, rst: Any, phase: Any, command: Any, s_axis_values: Any, write: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Write a frame's values, half a row every second clock, and zeros to the end of its last row.

    command: RowCommand of one value or more; `clear` is ignored. s_axis_values: Stream(128), ceil(count / 8)
    words of eight values, the first in the lowest bits; tlast is not looked at. A row's first and third words
    are taken in clocks of even phase, the others in odd ones. write: ValueWrite, in clocks of even phase.
    block_bits, skip_bits: see row_walk.
    """
    state = Signal(States.IDLE)
    restart, forward = bit(), bit()
    bank, row, part = word(len(write.enable)), word(len(write.row)), word(2)
    left, more, go = word(LEFT_BITS), bit(), bit()  # words to be taken
    held, given = word(STREAM_BITS), word(STREAM_BITS)

    walk = row_walk(
        clk, restart, command.first, forward, None, bank, row, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always_comb
    def show() -> None:
        s_axis_values.tready.next = state == States.WRITE and more and phase[0] == part[0]
        go.next = state == States.WRITE and phase[0] == part[0] and (s_axis_values.tvalid or not more)

    mask = values_of_word(s_axis_values.tdata, more, left, command.count, given)

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.half.next = part[1]
        write.data.next = concat(given, held)
        if not part[0]:
            held.next = given

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = False
        forward.next = False
        write.enable.next = 0
        if state == States.IDLE:
            part.next = 0
            if command.start:
                command.idle.next = False
                restart.next = True
                left.next = (command.count + (STREAM_LANES - 1)) >> 3
                more.next = True
                state.next = States.FIRST
        elif state == States.FIRST:
            state.next = States.WRITE
        elif go:
            part.next = part + 1
            if more:
                left.next = left - 1
                more.next = left != 1
            if part[0]:
                write.enable.next = bank
            if part == 3:
                forward.next = True
                if left <= 1:
                    state.next = States.IDLE
                    command.done.next = True
                    command.idle.next = True
        if rst:
            state.next = States.IDLE
            write.enable.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, show, mask, data, control


@block
def values_of_word(offered: Any, more: Any, left: Any, count: Any, given: Any) -> Any:
    """Give a word of the stream without what is behind the last of `count` values; 0 if there is none.

    more: there is a word; left: how many there are.
    """

    @always_comb
    def mask() -> None:
        given.next = offered
        if not more:
            given.next = 0
        elif left == 1 and count[3:] == 1:
            given.next = concat(modbv(0)[112:], offered[16:])
        elif left == 1 and count[3:] == 2:
            given.next = concat(modbv(0)[96:], offered[32:])
        elif left == 1 and count[3:] == 3:
            given.next = concat(modbv(0)[80:], offered[48:])
        elif left == 1 and count[3:] == 4:
            given.next = concat(modbv(0)[64:], offered[64:])
        elif left == 1 and count[3:] == 5:
            given.next = concat(modbv(0)[48:], offered[80:])
        elif left == 1 and count[3:] == 6:
            given.next = concat(modbv(0)[32:], offered[96:])
        elif left == 1 and count[3:] == 7:
            given.next = concat(modbv(0)[16:], offered[112:])

    return mask
