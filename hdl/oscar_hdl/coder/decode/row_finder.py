"""Finds the rows of a group that have a class above 0, one after another."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, modbv

from oscar_hdl.coder.ports import LANES
from oscar_hdl.streams.bundles import bit, word


@block
def row_finder(
    clk: Any, write: Any, at: Any, row_class: Any, fall: Any, rise: Any, pop: Any, found: Any, row: Any,
    found_class: Any,
) -> Any:  # fmt: skip
    """Keep the classes of a group's rows and look at one a clock until one is above 0.

    write, at u5, row_class u4: a row's class. fall, rise: begin at row 31 or at row 0. found: row u5 has
    found_class u4 above 0, until `pop`; then the search goes on.
    """
    classes = [Signal(modbv(0)[4:]) for _ in range(LANES)]
    at_row, over, falling, seen = word(5), bit(), bit(), bit()

    @always_comb
    def hit() -> None:
        found.next = seen and found_class != 0

    @always(clk.posedge)
    def look() -> None:
        if write:
            classes[at].next = row_class
        if not found:
            found_class.next = classes[at_row]
            row.next = at_row
            seen.next = not over
            if falling:
                at_row.next = at_row - 1
                over.next = over or at_row == 0
            else:
                at_row.next = at_row + 1
                over.next = over or at_row == LANES - 1
        if pop:
            seen.next = False
        if fall or rise:
            at_row.next = 0
            if fall:
                at_row.next = LANES - 1
            over.next = False
            falling.next = fall
            seen.next = False

    return hit, look
