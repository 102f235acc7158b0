"""Frequencies of table rows from their histograms, and cumulative frequencies."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.tables.row_ratio import RATIO_BITS
from oscar_hdl.streams.bundles import bit, word


@block
def frequency_rows(
    clk: Any, turn: Any, fix: Any, phase: Any, entry: Any, possible: Any, ratio: Any, peak: Any, raw: Any,
    raw_late: Any, live: Any, frequency: Any, cumulative: Any,
) -> Any:  # fmt: skip
    """Second and third pass over a row, an entry a clock (docs/asc.md, "Frequencies").

    turn: phase 3; fix: phase 15. Second pass: entry u16 with `possible` in phase symbol, its row's ratio u26
    a clock later; raw u10, three clocks later, is f before the remainder. It comes back as raw_late u10 in
    phase 1 + symbol, 46 clocks behind raw. peak u4 is there with the turn at which the row's entries end,
    29 clocks before the second pass. frequency u10 is f in phase 2 + symbol, 47 clocks behind raw;
    cumulative u10, c of the same symbol; both 0 unless `live`, a level with frequency.
    """
    factor, low, high = word(16), word(34), word(16)
    possible1, possible2 = bit(), bit()
    rest, rest1, rest2, rest_now = word(10), word(10), word(10), word(10)
    peak1, peak2, peak3, peak4, peak5, peak_now = (word(4) for _ in range(6))
    extra = word(10)

    @always(clk.posedge)
    def multiply():
        both = modbv(0)[11:]
        factor.next = entry
        possible1.next = possible
        possible2.next = possible1
        low.next = factor * ratio[18:]
        high.next = factor[8:] * ratio[RATIO_BITS:18]
        # The upper part is a multiple of 2^18, so only the lower is rounded. A 1 enters below the sum.
        both[:] = concat(low[26:16], possible2) + concat(high[8:], modbv(0)[2:], possible2)
        raw.next = both[11:1]

    @always(clk.posedge)
    def remember():
        base = modbv(0)[10:]
        base[:] = rest
        if turn:
            base[:] = 0
            rest1.next = rest
            rest2.next = rest1
            peak1.next = peak
            peak2.next = peak1
            peak3.next = peak2
            peak4.next = peak3
            peak5.next = peak4
        rest.next = base - raw
        if fix:
            rest_now.next = rest2
            peak_now.next = peak5

    @always(clk.posedge)
    def complete():
        extra.next = rest_now
        if phase != peak_now:
            extra.next = 0
        frequency.next = raw_late + extra
        cumulative.next = cumulative + frequency  # 1024 is 0: the next row begins there
        if not live:
            cumulative.next = 0

    return multiply, remember, complete
