"""Strobes and flags of the stages of a pipeline of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import bit, word


@block
def row_turns(
    clk: Any, clear: Any, phase: Any, reading: Any, turn: Any, hand: Any, finish: Any, fix: Any, live: Any
) -> Any:
    """Say when a row is in which stage.

    clear: nothing is on its way. Strobes: turn in phase 3, hand in 1, finish in 0, fix in 15. reading: a
    row's entries are read, from phase 0 on. live: the same 98 clocks later.
    """
    read1, read2, read3, read4 = bit(), bit(), bit(), bit()
    rows = word(5)

    @always(clk.posedge)
    def strobes():
        finish.next = phase == 15
        hand.next = phase == 0
        turn.next = phase == 2
        fix.next = phase == 14

    @always(clk.posedge)
    def follow():
        read1.next = reading
        read2.next = read1
        read3.next = read2
        read4.next = read3
        if turn:
            rows.next[5:1] = rows[4:]
            rows.next[0] = read4
        if hand:
            live.next = rows[4]
        if clear:
            read1.next = False
            read2.next = False
            read3.next = False
            read4.next = False
            rows.next = 0
            live.next = False

    return strobes, follow
