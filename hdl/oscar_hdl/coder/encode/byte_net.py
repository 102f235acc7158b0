"""A banyan that brings the bytes of eight lanes to their places in a word of sixteen.

Its first stage sets the lowest bit of a byte's place, the last one the uppermost. Bytes are in order and
without gaps, so two never want the same way.
"""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.unit.ports import WORD_BYTES
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.joined import joined

ITEM_BITS = 12  # a byte, whether it is there, what is left of its place


@block
def net_place(clk, AT: int, BIT: int, items, item):
    """Take, to place AT, the item from there or from across, whichever has bit BIT of AT as its next.

    items: sixteen of ITEM_BITS: byte, rest of the place u3 << 8, there << 11. A register stands behind it
    unless clk is None.
    """
    OWN, OTHER, WANTED = ITEM_BITS * AT, ITEM_BITS * (AT ^ 1 << BIT), AT >> BIT & 1
    own, other, chosen = word(ITEM_BITS), word(ITEM_BITS), word(ITEM_BITS)

    @always_comb
    def split():
        own.next = items[OWN + ITEM_BITS : OWN]
        other.next = items[OTHER + ITEM_BITS : OTHER]

    @always_comb
    def choose():
        if own[11] and own[8] == WANTED:
            chosen.next = concat(True, False, own[11:9], own[8:])
        elif other[11] and other[8] == WANTED:
            chosen.next = concat(True, False, other[11:9], other[8:])
        else:
            chosen.next = concat(False, False, other[11:9], other[8:])

    return split, choose, copied(clk, chosen, item)


@block
def net_stage(clk, BIT: int, items, after):
    """Move sixteen items by bit BIT of their places."""
    low, high = word(8 * ITEM_BITS), word(8 * ITEM_BITS)
    each = [word(ITEM_BITS) for _ in range(WORD_BYTES)]
    places = [net_place(clk, n, BIT, items, each[n]) for n in range(WORD_BYTES)]
    lower, upper = joined(each[:8], low), joined(each[8:], high)

    @always_comb
    def join():
        after.next = concat(high, low)

    return places, lower, upper, join


@block
def net_input(LANE: int, place, one, two, low, pair):
    """Put a lane's bytes at its two inputs, in the order in which their places are even and odd.

    place u32, one u8, two u8: of byte_places; low u16: the lane's bytes. pair: two items.
    """
    AT = 4 * LANE
    rest, rest_2 = word(3), word(3)

    @always_comb
    def split():
        rest.next = place[AT + 4 : AT + 1]
        rest_2.next = place[AT + 4 : AT + 1] + 1

    @always_comb
    def swap():
        if place[AT]:
            pair.next = concat(one[LANE], rest, low[8:], two[LANE], rest_2, low[16:8])
        else:
            pair.next = concat(two[LANE], rest, low[16:8], one[LANE], rest, low[8:])

    return split, swap


@block
def byte_net(clk, places13, one13, two13, bytes13, offset14, data15, here15, next15):
    """Give a word of sixteen bytes, and which of them are of this word (here15 u16) and of the next.

    places13, one13, two13: of byte_places. bytes13: a list of two bytes of each lane. offset14 u4: the place
    of the first of all.
    """
    pairs = [word(2 * ITEM_BITS) for _ in range(8)]
    items, first, second, third = (word(WORD_BYTES * ITEM_BITS) for _ in range(4))
    above15 = word(WORD_BYTES)
    inputs = [net_input(n, places13, one13, two13, bytes13[n], pairs[n]) for n in range(8)]
    join = joined(pairs, items)
    stages = [
        net_stage(clk, 1, items, first),
        net_stage(None, 2, first, second),
        net_stage(clk, 3, second, third),
    ]

    @always(clk.posedge)
    def mark():
        for i in range(WORD_BYTES):
            above15.next[i] = i >= offset14

    @always_comb
    def give():
        for i in range(WORD_BYTES):
            here15.next[i] = third[12 * i + 11] and above15[i]
            next15.next[i] = third[12 * i + 11] and not above15[i]
            for j in range(8):
                data15.next[8 * i + j] = third[12 * i + j]

    return inputs, join, stages, mark, give
