"""A reset that lasts until pipelines are empty."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, block, modbv

from oscar_hdl.streams.bundles import bit

CLOCKS = 64  # twice a slot: nothing that blocks give travels for longer


@block
def reset_hold(clk: Any, rst: Any, held: Any) -> Any:
    """Let `held` be high from the clock behind `rst` to 64 clocks behind its end; also from power-up on.

    What is in flight in pipelines of data, and in delays in distributed RAM, which have no reset, leaves them
    while all that says what they hold is reset.
    """
    left, over = Signal(modbv(CLOCKS - 1, min=0, max=CLOCKS)), bit()

    @always(clk.posedge)
    def hold() -> None:
        held.next = rst or not over
        over.next = left == 0 and not rst
        if left != 0:
            left.next = left - 1
        if rst:
            left.next = CLOCKS - 1

    return hold
