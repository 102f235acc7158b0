"""The values of a raw or constant block, out of packed bytes."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

GROUP_BITS = 10  # log2 of the values of a group
CLOCKS = 5  # from the pair of bytes that completes a value to the value
LAST = (1 << GROUP_BITS) - 1
KEPT = tuple((1 << width) - 1 for width in range(1, 17))  # by width - 1: bits that come from bytes


@block
def raw_unpack(clk, rst, restart, fill, final, last, width, constant, given, s_axis_raw, valid, value):
    """Give the values of a group for each `fill`, one a clock where their bytes are there.

    restart: strobe, a block's first value comes next; fill: strobe, a group, when the one before was given:
    1,024 values, or of the block's last (final) those up to number `last` u10 and zeros to the end of their
    row. width u5: bits of a value; constant: every value is `given` u16, without bytes. All hold from restart
    on, final and last from fill. s_axis_raw: Stream(16), exactly the pairs that hold a block's values. valid:
    strobe; value u16.
    """
    kept, edge = word(16), word(4)  # by the block's width; edge: the sign's bit
    full = word(5)  # width of a value; 16 of a constant
    used = word(4)  # bits used of the last pair, less 1
    busy, behind, at_end = bit(), bit(), bit()
    index, following, total = word(GROUP_BITS), word(GROUP_BITS), word(5)
    wants, goes = bit(), bit()  # the value ends in the next pair; it is given
    last_pair, low, high, shift = word(16), word(16), word(16), word(16)
    product_low, product_high = word(32), word(32)
    joined, kept_value, sign = word(16), word(16), bit()
    given1, stages = bit(), word(CLOCKS - 2)  # a value is in each
    zeros = word(2)

    @always(clk.posedge)
    def format_of_block():
        full.next = width
        if constant:
            full.next = 16
        edge.next = full[4:] - 1
        kept.next = KEPT[int(edge)]

    @always_comb
    def look():
        total.next = used + full
        following.next = index + 1
        wants.next = busy and total[4] and not behind and not constant

    @always_comb
    def ask():
        s_axis_raw.tready.next = wants
        goes.next = busy and (s_axis_raw.tvalid or not wants)

    @always(clk.posedge)
    def give():
        given1.next = goes
        if goes:
            if wants:
                last_pair.next = s_axis_raw.tdata
            if not behind:
                used.next = total[4:]
            behind.next = behind or at_end
            at_end.next = final and following == last
            index.next = following
            busy.next = index[5:] != 31 or not (behind or at_end or index == LAST)
        if fill:
            busy.next = True
            behind.next = False
            at_end.next = final and last == 0
            index.next = 0
        if restart:
            used.next = 15
        if rst:
            busy.next = False
            given1.next = False

    # The upper half of one product is what the last pair still holds, the lower half of the other what
    # follows it in the next.
    @always(clk.posedge)
    def align():
        low.next = last_pair
        high.next = s_axis_raw.tdata
        if constant:
            high.next = given
        for i in range(16):  # of a table yosys makes resets, and multipliers have none
            shift.next[i] = used == 15 - i
        zeros.next[0] = behind
        product_low.next = low * shift
        product_high.next = high * shift
        zeros.next[1] = zeros[0]
        joined.next = product_low[32:16] | product_high[16:]
        if zeros[1]:
            joined.next = 0
        sign.next = joined[edge]
        kept_value.next = joined
        value.next = kept_value & kept
        if sign:
            value.next = kept_value | ~kept

    @always(clk.posedge)
    def follow():
        stages.next = concat(stages[CLOCKS - 3 :], given1)
        valid.next = stages[CLOCKS - 3]
        if rst:
            stages.next = 0
            valid.next = False

    return format_of_block, look, ask, give, align, follow
