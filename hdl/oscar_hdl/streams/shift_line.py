"""A word some clocks later."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import word


@block
def shift_line(clk: Any, x: Any, y: Any, clocks: int) -> Any:
    """Give as y what x was `clocks` (0 or more) clocks before: registers without enable or reset."""
    if clocks == 0:

        @always_comb
        def pass_on():
            y.next = x

        return pass_on
    if clocks == 1:

        @always(clk.posedge)
        def hold():
            y.next = x

        return hold
    half = word(len(x))
    return shift_line(clk, x, half, clocks - 1), shift_line(clk, half, y, 1)
