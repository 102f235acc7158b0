"""The first pass over a row: its sum, its largest entry, and how many symbols are impossible."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import word


@block
def row_totals(
    clk: Any, first: Any, phase: Any, entry: Any, possible: Any, total: Any, lost: Any, peak: Any,
) -> Any:  # fmt: skip
    """Add up 16 entries, one a clock; results are there in the clock with the next row's `first`.

    first (phase 3): the row's first entry u16, which belongs to phase 3 + symbol. possible: of its symbol;
    entries of others are 0. total u19: the sum and 1; lost u4: impossible symbols; peak
    u4: the lowest symbol with the largest entry.
    """
    symbol, largest = word(4), word(16)

    @always(clk.posedge)
    def add():
        base = modbv(0)[19:]
        given = modbv(0)[17:]
        less = modbv(0)[18:]
        symbol.next = phase - 2
        base[:] = total
        if first:
            base[:] = 0
            base[0] = True
        total.next = base + entry
        given[:] = concat(first, entry)  # the first is above whatever there was
        less[:] = largest - given
        if less[17]:
            largest.next = entry[16:]
            peak.next = symbol
        if first:
            lost.next = 0
        elif not possible:
            lost.next = lost + 1

    return add
