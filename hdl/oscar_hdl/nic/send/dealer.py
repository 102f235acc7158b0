"""Deals the blocks of a frame to encoders that are free, and keeps in which order."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.send.ports import JobLists, OpenBlocks, PlannedFrame
from oscar_hdl.nic.unit_choice import unit_choice
from oscar_hdl.streams.bundles import bit, word


@block
def dealt_order(clk: Any, rst: Any, go: Any, pick: Any, blocks: OpenBlocks) -> Any:
    """Keep which unit (a bit of `pick`) has each block that is dealt (go, a strobe) until it is judged."""
    UNITS, BITS = len(pick), len(blocks.unit)
    memory = [word(BITS) for _ in range(2 << BITS)]  # an encoder has two of them
    write_at, read_at, put, unit = word(BITS + 1), word(BITS + 1), bit(), word(BITS)
    count, some = word((2 * UNITS).bit_length()), bit()

    @always(clk.posedge)
    def keep():
        put.next = go
        for n in range(UNITS):
            if pick[n]:
                unit.next = n
        if put:
            memory[write_at].next = unit
            write_at.next = write_at + 1
        if blocks.judged:
            read_at.next = read_at + 1
        if rst:
            put.next = False
            write_at.next = 0
            read_at.next = 0

    @always(clk.posedge)
    def show():
        blocks.unit.next = memory[read_at]
        for n in range(UNITS):
            blocks.hot.next[n] = blocks.unit == n
        if put and not blocks.judged:
            count.next = count + 1
        elif blocks.judged and not put:
            count.next = count - 1
        some.next = count != 0 and not blocks.judged
        blocks.ready.next = some and count != 0 and not blocks.judged
        if rst:
            count.next = 0
            some.next = False
            blocks.ready.next = False

    return keep, show


@block
def dealer(
    clk: Any, rst: Any, start: Any, row: Any, frame: PlannedFrame, busy: Any, blocks: OpenBlocks,
    jobs: JobLists, *, banks: int = 1, block_log2: int = 0,
) -> Any:  # fmt: skip
    """Start a job for each block of a frame on an encoder that is free.

    start (strobe, while not busy): frame has values, `row` is its first row in the memory. busy (level): not
    all its blocks are dealt. Blocks of the frame before may be under way: an encoder has its next block when
    what it coded is kept. banks, block_log2: see unit_choice.
    """
    starts, values, rows, banks_of = jobs.starts, jobs.values, jobs.rows, jobs.banks
    thinnings, idles, units = jobs.thinnings, jobs.idles, len(jobs.starts)

    # PICK to READY: a unit that was dealt to is seen to be busy; which are at the bank of the next block.
    states = enum("IDLE", "PICK", "LOOK", "READY", "DEAL", "STEP")
    state = Signal(states.IDLE)
    index, pick, last, base = word(8), word(units), word(units), word(len(row))
    last_block, size, last_size = word(8), word(len(frame.size)), word(len(frame.size))
    bank, thinning = bit(), word(2)
    final, go, next_values = bit(), bit(), word(len(size))
    held, frees, gives = word(units), word(units), [bit() for _ in range(units)]

    choose = unit_choice(clk, frees, base, last, pick, banks=banks, block_log2=block_log2)
    order = dealt_order(clk, rst, go, pick, blocks)

    @always_comb
    def look():
        go.next = state == states.DEAL and pick != 0
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
        """Say which encoders are free: idle, and what they coded last is kept."""
        for i in range(units):
            frees.next[i] = idles[i] == 1 and not held[i]
            if jobs.keeps[i]:
                held.next[i] = False
            if go and pick[i]:
                held.next[i] = True
        if go:
            last.next = pick
        if rst:
            held.next = 0

    @always(clk.posedge)
    def deal():
        final.next = index == last_block
        next_values.next = size
        if final:
            next_values.next = last_size
        if state == states.PICK:
            state.next = states.LOOK
        elif state == states.LOOK:
            state.next = states.READY
        elif state == states.READY:
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
        if start:
            state.next = states.PICK
            index.next = 0
            base.next = row
        if rst:
            state.next = states.IDLE

    @always(clk.posedge)
    def hand():
        for i in range(units):
            gives[i].next = go and pick[i] and not rst
            starts[i].next = gives[i] and not rst
            if gives[i]:
                values[i].next = next_values
                rows[i].next = base
                banks_of[i].next = bank
                thinnings[i].next = thinning

    return choose, order, look, keep, follow, deal, hand
