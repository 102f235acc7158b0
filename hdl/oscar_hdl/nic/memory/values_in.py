"""Values from a stream into a NIC's banks of rows for barrel units."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import STREAM_LANES
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

LEFT_BITS = 17  # words of 2^18 values, and one more bit
WHOLE = (1 << STREAM_LANES) - 1


@block
def values_in(
    clk: Any, rst: Any, phase: Any, command: Any, held: Any, s_axis_values: Any, write: Any, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Write a frame's values, eight a clock, and zeros to the end of its last row.

    command: RowCommand of one value or more; `clear` is ignored. held: level, nothing is written in the clock
    behind this one. s_axis_values: Stream(128), ceil(count / 8) words of eight values, the first in the
    lowest bits; tlast is not looked at. A row's first word is taken in phase 2 modulo 4, the next one in
    phase 3, and so on; what comes late is taken four clocks later. write: GroupWrite.
    block_bits, skip_bits: see row_walk.
    """
    restart, opening, running = bit(), bit(), bit()
    go, due, ends, forward = bit(), bit(), bit(), bit()  # due: it is the clock for the next word
    part, behind = word(2), word(2, 1)  # number of the next word of its row; of the one behind it
    bank, row = word(len(write.enable)), word(len(write.row))
    left = word(LEFT_BITS)  # words to be taken
    more, last, few = bit(), bit(), bit()  # there is a word; it is the last one; fewer than four are left
    tail, lanes = word(STREAM_LANES), word(STREAM_LANES)  # values of the last word, and of this one
    given = word(STREAM_BITS)

    walk = row_walk(
        clk, restart, command.first, forward, None, bank, row, block_bits=block_bits, skip_bits=skip_bits
    )
    mask = values_of_word(s_axis_values.tdata, lanes, given)

    @always_comb
    def show() -> None:
        s_axis_values.tready.next = due and more and not held
        go.next = due and not held and (s_axis_values.tvalid or not more)

    # The next row is written in the clock behind a row's last word.
    @always_comb
    def end() -> None:
        forward.next = go and part == 3
        ends.next = go and part == 3 and (last or not more)

    @always(clk.posedge)
    def data() -> None:
        write.row.next = row
        write.data.next = given
        for lane in range(STREAM_LANES):
            tail.next[lane] = command.count[3:] == 0 or command.count[3:] > lane

    # Of the next word, so that few levels of logic are before it.
    @always(clk.posedge)
    def measure() -> None:
        few.next = left[LEFT_BITS:2] == 0
        if opening or (go and more):
            last.next = False
            lanes.next = WHOLE
            if opening:
                if few and left[2:] == 1:
                    last.next = True
                    lanes.next = tail
            elif last:
                lanes.next = 0
            elif few and left[2:] == 2:
                last.next = True
                lanes.next = tail

    @always(clk.posedge)
    def count() -> None:
        if go:
            part.next = behind
            behind.next = behind + 1
            if more:
                left.next = left - 1
                more.next = not last
        if command.start:
            part.next = 0
            behind.next = 1
            left.next = (command.count + (STREAM_LANES - 1)) >> 3
            more.next = True

    @always(clk.posedge)
    def control() -> None:
        command.done.next = ends
        restart.next = command.start
        opening.next = command.start or (opening and restart)
        running.next = (opening and not restart) or (running and not ends)
        due.next = running and not ends and (go or phase[2:] == behind)
        write.enable.next = 0
        if go:
            write.enable.next = bank
        if command.start:
            command.idle.next = False
        if ends:
            command.idle.next = True
        if rst:
            opening.next = False
            running.next = False
            due.next = False
            write.enable.next = 0
            command.done.next = False
            command.idle.next = True

    return walk, mask, show, end, data, measure, count, control


@block
def values_of_word(offered: Any, lanes: Any, given: Any) -> Any:
    """Give those of a word's eight values that `lanes` has bits for, and 0 for the others."""
    kept = [word(16) for _ in range(STREAM_LANES)]
    first, second, third, fourth, fifth, sixth, seventh, eighth = kept

    @always_comb
    def join() -> None:
        given.next = concat(eighth, seventh, sixth, fifth, fourth, third, second, first)

    return [value_of_word(offered, lanes, value, lane=i) for i, value in enumerate(kept)], join


@block
def value_of_word(offered: Any, lanes: Any, value: Any, *, lane: int) -> Any:
    """Give one of them."""
    LANE, LOW, HIGH = lane, 16 * lane, 16 * (lane + 1)

    @always_comb
    def choose() -> None:
        value.next = 0
        if lanes[LANE]:
            value.next = offered[HIGH:LOW]

    return choose
