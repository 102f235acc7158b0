"""The encoder's 32 states on one loop of 32 clocks, one step of a lane a clock (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode.divide import divide
from oscar_hdl.coder.encode.renormalise import renormalise
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay

ENTRIES = 1024


@block
def encoder_core(
    clk: Any, phase: Any, tables: Any, address: Any, active: Any, opening: Any, start: Any, power: Any,
    shift: Any, keep: Any, raw: Any, low: Any, high: Any, impossible: Any, put: Any, put_two: Any, data: Any,
) -> Any:  # fmt: skip
    """Code a step of a lane each clock, lane 0 to 31, over and over.

    A number is the clock, counted from that of `address`, in which an input belongs to it, or an output.
    0: address u10 of the table's entry, active: it is coded (otherwise f = 1024, c = 0). 1: opening: the
    state is to begin with start u2. 2: power, shift, 5: low, high, 6: keep, raw, 7: put, put_two, data: as
    of renormalise. 4: impossible: an entry with f = 0 was asked for.

    The reciprocal is read later than f, by a delayed address, instead of being delayed itself.
    """
    # An entry is f and c[8:] in one block RAM, c[10:8] and the reciprocal in another.
    table_f, table_r = [word(18) for _ in range(ENTRIES)], [word(18) for _ in range(ENTRIES)]
    row1, row2, address4, row5, row6 = word(18), word(18), word(10), word(18), word(18)
    active1, active2, idle3, idle4, idle5, idle6 = bit(), bit(), bit(), bit(), bit(), bit()
    f3, f4, f5, c3, c15 = word(11), word(11), word(11), word(8), word(8)
    c7, c8, c9, c10, c11, c12, c13, c14, c_upper15 = (word(2) for _ in range(9))
    reciprocal7, c_all15 = word(16), word(10)
    x3, y7, x16, x32, x33, x34 = word(24), word(24), word(24), word(24), word(24), word(24)
    power3, shift3 = word(17), word(3)

    late_address = lane_delay(clk, phase, address, address4, 4)
    late_c = lane_delay(clk, phase, c3, c15, 12)
    loop = lane_delay(clk, phase, x16, x32, 16)
    bytes_out = renormalise(clk, phase, x3, power3, shift3, f5, low, high, keep, raw, y7, put, put_two, data)
    quotient = divide(clk, phase, f5, y7, reciprocal7, c_all15, x16)

    @always(clk.posedge)
    def write_tables() -> None:
        if tables.enable:
            table_f[tables.address].next = tables.data[18:]
            table_r[tables.address].next = tables.data[36:18]

    @always(clk.posedge)
    def read_tables() -> None:
        row1.next = table_f[address]
        row2.next = row1  # becomes the output register of the block RAM
        row5.next = table_r[address4]
        row6.next = row5

    @always(clk.posedge)
    def gate() -> None:
        active1.next = active
        active2.next = active1
        f3.next = row2[10:]
        c3.next = row2[18:10]
        idle3.next = not active2
        if not active2:
            f3.next = 1024
            c3.next = 0
        idle4.next = idle3
        idle5.next = idle4
        idle6.next = idle5
        c7.next = row6[2:]
        reciprocal7.next = row6[18:2]
        if idle6:
            c7.next = 0
            reciprocal7.next = 0
        impossible.next = f3 == 0

    @always(clk.posedge)
    def delays() -> None:
        f4.next = f3
        f5.next = f4
        c8.next = c7
        c9.next = c8
        c10.next = c9
        c11.next = c10
        c12.next = c11
        c13.next = c12
        c14.next = c13
        c_upper15.next = c14
        x33.next = x32
        x34.next = x33
        if opening:
            x34.next = start
        x3.next = x34
        power3.next = power
        shift3.next = shift

    @always_comb
    def join() -> None:
        c_all15.next = concat(c_upper15, c15)

    return late_address, late_c, loop, bytes_out, quotient, write_tables, read_tables, gate, delays, join
