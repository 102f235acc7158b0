"""The result of a head: its sums over the sum of weights, as a packet."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, concat, enum, intbv

from oscar_hdl.attention.ports import (
    AT_BITS,
    SUM_BITS,
    TOP_BITS,
    TOTAL_BITS,
    Give,
    Head,
    Weight,
    signed,
)  # fmt: skip
from oscar_hdl.attention.twin import OUT_BITS
from oscar_hdl.streams.bundles import Stream, bit, word

STEPS = OUT_BITS + 9  # a bit of the quotient in each: up to 128, and one more to round by
LOW_BITS = 7  # of a remainder, below those that are compared


@block
def divider(clk, load, dividend, total, done, value):
    """Divide.

    load: strobe, in the clock in which dividend u56 is there, in two's complement; total u48: as long as it
    takes. value u16: 2^8 times the quotient, in two's complement too, rounded half away from zero, from
    `done` (strobe) to the next load.
    """
    rest, upper, wide, less = word(SUM_BITS), *(word(TOTAL_BITS + 2) for _ in range(3))
    left, negative, fits, quotient, rounded = word(5), bit(), bit(), word(STEPS), word(STEPS)

    @always_comb
    def compare():
        upper.next = rest[SUM_BITS:LOW_BITS]
        wide.next = total
        rounded.next = quotient + 1

    @always_comb
    def decide():
        less.next = upper - wide

    @always_comb
    def see():
        fits.next = not less[TOTAL_BITS + 1]

    @always(clk.posedge)
    def run():
        done.next = left == 1
        if left != 0:
            left.next = left - 1
        if load:
            negative.next = dividend[SUM_BITS - 1]
            rest.next = dividend
            left.next = STEPS + 2
        elif left == STEPS + 2:
            if negative:
                rest.next = 0 - rest
        elif left > 1:
            quotient.next = concat(quotient[STEPS - 1 :], fits)
            rest.next = concat(rest[SUM_BITS - 1 :], intbv(0)[1:])
            if fits:
                rest.next = concat(less[TOTAL_BITS:], rest[LOW_BITS:], intbv(0)[1:])
        elif left == 1:
            value.next = rounded[STEPS:1]
            if negative:
                value.next = 0 - rounded[STEPS:1]

    return compare, decide, see, run


@block
def quotients(clk, rst, head: Head, weight: Weight, give: Give, read_at, sums: Sequence, m_axis: Stream):
    """Give the result of each head.

    sums: of each lane, s56, that of word read_at u4; they hold until give.free. m_axis: Stream(64).
    """
    States = enum("FREE", "HEAD", "LOOK", "LOAD", "DIVIDE", "KEEP", "PUT")
    state, lane, last_at = Signal(States.FREE), word(3), word(AT_BITS)
    top, total, reason = signed(TOP_BITS), word(TOTAL_BITS), word(2)
    dividend, load, done, value = word(SUM_BITS), bit(), bit(), word(16)
    packed, can = word(64), bit()
    s0, s1, s2, s3, s4, s5, s6, s7 = sums
    divide = divider(clk, load, dividend, total, done, value)

    @always_comb
    def look():
        give.free.next = state == States.FREE
        can.next = m_axis.tready or not m_axis.tvalid
        load.next = state == States.LOAD

    @always(clk.posedge)
    def choose():
        if lane == 0:
            dividend.next = s0
        elif lane == 1:
            dividend.next = s1
        elif lane == 2:
            dividend.next = s2
        elif lane == 3:
            dividend.next = s3
        elif lane == 4:
            dividend.next = s4
        elif lane == 5:
            dividend.next = s5
        elif lane == 6:
            dividend.next = s6
        else:
            dividend.next = s7

    @always(clk.posedge)
    def put():
        if m_axis.tready:
            m_axis.tvalid.next = False
        if state == States.HEAD and can:
            m_axis.tvalid.next = True
            m_axis.tdata.next = concat(total, top[TOP_BITS:])
            m_axis.tlast.next = reason != 0
            if reason != 0:
                m_axis.tdata.next = reason
        elif state == States.PUT and can:
            m_axis.tvalid.next = True
            m_axis.tdata.next = packed
            m_axis.tlast.next = lane == 0 and read_at == 0
        if state == States.KEEP:
            packed.next = concat(value, packed[64:16])
        if rst:
            m_axis.tvalid.next = False

    @always(clk.posedge)
    def run():
        if state == States.FREE:
            top.next = weight.top
            total.next = weight.total
            reason.next = give.reason
            last_at.next = head.words[AT_BITS:] - 1
            read_at.next = 0
            lane.next = 0
            if give.strobe:
                state.next = States.HEAD
        elif state == States.HEAD:
            if can:
                state.next = States.LOOK
                if reason != 0:
                    state.next = States.FREE
        elif state == States.LOOK:
            state.next = States.LOAD
        elif state == States.LOAD:
            state.next = States.DIVIDE
        elif state == States.DIVIDE:
            if done:
                state.next = States.KEEP
        elif state == States.KEEP:
            lane.next = lane + 1
            state.next = States.LOOK
            if lane == 7:
                read_at.next = read_at + 1
                if read_at == last_at:
                    read_at.next = 0
            if lane[2:] == 3:
                state.next = States.PUT
        elif can:
            state.next = States.LOOK
            if lane == 0 and read_at == 0:
                state.next = States.FREE
        if rst:
            state.next = States.FREE

    return divide, look, choose, put, run
