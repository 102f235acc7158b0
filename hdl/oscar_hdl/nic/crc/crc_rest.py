"""What all bits of a word but its low 32 add to a CRC, two words later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.crc.linear_map import linear_map
from oscar_hdl.streams.bundles import word

GROUP = 32  # bits whose sum has a register


@block
def crc_rest(clk: Any, enable: Any, data: Any, rest: Any, columns: Sequence[int], *, at: int) -> Any:
    """Give the xor of columns[i] for each bit at + i of data that is 1.

    enable (strobe): take data. rest u32: their sum behind registers of 32 bits of data each, so from the
    next clock on, until the next enable.
    """
    if len(columns) <= GROUP:
        total = word(32)
        total_map = linear_map(data, total, columns, at=at)

        @always(clk.posedge)
        def hold():
            if enable:
                rest.next = total

        return total_map, hold
    half = (len(columns) + 2 * GROUP - 1) // (2 * GROUP) * GROUP
    low, high = word(32), word(32)
    low_rest = crc_rest(clk, enable, data, low, columns[:half], at=at)
    high_rest = crc_rest(clk, enable, data, high, columns[half:], at=at + half)

    @always_comb
    def add():
        rest.next = low ^ high

    return low_rest, high_rest, add
