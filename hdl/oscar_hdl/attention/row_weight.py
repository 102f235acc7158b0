"""The weight of a row by its score, against the largest one so far, and the sum of weights."""

from myhdl import always, always_comb, block, concat, intbv

from oscar_hdl.attention.ports import (
    RISE_BITS,
    SCORE_BITS,
    STEP_BITS,
    TOP_BITS,
    TOTAL_BITS,
    Head,
    Score,
    Weight,
    signed,
)  # fmt: skip
from oscar_hdl.attention.twin import FRACTION_BITS, LEAST_SHIFT, MANTISSA_BITS, WEIGHTS
from oscar_hdl.streams.bundles import word

DEPTH = 9  # clocks from a score to its weight
MOST = (1 << RISE_BITS) - 1


@block
def score_step(clk, head: Head, score: Score, octave, fraction):
    """Give a score in octaves: octave s16 and fraction u8, five clocks later."""
    HALF = 16
    low, high, factor = signed(HALF + 1), signed(SCORE_BITS - HALF), signed(MANTISSA_BITS + 1)
    low_product, high_product = signed(2 * HALF + 2), signed(SCORE_BITS - HALF + MANTISSA_BITS)
    whole = signed(SCORE_BITS + MANTISSA_BITS)
    least, coarse = signed(STEP_BITS), signed(STEP_BITS)

    @always(clk.posedge)
    def multiply():
        factor.next = head.mantissa
        low.next = score.score[HALF:]
        high.next = score.score >> HALF
        low_product.next = low * factor
        high_product.next = high * factor
        whole.next = (high_product << HALF) + low_product

    @always_comb
    def cut():
        least.next = whole >> LEAST_SHIFT

    @always(clk.posedge)
    def shift():
        coarse.next = least
        if head.shift[5:3] == 1:
            coarse.next = least >> 8
        elif head.shift[5:3] == 2:
            coarse.next = least >> 16
        elif head.shift[5:3] == 3:
            coarse.next = least >> 23  # of 24 bits: the sign
        fine = intbv(0, min=-(1 << STEP_BITS - 1), max=1 << STEP_BITS - 1)
        fine[:] = coarse
        if head.shift[2]:
            fine[:] = fine >> 4
        if head.shift[1]:
            fine[:] = fine >> 2
        if head.shift[0]:
            fine[:] = fine >> 1
        octave.next = fine >> FRACTION_BITS
        fraction.next = fine[FRACTION_BITS:]

    return multiply, cut, shift


@block
def row_weight(clk, head: Head, score: Score, weight: Weight):
    """Give a row's weight: 2^-31 for each unit, of the largest octave so far."""
    octave, fraction, look_at6 = signed(TOP_BITS), word(FRACTION_BITS), word(FRACTION_BITS)
    step = score_step(clk, head, score, octave, fraction)
    made, firsts = word(DEPTH), word(DEPTH)
    above, below, octave6 = signed(TOP_BITS + 1), signed(TOP_BITS + 1), signed(TOP_BITS)
    looked7, drop7, rise7 = word(MANTISSA_BITS), word(RISE_BITS), word(RISE_BITS)
    coarse8, drop8, rise8 = word(32), word(3), word(RISE_BITS)
    total8, total9 = word(TOTAL_BITS), word(TOTAL_BITS)

    @always(clk.posedge)
    def compare():
        made.next = made << 1
        firsts.next = firsts << 1
        made.next[0] = score.made
        firsts.next[0] = score.first
        # Rows are 16 clocks apart at least, so the largest octave is that of all rows before.
        look_at6.next = fraction
        above.next = octave - weight.top
        below.next = weight.top - octave
        octave6.next = octave
        looked7.next = WEIGHTS[int(look_at6)]
        drop7.next = 0
        rise7.next = 0
        if not firsts[5]:
            if above > MOST:
                rise7.next = MOST
            elif above > 0:
                rise7.next = above[RISE_BITS:]
            elif below > MOST:
                drop7.next = MOST
            else:
                drop7.next = below[RISE_BITS:]
        if made[5] and (firsts[5] or above > 0):
            weight.top.next = octave6

    @always(clk.posedge)
    def shift():
        drop8.next = drop7[3:]
        coarse8.next = concat(looked7, intbv(0)[16:])
        if drop7[5]:
            coarse8.next = 0
        elif drop7[5:3] == 1:
            coarse8.next = concat(intbv(0)[8:], looked7, intbv(0)[8:])
        elif drop7[5:3] == 2:
            coarse8.next = concat(intbv(0)[16:], looked7)
        elif drop7[5:3] == 3:
            coarse8.next = concat(intbv(0)[24:], looked7[16:8])
        if made[7]:
            weight.weight.next = coarse8 >> drop8
            weight.rise.next = rise8

    @always(clk.posedge)
    def add():
        rise8.next = rise7
        total8.next = weight.total
        if rise7[6:4] == 1:
            total8.next = weight.total >> 16
        elif rise7[6:4] == 2:
            total8.next = weight.total >> 32
        elif rise7[6:4] == 3:
            total8.next = 0
        total9.next = total8 >> rise8[4:]
        if made[8]:
            weight.total.next = weight.weight
            if not firsts[8]:
                weight.total.next = total9 + weight.weight

    return step, compare, shift, add
