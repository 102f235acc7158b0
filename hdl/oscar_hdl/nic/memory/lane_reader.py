"""The lanes of a row, one a clock, out of a memory whose words hold four."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.zero import zero


@block
def lane_reader(
    clk: Any, rst: Any, phase: Any, take: Any, row: Any, step: Any, row_kept: Any, at_row: Any, at_part: Any,
    found: Any, instead: Any, other: Any, data: Any, *, down: bool, odd: bool,
) -> Any:  # fmt: skip
    """Read a row for each `take`; `data` of the first lane is there four clocks later.

    take: strobe, in clocks with phases that are odd or even as `odd` says, 32 clocks apart or more.
    step: u5, clocks since then, 0 in that of take. When it is a multiple of 4 the memory's address register
    has to become at_row, at_part (given in the same clock); the word is in `found` 3 clocks later.
    row_kept: the row of the last take. down: lanes 31 to 0, otherwise 0 to 31. instead: data become `other`
    (None: 0) with the next clock.
    """
    WIDTH = len(data)
    if len(found) != 4 * WIDTH or (other is not None and len(other) != WIDTH):
        raise ValueError(f"a word of four lanes of {WIDTH} bits is needed, got {len(found)} bits")
    count = word(5)
    rest, first, second = word(3 * WIDTH), word(WIDTH), word(WIDTH)
    behind, behind_rest = word(3 * WIDTH), word(3 * WIDTH)
    ODD = int(odd)
    none: Any = ()
    if other is None:
        other = word(WIDTH)
        none = zero(clk, other)

    @always_comb
    def place() -> None:
        step.next = count
        at_row.next = row_kept
        if take:
            step.next = 0
            at_row.next = row

    @always_comb
    def part() -> None:
        at_part.next = count[5:2]
        if take:
            at_part.next = 0
        if down:
            at_part.next = ~count[5:2]
            if take:
                at_part.next = 7

    @always(clk.posedge)
    def follow() -> None:
        count.next = count + 1
        if take:
            count.next = 1
        row_kept.next = at_row
        if rst:
            count.next = phase + 1 + ODD

    if down:

        @always_comb
        def order() -> None:
            first.next = found[4 * WIDTH : 3 * WIDTH]
            behind.next = found[3 * WIDTH :]
            second.next = rest[3 * WIDTH : 2 * WIDTH]
            behind_rest.next = concat(rest[2 * WIDTH :], modbv(0)[WIDTH:])
    else:

        @always_comb
        def order() -> None:
            first.next = found[WIDTH:]
            behind.next = found[4 * WIDTH : WIDTH]
            second.next = rest[WIDTH:]
            behind_rest.next = concat(modbv(0)[WIDTH:], rest[3 * WIDTH : WIDTH])

    @always(clk.posedge)
    def shift() -> None:
        data.next = second
        rest.next = behind_rest
        if count[2:] == 3:
            data.next = first
            rest.next = behind
        if instead:
            data.next = other

    return none, place, part, follow, order, shift
