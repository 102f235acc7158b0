"""Symbols of values, without raw bits (docs/asc.md, "Symbols")."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

CLOCKS = 4  # from a value to its symbol


@block
def raw_symbol(clk: Any, value: Any, row_class: Any, header: Any, symbol: Any) -> Any:
    """Find a symbol a clock, 4 clocks after its inputs.

    value: u16, two's complement; row_class: u4, of its row. header: the symbol is that of the class, which
    is the class. symbol: u4.
    """
    class1, class2, class3, header1, header2, header3 = word(4), word(4), word(4), bit(), bit(), bit()
    high1, magnitude2 = word(9), word(8)
    upper3, middle3, lower3 = word(3), word(3), word(2)  # symbol less base; 0: magnitude is below

    @always(clk.posedge)
    def shift() -> None:
        class1.next = row_class
        header1.next = header
        high1.next = value[9:]
        if row_class == 13:
            high1.next = value[10:1]
        elif row_class == 14:
            high1.next = value[12:3]
        elif row_class == 15:
            high1.next = concat(value[15], value[16:8])

    @always(clk.posedge)
    def magnitude() -> None:
        class2.next = class1
        header2.next = header1
        magnitude2.next = high1[8:]
        if high1[8]:
            magnitude2.next = modbv(0)[8:] - high1[8:]

    # From 4 on a symbol is the position of the magnitude's uppermost bit and the bit behind it.
    @always(clk.posedge)
    def upper_bits() -> None:
        class3.next = class2
        header3.next = header2
        upper3.next = 0
        if magnitude2[7]:
            upper3.next = concat(modbv(3)[2:], magnitude2[5])
        elif magnitude2[6]:
            upper3.next = concat(modbv(2)[2:], magnitude2[5])
        elif magnitude2[5]:
            upper3.next = concat(modbv(1)[2:], magnitude2[4])
        middle3.next = 0
        if magnitude2[4]:
            middle3.next = concat(modbv(3)[2:], magnitude2[3])
        elif magnitude2[3]:
            middle3.next = concat(modbv(2)[2:], magnitude2[2])
        elif magnitude2[2]:
            middle3.next = concat(modbv(1)[2:], magnitude2[1])
        lower3.next = magnitude2[2:]

    # Symbols 4 to 9 are 2 more than the middle bits say, 10 to 15 are 8 more than the upper ones.
    @always(clk.posedge)
    def select() -> None:
        if header3:
            symbol.next = class3
        elif upper3 != 0:
            symbol.next = concat(True, upper3)
        elif middle3 != 0:
            symbol.next = middle3 + modbv(2)[4:]
        else:
            symbol.next = lower3

    return shift, magnitude, upper_bits, select
