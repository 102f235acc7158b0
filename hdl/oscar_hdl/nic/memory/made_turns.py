"""Who loads rows tells a list of packets: several take turns; one has no list."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.ports import MadeRows
from oscar_hdl.streams.bundles import bit


@block
def made_turns(clk: Any, rst: Any, values: MadeRows, side: MadeRows, made: MadeRows) -> Any:
    """Pass on what two ports of rows say, one by one, and its answer; `values` first."""
    of_side = bit()

    @always_comb
    def open_all() -> None:
        values.open.next = made.open
        side.open.next = made.open

    @always(clk.posedge)
    def choose() -> None:
        values.taken.next = made.taken and not of_side
        side.taken.next = made.taken and of_side
        values.refused.next = made.refused
        side.refused.next = made.refused
        if made.valid:
            made.valid.next = not made.taken
        elif values.valid and not values.taken:
            made.valid.next = True
            of_side.next = False
            made.ends.next = values.ends
            made.entry.next = values.entry
            made.values.next = values.values
        elif side.valid and not side.taken:
            made.valid.next = True
            of_side.next = True
            made.ends.next = side.ends
            made.entry.next = side.entry
            made.values.next = side.values
        if rst:
            made.valid.next = False
            values.taken.next = False
            side.taken.next = False

    return open_all, choose


@block
def nothing_made(clk: Any, made: MadeRows) -> Any:
    """Refuse all that a port of rows says: those that it has count for no list."""

    @always(clk.posedge)
    def refuse() -> None:
        made.open.next = True
        made.taken.next = made.valid and not made.taken
        made.refused.next = True

    return refuse
