"""Entries of the table rows that are built: from a set, the initial state, or a frame."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import POSSIBLE, PRIOR, SYMBOLS
from oscar_hdl.streams.bundles import bit, word

ENTRY = tuple(1 << level >> 1 for level in range(16))  # what a level stands for


@block
def sent_entries(
    clk: Any, phase: Any, sent: Any, sent_late: Any, levels: Any, fresh: Any, prior: Any,
    possible: Any, entry: Any,
) -> Any:  # fmt: skip
    """Give entry u15 of the symbol that was `phase` two clocks before: sent, initial, or 0.

    levels u64 hold for the 16 clocks in which `sent` is high; sent_late is the same a clock later, with which
    prior u6 and `possible` come.
    """
    level = word(4)

    @always(clk.posedge)
    def look_up():
        at = modbv(0)[6:]
        at[:] = concat(phase, modbv(0)[2:])
        level.next[0] = levels[at]
        at[:] = concat(phase, modbv(1)[2:])
        level.next[1] = levels[at]
        at[:] = concat(phase, modbv(2)[2:])
        level.next[2] = levels[at]
        at[:] = concat(phase, modbv(3)[2:])
        level.next[3] = levels[at]
        sent_late.next = sent

    @always(clk.posedge)
    def choose():
        shown = modbv(0)[15:]
        shown[:] = ENTRY[int(level)]
        entry.next = 0
        if possible:
            if sent_late:
                entry.next = shown
            elif fresh:
                entry.next = prior

    return look_up, choose


PRIOR_ENTRIES = tuple(h for row in PRIOR for h in (*row, *[0] * (SYMBOLS - len(row))))
TOP = tuple(most - 1 for most in POSSIBLE)  # the last symbol below 15 that a row may have


@block
def row_source(
    clk: Any, phase: Any, fresh: Any, last: Any, read_at: Any, kept: Any, sent: Any, levels: Any, entry: Any,
    possible: Any, histogram: Any, *, encoding: bool,
) -> Any:  # fmt: skip
    """Choose what goes into the first pass (entry u16), and show what the row was before.

    phase u4 is the symbol of read_at u9; kept u16: the set's, two clocks later, with which `histogram` u16
    comes: the same or, if fresh, the initial one. entry and possible come three clocks behind read_at: the
    row's histogram, 0 where impossible.
    sent: the row comes as levels u64 (not if `encoding`), which hold for its 16 clocks.
    """
    prior, prior_late, other = word(6), word(6), word(15)
    top, opened, close, at_15 = word(4), bit(), bit(), bit()
    sent1, possible_soon, possible_next, use = (bit() for _ in range(4))

    # Symbols are possible from 0 to where the row or the frame ends, and 15.
    @always(clk.posedge)
    def ends():
        at_15.next = phase == 15
        top.next = TOP[int(read_at[9:4])]

    @always(clk.posedge)
    def pass_on():
        close.next = phase == top or (phase == last and read_at[9:7] != 3)
        opened.next = (opened and not close) or at_15
        possible_next.next = possible_soon
        possible.next = possible_next

    @always(clk.posedge)
    def look_up():
        prior.next = PRIOR_ENTRIES[int(read_at)]
        prior_late.next = prior

    @always_comb
    def show():
        histogram.next = kept
        if fresh:
            histogram.next = prior_late

    @always(clk.posedge)
    def choose():
        own = modbv(0)[16:]
        use.next = possible_soon and not fresh and not sent1
        if use:
            own[:] = kept
        entry.next = own | other

    @always_comb
    def may_be():
        possible_soon.next = opened or at_15

    if encoding:

        @always(clk.posedge)
        def bring():
            sent1.next = False
            other.next = 0
            if fresh and possible_soon:
                other.next = prior

        others = bring

    else:
        others = sent_entries(clk, phase, sent, sent1, levels, fresh, prior, possible_soon, other)

    return ends, pass_on, look_up, show, choose, may_be, others
