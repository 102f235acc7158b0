"""R of a table row: the quotient by which its histogram becomes frequencies."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.tables.row_totals import TOTAL_BITS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain

SMALL_BITS = 10  # of divisors that have a reciprocal in a table
PLACES = 36
# Rounded up, by less than 1; a numerator below 2^10 makes that less than 2^10 / 2^20 of the quotient. This is
# at least 1 / divisor below the next whole number, which is more: rounding down gives the quotient. A divisor
# of 1 is a row of zeros, whose R is multiplied by nothing but 0.
RECIPROCALS = tuple(-(-(1 << PLACES) // d) if d > 1 else 0 for d in range(1 << SMALL_BITS))
LOWER, UPPER = tuple(r & (1 << 18) - 1 for r in RECIPROCALS), tuple(r >> 18 for r in RECIPROCALS)
RATIO_BITS = 26


@block
def divider(clk, load, total, lost, bits):
    """Divide by hand: each clock the rest is doubled, and the divisor taken from it if it fits.

    load: strobe, begin with total u17 and lost u4. bits u16: the quotient, seventeen clocks later.
    """
    rest, divisor, less = word(TOTAL_BITS), word(TOTAL_BITS), word(TOTAL_BITS + 2)

    @always_comb
    def step():
        less.next = concat(rest, modbv(0)[1:]) - divisor

    @always(clk.posedge)
    def go_on():
        rest.next = less[TOTAL_BITS:]
        if less[TOTAL_BITS + 1]:
            rest.next = concat(rest[TOTAL_BITS - 1 :], modbv(0)[1:])
        bits.next[16:1] = bits[15:]
        bits.next[0] = not less[TOTAL_BITS + 1]
        if load:
            rest.next = concat(modbv(0b111111)[6:], lost)
            divisor.next = total

    return step, go_on


@block
def small_ratio(clk, divisor, lost, ratio):
    """Give R u26 of a row of divisor u10 and lost u4, both still, five clocks later."""
    lower, upper, lower_out, upper_out = word(18), word(18), word(18), word(18)
    numerator, factor, small_part, large_part, sum4 = word(10), word(10), word(28), word(28), word(RATIO_BITS)

    @always(clk.posedge)
    def multiply():
        total = modbv(0)[29:]
        lower.next = LOWER[int(divisor)]
        upper.next = UPPER[int(divisor)]
        lower_out.next = lower
        upper_out.next = upper
        numerator.next = concat(modbv(0b111111)[6:], lost)
        factor.next = numerator
        small_part.next = factor * lower_out
        large_part.next = factor * upper_out
        total[:] = large_part + small_part[28:18]
        sum4.next = total[28:2]
        ratio.next = sum4

    return multiply


@block
def row_ratio(clk, phase, total, lost, ratio):
    """Divide (1024 - n) * 2^16 by T + 1, a row every four clocks, in four dividers that take turns.

    total u17 = T + 1 in phase 0, lost u4 = 16 - n a clock before; 18 clocks behind total `ratio` u26 is
    there, for four clocks. The numerator is (1008 + lost) * 2^16. It is below the divisor times 2^16 if that
    has more than ten bits, so 16 steps are enough; of others the reciprocal is known.
    """
    lost1, turn, begins, ends, small = word(4), word(2), bit(), bit(), word(RATIO_BITS)
    load0, load1, load2, load3 = bit(), bit(), bit(), bit()
    bits0, bits1, bits2, bits3 = (word(16) for _ in range(4))
    # Divisor and lost of the rows that are divided, and whether the reciprocal is known.
    divisor1, divisor2, divisor3 = (word(SMALL_BITS) for _ in range(3))
    row1, row2, row3 = (word(5) for _ in range(3))
    small4, small_late = bit(), bit()

    known = small_ratio(clk, divisor3, row3(4, 0), small)
    dividers = [
        divider(clk, load, total, lost1, bits)
        for load, bits in ((load0, bits0), (load1, bits1), (load2, bits2), (load3, bits3))
    ]

    @always(clk.posedge)
    def move():
        # These are for phase 0.
        begins.next = phase == 3
        load0.next = phase == 3 and turn == 0
        load1.next = phase == 3 and turn == 1
        load2.next = phase == 3 and turn == 2
        load3.next = phase == 3 and turn == 3
        lost1.next = lost
        if begins:
            turn.next = turn + 1
            divisor1.next = total[SMALL_BITS:]
            row1.next[4:] = lost1
            row1.next[4] = total[TOTAL_BITS:SMALL_BITS] == 0
            small4.next = row3[4]

    # The divider that has just begun had ended then.
    @always(clk.posedge)
    def finish():
        ends.next = begins
        small_late.next = small4
        if ends:
            if small_late:
                ratio.next = small
            elif turn == 1:
                ratio.next = bits0
            elif turn == 2:
                ratio.next = bits1
            elif turn == 3:
                ratio.next = bits2
            else:
                ratio.next = bits3

    rows = [chain(clk, divisor1, divisor2, divisor3, load=begins), chain(clk, row1, row2, row3, load=begins)]
    return rows, known, dividers, move, finish
