"""Whose clock it is in the banks of a NIC."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_ports import TURNS
from oscar_hdl.streams.bundles import word

SUM_TURN = 6  # a unit takes sums so many turns, and a clock, behind its row
DESCRIBED_TURN = 1  # and describes them in phase 4 of a later slot
RAW_UP = 2  # turns from a raw packer's first word to turn 0


@block
def bank_clocks(clk: Any, phase: Any, clocks: Any) -> Any:
    """Make BankClocks of the phase u5, all but `turn` in registers.

    Place n of a bank has its phase 0 in turn (phase / 4) -n modulo 8.
    """
    after, turn, later = word(5), word(3), word(3)
    SUM, DESCRIBED, UP, LAST = SUM_TURN, DESCRIBED_TURN, RAW_UP, TURNS - 1
    BEFORE_SUM = SUM_TURN - 1
    place, sum_place, described_place, down, up = (word(3) for _ in range(5))

    @always_comb
    def follow() -> None:
        after.next = phase + 1
        turn.next = phase[5:2]
        clocks.turn.next = phase[5:2]

    @always_comb
    def split() -> None:
        later.next = after[5:2]

    @always_comb
    def places() -> None:
        place.next = 0 - later
        sum_place.next = SUM - later
        described_place.next = DESCRIBED - later
        down.next = LAST - later
        up.next = later + UP

    @always(clk.posedge)
    def count() -> None:
        clocks.is_0.next = after[2:] == 0
        clocks.is_1.next = after[2:] == 1
        clocks.is_2.next = after[2:] == 2
        clocks.is_3.next = after[2:] == 3
        for n in range(TURNS):
            clocks.takes.next[n] = place == n
            clocks.sums.next[n] = sum_place == n
            clocks.describes.next[n] = described_place == n
            clocks.raw_down.next[n] = down == n
            clocks.raw_up.next[n] = up == n
        clocks.total_amount.next = LAST - turn
        clocks.amount.next = turn
        if phase[2:] == 3:
            clocks.amount.next = BEFORE_SUM - turn

    return follow, split, places, count
