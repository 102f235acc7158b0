"""Thirteen bits of a quotient, a bit a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

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
