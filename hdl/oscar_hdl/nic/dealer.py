"""Deals the blocks of a frame to encoders, in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.hot_tree import hot_tree
from oscar_hdl.streams.bundles import bit, word


@block
def dealer(
    clk: Any, rst: Any, start: Any, row: Any, first: Any, run: Any, stop: Any, last_block: Any, size: Any,
    last_size: Any, judged: Any, starts: Sequence[Any], values: Sequence[Any], rows: Sequence[Any],
    idles: Sequence[Any], dealt: Any, open_blocks: Any,
) -> Any:  # fmt: skip
    """Start a job for each block of a frame on the next of the encoders, from number `first` on.

    start (strobe): a frame, whose first row is `row` of the memory. run (level): deal; stop (level): no more.
    last_block, size, last_size: of frame_plan. judged (strobe): the oldest block is done with, so its encoder
    may have the next. starts, values, rows (the block's first), idles: of the encoders' jobs.
    dealt: all blocks were dealt. open_blocks: blocks that were dealt and not judged.
    """
    units = len(starts)
    LAST_UNIT = units - 1

    states = enum("PICK", "LOOK", "DEAL", "STEP")
    state = Signal(states.PICK)
    index, hot, base = word(8), word(units, 1), word(len(row))
    unit_idle, final, may, go = bit(), bit(), bit(), bit()
    next_values, next_idle = word(len(size)), word(1)
    gives = [bit() for _ in range(units)]

    choose = hot_tree(None, idles, hot, next_idle)

    @always_comb
    def look():
        go.next = state == states.DEAL and unit_idle and may and not stop

    @always(clk.posedge)
    def deal():
        unit_idle.next = next_idle[0]
        may.next = run and not dealt and open_blocks != units
        final.next = index == last_block
        next_values.next = size
        if final:
            next_values.next = last_size
        if state == states.PICK:
            state.next = states.LOOK
        elif state == states.LOOK:
            state.next = states.DEAL
        elif state == states.DEAL:
            if go:
                state.next = states.STEP
                dealt.next = final
        else:
            state.next = states.PICK
            index.next = index + 1
            base.next = base + size[len(size) : 5]
            hot.next = hot << 1
            if hot[LAST_UNIT]:
                hot.next = 1
        if go and not judged:
            open_blocks.next = open_blocks + 1
        elif judged and not go:
            open_blocks.next = open_blocks - 1
        if start or rst:
            state.next = states.PICK
            index.next = 0
            for n in range(units):
                hot.next[n] = first == n
            base.next = row
            dealt.next = False
            open_blocks.next = 0

    @always(clk.posedge)
    def hand():
        for i in range(units):
            gives[i].next = go and hot[i] and not rst
            starts[i].next = gives[i] and not rst
            if gives[i]:
                values[i].next = next_values
                rows[i].next = base

    return choose, look, deal, hand
