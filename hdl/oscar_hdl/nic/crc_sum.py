"""The CRC-32 of a frame from the CRCs of its blocks."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.frame_crc import POLY, step, unstep
from oscar_hdl.streams.bundles import bit, word

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
    TAIL = 33
    if UNIT > 31:
        raise ValueError(f"expected at most 31 bits of offset and pad, got {UNIT}")
    exponents = [8 * word_bytes << k for k in range(bits)] + [-8 << k for k in range(pads)] + [0]
    CONSTANTS = tuple(power(e) >> i & 1 for e in exponents for i in range(32))
    CONSTANTS += (0,) * ((1 << (len(CONSTANTS) - 1).bit_length()) - len(CONSTANTS))

    states = enum("IDLE", "COMPARE", "PICK", "SCAN", "MULTIPLY", "TAKE")
    mode = Signal(states.IDLE)
    empty, again, alone, last, exchange = bit(), bit(), bit(), bit(), bit()
    # sum: of the blocks so far, as it is at word `reach`; other: what is to be added to it
    other, product, reach, far = word(32), word(32), word(bits), word(bits)
    ahead = word(bits + 1)
    left, at, factor = word(bits), word(6), bit()
    which = word((len(CONSTANTS) - 1).bit_length() - 5)
    address = word(len(which) + 5)

    @always_comb
    def look():
        idle.next = mode == states.IDLE

    # product = product x + (crc where the constant has a 1), from the highest power on; the constant's bit
    # comes two clocks after its number.
    @always(clk.posedge)
    def multiply():
        address.next = concat(which, at[5:])
        factor.next = CONSTANTS[int(address)]
        product.next = product >> 1
        if product[0]:
            if factor:
                product.next = (product >> 1) ^ POLY ^ crc
            else:
                product.next = (product >> 1) ^ POLY
        elif factor:
            product.next = (product >> 1) ^ crc
        if at[6:1] == 0:
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

    return look, multiply, plan, add, sequence
