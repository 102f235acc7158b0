"""Bytes out of a state, raw bits into it: the first half of a step of the encoder."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def renormalise(
    clk: Any, phase: Any, x: Any, power: Any, shift: Any, f: Any, low: Any, high: Any, keep: Any, raw: Any,
    y: Any, put: Any, put_two: Any, data: Any,
) -> Any:  # fmt: skip
    """Make y = (x >> 8 n) << b | r, where n bytes leave x u24 so that x >> 8 n < f << (14 - b).

    phase: of lane_delay. At clock 0: x, power u17 = 2^b, shift u3 = b (b is 8 or 16 only where x has no
    more than 18 bits; shift is nothing then). 2: f u11; low, high: n is 1 or 2 in any case. 3: keep u6, bit
    i set for i >= b; raw u16: r. 4: y u24, put, put_two, data u16: the bytes that leave, the first in
    data[8:].

    x is shifted first, so that f need not be: the multiplier shifts 18 bits, LUTs the other six.
    """
    low0, low4 = word(16), word(16)
    product1, upper1, far1 = word(35), word(9), bit()
    v2, v3 = word(30), word(30)
    over3, over_two3 = bit(), bit()

    delay = lane_delay(clk, phase, low0, low4, 4)

    @always(clk.posedge)
    def shift_lower() -> None:
        product1.next = x[18:] * power
        far1.next = shift[2]
        if shift[1]:
            if shift[0]:
                upper1.next = concat(x[24:18], False, False, False)
            else:
                upper1.next = concat(x[24:18], False, False)
        else:
            if shift[0]:
                upper1.next = concat(x[24:18], False)
            else:
                upper1.next = x[24:18]

    @always(clk.posedge)
    def shift_upper() -> None:
        v2.next = product1[24:]
        if far1:
            v2.next[22:18] = product1[22:18]
            v2.next[24:22] = product1[24:22] | upper1[2:]
            v2.next[30:24] = upper1[8:2]
        else:
            v2.next[24:18] = product1[24:18] | upper1[6:]
            v2.next[30:24] = upper1[9:6]

    @always(clk.posedge)
    def compare() -> None:
        over3.next = v2[30:14] >= f
        over_two3.next = v2[30:22] >= f
        if low or high:
            over3.next = True
        if high:
            over_two3.next = True
        v3.next = v2

    # The raw bits of 6 and above are those of seeds, which emit nothing.
    @always(clk.posedge)
    def join() -> None:
        if over_two3:
            y.next[24:14] = 0
            y.next[14:6] = v3[30:22]
            y.next[6:] = (v3[22:16] & keep) | raw[6:]
        elif over3:
            y.next[24:22] = 0
            y.next[22:6] = v3[30:14]
            y.next[6:] = (v3[14:8] & keep) | raw[6:]
        else:
            y.next[24:16] = v3[24:16]
            y.next[16:6] = v3[16:6] | raw[16:6]
            y.next[6:] = (v3[6:] & keep) | raw[6:]

    @always(clk.posedge)
    def emit() -> None:
        put.next = over3
        put_two.next = over_two3

    @always_comb
    def leave() -> None:
        low0.next = x[16:]
        data.next = low4

    return delay, leave, shift_lower, shift_upper, compare, join, emit
