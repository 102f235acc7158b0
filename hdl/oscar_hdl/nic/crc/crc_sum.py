"""The CRC-32 of a frame from the CRCs of its blocks."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import POLY, step, unstep

ONE = 1 << 31  # the polynomial 1, reflected


def power(exponent: int) -> int:
    """Return x^exponent, which may be negative."""
    return step(ONE, 0, exponent) if exponent >= 0 else unstep(ONE, -exponent)


@block
def crc_sum(
    clk: Any, rst: Any, clear: Any, ended: Any, state: Any, offset: Any, absorb: Any, finish: Any, pad: Any,
    idle: Any, crc: Any, *, word_bytes: int,
) -> Any:  # fmt: skip
    """Add blocks' CRCs, each multiplied by what comes behind its last word.

    clear (strobe): a new frame. ended, state u32, offset: a block's CRC, not inverted, and where it ended, in
    words; absorb (strobe, one clock later): it was taken. Order does not matter. finish (strobe, while
    idle): `pad` bytes of 0, which stand behind the last block, are to be taken back. idle: all this is
    done, from the second clock on. crc u32: the sum, not inverted.
    """
    bits = len(offset)
    pads = len(pad)
    UNIT = bits + pads
    TAIL = 11  # clocks of a multiplication: 8 of four bits, and those in registers before `product`
    if UNIT > 31:
        raise ValueError(f"expected at most 31 bits of offset and pad, got {UNIT}")
    exponents = [8 * word_bytes << k for k in range(bits)] + [-8 << k for k in range(pads)] + [0]
    CONSTANTS = tuple(power(e) >> 4 * i & 15 for e in exponents for i in range(8))
    CONSTANTS += (0,) * ((1 << (len(CONSTANTS) - 1).bit_length()) - len(CONSTANTS))
    # What the lowest bits become, which leave when x^2 or x^4 is multiplied.
    BY_2_0, BY_2_1 = (step(1 << i, 0, 2) for i in range(2))
    BY_4_0, BY_4_1, BY_4_2, BY_4_3 = (step(1 << i, 0, 4) for i in range(4))

    states = enum("IDLE", "COMPARE", "PICK", "SCAN", "MULTIPLY", "TAKE")
    mode = Signal(states.IDLE)
    empty, again, alone, last, exchange = bit(), bit(), bit(), bit(), bit()
    # sum: of the blocks so far, as it is at word `reach`; other: what is to be added to it
    other, product, reach, far = word(32), word(32), word(bits), word(bits)
    ahead = word(bits + 1)
    left, at, factor = word(bits), word(4), word(4)
    once, high, low, addend = word(32), word(32), word(32), word(32)
    which = word((len(CONSTANTS) - 1).bit_length() - 3)
    address = word(len(which) + 3)

    @always_comb
    def look():
        idle.next = mode == states.IDLE

    @always_comb
    def shift():
        once.next = crc >> 1
        if crc[0]:
            once.next = (crc >> 1) ^ POLY

    # product = product x^4 + crc times four bits of the constant, from the highest power on.
    @always(clk.posedge)
    def multiply():
        address.next = concat(which, at[3:])
        factor.next = CONSTANTS[int(address)]
        upper = modbv(0)[32:]
        lower = modbv(0)[32:]
        whole = modbv(0)[32:]
        if factor[0]:
            upper[:] = once
        if factor[1]:
            upper[:] = upper ^ crc
        if factor[2]:
            lower[:] = once
        if factor[3]:
            lower[:] = lower ^ crc
        high.next = upper
        low.next = lower
        whole[:] = low ^ (high >> 2)
        if high[0]:
            whole[:] = whole ^ BY_2_0
        if high[1]:
            whole[:] = whole ^ BY_2_1
        addend.next = whole

    @always(clk.posedge)
    def gather():
        whole = modbv(0)[32:]
        whole[:] = addend ^ (product >> 4)
        if product[0]:
            whole[:] = whole ^ BY_4_0
        if product[1]:
            whole[:] = whole ^ BY_4_1
        if product[2]:
            whole[:] = whole ^ BY_4_2
        if product[3]:
            whole[:] = whole ^ BY_4_3
        product.next = whole
        if at[4:2] == 0:
            product.next = 0

    @always(clk.posedge)
    def plan():
        """Keep what is to be multiplied, and by which powers."""
        ahead.next = far - reach
        last.next = left[bits:1] == 0 and (not again or not left[0])
        at.next = at + 1
        if mode == states.IDLE:
            which.next = bits
            left.next = pad
            alone.next = finish
            again.next = False
            far.next = offset
        elif mode == states.PICK:
            which.next = 0
            left.next = ahead[bits:]
            if ahead == 0:
                left.next = 1
                which.next = UNIT
            if ahead[bits]:  # one more than what is left then
                left.next = ~ahead[bits:]
                again.next = True
            else:
                reach.next = far
            empty.next = False
        elif mode == states.SCAN:
            at.next = 0
            if not again and not left[0]:
                left.next = left >> 1
                which.next = which + 1
        elif mode == states.TAKE:
            again.next = False
            if not again:
                left.next = left >> 1
                which.next = which + 1
        if clear or rst:
            empty.next = True
            reach.next = 0

    @always(clk.posedge)
    def add():
        absorb.next = ended and mode == states.IDLE and not finish and not rst
        exchange.next = mode == states.PICK and (ahead[bits] or empty)
        if mode == states.IDLE:
            other.next = state
        elif exchange:
            other.next = crc
        if exchange:
            crc.next = other
        elif mode == states.TAKE:
            crc.next = product
            if last and not alone:
                crc.next = product ^ other

    @always(clk.posedge)
    def sequence():
        if mode == states.IDLE:
            if finish:
                if pad != 0:
                    mode.next = states.SCAN
            elif ended:
                mode.next = states.COMPARE
        elif mode == states.COMPARE:
            mode.next = states.PICK
        elif mode == states.PICK:
            mode.next = states.SCAN
            if empty:
                mode.next = states.IDLE
        elif mode == states.SCAN:
            if again or left[0]:
                mode.next = states.MULTIPLY
        elif mode == states.MULTIPLY:
            if at == TAIL:
                mode.next = states.TAKE
        else:
            mode.next = states.SCAN
            if last:
                mode.next = states.IDLE
        if rst:
            mode.next = states.IDLE

    return look, shift, multiply, gather, plan, add, sequence
