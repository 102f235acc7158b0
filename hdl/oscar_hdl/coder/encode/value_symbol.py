"""The symbol of a value (docs/asc.md, "Symbols")."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def value_symbol(
    clk: Any, value: Any, wide: Any, classes: Any, row_class: Any, symbol: Any, low_bits: Any, negative: Any,
    too_large: Any,
) -> Any:  # fmt: skip
    """Find a symbol a clock.

    At clock 0: value u16, signed; wide u2: how many low bits go round the tables, 0, 1, 3 or 8. 2: classes:
    the symbol is row_class u4 of clock 3, which is 0 otherwise. 4: symbol u4, too_large: the high part of
    the value has no symbol. 6: low_bits u5 and negative: of the high part's magnitude.
    """
    high1, wide1, sign1, magnitude2 = word(9), word(2), bit(), word(9)
    sign2, sign3, sign4, sign5 = bit(), bit(), bit(), bit()
    mixed_15_11, mixed_11_9, mixed_9_8, outside2, outside3 = bit(), bit(), bit(), bit(), bit()
    from_16, top3, low3, low4, low5 = bit(), word(5), word(5), word(5), word(5)

    @always(clk.posedge)
    def shift() -> None:
        sign1.next = value[15]
        wide1.next = wide
        if wide[1]:
            if wide[0]:
                high1.next = concat(value[15], value[16:8])
            else:
                high1.next = value[12:3]
        else:
            if wide[0]:
                high1.next = value[10:1]
            else:
                high1.next = value[9:]
        mixed_15_11.next = value[16:11] != 0 and value[16:11] != 31
        mixed_11_9.next = value[12:9] != 0 and value[12:9] != 7
        mixed_9_8.next = value[9] != value[8]

    # Bits above the nine have to be copies of the sign.
    @always(clk.posedge)
    def magnitude() -> None:
        # Of a negative number all bits above the lowest one change.
        lower = bool(0)
        for i in range(9):
            magnitude2.next[i] = high1[i] ^ (sign1 and lower)
            lower = lower or high1[i]
        sign2.next = sign1
        outside2.next = wide1 != 3 and (
            mixed_15_11 or (wide1 != 2 and (mixed_11_9 or (wide1 != 1 and mixed_9_8)))
        )

    # From 16 on the leading one is among the upper four bits, otherwise among the lower four.
    @always(clk.posedge)
    def align() -> None:
        from_16.next = magnitude2[8:4] != 0
        top3.next = magnitude2[8:3]
        if magnitude2[8:4] == 0:
            top3.next = concat(magnitude2[4:], False)
        low3.next = magnitude2[5:]
        sign3.next = sign2
        outside3.next = outside2 or magnitude2[8] or magnitude2[8:6] == 3
        if classes:
            from_16.next = False
            top3.next = 0
            outside3.next = False

    @always(clk.posedge)
    def look_up() -> None:
        symbol.next[3] = from_16 or row_class[3]
        symbol.next[2] = top3[4] or top3[3] or row_class[2]
        symbol.next[1] = top3[4] or (not top3[3] and top3[2]) or row_class[1]
        # The bit behind the leading one; from 128 on it is 0 and the next counts.
        if top3[4]:
            symbol.next[0] = (top3[2] and from_16) or (top3[3] and not from_16) or row_class[0]
        elif top3[3]:
            symbol.next[0] = top3[2] or row_class[0]
        elif top3[2]:
            symbol.next[0] = top3[1] or row_class[0]
        else:
            symbol.next[0] = (top3[0] and from_16) or (top3[1] and not from_16) or row_class[0]
        too_large.next = outside3
        low4.next = low3
        low5.next = low4
        low_bits.next = low5
        sign4.next = sign3
        sign5.next = sign4
        negative.next = sign5

    return shift, magnitude, align, look_up
