"""Strobes and flags of the stages of a pipeline of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, modbv

from oscar.coding.asc.params import FADE_ABOVE
from oscar_hdl.streams.bundles import bit, word


@block
def row_turns(
    clk: Any, clear: Any, phase: Any, learning: Any, reading: Any, back: Any,
    turn: Any, hand: Any, finish: Any, fix: Any, live: Any, learns: Any, fade: Any,
) -> Any:  # fmt: skip
    """Say when a row is in which stage, and which histogram rows fade.

    clear: nothing is on its way. Strobes: turn in phase 3, hand in 1, finish in 0, fix in 15. reading: a
    row's entries are read, from phase 0 (build) or 2 (learn) on. live: the same 98 clocks later, unless
    `learning`; learns: with its second product, 50 clocks after phase 0, if learning. fade: with learns, if
    the sum of its row of back u16, which came in phase 5 + symbol, is above 64.
    """
    read1, read2, read3, read4 = bit(), bit(), bit(), bit()
    rows, turn5 = word(5), bit()
    low, over, fade1, fade2 = word(8), bit(), bit(), bit()

    @always(clk.posedge)
    def strobes():
        finish.next = phase == 15
        hand.next = phase == 0
        turn.next = phase == 2
        turn5.next = phase == 4
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
            live.next = rows[4] and not learning
            learns.next = rows[1] and learning
        if clear:
            read1.next = False
            read2.next = False
            read3.next = False
            read4.next = False
            rows.next = 0
            live.next = False
            learns.next = False

    @always(clk.posedge)
    def add():
        base = modbv(0)[8:]
        base[:] = low
        if turn5:
            base[:] = 0
            fade1.next = over or low > FADE_ABOVE
            fade2.next = fade1
        low.next = base + back[7:]
        over.next = (over and not turn5) or base > FADE_ABOVE or back[16:7] != 0
        if hand:
            fade.next = fade2

    return strobes, follow, add
