"""Eight bits of each word of V: weighed, and added to what other rows gave."""

from myhdl import always, always_comb, block

from oscar_hdl.attention.ports import AT_BITS, RISE_BITS, SUM_BITS, RowWord, Weight, signed
from oscar_hdl.attention.twin import WEIGHT_BITS
from oscar_hdl.streams.bundles import word

HALF = WEIGHT_BITS // 2
DEPTH = 5  # clocks from a word to its sum


@block
def value_product(clk, LANE: int, data, weight, product):
    """Multiply a byte of a word and a weight u32; product s40 comes three clocks later."""
    LOW, HIGH = 8 * LANE, 8 * LANE + 8
    value, low, high = signed(8), signed(HALF + 1), signed(HALF + 1)
    low_product, high_product = signed(HALF + 8), signed(HALF + 8)

    @always(clk.posedge)
    def multiply():
        value.next = data[HIGH:LOW].signed()
        low.next = weight[HALF:]
        high.next = weight[WEIGHT_BITS:HALF]
        low_product.next = value * low
        high_product.next = value * high
        product.next = (high_product << HALF) + low_product

    return multiply


@block
def value_lane(clk, LANE: int, words: RowWord, weight: Weight, read_at, found):
    """Keep a lane's sums of a head, and those of the head before, for who reads them.

    words: of values. read_at u4: which word; found s56: its sum, in the same clock.
    """
    sums = [signed(SUM_BITS) for _ in range(1 << AT_BITS)]
    whole = [signed(SUM_BITS) for _ in range(1 << AT_BITS)]
    product3, product4 = signed(WEIGHT_BITS + 8), signed(WEIGHT_BITS + 8)
    rise1, rise2, rise3 = word(RISE_BITS), word(4), word(2)
    before1, before2, before3, before4, after5 = (signed(SUM_BITS) for _ in range(5))
    valid, first, last = word(DEPTH), word(DEPTH), word(DEPTH)
    at1, at2, at3, at4, at5 = (word(AT_BITS) for _ in range(5))
    times = value_product(clk, LANE, words.data, weight.weight, product3)

    @always_comb
    def look():
        found.next = whole[read_at]

    @always(clk.posedge)
    def follow():
        valid.next = valid << 1
        first.next = first << 1
        last.next = last << 1
        valid.next[0] = words.valid
        first.next[0] = words.first
        last.next[0] = words.last
        at1.next = words.at
        at2.next = at1
        at3.next = at2
        at4.next = at3
        at5.next = at4

    # A word's sum is read again 16 clocks behind it at the earliest.
    @always(clk.posedge)
    def add():
        before1.next = sums[words.at]
        rise1.next = weight.rise
        rise2.next = rise1[4:]
        rise3.next = rise2[2:]
        before2.next = before1
        if first[0]:
            before2.next = 0
        elif rise1[6:4] == 1:
            before2.next = before1 >> 16
        elif rise1[6:4] == 2:
            before2.next = before1 >> 32
        elif rise1[6:4] == 3:
            before2.next = before1 >> 48
        before3.next = before2
        if rise2[4:2] == 1:
            before3.next = before2 >> 4
        elif rise2[4:2] == 2:
            before3.next = before2 >> 8
        elif rise2[4:2] == 3:
            before3.next = before2 >> 12
        before4.next = before3
        if rise3 == 1:
            before4.next = before3 >> 1
        elif rise3 == 2:
            before4.next = before3 >> 2
        elif rise3 == 3:
            before4.next = before3 >> 3
        product4.next = product3
        after5.next = before4 + product4
        if valid[4]:
            sums[at5].next = after5
            if last[4]:
                whole[at5].next = after5

    return times, look, follow, add
