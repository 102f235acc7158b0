"""Whose clock it is in the banks of a NIC."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_ports import TURNS
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.next_phase import next_phase

SUM_TURN = 6  # a unit takes sums so many turns, and a clock, behind its row
DESCRIBED_TURN = 1  # and describes them in phase 4 of a later slot
RAW_UP = 2  # turns from a raw packer's first word to turn 0
RAW_READ, RAW_WRITE = 6, 1  # the turns in which memory 0 reads and writes for the raw decoder's sums

RAW_SUMS = 7  # the turn in which the raw decoder asks for its row


@block
def bank_clocks(clk: Any, phase: Any, clocks: Any) -> Any:
    """Make BankClocks of the phase u5, all but `turn` in registers.

    phases: each counts on from the one before, so that each memory and place has registers near by.

    Place n of a bank has its phase 0 in turn (phase / 4) -n modulo 8.
    """
    after, later = word(5), word(3)
    SUM, DESCRIBED, UP, LAST = SUM_TURN, DESCRIBED_TURN, RAW_UP, TURNS - 1
    place, sum_place, described_place, down, up = (word(3) for _ in range(5))
    phases = clocks.phases
    chain = [next_phase(clk, phase, phases[0], ahead=1)]
    chain += [next_phase(clk, before, behind) for before, behind in pairwise(phases)]

    @always_comb
    def follow() -> None:
        after.next = phase + 1
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
        for n in range(3):
            clocks.looks.next[n] = after[2:] == n
        clocks.looks.next[3] = after[2:] == 3 and later == RAW_SUMS
        clocks.looks.next[4] = after[2:] == 3 and later != RAW_SUMS
        for n in range(TURNS):
            clocks.takes.next[n] = place == n
            clocks.sums.next[n] = sum_place == n
            clocks.describes.next[n] = described_place == n
            clocks.raw_down.next[n] = down == n
            clocks.raw_up.next[n] = up == n

    return chain, follow, split, places, count


@block
def memory_clocks(clk: Any, after: Any, clocks: Any, *, four: int) -> Any:
    """Make the MemoryClocks of a bank's memory; after u5: the phase of the clock behind this one."""
    READ, WRITE = (RAW_READ - four) % TURNS, (RAW_WRITE - four) % TURNS

    @always(clk.posedge)
    def count() -> None:
        clocks.is_0.next = after[2:] == 0
        clocks.is_1.next = after[2:] == 1
        clocks.is_2.next = after[2:] == 2
        clocks.is_3.next = after[2:] == 3
        for n in range(3):
            clocks.looks.next[n] = after[2:] == n
        clocks.looks.next[3] = after[2:] == 3 and after[5:2] == READ
        clocks.looks.next[4] = after[2:] == 3 and after[5:2] != READ
        clocks.raw_writes.next = after[5:2] == WRITE

    return count


@block
def place_clocks(clk: Any, after: Any, clocks: Any, *, index: int) -> Any:
    """Make the PlaceClocks of place `index`; after u5: the phase of the clock behind this one.

    At turn k the lanes of place n's row come from memory n + k - 1 of the source, -k - n of positions. Local
    values come from memory 5 - k - n, a clock later in each turn; totals go to memory 7 - k - n.
    """
    N, LAST, LOCAL = index, TURNS - 1, TURNS - 3
    before_1, before_2, before_3 = word(5), word(5), word(5)
    source, position, total_1, total_2, total_3 = (word(3) for _ in range(5))
    local_1, local_2, local_3 = (word(3) for _ in range(3))

    @always_comb
    def delay() -> None:
        before_1.next = after - 1
        before_2.next = after - 2
        before_3.next = after - 3

    @always_comb
    def find() -> None:
        source.next = after[5:2] + N - 1
        position.next = 0 - after[5:2] - N
        total_1.next = LAST - after[5:2]
        total_2.next = LAST - before_1[5:2]
        total_3.next = LAST - before_2[5:2]
        local_1.next = LOCAL - before_1[5:2]
        local_2.next = LOCAL - before_2[5:2]
        local_3.next = LOCAL - before_3[5:2]

    @always(clk.posedge)
    def count() -> None:
        for memory in range(TURNS):
            clocks.source.next[memory] = source == memory
            clocks.position.next[memory] = position == memory
        clocks.totals.next[0] = total_1[0]
        clocks.totals.next[1] = total_2[1]
        clocks.totals.next[2] = total_3[2]
        clocks.local.next[0] = local_1[0]
        clocks.local.next[1] = local_2[1]
        clocks.local.next[2] = local_3[2]

    return delay, find, count
