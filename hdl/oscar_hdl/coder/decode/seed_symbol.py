"""The symbol of a value, for the counts of rows that rode in the start states (asc.md, "Symbols")."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.row_top import first_one
from oscar_hdl.streams.bundles import bit, word


@block
def seed_symbol(clk, value, low_bits, symbol):
    """Give a symbol a clock, 6 clocks after the value u16.

    low_bits u2, with the value: 0, 1, 3 or 8 of its low bits go round the tables (0, 1, 2, 3). symbol u4.
    """
    low1, shift1_1, shift3_1, shift8_1, high2 = (word(9) for _ in range(5))
    extended, flipped = word(9), word(8)
    size3 = word(8)
    above4, top4, third4, part4 = bit(), bit(), bit(), word(4)
    symbol5 = word(4)

    @always_comb
    def extend():
        extended.next = concat(value[15], value[16:8])
        flipped.next = high2[8:]
        if high2[8]:
            flipped.next = ~high2[8:]

    @always(clk.posedge)
    def high_part():
        # One of these is not 0.
        low1.next = value[9:]
        if low_bits != 0:
            low1.next = 0
        shift1_1.next = value[10:1]
        if low_bits != 1:
            shift1_1.next = 0
        shift3_1.next = value[12:3]
        if low_bits != 2:
            shift3_1.next = 0
        shift8_1.next = extended
        if low_bits != 3:
            shift8_1.next = 0
        high2.next = low1 | shift1_1 | shift3_1 | shift8_1
        size3.next = flipped + high2[8]
        # The upper or lower four bits that may hold the first 1.
        top4.next = size3[7]
        third4.next = size3[5]
        above4.next = size3[7:4] != 0
        part4.next = size3[4:]
        if size3[7:4] != 0:
            part4.next = size3[7:3]
        symbol.next = symbol5

    return extend, high_part, first_one(clk, top4, third4, above4, part4, symbol5)
