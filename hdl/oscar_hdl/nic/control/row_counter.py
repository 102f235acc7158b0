"""Counts the rows that units take, up to three a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def row_counter(clk: Any, phase: Any, takes: Any, rows: Any) -> Any:
    """Set a bit of rows u3 for each row, a slot later.

    phase u5 begins a slot with 0. takes: a bit for each unit (strobes), 3 to 96 of them; a unit takes a row a
    slot, at the same phase in each.
    """
    UNITS = len(takes)
    if not 3 <= UNITS <= 96:
        raise ValueError(f"rows of 3 to 96 units can be counted, got {UNITS}")
    taken, left = word(UNITS), word(UNITS)

    @always(clk.posedge)
    def count():
        rows.next = left[3:]
        left.next = left >> 3
        if phase == 0:
            left.next = taken
            taken.next = takes
        else:
            taken.next = taken | takes

    return count
