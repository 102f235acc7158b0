"""The encoder of a lane: values in, payload out (docs/format2.md)."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.asc_frontend import asc_frontend
from oscar_hdl.asc_tables import DROP, LOAD, MERGE, MERGE_ONLY, PRIOR, SAVE
from oscar_hdl.backward_pass import backward_pass
from oscar_hdl.block_writer import block_writer
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.rans_encoder import rans_encoder
from oscar_hdl.raw_ring import raw_ring
from oscar_hdl.shift_tracker import shift_tracker
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.symbol_buffer import symbol_buffer
from oscar_hdl.word_stack import word_stack

Step = enum(
    "RESTING", "LOADING", "OPENING", "FORWARD", "HANDING", "TAILING", "DRAINING", "SHIFTING", "SAVING",
    "CLOSING", "STOPPING", "ASKING", "REPEATING",
)  # fmt: skip
SETTLE = 31  # clocks after which nothing of a discarded block is on its way, and counts are wiped


@block
def asc_encoder(
    clk: Any, rst: Any, start: Any, fresh: Any, count: Any, width: Any, shift: Any, s_axis: Any,
    redo_valid: Any, redo_ready: Any, redo_first: Any, redo_count: Any, s_axis_redo: Any, m_axis: Any,
    enc_cnt_valid: Any, enc_cnt_addr: Any, enc_cnt_bank: Any, enc_wipe: Any, enc_req: Any, enc_op: Any,
    enc_bank: Any, enc_tbank: Any, enc_ack: Any, tw_en: Any, tw_addr: Any, tw_f: Any, tw_c: Any, tw_rcp: Any,
    done: Any, new_shift: Any, stall_input: Any, stall_output: Any, stall_tables: Any, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Encode a frame: `count` u19 values of `width` u5 bits, classes beside them, with `shift` u4.

    start (strobe, at rest: after rst or done): fresh begins with the prior, otherwise tables are loaded. The
    four others hold still until done. s_axis: Stream u20, class << 16 | value (sign-extended) in decoding
    order, `count` of them; tlast is not looked at. redo_*: a request to send redo_count u19 values of this
    frame from redo_first u19 on once more, on s_axis_redo, tlast with the last. m_axis: Stream u16, the
    payload, tlast with its last word. enc_*, tw_*: client of asc_tables. done: pulse, the payload is out and
    the tables are saved; new_shift u4 belongs to them. stall_*: a clock was lost for want of values, of
    m_axis, of tables.

    Three stages, each with a block of its own: *forward* (asc_frontend; its end is HANDING), *backward* (b_),
    *writing* (w_, block_writer). A stage hands its block on when the next is free.
    """
    block_log2 = params.block_log2
    number_bits = COUNT_BITS - block_log2
    size = params.block

    step = Signal(Step.RESTING)
    number, last, opening = word(number_bits), bit(), bit()  # of the block in forward
    aligned, final = bit(), word(number_bits)  # whole blocks only; the number of the last
    empty, sent, zero = bit(), bit(), bit()
    shift_reg, table_bank = word(4), bit()
    settle, calm = word(5), bit()
    drained, settled = bit(), bit()  # DRAINING, STOPPING may end
    hand, hand_on = bit(), bit()  # strobes: forward to backward, backward to writing
    taken = word(COUNT_BITS)  # values of s_axis
    redoing, copying, discarding = bit(), bit(), bit()
    passing = bit()  # a value is on its way to the writer

    go, go_count, abort, room, full, cut_ok = bit(), word(block_log2 + 1), bit(), bit(), bit(), bit()
    source, left, waits = Stream(20), word(block_log2 + 1), bit()
    sym_valid, sym, cnt_bank = bit(), word(8), bit()
    raw_valid, raw_last, raw = bit(), bit(), word(16)
    fore_done, uniform, value, peak_shift = bit(), bit(), word(16), word(4)
    last_lane, last_odd = word(4), bit()

    turn, commit, rewind, flush_ring, flush_stack = (bit() for _ in range(5))
    own, overflow, raw_words = word(block_log2 + 1), bit(), Stream(16)

    b_valid, b_running, b_uniform, b_last, b_overflow = (bit() for _ in range(5))
    b_count, b_info, b_number = word(13), word(16), word(number_bits)
    load, load_count, load_bank = bit(), word(block_log2 + 1), bit()
    hold, hold_start, rd_left, rd_data, back_done = bit(), bit(), word(block_log2 + 1), word(8), bit()
    slot, in_valid, in_bank, in_first, in_final, counted = word(4), bit(), bit(), bit(), bit(), bit()
    in_ctx, in_sym = word(4), word(4)
    word_valid, word_out, word_end = bit(), word(12), bit()
    state_valid, state_lane, state = bit(), word(4), word(24)

    w_valid, w_uniform, w_last, w_overflow = (bit() for _ in range(4))
    w_count, w_info, w_number = word(13), word(16), word(number_bits)
    blk_done, raw_event, states_sent = bit(), bit(), bit()
    st_valid, st_words, st_drop, words, values = bit(), word(13), bit(), Stream(12), Stream(16)

    clear, finish, tracked, tracker_shift, changed = bit(), bit(), bit(), word(4), bit()

    frontend = asc_frontend(
        clk, rst, source, go, go_count, zero, copying, shift_reg, abort, room, full, cut_ok, left, waits,
        sym_valid, sym, enc_cnt_valid, cnt_bank, raw_valid, raw_last, raw, fore_done, uniform, value,
        peak_shift, last_lane, last_odd, params=params,
    )  # fmt: skip
    symbols = symbol_buffer(
        clk, go, turn, sym_valid, sym, left, b_running, rd_left, rd_data, room, params=params
    )
    ring = raw_ring(
        clk, rst, raw_valid, raw_last, raw, commit, rewind, flush_ring, own, full, overflow, raw_words,
        params=params,
    )  # fmt: skip
    backward = backward_pass(
        clk, rst, load, load_count, last_lane, last_odd, load_bank, abort, hold, hold_start, states_sent,
        slot, rd_left, back_done, in_valid, in_bank, in_first, in_final, counted, params=params,
    )  # fmt: skip
    coder = rans_encoder(
        clk, rst, tw_en, tw_addr, tw_f, tw_c, tw_rcp, slot, in_valid, in_bank, in_ctx, in_sym, in_first,
        in_final, word_valid, word_out, word_end, state_valid, state_lane, state,
    )  # fmt: skip
    stack = word_stack(
        clk, rst, flush_stack, word_valid, word_out, word_end, hold, hold_start, st_valid, st_words, st_drop,
        words,
    )  # fmt: skip
    writer = block_writer(
        clk, rst, w_valid, w_uniform, w_last, w_overflow, w_count, width, w_info, blk_done, raw_event,
        states_sent, state_valid, state_lane, state, st_valid, st_words, st_drop, words, raw_words, values,
        m_axis,
    )  # fmt: skip
    tracker = shift_tracker(
        clk, rst, clear, counted, in_sym, finish, shift_reg, tracked, tracker_shift, changed
    )

    @always_comb
    def wiring():
        in_ctx.next = rd_data[8:4]
        in_sym.next = rd_data[4:]
        enc_cnt_addr.next = sym
        enc_cnt_bank.next = cnt_bank
        cut_ok.next = not enc_req
        new_shift.next = shift_reg

    # Values come from s_axis, or from s_axis_redo as long as there are some to be had. Those of a raw block
    # go to the writer too, every other clock: so its tready ends at a register. What is discarded may be
    # taken too: abort, which is up as long, makes nothing of it.
    @always_comb
    def sources():
        if redoing:
            source.tdata.next = s_axis_redo.tdata
            source.tvalid.next = s_axis_redo.tvalid and not passing
        else:
            source.tdata.next = s_axis.tdata
            source.tvalid.next = s_axis.tvalid

    @always_comb
    def handshakes():
        s_axis.tready.next = source.tready and not redoing
        s_axis_redo.tready.next = redoing and ((source.tready and not passing) or discarding)
        values.tvalid.next = passing

    @always(clk.posedge)
    def supply():
        if step == Step.RESTING:
            taken.next = 0
        elif s_axis.tvalid and s_axis.tready:
            taken.next = taken + 1
        if redo_valid and redo_ready:
            redoing.next = True
        elif s_axis_redo.tvalid and s_axis_redo.tready and s_axis_redo.tlast:
            redoing.next = False
        if copying and s_axis_redo.tvalid and source.tready and not passing:
            passing.next = True
            values.tdata.next = s_axis_redo.tdata[16:]
            values.tlast.next = left == 1
        elif values.tready:
            passing.next = False
        stall_input.next = source.tready and not source.tvalid
        stall_output.next = m_axis.tvalid and not m_axis.tready
        stall_tables.next = enc_req and (waits or step == Step.OPENING or step == Step.LOADING)
        if rst:
            redoing.next = False
            passing.next = False

    @always(clk.posedge)
    def control():
        go.next = False
        turn.next = False
        load.next = False
        commit.next = False
        rewind.next = False
        flush_ring.next = False
        finish.next = False
        done.next = False
        enc_wipe.next = False
        following = modbv(0)[number_bits:]
        following[:] = number + 1
        opening.next = step == Step.OPENING  # from its second clock, when `last` is about this block
        aligned.next = count[block_log2:] == 0
        final.next = count[COUNT_BITS:block_log2] - aligned
        last.next = number == final
        calm.next = settle == 0
        if settle != 0:
            settle.next = settle - 1
        if enc_ack:
            enc_req.next = False
        if m_axis.tvalid and m_axis.tready and m_axis.tlast:
            sent.next = True

        # Backward to writing
        if back_done:
            b_running.next = False
        if blk_done:
            w_valid.next = False
        hand_on.next = b_valid and not b_running and not w_valid and not hand_on
        if hand_on:
            b_valid.next = False
            w_valid.next = True
            w_uniform.next = b_uniform
            w_last.next = b_last
            w_overflow.next = b_overflow
            w_count.next = b_count
            w_info.next = b_info
            w_number.next = b_number

        # In the steps they end, what they wait for stays.
        drained.next = step == Step.DRAINING and sent and not enc_req and not b_valid and not w_valid
        settled.next = step == Step.STOPPING and settle == 0 and not redoing and not enc_req

        # Forward to backward. Nothing but this asks for tables or fills the backward stage in HANDING.
        hand.next = step == Step.HANDING and not b_valid and not enc_req and not hand
        if hand:
            enc_bank.next = not cnt_bank  # the one of before the cut
            zero.next = uniform
            b_uniform.next = uniform
            b_last.next = last
            b_overflow.next = overflow
            b_count.next = go_count
            b_info.next = own
            if uniform:
                b_info.next = value
            b_number.next = number
            load_count.next = go_count
            load_bank.next = table_bank

        if step == Step.RESTING:
            number.next = 0
            empty.next = count == 0
            sent.next = count == 0
            shift_reg.next = shift
            zero.next = True
            clear.next = True
            enc_tbank.next = table_bank
            if fresh:
                enc_op.next = PRIOR
            else:
                enc_op.next = LOAD
            if start:
                enc_req.next = True
                step.next = Step.LOADING
        elif step == Step.LOADING:
            clear.next = False
            if not enc_req:
                if empty:
                    step.next = Step.DRAINING
                else:
                    step.next = Step.OPENING
        elif step == Step.OPENING:
            # LOAD and PRIOR clear both count banks; the others leave the next block's alone, and what a
            # constant block left in it is wiped by then.
            clears = enc_op != MERGE and enc_op != DROP
            go_count.next = size
            if last and not aligned:
                go_count.next = concat(False, count[block_log2:])
            if opening and calm and (not enc_req or not clears):
                go.next = True
                step.next = Step.FORWARD
        elif step == Step.FORWARD:
            if fore_done:
                step.next = Step.HANDING
        elif step == Step.HANDING:
            if hand:
                enc_req.next = True
                b_valid.next = True
                b_running.next = not uniform
                number.next = following
                step.next = Step.OPENING
                if uniform:
                    rewind.next = True
                    enc_op.next = DROP
                    enc_wipe.next = True
                    settle.next = SETTLE
                    if last:
                        step.next = Step.DRAINING
                else:
                    commit.next = not overflow
                    turn.next = True
                    load.next = True
                    if last:
                        enc_op.next = MERGE_ONLY
                        step.next = Step.TAILING
                    else:
                        enc_op.next = MERGE
                        enc_tbank.next = not table_bank
                        table_bank.next = not table_bank
        elif step == Step.TAILING:
            if not enc_req:
                enc_req.next = True
                enc_op.next = MERGE_ONLY
                enc_bank.next = cnt_bank
                step.next = Step.DRAINING
        elif step == Step.DRAINING:
            if drained:
                finish.next = True
                step.next = Step.SHIFTING
        elif step == Step.SHIFTING:
            if tracked:
                if changed:
                    shift_reg.next = tracker_shift
                    enc_req.next = True
                    enc_op.next = PRIOR
                    enc_tbank.next = table_bank
                step.next = Step.SAVING
        elif step == Step.SAVING:
            if not enc_req:
                enc_req.next = True
                enc_op.next = SAVE
                step.next = Step.CLOSING
        elif step == Step.CLOSING:
            if not enc_req:
                done.next = True
                step.next = Step.RESTING
        elif step == Step.STOPPING:
            number.next = w_number
            redo_first.next = 0
            redo_first.next[COUNT_BITS:block_log2] = w_number
            redo_count.next = taken
            redo_count.next[COUNT_BITS:block_log2] = taken[COUNT_BITS:block_log2] - w_number
            enc_tbank.next = table_bank
            go_count.next = w_count[block_log2 + 1 :]
            if settled:
                enc_req.next = True
                enc_op.next = PRIOR
                abort.next = False
                clear.next = False
                flush_stack.next = False
                discarding.next = False
                redo_valid.next = True
                step.next = Step.ASKING
        elif step == Step.ASKING:
            if redo_ready:
                redo_valid.next = False
                copying.next = True
                go.next = True
                step.next = Step.REPEATING
        elif step == Step.REPEATING and fore_done:
            number.next = following
            copying.next = False
            shift_reg.next = peak_shift
            zero.next = True
            if w_last:
                step.next = Step.DRAINING
            else:
                step.next = Step.OPENING

        # The block that is being written is raw: all that came after it is void.
        if raw_event:
            go.next = False
            turn.next = False
            load.next = False
            commit.next = False
            rewind.next = False
            enc_wipe.next = False
            hand.next = False
            hand_on.next = False
            abort.next = True
            clear.next = True
            flush_ring.next = True
            flush_stack.next = True
            discarding.next = True
            b_valid.next = False
            b_running.next = False
            enc_req.next = enc_req and not enc_ack
            settle.next = SETTLE
            step.next = Step.STOPPING
        if rst:
            step.next = Step.RESTING
            go.next = False
            load.next = False
            enc_wipe.next = False
            hand.next = False
            hand_on.next = False
            abort.next = False
            flush_stack.next = False
            discarding.next = False
            copying.next = False
            enc_req.next = False
            redo_valid.next = False
            b_valid.next = False
            b_running.next = False
            w_valid.next = False
            done.next = False

    return (
        frontend, symbols, ring, backward, coder, stack, writer, tracker, wiring, sources, handshakes, supply,
        control,
    )  # fmt: skip
