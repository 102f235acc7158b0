"""Deals the blocks of a frame to encoders, in turn."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.send.ports import JobLists, OpenBlocks, PlannedFrame
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree


@block
def dealer(
    clk: Any, rst: Any, start: Any, row: Any, frame: PlannedFrame, busy: Any, blocks: OpenBlocks,
    jobs: JobLists,
) -> Any:  # fmt: skip
    """Start a job for each block of a frame on the next of the encoders, from number `frame.first` on.

    start (strobe, while not busy): frame has values, `row` is its first row in the memory. busy (level): not
    all its blocks are dealt. Blocks of the frame before may be under way: an encoder has its next block when
    what it coded is judged.
    """
    starts, values, rows, banks = jobs.starts, jobs.values, jobs.rows, jobs.banks
    thinnings, idles, units = jobs.thinnings, jobs.idles, len(jobs.starts)
    LAST_UNIT = units - 1

    states = enum("IDLE", "PICK", "LOOK", "DEAL", "STEP")
    state = Signal(states.IDLE)
    index, hot, base = word(8), word(units, 1), word(len(row))
    last_block, size, last_size = word(8), word(len(frame.size)), word(len(frame.size))
    bank, thinning = bit(), word(2)
    final, unit_free, go, next_values, next_free = bit(), bit(), bit(), word(len(size)), word(1)
    held, gives = word(units), [bit() for _ in range(units)]
    frees = [word(1) for _ in range(units)]

    choose = hot_tree(None, frees, hot, next_free)

    @always_comb
    def look():
        go.next = state == states.DEAL and unit_free
        busy.next = state != states.IDLE

    @always(clk.posedge)
    def keep():
        if start:
            last_block.next = frame.last_block
            size.next = frame.size
            last_size.next = frame.last_size
            bank.next = frame.bank
            thinning.next = frame.thinning

    @always(clk.posedge)
    def follow():
        """Say which encoders are free: idle, and what they coded last is settled."""
        unit_free.next = next_free[0]
        for i in range(units):
            frees[i].next = 0
            if idles[i] == 1 and not held[i]:
                frees[i].next = 1
            if blocks.settled[i]:
                held.next[i] = False
            if go and hot[i]:
                held.next[i] = True
        if go and not blocks.judged:
            blocks.count.next = blocks.count + 1
        elif blocks.judged and not go:
            blocks.count.next = blocks.count - 1
        if rst:
            held.next = 0
            blocks.count.next = 0

    @always(clk.posedge)
    def deal():
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
        elif state == states.STEP:
            state.next = states.PICK
            if final:
                state.next = states.IDLE
            index.next = index + 1
            base.next = base + size[len(size) : 5]
            hot.next = hot << 1
            if hot[LAST_UNIT]:
                hot.next = 1
        if start:
            state.next = states.PICK
            index.next = 0
            for n in range(units):
                hot.next[n] = frame.first == n
            base.next = row
        if rst:
            state.next = states.IDLE

    @always(clk.posedge)
    def hand():
        for i in range(units):
            gives[i].next = go and hot[i] and not rst
            starts[i].next = gives[i] and not rst
            if gives[i]:
                values[i].next = next_values
                rows[i].next = base
                banks[i].next = bank
                thinnings[i].next = thinning

    return choose, look, keep, follow, deal, hand
