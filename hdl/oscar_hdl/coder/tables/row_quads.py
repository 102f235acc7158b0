"""Cumulative frequencies of table rows from their histograms, four symbols a clock."""

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.tables.row_ratio import RATIO_BITS
from oscar_hdl.streams.bundles import bit, word


@block
def scaled(clk, entries, possible, ratio, raw, *, lane: int):
    """Give raw u10 = 1 + ((entry u16 * ratio u26) >> 16) of an entry of a quad, three clocks behind it.

    entries u64, possible u4: 0 where it is not. Only plain registers (no enable) next to multipliers: they
    move into them.
    """
    LANE, LOW, HIGH = lane, 16 * lane, 16 * lane + 16
    factor, upper, lower, low, high = word(16), word(RATIO_BITS - 18), word(18), word(34), word(16)
    possible1, possible2 = bit(), bit()

    @always(clk.posedge)
    def multiply():
        both = modbv(0)[11:]
        factor.next = entries[HIGH:LOW]
        possible1.next = possible[LANE]
        possible2.next = possible1
        upper.next = ratio[RATIO_BITS:18]
        lower.next = ratio[18:]
        low.next = factor * lower
        high.next = factor[8:] * upper
        # The upper part is a multiple of 2^18, so only the lower is rounded. A 1 enters below the sum.
        both[:] = concat(low[26:16], possible2) + concat(high[8:], modbv(0)[2:], possible2)
        raw.next = both[11:1]

    return multiply


@block
def row_quads(clk, phase, entries, possible, ratio, peak, quad):
    """Second pass over a row, a quad a clock (docs/reference/asc.md, "Frequencies").

    entries u64, possible u4: the row's first quad in phase 2; ratio u26 with it, for four clocks; peak
    u4 seventeen clocks before entries, in phase 1. quad u50 comes ten clocks behind entries: c of its symbols
    and of the one behind them, modulo 1024.

    The remainder is what the row's sum lacks to 1024: with it all c behind the peak grow. They are known
    before the row is complete, so they wait for it.
    """
    raw0, raw1, raw2, raw3 = (word(10) for _ in range(4))
    low, high, first1, third1 = (word(10) for _ in range(4))
    first2, second2, third2, four2 = (word(10) for _ in range(4))
    c0, c1, c2, c3, c4 = (word(10) for _ in range(5))
    early, middle, late, kept, above, begins = word(50), word(50), word(50), word(10), word(5), bit()
    peak1, peak2, peak3, peak4, peak5, peak6, peak7 = (word(4) for _ in range(7))
    raws = raw0, raw1, raw2, raw3
    lanes = [scaled(clk, entries, possible, ratio, raw, lane=i) for i, raw in enumerate(raws)]

    @always(clk.posedge)
    def accumulate():
        # raw of the row's first quad is here in phase 1; so it is added in phase 3, with `begins`.
        low.next = raw0 + raw1
        high.next = raw2 + raw3
        first1.next = raw0
        third1.next = raw2
        first2.next = first1
        second2.next = low
        third2.next = low + third1
        four2.next = low + high
        base = modbv(0)[10:]
        base[:] = c4
        if begins:
            base[:] = 0
        c0.next = base
        c1.next = base + first2
        c2.next = base + second2
        c3.next = base + third2
        c4.next = base + four2
        early.next = concat(c4, c3, c2, c1, c0)
        middle.next = early
        late.next = middle

    # The row is complete, and its first quad in `late`, in phase 3, too.
    @always(clk.posedge)
    def complete():
        missing = modbv(0)[10:]
        missing[:] = kept
        if begins:
            missing[:] = c4
            kept.next = c4
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

    # The row's first quad is in `middle` in phase 2.
    @always(clk.posedge)
    def look_ahead():
        place = modbv(0)[2:]
        symbol = modbv(0)[5:]
        place[:] = phase - 2
        begins.next = place == 0
        for i in range(5):
            symbol[:] = concat(place, modbv(0)[2:]) + i
            above.next[i] = symbol > peak7
        if phase == 1:
            peak1.next = peak
            peak2.next = peak1
            peak3.next = peak2
            peak4.next = peak3
            peak5.next = peak4
            peak6.next = peak5
            peak7.next = peak6

    return lanes, accumulate, complete, look_ahead
