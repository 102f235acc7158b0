"""A lane's part of a CRC of whole words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, block

from oscar_hdl.nic.crc.linear_map import linear_map
from oscar_hdl.streams.bundles import bit, word


@block
def crc_lane(clk: Any, data: Any, mix: Any, valid: Any, total: Any, *, columns: Sequence[int]) -> Any:
    """Give what a lane's data, mixed with a part of the state or with nothing (None), add to the next
    state, two clocks later."""
    mixed, moved, valid_1 = word(16), word(32), bit()
    move = linear_map(mixed, moved, columns)

    @always(clk.posedge)
    def run():
        valid_1.next = valid
        total.next = moved
        if not valid_1:
            total.next = 0

    if mix is None:

        @always(clk.posedge)
        def take():
            mixed.next = data

    else:

        @always(clk.posedge)
        def take():
            mixed.next = data ^ mix

    return move, run, take
