"""Symbols and the raw stream back into values; constant and raw blocks take the same way."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.format2.params import BASE, EXTRA
from oscar_hdl.streams.bundles import Stream, bit, word

BELOW = (0, *(base - 1 for base in BASE[1:]))  # of symbol 0 nothing is used
MASKS = tuple((1 << bits) - 1 for bits in range(16))
QUEUE = 32  # symbols on their way or waiting; there is room below 24, more than a decoder's latency
DEPTH = 16  # of the output; there is space below 12: five values may be on their way to it


@block
def value_rebuild(
    clk: Any, rst: Any, start: Any, coded: Any, fixed: Any, shift: Any, width: Any, issue: Any, room: Any,
    sym_valid: Any, sym: Any, final: Any, raw_valid: Any, raw_data: Any, raw_end: Any, raw_pop: Any,
    drained: Any, idle: Any, empty: Any, raw_exact: Any, fixed_fits: Any, raw_high: Any, m_axis: Stream,
) -> Any:  # fmt: skip
    """Give one value for each symbol; one value per clock, of fields over 16 bits one in two clocks.

    start (strobe, while `idle`): a block begins. coded: its values are symbols and fields of the raw
    stream; otherwise they are `width` bits each of it, or (fixed) all the same `width` bits, and symbols
    only set the pace. coded, fixed, shift u4, width u5 (1..16) hold still until the next start.

    issue: a symbol is on its way, in order, as sym_valid and `sym` u4 at this clock or later; room: it may
    be issued in the next clock. drained: all that were issued are used up; idle: and their values wait in
    the output only. final (from one to three clocks after the frame's last issue on, until drained): no
    more come, the last value has tlast.

    raw_valid, raw_data u16, raw_pop: the raw stream. raw_end: it has ended; zeros follow. raw_exact (while
    drained): the block, if not fixed, used every word of it and no zero. fixed_fits (while idle): the fixed
    value fits `width` bits. raw_high u8 (while idle): or of the magnitudes of a raw block, without their low
    8 bits. empty: m_axis has taken all that was sent. m_axis.tdata is 0 while not tvalid.

    The field of a value is sign, F = (u - BASE) << shift | low; the value is T + F + 1 or ~(T + F) with
    T = (BASE - 1) << shift: both are T' + F' + 1 when a negative value inverts the two. In raw blocks the
    window lies one bit lower, F is the value, B its sign bit: the value is (F ^ B) - B, which is the same
    sum with T = B inverted and F inverted everywhere but at B.
    """
    # Symbols wait: memory, s0, s1. There it is known what their fields need.
    queue = [word(4) for _ in range(QUEUE)]
    put, get, in_flight, in_flight_step = word(5), word(5), word(6), word(6)
    head, some_head = word(4), bit()
    s0, s0_valid, s0_free = word(4), bit(), bit()
    base, extra = word(8), word(5)
    s1_valid, s1_free, s1_zero, s1_second = bit(), bit(), bit(), bit()
    s1_base, s1_keep, s1_some = word(8), word(5), word(1)  # field: s1_keep + s1_some bits
    # The window: 32 bits of the raw stream, the next field at `at`.
    low, high, at = word(16), word(16), word(4)
    low_valid, high_valid, low_real, high_real = bit(), bit(), bit(), bit()
    go, leave, advance, move, refill = bit(), bit(), bit(), bit(), bit()
    # From here nothing waits: two steps of shifting either way, then the sum.
    base_shift, flip = word(4), word(16)
    window, first, second = word(32), word(20), word(17)
    part2, at2, base2, keep2 = word(20), word(2), word(11), word(5)
    field3, sign3, mask3, base3 = word(16), bit(), word(16), word(11)
    terms, terms4, field4 = word(16), word(16), word(16)
    value5, high6, raw6, inverted = word(16), word(8), bit(), word(16)
    valid, zero, last = word(4), word(3), word(4)  # bit 0 beside part2, .. 3 beside value5
    # The output waits.
    results = [word(17) for _ in range(DEPTH)]
    out_put, out_get, out_level, out_level_step = word(4), word(4), word(5), word(5)
    space, result, out_load = bit(), word(17), bit()

    @always_comb
    def look_up():
        head.next = queue[int(get)]
        result.next = results[int(out_get)]

    @always_comb
    def symbol_needs():
        base.next = BELOW[int(s0)]
        extra.next = EXTRA[int(s0)]

    @always_comb
    def decide():
        some_head.next = put != get
        window.next = concat(high, low)
        out_load.next = out_put != out_get and (m_axis.tready or not m_axis.tvalid)
        drained.next = in_flight == 0 and low_valid and high_valid
        idle.next = in_flight == 0 and valid == 0 and not raw6
        # The field ended in `low`, or before it. Blocks that are not coded begin one bit early.
        raw_exact.next = low_real != (coded and at == 0) and not high_real
        fixed_fits.next = value5 == high
        empty.next = out_level == 0 and not m_axis.tvalid

    # A field over 16 bits goes twice: first its lower bits less 16, with the value, then 16.
    @always_comb
    def flow():
        # The carry of at + s1_keep[4:] + s1_some: a carry chain is slow to enter and to leave.
        low_half = (at[1] and s1_keep[1]) or ((at[1] or s1_keep[1]) and (at[0] or s1_keep[0]))
        high_half = (at[3] and s1_keep[3]) or ((at[3] or s1_keep[3]) and at[2] and s1_keep[2])
        through = (at[3] or s1_keep[3]) and (at[2] or s1_keep[2])
        over = s1_some == 1 and (high_half or (through and low_half))
        ready = s1_valid and low_valid and high_valid and space
        go.next = ready and not s1_second
        leave.next = ready and (s1_second or not s1_keep[4])
        advance.next = ready and (s1_second or over)

    @always_comb
    def chain():
        s1_free.next = leave or not s1_valid
        s0_free.next = leave or not s1_valid or not s0_valid
        in_flight_step.next = 1
        if leave:
            in_flight_step.next = 63  # less one
        out_level_step.next = 1
        if out_load:
            out_level_step.next = 31
        move.next = advance or not low_valid
        refill.next = advance or not low_valid or not high_valid
        raw_pop.next = raw_valid and (advance or not low_valid or not high_valid)

    @always(clk.posedge)
    def symbols():
        if sym_valid:
            queue[int(put)].next = sym
            put.next = put + 1
        if s0_free:
            s0.next = head
            s0_valid.next = some_head
            if some_head:
                get.next = get + 1
        if s1_free:
            s1_valid.next = s0_valid
            s1_second.next = False
            if coded:
                s1_base.next = base
                s1_keep.next = 0
                if s0 != 0:
                    s1_keep.next = extra + shift
                s1_some.next = s0 != 0
                s1_zero.next = s0 == 0
            else:
                s1_base.next = 1
                s1_keep.next = 0
                if not fixed:
                    s1_keep.next = base_shift
                s1_some.next = not fixed
                s1_zero.next = False
        elif go:
            s1_second.next = True
        if issue != leave:
            in_flight.next = in_flight + in_flight_step
        room.next = not (in_flight[5] or (in_flight[4] and in_flight[3]))
        if rst:
            put.next = 0
            get.next = 0
            s0_valid.next = False
            s1_valid.next = False
            in_flight.next = 0
            room.next = False

    @always(clk.posedge)
    def raw_window():
        if move:
            low.next = high
            low_valid.next = high_valid
            low_real.next = high_real
        if refill:
            high.next = 0
            if raw_valid:
                high.next = raw_data
            high_valid.next = raw_valid or raw_end
            high_real.next = raw_valid
        if go:
            at.next = at + s1_keep[4:] + s1_some
        if start:
            # Fixed or raw: the first word comes to `high`, and the window begins at its lowest bit, less one.
            low_valid.next = not coded
            high_valid.next = False
            low_real.next = False
            at.next = 0
            if not coded:
                at.next = 15
        if rst:
            # Nothing is taken before the first start.
            low_valid.next = True
            high_valid.next = True

    # Four ways in two LUTs for each bit: the first two, or which of the others.
    @always_comb
    def first_step():
        first.next = window[20:0]
        if at[3]:
            first.next = 0
            if at[2]:
                first.next = 0xFFFFF
        elif at[2]:
            first.next = window[24:4]

    @always_comb
    def second_step():
        second.next = part2[17:0]
        if at2[1]:
            second.next = 0
            if at2[0]:
                second.next = 0x1FFFF
        elif at2[0]:
            second.next = part2[18:1]

    @always_comb
    def terms_of_base():
        if base_shift[4:2] == 0:
            terms.next = base3
        elif base_shift[4:2] == 1:
            terms.next = concat(base3, modbv(0)[4:])
        elif base_shift[4:2] == 2:
            terms.next = concat(base3[8:], modbv(0)[8:])
        else:
            terms.next = concat(base3[4:], modbv(0)[12:])
        inverted.next = 0
        if sign3:
            inverted.next = 0xFFFF

    @always(clk.posedge)
    def sum_up():
        valid.next[0] = go
        zero.next[0] = s1_zero
        last.next[0] = final and in_flight == 1
        part2.next = first
        if at[3]:
            part2.next = (window[32:12] & first) | (window[28:8] & ~first)
        at2.next = at[2:]
        if base_shift[2:] == 0:
            base2.next = s1_base
        elif base_shift[2:] == 1:
            base2.next = concat(s1_base, modbv(0)[1:])
        elif base_shift[2:] == 2:
            base2.next = concat(s1_base, modbv(0)[2:])
        else:
            base2.next = concat(s1_base, modbv(0)[3:])
        keep2.next = s1_keep
        if not coded:
            keep2.next = width
        # What holds still within a block.
        base_shift.next = shift
        if not coded:
            base_shift.next = width[4:] - 1
        for i in range(16):
            flip.next[i] = not coded and base_shift != i
        # Second step.
        field3.next = second[17:1]
        sign3.next = second[0]
        if at2[1]:
            field3.next = (part2[20:4] & second[17:1]) | (part2[19:3] & ~second[17:1])
            sign3.next = part2[3] if second[0] else part2[2]
        if not coded:
            sign3.next = True
        base3.next = base2
        mask3.next = MASKS[int(keep2[4:])]
        if keep2[4]:
            mask3.next = 0xFFFF
        terms4.next = terms ^ inverted
        field4.next = (field3 & mask3) ^ inverted ^ flip
        value5.next = terms4 + field4 + 1
        if zero[2]:
            value5.next = 0
        valid.next[4:1] = valid[3:0]
        zero.next[3:1] = zero[2:0]
        last.next[4:1] = last[3:0]
        # The magnitude of -2^i has one bit more than its inverse: a carry comes from the low 8 bits.
        raw6.next = valid[3] and not coded
        high6.next = value5[16:8]
        if value5[15]:
            high6.next = ~value5[16:8]
            if value5[8:] == 0:
                high6.next = -value5[16:8]
        if start:
            raw_high.next = 0
        elif raw6:
            raw_high.next = raw_high | high6
        if rst:
            valid.next = 0
            raw6.next = False

    @always(clk.posedge)
    def deliver():
        if valid[3]:
            results[int(out_put)].next = concat(last[3], value5)
            out_put.next = out_put + 1
        if m_axis.tready:
            m_axis.tvalid.next = False
            m_axis.tdata.next = 0
        if out_load:
            m_axis.tdata.next = result[16:]
            m_axis.tlast.next = result[16]
            m_axis.tvalid.next = True
            out_get.next = out_get + 1
        if go != out_load:
            out_level.next = out_level + out_level_step
        space.next = not (out_level[4] or (out_level[3] and out_level[2]))
        if rst:
            out_put.next = 0
            out_get.next = 0
            out_level.next = 0
            space.next = False
            m_axis.tvalid.next = False
            m_axis.tdata.next = 0

    return (
        look_up, symbol_needs, decide, flow, chain, symbols, raw_window, first_step, second_step,
        terms_of_base, sum_up, deliver,
    )  # fmt: skip
