"""Division in a row of three units, six bits of the quotient in each."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def divide_six(
    clk: Any, tick: Any, stepping: Any, start: Any, one: Any, divisor: Any, rest: Any, bits: Any
) -> Any:
    """Make six bits of a quotient, the highest first; `tick` and `stepping` as of reciprocal.

    start u12: the remainder to start from in the clock after a tick, otherwise 0. one: the next bit of the
    dividend is 1. divisor u12: stable from tick to tick. rest u12, bits u6: results in the clock of the tick.
    """

    @always(clk.posedge)
    def step():
        double = modbv(0)[13:]
        less = modbv(0)[14:]
        double[:] = concat(rest, one)
        less[:] = double - divisor
        # `rest` is 0 when `start` is not, so that it comes in without a multiplexer.
        if less[13]:
            rest.next = double[12:] | start
        else:
            rest.next = less[12:] | start
        if tick:
            rest.next = 0
        if stepping:
            bits.next[6:1] = bits[5:]
            bits.next[0] = not less[13]

    return step


@block
def reciprocal(
    clk: Any, tick: Any, stepping: Any, divisor: Any, scale: Any, small: Any, medium: Any, quotient: Any,
    passed: Any,
) -> Any:  # fmt: skip
    """Divide constants, one division after another, each in three rounds of eight clocks.

    tick: the last clock of each round; stepping: the six before it. At a tick `divisor` u12 is taken, and
    what it divides: with `scale` (it is 64 to 1024) 4080 * 4096, otherwise 2^18 (`small`: it is at most 64),
    2^24 (`medium`: 65 to 512) or 2^27 (513 to 4095). In the clock of the third tick after it `quotient` u18
    is min(2^18 - 1, floor(dividend / divisor)) and `passed` u12 the divisor.
    """
    start_0, start_1, start_2 = word(12), word(12), word(12)
    rest_0, rest_1, rest_2 = word(12), word(12), word(12)
    divisor_0, divisor_1 = word(12), word(12)
    bits_0, bits_1, bits_2 = word(6), word(6), word(6)
    high_1, high, middle = word(6), word(6), word(6)  # bits of divisions that have gone on
    lead, one, none = word(2), bit(), bit()

    first = divide_six(clk, tick, stepping, start_0, one, divisor_0, rest_0, bits_0)
    second = divide_six(clk, tick, stepping, start_1, none, divisor_1, rest_1, bits_1)
    third = divide_six(clk, tick, stepping, start_2, none, passed, rest_2, bits_2)

    # Quotients have 18 bits: the dividend's bits above them are the first remainder, below the divisor. (2^18
    # by 1 stays at remainder 1 and makes 18 ones.) 4080 * 4096 is 63 and then 11; the others end in zeros.
    @always(clk.posedge)
    def hand_on():
        start_0.next = 0
        start_1.next = 0
        start_2.next = 0
        one.next = lead[0]
        lead.next = lead >> 1
        none.next = False
        if tick:
            if scale:
                start_0.next = 63
                lead.next = 3
            elif small:
                start_0.next = 1
            elif medium:
                start_0.next = 64
            else:
                start_0.next = 512
            start_1.next = rest_0
            start_2.next = rest_1
            divisor_0.next = divisor
            divisor_1.next = divisor_0
            passed.next = divisor_1
            high_1.next = bits_0
            high.next = high_1
            middle.next = bits_1
            one.next = False

    @always_comb
    def join():
        quotient.next = concat(high, middle, bits_2)

    return first, second, third, hand_on, join
