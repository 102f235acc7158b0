"""The values of a raw or constant block, out of packed bytes, in whole rows."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.receive.ports import RawBlock
from oscar_hdl.streams.bundles import Stream, bit, word

CLOCKS = 5  # from the pair of bytes that completes a value to the value
KEPT = tuple((1 << width) - 1 for width in range(1, 17))  # by width - 1: bits that come from bytes


@block
def raw_unpack(clk, rst, job: RawBlock, s_axis_raw: Stream, may, begins, valid, value):
    """Give a block's values, one a clock where their bytes are there, and zeros to the end of its last row.

    job: its fields hold until `idle` rises, when the last value's bytes are taken. s_axis_raw: Stream(16),
    exactly the pairs that hold the block's values. may: level, a row may begin, as it does with begins
    (strobe). valid: strobe; value u16.
    """
    kept, edge = word(16), word(4)  # by the block's width; edge: the sign's bit
    full = word(5)  # width of a value; 16 of a constant
    used = word(4)  # bits used of the last pair, less 1
    busy, behind, idle = bit(), bit(), bit()  # in a row; behind the last value
    index, left, total = word(5), word(18), word(5)
    wants, goes = bit(), bit()  # the value ends in the next pair; it is given
    last_pair, low, high, shift = word(16), word(16), word(16), word(16)
    product_low, product_high = word(32), word(32)
    joined, kept_value, sign = word(16), word(16), bit()
    given1, stages = bit(), word(CLOCKS - 2)  # a value is in each
    zeros = word(2)

    @always(clk.posedge)
    def format_of_block():
        full.next = job.width
        if job.constant:
            full.next = 16
        edge.next = full[4:] - 1
        kept.next = KEPT[int(edge)]

    @always_comb
    def look():
        total.next = used + full
        wants.next = busy and total[4] and not behind and not job.constant
        begins.next = not idle and not behind and not busy and may
        job.idle.next = idle

    @always_comb
    def ask():
        s_axis_raw.tready.next = wants
        goes.next = busy and (s_axis_raw.tvalid or not wants)

    @always(clk.posedge)
    def give():
        given1.next = goes
        if begins:
            busy.next = True
        if goes:
            if wants:
                last_pair.next = s_axis_raw.tdata
            if not behind:
                used.next = total[4:]
                left.next = left - 1
                behind.next = left == 1
            index.next = index + 1
            busy.next = index != 31
        if behind and not busy:
            idle.next = True
        if job.start:
            idle.next = False
            behind.next = False
            used.next = 15
            left.next = job.values
            index.next = 0
        if rst:
            idle.next = True
            busy.next = False
            given1.next = False

    # The upper half of one product is what the last pair still holds, the lower half of the other what
    # follows it in the next.
    @always(clk.posedge)
    def align():
        low.next = last_pair
        high.next = s_axis_raw.tdata
        if job.constant:
            high.next = job.value
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
