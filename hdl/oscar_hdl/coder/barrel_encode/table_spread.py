"""Tables of barrel encoders out of those that link_tables builds: an entry a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.barrel_encode.ports import BarrelTables
from oscar_hdl.coder.encode.reciprocal import reciprocal
from oscar_hdl.coder.ports import TableWrites
from oscar_hdl.streams.bundles import bit, word

RECIPROCALS = tuple(reciprocal(f) for f in range(1 << 10))
QUADS_LOG2, QUAD_BITS = 7, 50  # of a bank; of a quad


@block
def table_spread(
    clk: Any, rst: Any, quads: TableWrites, tables: BarrelTables, built: Any, spread: Any
) -> Any:  # fmt: skip
    """Write the 512 entries of a bank behind its quads, four clocks a quad.

    built (strobe): the last quad of a bank is written, and no other bank is begun before spread (strobe): all
    its entries are written. Both of a build, which writes its quads in order.
    """
    memory, read_at = [word(QUAD_BITS) for _ in range(1 << QUADS_LOG2)], word(QUADS_LOG2)
    walking, begins, bank, place, ending = bit(), bit(), bit(), word(QUADS_LOG2 + 2), bit()
    quad1, quad2, at1, at2, at3, at4 = word(QUAD_BITS), word(QUAD_BITS), *(word(9) for _ in range(4))
    on1, on2, on3, on4, waits = bit(), bit(), bit(), bit(), bit()
    c3, next3, f4, c4, found5, f5, c5, at5, on5 = (
        word(10), word(10), word(10), word(10), word(16), word(10), word(10), word(9), bit()
    )  # fmt: skip

    @always_comb
    def look() -> None:
        begins.next = quads.enable and quads.address[QUADS_LOG2:] == 0
        read_at.next = place[QUADS_LOG2 + 2 : 2]

    @always(clk.posedge)
    def keep() -> None:
        if quads.enable:
            memory[quads.address[QUADS_LOG2:]].next = quads.data
        quad1.next = memory[read_at]
        quad2.next = quad1

    @always(clk.posedge)
    def walk() -> None:
        if walking:
            place.next = place + 1
            if place == 511:
                walking.next = False
        if begins:
            walking.next = True
            place.next = 0
            bank.next = quads.address[QUADS_LOG2]
        on1.next = walking
        on2.next = on1
        on3.next = on2
        on4.next = on3
        on5.next = on4
        if rst:
            walking.next = False
            on1.next = False
            on2.next = False
            on3.next = False
            on4.next = False
            on5.next = False

    # A number is the clock behind that of `place`.
    @always(clk.posedge)
    def follow() -> None:
        at1.next = place
        at2.next = at1
        at3.next = at2
        at4.next = at3
        at5.next = at4
        c3.next = quad2[10:]
        next3.next = quad2[20:10]
        if at2[2:] == 1:
            c3.next = quad2[20:10]
            next3.next = quad2[30:20]
        elif at2[2:] == 2:
            c3.next = quad2[30:20]
            next3.next = quad2[40:30]
        elif at2[2:] == 3:
            c3.next = quad2[40:30]
            next3.next = quad2[50:40]
        f4.next = next3 - c3
        c4.next = c3
        found5.next = RECIPROCALS[int(f4)]
        f5.next = f4
        c5.next = c4

    @always(clk.posedge)
    def give() -> None:
        tables.enable.next = on5
        tables.address.next = concat(bank, at5)
        tables.data.next = concat(found5, c5, f5)
        ending.next = on5 and at5 == 511
        waits.next = (waits or built) and not (ending and waits)
        spread.next = ending and waits
        if rst:
            tables.enable.next = False
            ending.next = False
            waits.next = False
            spread.next = False

    return look, keep, walk, follow, give
