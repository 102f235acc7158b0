"""R of a table row: the quotient by which its histogram becomes frequencies."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

STEPS = 13
DIVISOR_BITS = 19


@block
def ratio_stage(clk: Any, clear: Any, start: Any, one: Any, divisor: Any, rest: Any, bits: Any) -> Any:
    """Divide by hand: each clock the rest is doubled, and the divisor taken from it if it fits.

    clear: the rest becomes 0; in the clock after it `start` u19 enters, which is 0 in all others. one: the
    dividend's next bit. divisor u19 is stable meanwhile. rest u19; bits u13: the last results, newest lowest.
    """
    if (len(divisor), len(rest), len(bits)) != (DIVISOR_BITS, DIVISOR_BITS, STEPS):
        raise ValueError(f"expected a divisor of {DIVISOR_BITS} bits and {STEPS} bits of quotient")

    @always(clk.posedge)
    def step():
        twice = modbv(0)[DIVISOR_BITS + 1 :]
        less = modbv(0)[DIVISOR_BITS + 2 :]
        twice[:] = concat(rest, one)
        less[:] = twice - divisor
        if less[DIVISOR_BITS + 1]:
            rest.next = twice[DIVISOR_BITS:] | start
        else:
            rest.next = less[DIVISOR_BITS:] | start
        if clear:
            rest.next = 0
        bits.next[STEPS:1] = bits[STEPS - 1 :]
        bits.next[0] = not less[DIVISOR_BITS + 1]

    return step


RATIO_BITS = 2 * STEPS  # 1022 * 2^16 needs all of them


@block
def row_ratio(clk: Any, take: Any, hand: Any, finish: Any, total: Any, lost: Any, ratio: Any) -> Any:
    """Divide (1024 - n) * 2^16 by T + 1 for a row every 16 clocks, in two stages.

    take (phase 3): `total` u19 = T + 1 and `lost` u4 = 16 - n are there; hand (phase 1) is 14 clocks later,
    finish (phase 0) 15 after that, and one clock later `ratio` u26 holds the result for 16 clocks.
    """
    divisor1, divisor2 = word(DIVISOR_BITS), word(DIVISOR_BITS)
    lead, one, none = word(10), bit(), bit()
    start1, start2 = word(DIVISOR_BITS), word(DIVISOR_BITS)
    rest1, rest2 = word(DIVISOR_BITS), word(DIVISOR_BITS)
    bits1, bits2, high = word(STEPS), word(STEPS), word(STEPS)

    first = ratio_stage(clk, take, start1, one, divisor1, rest1, bits1)
    second = ratio_stage(clk, hand, start2, none, divisor2, rest2, bits2)

    # The dividend is 1008 + lost, then 16 zeros.
    @always(clk.posedge)
    def hand_on():
        start1.next = 0
        none.next = False
        one.next = lead[9]
        lead.next = lead << 1
        start2.next = 0
        if take:
            divisor1.next = total
            one.next = True
            lead.next = concat(modbv(0b11111)[5:], lost, modbv(0)[1:])
        if hand:
            divisor2.next = divisor1
            start2.next = rest1
            high.next = bits1

    @always(clk.posedge)
    def hold():
        if finish:
            ratio.next = concat(high, bits2)

    return first, second, hand_on, hold
