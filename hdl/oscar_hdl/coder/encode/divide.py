"""The quotient of a step of the encoder, and the new state: the second half of the step."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.lane_delay import lane_delay

AGAIN = 5  # clocks from f to its second use, from y to its remainder, from the estimate to the quotient


@block
def divide(clk, phase, f, y, reciprocal, c, x):
    """Make x = (floor(y / f) << 10) + c + (y mod f).

    At clock 0: f u11 (1..1024). 2: y u24 < f << 14, reciprocal u16: of coder/encode/reciprocal.py, 0 for
    f = 1024 (which then is exact). 10: c u10. 11: x u24.

    coder/encode/reciprocal.py says why the estimate is the quotient or one less. The remainder by it is
    below 2 f, so eleven bits of it are enough.
    """
    # Class of f, which aligns y, and the upper bits of the reciprocal: see coder/encode/reciprocal.py.
    from_512, from_384, from_128, from_64, from_48 = bit(), bit(), bit(), bit(), bit()
    from_16, from_8, from_6, from_2 = bit(), bit(), bit(), bit()  # of the bits of f below
    choice2, upper2 = word(2), word(2)
    part3, factor3, product4, estimate5 = word(18), word(18), word(36), word(14)
    f5, f6, f7, f8, product6, product7 = word(11), word(11), word(11), word(11), word(25), word(11)
    y7, rest8, rest9, less9 = word(11), word(11), word(10), word(12)
    rest10, more10, q10 = word(10), bit(), word(14)
    early, late, low11, high11 = word(36), word(36), word(10), word(14)

    again = lane_delay(clk, phase, early, late, AGAIN)

    @always_comb
    def delayed():
        early.next = concat(estimate5, y[11:], f)
        f5.next = late[11:]
        y7.next = late[22:11]
        q10.next = late[36:22]
        x.next = concat(high11, low11)

    @always(clk.posedge)
    def choose():
        from_512.next = f[10] or f[9]
        from_384.next = f[10] or f[9] or (f[8] and f[7])
        from_128.next = f[8] or f[7]
        from_64.next = f[8] or f[7] or f[6]
        from_48.next = f[5] and f[4]
        from_16.next = f[5] or f[4]
        from_8.next = f[5] or f[4] or f[3]
        from_6.next = f[2] and f[1]
        from_2.next = f[2] or f[1]
        if from_384:
            choice2.next = 3
        elif from_64 or from_48:
            choice2.next = 2
        elif from_8 or from_6:
            choice2.next = 1
        else:
            choice2.next = 0
        upper2.next[1] = (from_384 and not from_512) or (
            not from_384 and not from_64 and (from_48 or (from_6 and not from_8))
        )
        if from_384:
            upper2.next[0] = from_512
        elif from_64:
            upper2.next[0] = not from_128
        elif from_8:
            upper2.next[0] = not from_16
        else:
            upper2.next[0] = not from_2

    @always(clk.posedge)
    def estimate():
        if choice2[1]:
            if choice2[0]:
                part3.next = y[24:8]
            else:
                part3.next = y[23:5]
        else:
            if choice2[0]:
                part3.next = y[20:2]
            else:
                part3.next = concat(y[17:], False)
        factor3.next = concat(upper2, reciprocal)
        product4.next = part3 * factor3
        estimate5.next = product4[32:18]
        # Only plain registers (no enable, no reset) next to multipliers: they move into them.
        product6.next = estimate5 * f5
        product7.next = product6[11:]
        rest8.next = y7 - product7
        rest9.next = rest8[10:]
        less9.next = rest8 - f8
        rest10.next = less9[10:]
        if less9[11]:
            rest10.next = rest9
        more10.next = not less9[11]

    @always(clk.posedge)
    def result():
        low11.next = rest10 + c
        high11.next = q10 + more10

    return again, chain(clk, f5, f6, f7, f8), delayed, choose, estimate, result
