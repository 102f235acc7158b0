"""The largest symbol of a row of sums (asc.md, "Symbols"); a frame's last one is its rows' largest."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def first_one(clk, top, third, above, part, symbol):
    """Give the symbol u4 of a magnitude, a clock later.

    top, third: it is 128 or more, and its third bit. part u4: of what is below 128 the upper four bits if
    `above`, that is one of them is 1, or the lower four.
    """

    @always(clk.posedge)
    def find():
        symbol.next = 0
        if top:
            symbol.next = concat(modbv(7)[3:], third)
        elif part[3]:
            symbol.next = concat(modbv(3)[3:], part[2])
            if above:
                symbol.next = concat(modbv(6)[3:], part[2])
        elif part[2]:
            symbol.next = concat(modbv(2)[3:], part[1])
            if above:
                symbol.next = concat(modbv(5)[3:], part[1])
        elif part[1]:
            symbol.next = concat(modbv(1)[3:], part[0])
            if above:
                symbol.next = concat(modbv(4)[3:], part[0])
        else:
            symbol.next[0] = part[0]

    return find


@block
def top_symbol(clk, flipped, negative, symbol):
    """Give the symbol u4 of a magnitude a clock, three clocks later.

    flipped u15, negative: |v| is the first, and 1 more where v is negative.
    """
    size, size2, beyond2 = word(9), word(8), bit()
    top3, third3, above3, part3 = bit(), bit(), bit(), word(4)

    @always_comb
    def add():
        size.next = concat(False, flipped[8:]) + negative

    @always(clk.posedge)
    def find():
        size2.next = size[8:]
        beyond2.next = size[8] or flipped[15:8] != 0
        # From 128 on the third bit counts, and magnitudes beyond have the last symbol.
        top3.next = size2[7] or beyond2
        third3.next = size2[6] or size2[5] or beyond2
        above3.next = size2[7:4] != 0
        part3.next = size2[4:]
        if size2[7:4] != 0:
            part3.next = size2[7:3]

    return add, find, first_one(clk, top3, third3, above3, part3, symbol)
