"""Cumulative frequencies of table rows from their histograms, four symbols a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.tables.row_ratio import RATIO_BITS
from oscar_hdl.streams.bundles import bit, word


@block
def scaled(clk: Any, entries: Any, possible: Any, ratio: Any, raw: Any, *, lane: int) -> Any:
    """Give raw u10 = 1 + ((entry u16 * ratio u26) >> 16) of an entry of a quad, three clocks behind it.

    entries u64, possible u4: 0 where it is not. ratio comes a clock behind entries.
    """
    LANE, LOW, HIGH = lane, 16 * lane, 16 * lane + 16
    factor, low, high = word(16), word(34), word(16)
    possible1, possible2 = bit(), bit()

    @always(clk.posedge)
    def multiply():
        both = modbv(0)[11:]
        factor.next = entries[HIGH:LOW]
        possible1.next = possible[LANE]
        possible2.next = possible1
        low.next = factor * ratio[18:]
        high.next = factor[8:] * ratio[RATIO_BITS:18]
        # The upper part is a multiple of 2^18, so only the lower is rounded. A 1 enters below the sum.
        both[:] = concat(low[26:16], possible2) + concat(high[8:], modbv(0)[2:], possible2)
        raw.next = both[11:1]

    return multiply


@block
def row_quads(clk: Any, phase: Any, entries: Any, possible: Any, ratio: Any, peak: Any, quad: Any) -> Any:
    """Second pass over a row, a quad a clock (docs/asc.md, "Frequencies").

    entries u64, possible u4: the row's first quad in phase 3; ratio u26 a clock later, for four clocks; peak
    u4 fourteen clocks before entries, in phase 1. quad u50 comes eight clocks behind entries: c of its
    symbols and of the one behind them, modulo 1024.

    The remainder is what the row's sum lacks to 1024: with it all c behind the peak grow. They are known
    before the row is complete, so they wait for it.
    """
    raw0, raw1, raw2, raw3 = (word(10) for _ in range(4))
    total, base, first, second, third = (word(10) for _ in range(5))
    c0, c1, c2, c3, c4 = (word(10) for _ in range(5))
    early, late, kept, above = word(50), word(50), word(10), word(5)
    peak1, peak2, peak3, peak4, peak5, peak6 = (word(4) for _ in range(6))
    raws = raw0, raw1, raw2, raw3
    lanes = [scaled(clk, entries, possible, ratio, raw, lane=i) for i, raw in enumerate(raws)]

    # raw of the row's first quad is here in phase 2.
    @always(clk.posedge)
    def add():
        before = modbv(0)[10:]
        before[:] = total
        if phase == 2:
            before[:] = 0
        total.next = before + raw0 + raw1 + raw2 + raw3
        base.next = before
        first.next = raw0
        second.next = raw0 + raw1
        third.next = raw0 + raw1 + raw2

    @always(clk.posedge)
    def accumulate():
        c0.next = base
        c1.next = base + first
        c2.next = base + second
        c3.next = base + third
        c4.next = total
        early.next = concat(c4, c3, c2, c1, c0)
        late.next = early

    # The row is complete, and its first quad in `late`, in phase 2.
    @always(clk.posedge)
    def complete():
        missing = modbv(0)[10:]
        missing[:] = kept
        if phase == 2:
            missing[:] = total
            kept.next = total
        quad.next = late
        if above[0]:
            quad.next[10:] = late[10:] - missing
        if above[1]:
            quad.next[20:10] = late[20:10] - missing
        if above[2]:
            quad.next[30:20] = late[30:20] - missing
        if above[3]:
            quad.next[40:30] = late[40:30] - missing
        if above[4]:
            quad.next[50:40] = late[50:40] - missing

    @always(clk.posedge)
    def look_ahead():
        place = modbv(0)[2:]
        symbol = modbv(0)[5:]
        place[:] = phase - 1
        for i in range(5):
            symbol[:] = concat(place, modbv(0)[2:]) + i
            above.next[i] = symbol > peak6
        if phase == 1:
            peak1.next = peak
            peak2.next = peak1
            peak3.next = peak2
            peak4.next = peak3
            peak5.next = peak4
        if phase == 0:
            peak6.next = peak5

    return lanes, add, accumulate, complete, look_ahead
