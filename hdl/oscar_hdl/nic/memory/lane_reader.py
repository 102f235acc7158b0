"""The lanes of a row, one a clock, out of a memory whose words hold half a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import FOUR
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.zero import zero


@block
def lane_reader(
    clk: Any, rst: Any, phase: Any, take: Any, row: Any, step: Any, row_kept: Any, at_row: Any, at_half: Any,
    found: Sequence[Any], instead: Any, other: Any, data: Any, *, down: bool, begin: int,
) -> Any:  # fmt: skip
    """Read a row for each `take`; `data` of the first lane is there four clocks later.

    take: strobe, in clocks whose phase modulo 4 is `begin`, 32 clocks apart or more.
    step: u5, clocks since then, 0 in that of take. When it is a multiple of 4 the memory's address register
    has to become at_row, at_half (given in the same clock); the half is in `found`, four words of four lanes,
    3 clocks later. row_kept: the row of the last take. down: lanes 31 to 0, otherwise 0 to 31.
    instead: data become `other` (None: 0) with the next clock.
    """
    WIDTH = len(data)
    if any(len(four) != FOUR * WIDTH for four in found) or (other is not None and len(other) != WIDTH):
        raise ValueError(f"words of four lanes of {WIDTH} bits are needed, got {len(found[0])} bits")
    count, four, fours = word(5), word(FOUR * WIDTH), word(FOUR)
    rest, first, behind = word(3 * WIDTH), word(WIDTH), word(3 * WIDTH)
    moved, next_lane = word(3 * WIDTH), word(WIDTH)
    BEGIN, FLIP, DOWN = begin, 3 * down, bool(down)
    none: Any = ()
    if other is None:
        other = word(WIDTH)
        none = zero(clk, other)
    pick = hot_tree(None, found, fours, four)

    @always_comb
    def place() -> None:
        step.next = count
        at_row.next = row_kept
        at_half.next = count[4] != DOWN
        if take:
            step.next = 0
            at_row.next = row
            at_half.next = DOWN

    @always(clk.posedge)
    def follow() -> None:
        count.next = count + 1
        if take:
            count.next = 1
        row_kept.next = at_row
        for i in range(FOUR):
            fours.next[i] = count[2:] == 2 and (count[4:2] ^ FLIP) == i
        if rst:
            count.next = phase + 1 - BEGIN

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

    # Four lanes come when those before have moved out, and none else: what is not there is 0.
    @always(clk.posedge)
    def shift() -> None:
        data.next = next_lane | first
        rest.next = moved | behind
        if instead:
            data.next = other

    return none, pick, place, follow, order, shift
