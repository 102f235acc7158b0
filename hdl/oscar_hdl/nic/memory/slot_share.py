"""Slots of a bank for two units, of which the second comes seldom."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit, word

SELDOM = 63  # slots from one offer to the next, while the second unit takes none


@block
def slot_share(
    clk: Any, rst: Any, phase: Any, chosen: Any, taken: Any, first_ok: Any, second_ok: Any, *, slots: int
) -> Any:
    """Say when each of two units may begin a slot.

    chosen: level, the second unit works here. taken: strobe, it has begun a slot. first_ok: level, changes
    with phase 0; it is low for `slots` slots before one that the second may begin. second_ok: in phase 30
    before that. The slots between offers are few as long as the second unit takes what is offered.
    """
    at = word(6)  # slots to the next offer
    offers = bit()
    SLOTS = slots

    @always_comb
    def show() -> None:
        first_ok.next = at >= SLOTS
        second_ok.next = offers

    @always(clk.posedge)
    def count() -> None:
        offers.next = phase == 29 and at == 0
        if not chosen or rst:
            at.next = SELDOM
        elif taken:
            at.next = SLOTS + 1
        elif phase == 31:
            at.next = at - 1

    return show, count
