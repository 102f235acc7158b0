"""Whether a coded block has to be sent raw (docs/format2.md, "Payload"), a bit a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

LAST = 22  # clocks to the last bit of both comparisons


@block
def size_test(
    clk: Any, run: Any, n: Any, width: Any, words: Any, raw_words: Any, done: Any, raw: Any
) -> Any:  # fmt: skip
    """Compare what a block of `n` values takes when it is coded with what it takes raw.

    run: all inputs hold still from here to `done`, 22 clocks later; low for a clock in between. n u13,
    width u5 (1 to 16), words u13, raw_words u14. done and raw hold while `run` does.

    raw = 16 y >= n width or 8 words > 3 n, where y = 18 + words - floor(words / 4) + raw_words is the coded
    body in 16-bit words: its 12 states take 18, and ceil(3 words / 4) = words - floor(words / 4). All numbers
    pass by as bits, lowest first, so that each sum is a full adder and each comparison a flip-flop.
    """
    hot = word(LAST + 1, 1)  # bit t: this is clock t
    early = bit(1)
    bit_n, bit_n1 = bit(), bit()
    bit_w, bit_w1, bit_w2, bit_w3, bit_w4, not_w = (bit() for _ in range(6))
    bit_r, bit_r1, bit_r2 = bit(), bit(), bit()
    addend, product = word(5), word(6)  # bit 0 of the product is that of n width
    triple, triple_carry = bit(), bit()
    ones_low, ones_high, fourth = bit(), bit(), bit()
    y, carry_low, carry_high, y1, y2 = bit(), bit(), bit(), bit(), bit()
    not_less, more = bit(), bit()

    @always_comb
    def result():
        fourth.next = (ones_low and carry_low) or (hot[8] and (ones_low or carry_low))
        done.next = hot[LAST]
        raw.next = not_less or more

    # In clock t: bit_* are bits t - 1, triple has bit t - 2, the product bit t - 3, y bit t - 5.
    @always(clk.posedge)
    def serial():
        if not hot[LAST]:
            hot.next = concat(hot[LAST:], "0")
            bit_n.next = (n & hot[13:]) != 0
            bit_w.next = (words & hot[13:]) != 0
            not_w.next = (words & hot[13:]) == 0
            bit_r.next = (raw_words & hot[14:]) != 0
            bit_n1.next = bit_n
            bit_w1.next = bit_w
            bit_w2.next = bit_w1
            bit_w3.next = bit_w2
            bit_w4.next = bit_w3
            bit_r1.next = bit_r
            bit_r2.next = bit_r1

            addend.next = width
            if not bit_n:
                addend.next = 0
            product.next = product[6:1] + addend
            triple.next = bit_n ^ bit_n1 ^ triple_carry
            triple_carry.next = (bit_n and bit_n1) or (bit_n and triple_carry) or (bit_n1 and triple_carry)

            # words + raw_words - (words >> 2) + 18: the complement of words >> 2, and 19, of which 3 is the
            # first carry and 16 comes in its place, in clock 8.
            ones_low.next = bit_w2 ^ bit_r2 ^ not_w
            ones_high.next = (bit_w2 and bit_r2) or (not_w and (bit_w2 or bit_r2))
            y.next = ones_low ^ carry_low ^ hot[8]
            carry_low.next = ones_high ^ carry_high ^ fourth
            carry_high.next = (ones_high and carry_high) or (fourth and (ones_high or carry_high))
            if hot[3]:
                early.next = False
            if early:
                y.next = False
                carry_low.next = True
                carry_high.next = True
            y1.next = y
            y2.next = y1

            if y2 != product[0]:
                not_less.next = y2
            if bit_w4 != triple:
                more.next = bit_w4
        if not run:
            hot.next = 1
            early.next = True
            bit_n.next = False
            bit_w.next = False
            bit_r.next = False
            bit_n1.next = False
            bit_w1.next = False
            bit_w2.next = False
            bit_w3.next = False
            bit_w4.next = False
            bit_r1.next = False
            bit_r2.next = False
            addend.next = 0
            product.next = 0
            triple.next = False
            triple_carry.next = False
            y1.next = False
            y2.next = False
            not_less.next = True
            more.next = False

    return result, serial
