"""The forward pass of the encoder: values to contexts, symbols, raw stream (docs/format2.md, "Symbols")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.asc_context import asc_context
from oscar_hdl.format2.params import LANES
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word

LOW_ONES = tuple((1 << i) - 1 for i in range(16))
LOW_ZEROS = tuple(255 - (n & 255) for n in LOW_ONES)


@block
def asc_frontend(
    clk: Any, rst: Any, s_axis: Any, go: Any, go_count: Any, go_zero: Any, go_copy: Any, shift: Any,
    abort: Any, room: Any, full: Any, cut_ok: Any, left: Any, waits: Any, sym_valid: Any, sym: Any,
    cnt_valid: Any, cnt_bank: Any, raw_valid: Any, raw_last: Any, raw: Any, done: Any, uniform: Any,
    value: Any, peak_shift: Any, last_lane: Any, last_odd: Any, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Take the values of a block, one a clock (an escape: two); give symbols, counts and raw words.

    go (strobe, when the block before is done): take `go_count` values u13 of s_axis, a Stream u20 of class
    << 16 | value (sign-extended). go_zero: neighbour states start at 0; go_copy: the values are only looked
    at (peak_shift). They, and `shift` u4, hold still until `done`. abort: forget the block.
    room: from symbol_buffer; full: from raw_ring; cut_ok (level): the other count bank is free, without it
    no value at or behind the cut is taken. left u13: values still to be taken.
    waits: it is closed because of cut_ok. last_lane u4, last_odd: lane of the value taken last, row odd.
    sym_valid, sym u8 = context << 4 | symbol: in decoding order, 7 clocks after the value. cnt_valid (with
    sym), cnt_bank: count this symbol. The bank toggles at the cut, once in each block.
    raw_valid, raw_last, raw u16: words of the raw stream, filled with zeros at the end of the block.
    done: pulse, about 16 clocks after the last value; all outputs of the block are out. Then, until the next
    go: uniform (all values are equal), value u16 (the first), peak_shift u4 (the shift that a raw block
    of these values leads to; only with go_copy).

    With y = m - 1 + 2^k and p its highest bit, e = p - k is the octave of u, the symbol is 2 e + bit p - 1
    for e = 1..6, and what the raw field needs of u - BASE and of m - 1 are the bits of y below: no shifter.
    """
    after_cut = LANES * (params.lag_rows + 1)
    near_cut = ((after_cut + 4) >> 6) + 1

    # Entrance
    wake1, wake2, running, final, near, blocked, hold, take = (bit() for _ in range(8))
    lane, odd_row, first_row, first = word(4), bit(), bit(), bit()
    octave, octave_not = word(16), word(8)  # 2^k - 1 (0 when copying), and inverted

    # A prefix for each stage: a value, y sum, t bits below the highest, p masked, q octave, s symbol, field.
    a_valid, a_last, a_first, a_zero, a_near, a_counted = (bit() for _ in range(6))
    a_value, a_lane, a_class = word(16), word(4), word(4)
    y_valid, y_last, y_zero, y_near, y_counted, y_sign, y_null, y_differs = (bit() for _ in range(8))
    y, y_lane, y_class = word(16), word(4), word(4)
    t_valid, t_last, t_zero, t_near, t_counted, t_sign, t_null, t_escape = (bit() for _ in range(8))
    t_y, t_marked, t_above, t_lane, t_class = word(16), word(16), word(8), word(4), word(4)
    p_valid, p_last, p_zero, p_near, p_counted, p_sign, p_live, p_escape = (bit() for _ in range(8))
    p_y, p_below, p_top, p_lane, p_class = word(15), word(16), word(4), word(4), word(4)
    q_valid, q_last, q_zero, q_near, q_counted, q_sign, q_live, q_escape, q_half = (bit() for _ in range(9))
    q_y, q_below, q_base, q_octave, q_lane = word(15), word(16), word(5), word(3), word(4)
    q_wide = bit()
    s_valid, s_last, s_zero, s_counted, s_bank, s_live, cut = (bit() for _ in range(7))
    s_symbol, s_field, s_length, s_lane, s_ctx = word(4), word(16), word(5), word(4), word(4)
    first_value, peak, settle = word(16), word(16), bit()

    # Packer: words of 16 bits filled from the lowest
    end1, end2, r1_end, r2_end, w_end, o_end, over = (bit() for _ in range(7))
    fill, again = word(4), bit()
    r1_field, r1_place, r1_emit = word(16), word(4), bit()
    r2_field, r2_mask, r2_emit = word(16), word(16), bit()
    rest, w_emit, w_word = word(16), bit(), word(16)
    held, have = word(16), bit()

    context = asc_context(
        clk, s_live, s_lane, s_symbol, s_zero, p_lane, p_class, p_zero, s_ctx
    )  # fmt: skip

    @always_comb
    def handshake():
        # An escape may fill two words: the clock behind it is kept free for the second.
        hold.next = t_valid and t_escape
        s_axis.tready.next = running and not blocked and not (t_valid and t_escape)
        take.next = s_axis.tvalid and running and not blocked and not (t_valid and t_escape)

    @always(clk.posedge)
    def entrance():
        wake1.next = go
        wake2.next = wake1
        # `near` and `blocked` are up to 4 values late, which the limit, rounded up, makes good.
        near.next = left[params.block_log2 + 1 : 6] < near_cut and not go_copy
        waits.next = running and near and not cut_ok
        blocked.next = full or (not room and not go_copy) or (near and not cut_ok)
        octave.next = LOW_ONES[int(shift)]
        octave_not.next = LOW_ZEROS[int(shift)]
        if go_copy:
            octave.next = 0
        if go:
            left.next = go_count
            lane.next = 0
            odd_row.next = False
            first_row.next = True
            first.next = True
        elif take:
            left.next = left - 1
            last_lane.next = lane
            last_odd.next = odd_row
            first.next = False
            if lane == LANES - 1:
                lane.next = 0
                odd_row.next = not odd_row
                first_row.next = False
            else:
                lane.next = lane + 1
        final.next = (left == 2 and take) or (left == 1 and not take)
        if wake2:
            running.next = True
        elif take and final:
            running.next = False
        if rst or abort:
            wake1.next = False
            wake2.next = False
            running.next = False

    @always(clk.posedge)
    def model():
        if not hold:
            a_valid.next = take
            a_last.next = final
            a_value.next = s_axis.tdata[16:]
            a_class.next = s_axis.tdata[20:16]
            a_lane.next = lane
            a_first.next = first
            a_zero.next = first_row and go_zero
            a_near.next = left < after_cut
            a_counted.next = lane[0] == odd_row and lane != LANES - 1 and not go_copy

            # m - 1 is ~v for v < 0 and v - 1 otherwise; adding the sign twice makes a carry of it.
            y_valid.next = a_valid
            y_last.next = a_last
            y_lane.next = a_lane
            y_class.next = a_class
            y_zero.next = a_zero
            y_near.next = a_near
            y_counted.next = a_counted
            y_sign.next = a_value[15]
            y_null.next = a_value == 0
            y_differs.next = a_value != first_value and not a_first
            size = modbv(0)[16:]
            size[:] = a_value
            if a_value[15]:
                size[:] = ~a_value
            sum_y = modbv(0)[17:]
            sum_y[:] = concat(size, a_value[15]) + concat(octave, a_value[15])
            y.next = sum_y[17:1]

        # Escape: y >= 2^(k + 8). `above` is y - 2^(k + 8) from bit 8 on, and
        # no borrow; all of `octave`'s lower bits are set from k = 8 on.
        t_valid.next = y_valid and not hold
        t_last.next = y_last
        t_lane.next = y_lane
        t_class.next = y_class
        t_zero.next = y_zero
        t_near.next = y_near
        t_counted.next = y_counted
        t_sign.next = y_sign
        t_null.next = y_null
        t_y.next = y
        above = modbv(0)[9:]
        above[:] = y[16:8] + octave_not
        t_above.next = above[8:]
        t_escape.next = above[8] and not go_copy
        marked = modbv(0)[16:]
        marked[:] = y | (y >> 1) | (y >> 2) | (y >> 3)
        t_marked.next = marked | (marked >> 4) | (marked >> 8) | (marked >> 12)

        p_valid.next = t_valid
        p_last.next = t_last
        p_lane.next = t_lane
        p_class.next = t_class
        p_zero.next = t_zero
        p_near.next = t_near
        p_counted.next = t_counted
        p_sign.next = t_sign
        p_live.next = t_valid and not t_null and not go_copy
        p_escape.next = t_escape
        p_y.next = t_y[15:]
        if t_escape:
            p_y.next[15:8] = t_above[7:]
        p_below.next = t_marked
        if t_null or not t_valid or go_copy:
            p_below.next = 0
        elif t_escape:
            p_below.next = 65535
        p_top.next[3] = t_marked[8]
        p_top.next[2] = t_marked[12] or (t_marked[4] and not t_marked[8])
        p_top.next[1] = (
            t_marked[14] or (t_marked[10] and not t_marked[12])
            or (t_marked[6] and not t_marked[8]) or (t_marked[2] and not t_marked[4])
        )  # fmt: skip
        p_top.next[0] = (
            t_marked[15] or (t_marked[13] and not t_marked[14]) or (t_marked[11] and not t_marked[12])
            or (t_marked[9] and not t_marked[10]) or (t_marked[7] and not t_marked[8])
            or (t_marked[5] and not t_marked[6]) or (t_marked[3] and not t_marked[4])
            or (t_marked[1] and not t_marked[2])
        )  # fmt: skip

        q_valid.next = p_valid
        q_last.next = p_last
        q_lane.next = p_lane
        q_zero.next = p_zero
        q_near.next = p_near
        q_counted.next = p_counted
        q_sign.next = p_sign and p_live
        q_live.next = p_live
        q_escape.next = p_escape
        q_y.next = p_y
        q_below.next = p_below
        q_base.next = p_top
        if p_escape:
            q_base.next = shift + 16
        gap = modbv(0)[4:]
        gap[:] = p_top - shift
        q_octave.next = gap[3:]  # at most 7 unless it is an escape
        q_wide.next = p_escape or gap == 0 or gap == 7
        half = modbv(0)[16:]
        half[16:1] = p_y
        q_half.next = half[int(p_top)]

        s_valid.next = q_valid
        s_last.next = q_last
        s_lane.next = q_lane
        s_zero.next = q_zero
        s_live.next = q_valid and not go_copy
        s_counted.next = q_valid and q_counted
        if not q_live:
            s_symbol.next = 0
        elif q_escape:
            s_symbol.next = 15
        elif q_octave == 0:
            s_symbol.next = 1
        elif q_octave == 7:
            s_symbol.next = 14
        else:
            s_symbol.next = concat(q_octave, q_half)
        below = modbv(0)[15:]
        if q_wide:
            below[:] = q_below[16:1]
        else:
            below[:] = q_below[16:2]
        s_field.next = concat(q_y & below, q_sign)
        if q_live:
            s_length.next = q_base + q_wide
        else:
            s_length.next = 0
        if q_valid and q_near and q_lane == 0 and not cut:
            cut.next = True
            s_bank.next = not s_bank

        sym_valid.next = s_live
        sym.next = concat(s_ctx, s_symbol)
        cnt_valid.next = s_counted
        cnt_bank.next = s_bank

        if go:
            cut.next = False
        if rst or abort:
            a_valid.next = False
            y_valid.next = False
            t_valid.next = False
            p_valid.next = False
            p_live.next = False
            q_valid.next = False
            q_live.next = False
            s_valid.next = False
            s_live.next = False
            s_counted.next = False
            sym_valid.next = False
            cnt_valid.next = False
        if rst:
            s_bank.next = False

    # What the whole block is like. With go_copy y is the magnitude.
    @always(clk.posedge)
    def survey():
        if a_first and a_valid:
            first_value.next = a_value
        value.next = first_value
        if go:
            uniform.next = True
            peak.next = 0
            peak_shift.next = 0
            settle.next = False
        else:
            if y_valid and y_differs:
                uniform.next = False
            if y_valid and y_last:
                settle.next = True
            if y_valid:
                peak.next = peak | y
            elif settle and peak[16:8] != 0:
                peak.next = peak >> 1
                peak_shift.next = peak_shift + 1

    @always(clk.posedge)
    def pack():
        # Place fields in words: the field in front of its place, rotated, and what the rotation brought round
        # to the places below belongs into the next word.
        total = modbv(0)[6:]
        total[:] = fill + s_length
        again.next = total[5]
        end1.next = s_valid and s_last
        end2.next = end1
        r1_end.next = end2
        if end2:
            fill.next = 0
            r1_emit.next = fill != 0
        else:
            fill.next = total[4:]
            r1_emit.next = total[4] or total[5] or again
        r1_place.next = fill
        turned = modbv(0)[16:]
        turned[:] = s_field
        if fill[0]:
            turned[:] = concat(s_field[15:], s_field[15])
        if fill[1]:
            r1_field.next = concat(turned[14:], turned[16:14])
        else:
            r1_field.next = turned

        r2_end.next = r1_end
        r2_emit.next = r1_emit
        r2_mask.next = LOW_ONES[int(r1_place)]
        turned4 = modbv(0)[16:]
        turned4[:] = r1_field
        if r1_place[2]:
            turned4[:] = concat(r1_field[12:], r1_field[16:12])
        if r1_place[3]:
            r2_field.next = concat(turned4[8:], turned4[16:8])
        else:
            r2_field.next = turned4

        w_end.next = r2_end
        w_emit.next = r2_emit
        w_word.next = rest | (r2_field & ~r2_mask)
        if r2_emit:
            rest.next = r2_field & r2_mask
        else:
            rest.next = rest | r2_field

        # The newest word waits, to be marked if it is the last.
        o_end.next = w_end
        over.next = o_end
        done.next = over
        if w_emit:
            held.next = w_word
        raw_valid.next = have and (w_emit or o_end)
        raw_last.next = o_end
        raw.next = held
        if o_end:
            have.next = False
        elif w_emit:
            have.next = True
        if rst or abort or wake2:  # what a block that was given up left in the pipeline is out by wake2
            end1.next = False
            end2.next = False
            r1_end.next = False
            r2_end.next = False
            w_end.next = False
            o_end.next = False
            over.next = False
            done.next = False
            fill.next = 0
            again.next = False
            r1_emit.next = False
            r2_emit.next = False
            w_emit.next = False
            rest.next = 0
            raw_valid.next = False
            have.next = False

    return context, handshake, entrance, model, survey, pack
