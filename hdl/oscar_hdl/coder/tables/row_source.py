"""Entries of the table rows that are built: from a set, the initial state, or a frame."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar.coding.asc.params import POSSIBLE, PRIOR, SYMBOLS
from oscar_hdl.coder.tables.sent_entries import sent_entries
from oscar_hdl.streams.bundles import bit, word

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
