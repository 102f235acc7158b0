"""Reciprocals of frequencies, for two lanes."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, block, modbv

from oscar_hdl.coder.encode.reciprocal import RECIPROCAL_BITS, reciprocal
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.zero import zero

ENTRIES = 1 << 10


@block
def reciprocals(clk: Any, f_a: Any, f_b: Any, ratio_a: Any, ratio_b: Any) -> Any:
    """Give the reciprocals u16 of two f u10, two clocks later.

    A block RAM that is never written: a table in code would be one for each port.
    """
    memory = [Signal(modbv(reciprocal(f))[RECIPROCAL_BITS:]) for f in range(ENTRIES)]
    never, found_a, found_b = bit(), word(RECIPROCAL_BITS), word(RECIPROCAL_BITS)

    @always(clk.posedge)
    def look_up() -> None:
        if never:
            memory[f_a].next = 0
        found_a.next = memory[f_a]
        found_b.next = memory[f_b]
        ratio_a.next = found_a
        ratio_b.next = found_b

    return zero(clk, never), look_up
