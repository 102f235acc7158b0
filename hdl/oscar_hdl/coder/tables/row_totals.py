"""Sums and largest entries of histogram rows, four entries a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

TOTAL_BITS = 19  # of the sum and 1: 16 sent entries of up to 2^14


@block
def row_totals(clk: Any, phase: Any, entries: Any, possible: Any, total: Any, lost: Any, peak: Any) -> Any:
    """Add up the quads of a row and find the largest entry.

    possible u4: of the row's first quad in phase 2; entries u64 a clock later, 0 where impossible. lost u4:
    impossible symbols of the row, five clocks behind its first quad's `possible`, in phase 3; total u19: the
    sum and 1, a clock later; peak u4: the lowest symbol with the largest entry, a clock later, in phase 1.
    """
    low, high, none = word(17), word(17), word(3)
    low_most, high_most, low_at, high_at = word(16), word(16), bit(), bit()
    most, most_at, largest = word(16), word(2), word(16)

    @always(clk.posedge)
    def count():
        missing = modbv(0)[3:]
        base = modbv(0)[4:]
        missing[:] = 0
        for i in range(4):
            if not possible[i]:
                missing[:] = missing + 1
        none.next = missing
        base[:] = lost
        if phase == 3:
            base[:] = 0
        lost.next = base + none

    @always(clk.posedge)
    def add():
        base = modbv(0)[TOTAL_BITS:]
        low.next = entries[16:] + entries[32:16]
        high.next = entries[48:32] + entries[64:48]
        base[:] = total
        if phase == 0:
            base[:] = 1
        total.next = base + low + high

    @always(clk.posedge)
    def compare():
        low_most.next = entries[16:]
        low_at.next = False
        if entries[32:16] > entries[16:]:
            low_most.next = entries[32:16]
            low_at.next = True
        high_most.next = entries[48:32]
        high_at.next = False
        if entries[64:48] > entries[48:32]:
            high_most.next = entries[64:48]
            high_at.next = True
        most.next = low_most
        most_at.next = concat(modbv(0)[1:], low_at)
        if high_most > low_most:
            most.next = high_most
            most_at.next = concat(modbv(1)[1:], high_at)

    # The row's first quad is here in phase 1.
    @always(clk.posedge)
    def choose():
        quad = modbv(0)[2:]
        if phase == 1 or most > largest:
            quad[:] = phase - 1
            largest.next = most
            peak.next = concat(quad, most_at)

    return count, add, compare, choose
