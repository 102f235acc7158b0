"""Makes the entries of barrel encoders' tables of quads for all units of a NIC."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat

from oscar_hdl.coder.barrel_encode.ports import BarrelTables
from oscar_hdl.coder.encode.reciprocal import reciprocal
from oscar_hdl.coder.ports import TableWrites
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

# Clocks from `built` to the last entry: a block looks no symbol up sooner than 40 clocks behind its start,
# and entries pass eight units at most, a clock each.
EARLY = 16
LAST_ENTRY = 511  # of a bank
LAST_BEFORE = LAST_ENTRY - EARLY
RECIPROCALS = tuple(reciprocal(f) for f in range(1 << 10))


@block
def quad_entries(clk: Any, quad: Any, place: Any, valid: Any, entries: BarrelTables) -> Any:
    """Give the entry of a symbol, five clocks behind its quad u50; place u10: bank, row, symbol."""
    c1, next1, c2, c3, c4, f2, f3, f4 = (word(10) for _ in range(8))
    place1, place2, place3, place4 = (word(10) for _ in range(4))
    valid1, valid2, valid3, valid4 = (bit() for _ in range(4))
    found3, found4 = word(16), word(16)

    @always(clk.posedge)
    def choose() -> None:
        if place[2:] == 0:
            c1.next = quad[10:]
            next1.next = quad[20:10]
        elif place[2:] == 1:
            c1.next = quad[20:10]
            next1.next = quad[30:20]
        elif place[2:] == 2:
            c1.next = quad[30:20]
            next1.next = quad[40:30]
        else:
            c1.next = quad[40:30]
            next1.next = quad[50:40]

    @always(clk.posedge)
    def look_up() -> None:
        f2.next = next1 - c1
        found3.next = RECIPROCALS[int(f2)]
        found4.next = found3
        f3.next = f2
        f4.next = f3
        c2.next = c1
        c3.next = c2
        c4.next = c3

    @always(clk.posedge)
    def follow() -> None:
        place1.next = place
        place2.next = place1
        place3.next = place2
        place4.next = place3
        valid1.next = valid
        valid2.next = valid1
        valid3.next = valid2
        valid4.next = valid3
        entries.enable.next = valid4
        entries.address.next = place4
        entries.data.next = concat(found4, c4, f4)

    return choose, look_up, follow


@block
def table_spread(clk: Any, rst: Any, quads: TableWrites, entries: BarrelTables, built: Any) -> Any:
    """Turn the 128 quads of a bank into its 512 entries, one a clock, from its first quad on.

    quads: in the order of their addresses, a quad in four clocks or sooner; the next bank's first one behind
    `built`. built (strobe): blocks of the bank may be dealt, EARLY clocks before the last entry.
    """
    running, bank, at, valid1, valid2, valid3 = bit(), bit(), word(9), bit(), bit(), bit()
    read_at, quad = word(8), word(50)
    place1, place2, place3 = word(10), word(10), word(10)

    memory = block_ram(clk, quads.enable, quads.address, quads.data, read_at, quad)
    made = quad_entries(clk, quad, place3, valid3, entries)

    @always(clk.posedge)
    def run() -> None:
        built.next = running and at == LAST_BEFORE and not rst
        if running:
            at.next = at + 1
            if at == LAST_ENTRY:
                running.next = False
        elif quads.enable and quads.address[7:] == 0:
            running.next = True
            bank.next = quads.address[7]
            at.next = 0
        if rst:
            running.next = False

    # The quad of `at` is read: its address is registered, and comes two clocks later.
    @always(clk.posedge)
    def follow() -> None:
        read_at.next = concat(bank, at[9:2])
        place1.next = concat(bank, at)
        valid1.next = running
        place2.next = place1
        valid2.next = valid1
        place3.next = place2
        valid3.next = valid2

    return memory, made, run, follow
