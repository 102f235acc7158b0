"""Whether a sender may have written an entry of the directory (asc.md, "A receiver refuses")."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import CODED, CONSTANT, MOST_SEED_ROWS, RAW
from oscar_hdl.streams.bundles import bit, word

CLOCKS = 6  # from an entry to what is known of it


@block
def entry_check(clk, rst, check, entry, width, values, top, done, right):
    """Judge an entry of a block of `values` u18 with last group `top` u7, of values of `width` u5 bits.

    check (strobe, four clocks apart at least): entry u48, values and top hold from then on for three clocks,
    width to done (strobe), which comes with right, CLOCKS later.
    """
    kind, size, missing = word(2), word(24), word(19)
    ACC = 25
    UPPER, UPPER_5 = (1 << (ACC - 6)) - 1, (1 << (ACC - 5)) - 1
    # 4 (n·r - 8·bytes) - 32: n times two bits of r, n times two others, and its fifth with the bytes.
    excess, factor, way = word(ACC), word(5), word(CLOCKS - 1)
    low, middle, rest, rest_late, product = word(20), word(20), word(ACC), word(ACC), word(22)
    coded, raw, constant, fits, large = (bit() for _ in range(5))
    few, ordered, inside, enough, empty, some, narrow, plain, upper = (bit() for _ in range(9))
    wide_at, beyond, sign = word(15), word(15), bit()
    constant_late, large_late = bit(), bit()
    WIDE = tuple(0x7FFF >> max(0, w - 1) << max(0, w - 1) for w in range(32))  # bits that repeat the sign

    @always_comb
    def fields():
        kind.next = entry[2:]
        size.next = entry[48:24]
        missing.next = ~entry[43:24]
        sign.next = entry[47]

    @always(clk.posedge)
    def multiply():
        once = modbv(0)[20:]
        twice = modbv(0)[20:]
        most = modbv(0)[ACC:]
        factor.next = width
        if kind == RAW:
            factor.next = entry[7:2]
        if factor[0]:
            once[:] = values
        if factor[1]:
            twice[:] = concat(values, False)
        low.next = once + twice
        once[:] = 0
        twice[:] = 0
        if factor[2]:
            once[:] = values
        if factor[3]:
            twice[:] = concat(values, False)
        middle.next = once + twice
        if factor[4]:
            most[:] = concat(values, modbv(0)[6:])
        rest.next = most + concat(True, missing, modbv(0)[5:])
        rest_late.next = rest
        product.next = concat(middle, modbv(0)[2:]) + low
        excess.next = concat(product, modbv(0)[2:]) + rest_late

    @always(clk.posedge)
    def look():
        """What needs no product, in two clocks."""
        wide_at.next = WIDE[int(width)]
        large.next = size[24:19] != 0
        few.next = entry[5:2] <= MOST_SEED_ROWS and entry[24:19] == 0
        ordered.next = entry[12:5] <= entry[19:12]
        inside.next = entry[19:12] <= top
        enough.next = size[24:7] != 0 or size[7:5] == 3  # 96: the final states
        empty.next = entry[24:8] == 0
        some.next = entry[8:2] != 0
        narrow.next = entry[8:2] <= width
        plain.next = entry[16:2] == 0
        upper.next = entry[48:31] == 0 or entry[48:31] == 0x1FFFF
        beyond.next = entry[31:16] & wide_at
        if sign:
            beyond.next = ~entry[31:16] & wide_at
        coded.next = kind == CODED and few and ordered and inside and enough
        raw.next = kind == RAW and empty and some and narrow
        constant.next = kind == CONSTANT and plain and upper and beyond == 0
        constant_late.next = constant
        large_late.next = large

    @always(clk.posedge)
    def judge():
        """Coded is shorter than n·w bits; raw has exactly the bytes that hold n·r."""
        fits.next = False
        if raw:
            fits.next = excess[ACC:6] == UPPER and excess[5] == (excess[5:2] == 0)
        elif coded:
            fits.next = not excess[ACC - 1] or (excess[ACC:5] == UPPER_5 and excess[5:2] != 0)

    @always(clk.posedge)
    def run():
        way.next[CLOCKS - 1 : 1] = way[CLOCKS - 2 :]
        way.next[0] = check
        done.next = way[CLOCKS - 2]
        right.next = constant_late or (fits and not large_late)
        if rst:
            way.next = 0
            done.next = False

    return fields, multiply, look, judge, run
