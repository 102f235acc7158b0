"""The encoder's 32 states on one loop of 32 clocks, one step of a lane a clock (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.encode.divide import divide
from oscar_hdl.coder.encode.reciprocal import reciprocal
from oscar_hdl.coder.encode.renormalise import renormalise
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay

QUADS = 256  # bank, table row, four symbols
RECIPROCALS = tuple(reciprocal(f) for f in range(1 << 10))


@block
def encoder_core(
    clk: Any, phase: Any, tables: Any, address: Any, active: Any, opening: Any, start: Any, power: Any,
    shift: Any, keep: Any, raw: Any, low: Any, high: Any, impossible: Any, put: Any, put_two: Any, data: Any,
) -> Any:  # fmt: skip
    """Code a step of a lane each clock, lane 0 to 31, over and over.

    A number is the clock, counted from that of `address`, in which an input belongs to it, or an output.
    0: address u10 of the symbol (bank, table row, symbol), active: it is coded (otherwise f = 1024, c = 0).
    1: opening: the state is to begin with start u2. 2: power, shift, 5: low, high, 6: keep, raw, 7: put,
    put_two, data: as of renormalise. 5: impossible: a symbol with f = 0 was asked for.
    """
    # A quad of a row is c of four symbols and of the one behind them, so two of them give f.
    table = [word(50) for _ in range(QUADS)]
    quad, quad1, quad2, symbol1, symbol2 = word(8), word(50), word(50), word(2), word(2)
    found5, found6 = word(16), word(16)
    active1, active2, idle3 = bit(), bit(), bit()
    f4, f5, c3, next3, c15 = word(11), word(11), word(10), word(10), word(10)
    reciprocal7 = word(16)
    x3, y7, x16, x32, x33, x34 = word(24), word(24), word(24), word(24), word(24), word(24)
    power3, shift3 = word(17), word(3)

    late_c = lane_delay(clk, phase, c3, c15, 12)
    loop = lane_delay(clk, phase, x16, x32, 16)
    bytes_out = renormalise(clk, phase, x3, power3, shift3, f5, low, high, keep, raw, y7, put, put_two, data)
    quotient = divide(clk, phase, f5, y7, reciprocal7, c15, x16)

    @always_comb
    def split() -> None:
        quad.next = address[10:2]

    @always(clk.posedge)
    def tables_of_rows() -> None:
        if tables.enable:
            table[tables.address].next = tables.data
        quad1.next = table[quad]
        quad2.next = quad1  # becomes the output register of the block RAM
        symbol1.next = address[2:]
        symbol2.next = symbol1

    @always(clk.posedge)
    def choose() -> None:
        if symbol2 == 0:
            c3.next = quad2[10:]
            next3.next = quad2[20:10]
        elif symbol2 == 1:
            c3.next = quad2[20:10]
            next3.next = quad2[30:20]
        elif symbol2 == 2:
            c3.next = quad2[30:20]
            next3.next = quad2[40:30]
        else:
            c3.next = quad2[40:30]
            next3.next = quad2[50:40]
        if not active2:
            c3.next = 0
            next3.next = 0

    @always(clk.posedge)
    def gate() -> None:
        width = modbv(0)[10:]
        active1.next = active
        active2.next = active1
        idle3.next = not active2
        width[:] = next3 - c3
        f4.next = concat(idle3, width)  # 1024 where the lane does nothing
        f5.next = f4
        found5.next = RECIPROCALS[int(f4[10:])]  # of 1024: 0, as of 0
        found6.next = found5
        reciprocal7.next = found6
        impossible.next = f4 == 0

    @always(clk.posedge)
    def delays() -> None:
        x33.next = x32
        x34.next = x33
        if opening:
            x34.next = start
        x3.next = x34
        power3.next = power
        shift3.next = shift

    return late_c, loop, bytes_out, quotient, split, tables_of_rows, choose, gate, delays
