"""Decoder of a lane: a payload in memory becomes a stream of values (docs/format2.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.asc_tables import DROP, LOAD, MERGE, MERGE_ONLY, PRIOR, SAVE
from oscar_hdl.format2.params import LANES
from oscar_hdl.params import LaneParams
from oscar_hdl.payload_reader import BAD_END, BAD_RAW, BAD_WORDS, TOO_WIDE, payload_reader
from oscar_hdl.rans_decoder import rans_decoder
from oscar_hdl.shift_tracker import shift_tracker
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.value_rebuild import value_rebuild

CORE_CLOCKS = 8  # of rans_decoder, from a class to its symbol

IDLE, OPEN, DESCRIBE, FLOW, CHECK, TAIL, RESTART, CLOSE = range(8)


@block
def asc_decoder(
    clk: Any, rst: Any, start: Any, fresh: Any, count: Any, width: Any, shift: Any, words: Any, idle: Any,
    rd_valid: Any, rd_ready: Any, rd_addr: Any, rd_data: Any, rd_data_valid: Any, s_axis_class: Stream,
    m_axis: Stream, dec_cnt_valid: Any, dec_cnt_addr: Any, dec_cnt_bank: Any, dec_req: Any, dec_op: Any,
    dec_bank: Any, dec_tbank: Any, dec_ack: Any, tw_en: Any, tw_addr: Any, tw_f: Any, tw_c: Any, done: Any,
    error: Any, new_shift: Any, params: LaneParams,
) -> Any:  # fmt: skip
    """Decode a frame after `start` (pulse, while `idle`); ports and timing are in docs/hardware.md.

    Blocks go one after another: header, start, values, checks. Meanwhile the tables of the next block are
    made from the counts up to the cut; a block starts when they are there.
    """
    after_cut = LANES * (params.lag_rows + 1)  # at the start of a row fewer values than these are left

    state = word(3)
    # The block, and how far it is.
    open_frame, proceed, described, ended = bit(), bit(), bit(), bit()
    coded, fixed, final, size, code_words = bit(), bit(), bit(), word(13), word(11)
    block_start, core_start, restart, core_rst = bit(), bit(), bit(), bit()
    flowing, left, left_few, left_one, cut_done = bit(), word(13), bit(), bit(), bit()
    core_ended, wrong_words, wrong_end = bit(), bit(), bit()
    fault, failed = word(4), bit()
    # Between the sub-blocks.
    push_valid, push_ready, push_word, words_end = bit(), bit(), word(12), bit()
    raw_valid, raw_data, raw_end, raw_pop = bit(), word(16), bit(), bit()
    take, in_valid, in_ready, in_final, in_end = (bit() for _ in range(5))
    out_valid, out_lane, out_ctx, out_sym = bit(), word(4), word(4), word(4)
    end_valid, end_words, end_ok = bit(), word(13), bit()
    room, sym_valid, last_gone, drained, rebuilt, empty = (bit() for _ in range(6))
    raw_exact, fixed_fits, raw_high, quiet = bit(), bit(), word(8), bit()
    late = word(CORE_CLOCKS)  # late[i]: what was taken i + 1 clocks ago is behind the cut's row
    # Symbols on their way to be counted.
    odd_row, seen, seen_counted, seen_row, seen_late, cut = (bit() for _ in range(6))
    seen_ctx, seen_sym, counted_ctx, counted_sym = word(4), word(4), word(4), word(4)
    # Tables of this block are in `table_bank`; what is counted goes to `count_bank`. clean: nothing is
    # counted; zero: neighbour states are 0.
    table_bank, count_bank, clean, zero = bit(), bit(), bit(), bit()
    frame_shift, forget, finish, adapting, adapted, changed = word(4), bit(), bit(), bit(), bit(), bit()

    reader = payload_reader(
        clk, rst, open_frame, words, count, width, proceed, failed, described, ended, coded, fixed, size,
        final, code_words, fault, push_valid, push_ready, push_word, words_end, raw_valid, raw_data, raw_end,
        raw_pop, rd_valid, rd_ready, rd_addr, rd_data, rd_data_valid, quiet, params,
    )  # fmt: skip
    core = rans_decoder(
        clk, core_rst, tw_en, tw_addr, tw_f, tw_c, push_valid, push_ready, push_word, words_end, core_start,
        table_bank, zero, in_valid, in_ready, s_axis_class.tdata, in_final, in_end, out_valid, out_lane,
        out_ctx, out_sym, end_valid, end_words, end_ok,
    )  # fmt: skip
    rebuild = value_rebuild(
        clk, rst, block_start, coded, fixed, frame_shift, width, take, room, sym_valid, out_sym, last_gone,
        raw_valid, raw_data, raw_end, raw_pop, drained, rebuilt, empty, raw_exact, fixed_fits, raw_high,
        m_axis,
    )  # fmt: skip
    tracker = shift_tracker(
        clk, rst, forget, dec_cnt_valid, counted_sym, finish, frame_shift, adapted, new_shift, changed
    )

    # A class is taken for each value, also where it says nothing; a symbol, or the class, brings the value.
    @always_comb
    def offer():
        in_valid.next = s_axis_class.tvalid and flowing and room and coded
        take.next = s_axis_class.tvalid and flowing and room and (in_ready or not coded)
        s_axis_class.tready.next = flowing and room and (in_ready or not coded)
        in_final.next = left_few
        in_end.next = left_one
        sym_valid.next = out_valid or (s_axis_class.tvalid and flowing and room and not coded)
        last_gone.next = final and not flowing
        failed.next = fault != 0 or error != 0
        idle.next = state == IDLE
        core_rst.next = rst or restart  # an error may have left words in it
        cut.next = seen and seen_row and seen_late and not cut_done
        dec_cnt_addr.next = concat(counted_ctx, counted_sym)

    @always(clk.posedge)
    def control():
        open_frame.next = False
        proceed.next = False
        block_start.next = False
        core_start.next = False
        restart.next = False
        forget.next = False
        finish.next = False
        done.next = False
        if dec_ack:
            dec_req.next = False
        if error == 0 and state != IDLE and state != OPEN:
            error.next = fault
        if adapted:
            adapting.next = False
        if end_valid:
            core_ended.next = True
            wrong_words.next = end_words != code_words
            wrong_end.next = not end_ok
        # What is compared with `left` is known when it is: it holds still before the first is taken.
        left_few.next = left <= LANES or (take and left == LANES + 1)
        left_one.next = (left == 1 and not take) or (left == 2 and take)
        if take:
            left.next = left - 1
            if left_one:
                flowing.next = False

        # Symbols that the core gives: about every other one is counted. At the cut the tables of the next
        # block are made from what was counted so far; the rest goes to the other bank.
        seen.next = out_valid
        seen_counted.next = out_lane[0] == odd_row and out_lane != LANES - 1
        seen_row.next = out_lane == 0
        late.next[0] = left < after_cut
        late.next[CORE_CLOCKS:1] = late[CORE_CLOCKS - 1 :]
        seen_late.next = late[CORE_CLOCKS - 1]
        seen_ctx.next = out_ctx
        seen_sym.next = out_sym
        if out_valid and out_lane == LANES - 1:
            odd_row.next = not odd_row
        dec_cnt_valid.next = seen and seen_counted
        dec_cnt_bank.next = count_bank != cut
        counted_ctx.next = seen_ctx
        counted_sym.next = seen_sym
        if cut:
            cut_done.next = True
            count_bank.next = not count_bank
            dec_req.next = True

        # What is asked for depends on when: a level, so that it takes few gates.
        if not dec_req:
            dec_bank.next = count_bank
            dec_tbank.next = state != IDLE and (state == FLOW) != table_bank
            if state == IDLE:
                dec_op.next = LOAD
                if fresh:
                    dec_op.next = PRIOR
            elif state == FLOW:
                dec_op.next = MERGE
            elif state == DESCRIBE:
                dec_op.next = PRIOR
                if ended:
                    dec_op.next = MERGE_ONLY
                elif fixed:
                    dec_op.next = DROP
            else:
                dec_op.next = SAVE
                if state == TAIL and changed:
                    dec_op.next = PRIOR

        if state == IDLE:
            frame_shift.next = shift
            table_bank.next = False
            count_bank.next = False
            clean.next = True
            zero.next = True
            if start:
                error.next = 0
                open_frame.next = True
                restart.next = True
                forget.next = True
                dec_req.next = True
                state.next = OPEN
        elif state == OPEN:
            proceed.next = True
            state.next = DESCRIBE
        elif state == DESCRIBE:
            left.next = size
            cut_done.next = False
            odd_row.next = False
            core_ended.next = False
            if proceed or dec_req or not rebuilt:
                pass  # what is described is the block before; tables are on their way; values are
            elif ended:
                if failed:
                    state.next = CLOSE
                else:
                    dec_req.next = True
                    finish.next = True
                    adapting.next = True
                    state.next = TAIL
            elif described:
                block_start.next = True
                flowing.next = True
                state.next = FLOW
                if coded:
                    core_start.next = True
                    clean.next = False
                elif not failed:
                    if not fixed:
                        dec_req.next = True
                        forget.next = True
                    elif not clean:
                        dec_req.next = True
                    clean.next = True
        elif state == FLOW:
            if not flowing and drained and ((coded and core_ended) or (not coded and rebuilt)):
                state.next = CHECK
        elif state == CHECK:
            if fault == 0 and error == 0:
                if coded and wrong_words:
                    error.next = BAD_WORDS
                elif coded and wrong_end:
                    error.next = BAD_END
                elif fixed and not fixed_fits:
                    error.next = TOO_WIDE
                elif not fixed and not raw_exact:
                    error.next = BAD_RAW
            zero.next = not coded
            if coded:
                table_bank.next = not table_bank
            elif not fixed:
                frame_shift.next = 0
                for i in range(8):
                    if raw_high[i]:
                        frame_shift.next = i + 1
            state.next = OPEN
        elif state == TAIL:
            if not dec_req and not adapting:
                dec_req.next = True
                state.next = CLOSE
                if changed:
                    state.next = RESTART
        elif state == RESTART:
            if not dec_req:
                dec_req.next = True
                state.next = CLOSE
        elif quiet and empty and not dec_req:
            done.next = True
            state.next = IDLE

        if rst:
            state.next = IDLE
            open_frame.next = False
            proceed.next = False
            block_start.next = False
            core_start.next = False
            finish.next = False
            flowing.next = False
            dec_req.next = False
            done.next = False
            seen.next = False
            dec_cnt_valid.next = False

    return reader, core, rebuild, tracker, offer, control
