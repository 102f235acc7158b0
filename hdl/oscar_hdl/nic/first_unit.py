"""Which unit has the first block of a frame."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import word


def unit_word(units: int) -> Any:
    """Return a signal for the number of one of so many units."""
    return word(max(1, (units - 1).bit_length()))


@block
def first_unit(
    clk: Any, rst: Any, start: Any, row: Any, block_log2: Any, ready: Any, unit: Any, *, units: int
) -> Any:
    """Divide the number of a frame's first block in the memory by the number of units: the rest is `unit`.

    So rows have the same unit in every frame with blocks of that size, if it begins where a block does.
    start (strobe): row, and block_log2 u5 of 5 to 17, which hold until ready (level, until the next start).
    """
    UNITS, ROW_BITS, BITS = units, len(row), len(row) + 5
    steps, left = word(6), word(len(row))
    doubled, rest = word(len(unit) + 1), word(len(unit) + 1)

    @always_comb
    def double():
        doubled.next = concat(unit, left[ROW_BITS - 1])

    @always_comb
    def subtract():
        rest.next = doubled - UNITS

    # Bits of the row from the highest on, without those below a block.
    @always(clk.posedge)
    def run():
        ready.next = steps == BITS
        if steps != BITS:
            steps.next = steps + 1
            left.next = left << 1
            if doubled >= UNITS:
                unit.next = rest[len(unit) :]
            else:
                unit.next = doubled[len(unit) :]
        if start:
            steps.next = block_log2
            left.next = row
            unit.next = 0
            ready.next = False
        if rst:
            steps.next = BITS
            ready.next = True

    return double, subtract, run
