"""R of a table row: the quotient by which its histogram becomes frequencies."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.tables.row_totals import TOTAL_BITS
from oscar_hdl.streams.bundles import bit, word

SMALL_BITS = 10  # of divisors that have a reciprocal in a table
PLACES = 36
# Rounded up, by less than 1; a numerator below 2^10 makes that less than 2^10 / 2^20 of the quotient. This is
# at least 1 / divisor below the next whole number, which is more: rounding down gives the quotient. A divisor
# of 1 is a row of zeros, whose R is multiplied by nothing but 0.
RECIPROCALS = tuple(-(-(1 << PLACES) // d) if d > 1 else 0 for d in range(1 << SMALL_BITS))
LOWER, UPPER = tuple(r & (1 << 18) - 1 for r in RECIPROCALS), tuple(r >> 18 for r in RECIPROCALS)
RATIO_BITS = 26


class Dividing:
    """A quotient on its way: what is left, what divides it, and the bits that are known."""

    def __init__(self) -> None:
        self.rest, self.divisor, self.bits = word(TOTAL_BITS), word(TOTAL_BITS), word(16)
        self.lost = word(4)


@block
def ratio_stage(clk: Any, load: Any, given: Dividing, now: Dividing, then: Dividing) -> Any:
    """Divide by hand: each clock the rest is doubled, and the divisor taken from it if it fits.

    load: take what is given, instead of going on. now: registers; then: what follows from them.
    """

    @always_comb
    def step():
        less = modbv(0)[TOTAL_BITS + 2 :]
        less[:] = concat(now.rest, modbv(0)[1:]) - now.divisor
        then.rest.next = less[TOTAL_BITS:]
        if less[TOTAL_BITS + 1]:
            then.rest.next = concat(now.rest[TOTAL_BITS - 1 :], modbv(0)[1:])
        then.bits.next[16:1] = now.bits[15:]
        then.bits.next[0] = not less[TOTAL_BITS + 1]
        then.divisor.next = now.divisor
        then.lost.next = now.lost

    @always(clk.posedge)
    def go_on():
        now.rest.next = then.rest
        now.bits.next = then.bits
        if load:
            now.rest.next = given.rest
            now.bits.next = given.bits
            now.divisor.next = given.divisor
            now.lost.next = given.lost

    return step, go_on


@block
def small_ratio(clk: Any, divisor: Any, lost: Any, ratio: Any) -> Any:
    """Give R u26 of a row of divisor u10 and lost u4, both still, four clocks later."""
    lower, upper, lower_out, upper_out = word(18), word(18), word(18), word(18)
    numerator, factor, small_part, large_part = word(10), word(10), word(28), word(28)

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
        ratio.next = total[28:2]

    return multiply


@block
def row_ratio(clk: Any, phase: Any, total: Any, lost: Any, ratio: Any) -> Any:
    """Divide (1024 - n) * 2^16 by T + 1, a row every four clocks.

    total u19 = T + 1 in phase 0, lost u4 = 16 - n a clock before; 16 clocks behind total `ratio` u26 is
    there, for four clocks. The numerator is (1008 + lost) * 2^16. It is below the divisor times 2^16 if that
    has more than ten bits, so 16 steps are enough; of others the reciprocal is known.
    """
    entering, first, second, third, fourth = (Dividing() for _ in range(5))
    after_first, after_second, after_third, after_fourth = (Dividing() for _ in range(4))
    divisor, load, small, is_small, index = word(TOTAL_BITS), bit(), word(RATIO_BITS), bit(), word(SMALL_BITS)

    # The first stage has its divisor a clock late: until then it is `total`.
    @always_comb
    def wires():
        load.next = phase == 3
        entering.rest.next = concat(modbv(0b111111)[6:], lost)
        entering.bits.next = 0
        entering.lost.next = lost
        entering.divisor.next = 0
        index.next = third.divisor[SMALL_BITS:]

    @always_comb
    def step():
        less = modbv(0)[TOTAL_BITS + 2 :]
        own = modbv(0)[TOTAL_BITS:]
        own[:] = divisor
        if phase == 0:
            own[:] = total
        less[:] = concat(first.rest, modbv(0)[1:]) - own
        after_first.rest.next = less[TOTAL_BITS:]
        if less[TOTAL_BITS + 1]:
            after_first.rest.next = concat(first.rest[TOTAL_BITS - 1 :], modbv(0)[1:])
        after_first.bits.next[16:1] = first.bits[15:]
        after_first.bits.next[0] = not less[TOTAL_BITS + 1]
        after_first.divisor.next = divisor
        after_first.lost.next = first.lost

    @always(clk.posedge)
    def begin():
        first.rest.next = after_first.rest
        first.bits.next = after_first.bits
        if load:
            first.rest.next = entering.rest
            first.bits.next = entering.bits
            first.lost.next = entering.lost
        if phase == 0:
            divisor.next = total

    stages = [
        ratio_stage(clk, load, after_first, second, after_second),
        ratio_stage(clk, load, after_second, third, after_third),
        ratio_stage(clk, load, after_third, fourth, after_fourth),
    ]
    known = small_ratio(clk, index, third.lost, small)

    @always(clk.posedge)
    def finish():
        is_small.next = fourth.divisor[TOTAL_BITS:SMALL_BITS] == 0
        if load:
            ratio.next = after_fourth.bits
            if is_small:
                ratio.next = small

    return wires, step, begin, stages, known, finish
