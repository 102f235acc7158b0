"""A bank's words of four lanes, as one lane a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import FOUR
from oscar_hdl.streams.bundles import word


@block
def lane_shift(clk: Any, load: Any, four: Any, data: Any, *, down: bool) -> Any:
    """Give a lane of `four` in the clock behind `load` (strobe, every fourth clock), then the others.

    down: from the highest lane to the lowest, otherwise from the lowest on.
    """
    WIDTH = len(data)
    if len(four) != FOUR * WIDTH:
        raise ValueError(f"a word of four lanes of {WIDTH} bits is needed, got {len(four)} bits")
    rest, first, behind = word(3 * WIDTH), word(WIDTH), word(3 * WIDTH)
    moved, next_lane = word(3 * WIDTH), word(WIDTH)

    if down:

        @always_comb
        def order() -> None:
            first.next = four[4 * WIDTH : 3 * WIDTH]
            behind.next = four[3 * WIDTH :]
            next_lane.next = rest[3 * WIDTH : 2 * WIDTH]
            moved.next = concat(rest[2 * WIDTH :], modbv(0)[WIDTH:])
    else:

        @always_comb
        def order() -> None:
            first.next = four[WIDTH:]
            behind.next = four[4 * WIDTH : WIDTH]
            next_lane.next = rest[WIDTH:]
            moved.next = concat(modbv(0)[WIDTH:], rest[3 * WIDTH : WIDTH])

    @always(clk.posedge)
    def shift() -> None:
        data.next = next_lane
        rest.next = moved
        if load:
            data.next = first
            rest.next = behind

    return order, shift
