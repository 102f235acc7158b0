"""The CRC-32 of a frame from the CRCs of its blocks."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import POLY, linear_map, step, unstep

ONE = 1 << 31  # the polynomial 1, reflected
DIGIT_BITS = 4  # of a distance: a multiplication for each that is not 0
STEPS = 4  # of a multiplication: a byte of the constant each
TAIL = STEPS + 4  # the clock of a multiplication in which the last one enters `product`


def power(exponent: int) -> int:
    """Return x^exponent, which may be negative."""
    return step(ONE, 0, exponent) if exponent >= 0 else unstep(ONE, -exponent)


@block
def nibble_product(clk: Any, crc: Any, once: Any, factor: Any, addend: Any, *, at: int) -> Any:
    """Give crc times four bits of factor, from bit `at` on, two clocks later; once: crc times x."""
    A, B, C, D = at, at + 1, at + 2, at + 3
    # What the lowest bits become, which leave when x^2 is multiplied.
    BY_2_0, BY_2_1 = (step(1 << i, 0, 2) for i in range(2))
    high, low = word(32), word(32)

    @always(clk.posedge)
    def multiply():
        upper = modbv(0)[32:]
        lower = modbv(0)[32:]
        if factor[A]:
            upper[:] = once
        if factor[B]:
            upper[:] = upper ^ crc
        if factor[C]:
            lower[:] = once
        if factor[D]:
            lower[:] = lower ^ crc
        high.next = upper
        low.next = lower

    @always(clk.posedge)
    def add():
        whole = modbv(0)[32:]
        whole[:] = low ^ (high >> 2)
        if high[0]:
            whole[:] = whole ^ BY_2_0
        if high[1]:
            whole[:] = whole ^ BY_2_1
        addend.next = whole

    return multiply, add


@block
def power_product(clk: Any, crc: Any, constant: Any, at: Any, product: Any, *, constants: Any) -> Any:
    """Multiply crc by a constant; `product` is there in the clock behind that in which `at` is TAIL.

    constant, at u4: its number, and the clock from the begin of the multiplication. Bytes of the constants
    are in the order of their use: product = product x^8 + crc times a byte, from the highest power on.
    """
    CONSTANTS = constants
    once, before, later, both = word(32), word(32), word(32), word(32)
    moved, moved_before, factor, address = word(32), word(32), word(8), word(len(constant) + 2)
    upper = nibble_product(clk, crc, once, factor, before, at=0)
    lower = nibble_product(clk, crc, once, factor, later, at=4)
    move = linear_map(product, moved, [step(1 << i, 0, 8) for i in range(8)])
    move_before = linear_map(before, moved_before, [step(1 << i, 0, 4) for i in range(4)])

    @always_comb
    def shift():
        once.next = crc >> 1
        if crc[0]:
            once.next = (crc >> 1) ^ POLY

    @always(clk.posedge)
    def gather():
        address.next = concat(constant, at[2:])
        factor.next = CONSTANTS[int(address)]
        both.next = later ^ (before >> 4) ^ moved_before
        product.next = both ^ (product >> 8) ^ moved
        if at[4:2] == 0 or at == STEPS:
            product.next = 0

    return upper, lower, move, move_before, shift, gather


@block
def crc_sum(
    clk: Any, rst: Any, clear: Any, ended: Any, state: Any, offset: Any, absorb: Any, finish: Any, pad: Any,
    idle: Any, crc: Any, *, word_bytes: int,
) -> Any:  # fmt: skip
    """Add blocks' CRCs, each multiplied by what comes behind its last word.

    clear (strobe): a new frame. ended, state u32, offset: a block's CRC, not inverted, and where it ended, in
    words; absorb (strobe, one clock later): it was taken. Order does not matter. finish (strobe, while
    idle): `pad` bytes of 0, which stand behind the last block, are to be taken back. idle: all this is
    done, from the second clock on. crc u32: the sum, not inverted. A block takes 3 clocks, 11 for each digit
    of its distance to the one before that is not 0, and one for each 0 below those.
    """
    bits = len(offset)
    DIGITS, PADS = -(-bits // DIGIT_BITS), -(-len(pad) // DIGIT_BITS)
    exponents = [8 * word_bytes * v << DIGIT_BITS * k for k in range(DIGITS) for v in range(16)]
    exponents += [-8 * v << DIGIT_BITS * k for k in range(PADS) for v in range(16)]
    constants = [power(e) >> 8 * i & 255 for e in exponents for i in range(STEPS)]
    constants += [0] * ((1 << (len(constants) - 1).bit_length()) - len(constants))

    states = enum("IDLE", "COMPARE", "PICK", "SCAN", "MULTIPLY", "TAKE")
    mode = Signal(states.IDLE)
    empty, alone, last, exchange, equal = bit(), bit(), bit(), bit(), bit()
    # sum: of the blocks so far, as it is at word `reach`; other: what is to be added to it
    other, product, reach, far = word(32), word(32), word(bits), word(bits)
    ahead, left, at = word(bits + 1), word(max(bits, DIGIT_BITS * PADS)), word(4)
    which = word((DIGITS + PADS - 1).bit_length())
    constant = word(len(which) + DIGIT_BITS)
    multiply = power_product(clk, crc, constant, at, product, constants=tuple(constants))

    @always_comb
    def look():
        idle.next = mode == states.IDLE
        equal.next = ahead == 0
        constant.next = concat(which, left[DIGIT_BITS:])

    @always(clk.posedge)
    def plan():
        """Keep what is to be multiplied, and by which powers."""
        ahead.next = far - reach
        last.next = left >> DIGIT_BITS == 0
        at.next = at + 1
        if mode == states.IDLE:
            which.next = DIGITS
            left.next = pad
            alone.next = finish
            far.next = offset
        elif mode == states.PICK:
            which.next = 0
            left.next = ahead[bits:]
            if ahead[bits]:
                left.next = reach - far
            else:
                reach.next = far
            empty.next = False
        elif mode == states.SCAN:
            at.next = 0
            if left[DIGIT_BITS:] == 0:
                left.next = left >> DIGIT_BITS
                which.next = which + 1
        elif mode == states.TAKE:
            left.next = left >> DIGIT_BITS
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
        elif mode == states.PICK and equal and not empty:
            crc.next = crc ^ other
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
            if empty or equal:
                mode.next = states.IDLE
        elif mode == states.SCAN:
            if left[DIGIT_BITS:] != 0:
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

    return multiply, look, plan, add, sequence
