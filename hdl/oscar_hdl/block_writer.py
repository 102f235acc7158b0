"""The last stage of the encoder: headers, states, words and raw stream of a block become payload."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.bit_packer import bit_packer
from oscar_hdl.size_test import size_test
from oscar_hdl.streams import bit, word


@block
def block_writer(
    clk: Any, rst: Any, blk_valid: Any, blk_constant: Any, blk_last: Any, blk_overflow: Any, blk_n: Any,
    blk_width: Any, blk_info: Any, blk_done: Any, raw_event: Any, states_sent: Any, state_valid: Any,
    state_lane: Any, state: Any, st_valid: Any, st_words: Any, st_drop: Any, s_axis_word: Any,
    s_axis_raw: Any, s_axis_value: Any, m_axis: Any,
) -> Any:  # fmt: skip
    """Decide whether a block is sent raw, and write it (docs/asc.md, "Payload").

    blk_valid and the fields of the block, blk_constant, blk_last, blk_overflow, blk_n u13, blk_width u5,
    blk_info u16 (its value or its raw words): hold still until blk_done. raw_event, states_sent: pulses.
    state_valid, state_lane u4, state u24: from rans_encoder; one buffer. st_valid, st_words u13, st_drop and
    s_axis_word (Stream u12): word_stack. s_axis_raw (Stream u16): raw stream, tlast with a block's last word.
    s_axis_value (Stream u16): values of a raw block, tlast with the last. m_axis: Stream u16.
    What each is for and when is in docs/hardware.md.

    A block is a row of fields for the bit packer. They are gathered in two ranks, so that many sources need
    few gates: registers that are 0 unless their source is meant, then the OR of them.
    """
    steps = enum(
        "IDLE", "TEST", "HEAD", "HEAD_ZERO", "HEAD_INFO", "HEAD_END",
        "SEND_STATES", "SEND_WORDS", "SEND_RAW", "SEND_VALUES",
    )  # fmt: skip
    at = Signal(steps.IDLE)
    index = word(5)  # state and half of it, or bit of a constant's sign
    raw, coded = bit(), bit()
    done, event, sent = bit(), bit(), bit()
    some_words = bit()
    testing, tested, too_long, raw_words = bit(), bit(), bit(), word(14)

    kept = [word(24) for _ in range(16)]
    buffered = bit()  # the states of a block are there
    lane, lane_state, missing = word(4), word(24), bit()

    # The source ranks, the field they make, and what the packer is to know of it.
    from_head, from_state, from_word, from_stream, mark = word(16), word(12), word(12), word(16), word(2)
    valid1, bits1, end1, last1 = bit(), word(5), bit(), bit()
    valid2, bits2, end2, last2, field = bit(), word(5), bit(), bit(), word(16)
    go = bit()

    size = size_test(clk, testing, blk_n, blk_width, st_words, raw_words, tested, too_long)
    packer = bit_packer(clk, rst, valid2, go, field, bits2, end2, last2, m_axis)

    @always_comb
    def wiring():
        testing.next = at == steps.TEST
        raw_words.next = blk_info[14:]
        coded.next = not raw and not blk_constant
        s_axis_word.tready.next = go and at == steps.SEND_WORDS
        s_axis_raw.tready.next = go and at == steps.SEND_RAW
        s_axis_value.tready.next = go and at == steps.SEND_VALUES
        lane.next = index[5:1]
        missing.next = blk_n < 12 and lane >= blk_n[4:]
        blk_done.next = done
        raw_event.next = event
        states_sent.next = sent or event

    @always_comb
    def read_state():
        lane_state.next = kept[lane]

    @always(clk.posedge)
    def keep_states():
        if state_valid:
            kept[state_lane].next = state
        if state_valid and state_lane == 0:  # the last of them
            buffered.next = True
        if rst or sent or event:
            buffered.next = False

    @always(clk.posedge)
    def control():
        some_words.next = st_words != 0
        done.next = False
        event.next = False
        sent.next = False
        st_drop.next = False
        if at == steps.IDLE:
            index.next = 0
            raw.next = False
            if blk_valid and not done:
                if blk_constant:
                    at.next = steps.HEAD
                elif blk_overflow:
                    raw.next = True
                    event.next = True
                    at.next = steps.HEAD
                elif st_valid and buffered:
                    at.next = steps.TEST
        elif at == steps.TEST:
            if tested:
                raw.next = too_long
                event.next = too_long
                at.next = steps.HEAD
        elif go:
            if at == steps.HEAD:
                if coded:
                    at.next = steps.HEAD_ZERO
                else:
                    at.next = steps.HEAD_INFO
            elif at == steps.HEAD_ZERO:
                at.next = steps.HEAD_INFO
            elif at == steps.HEAD_INFO:
                at.next = steps.HEAD_END
            elif at == steps.HEAD_END:
                if raw:
                    at.next = steps.SEND_VALUES
                elif coded:
                    at.next = steps.SEND_STATES
                else:
                    index.next = index + 1
                    if index == 15:
                        done.next = True
                        at.next = steps.IDLE
            elif at == steps.SEND_STATES:
                index.next = index + 1
                if index == 23:
                    sent.next = True
                    if some_words:
                        at.next = steps.SEND_WORDS
                    else:
                        st_drop.next = True
                        at.next = steps.SEND_RAW
            elif at == steps.SEND_WORDS:
                if s_axis_word.tvalid and s_axis_word.tlast:
                    st_drop.next = True
                    at.next = steps.SEND_RAW
            elif at == steps.SEND_RAW:
                if s_axis_raw.tvalid and s_axis_raw.tlast:
                    done.next = True
                    at.next = steps.IDLE
            elif s_axis_value.tvalid and s_axis_value.tlast:
                done.next = True
                at.next = steps.IDLE
        if rst:
            at.next = steps.IDLE
            done.next = False
            event.next = False
            sent.next = False
            st_drop.next = False

    # The sign of a constant is sent bit by bit: that is cheaper than a source of 16 bits.
    @always(clk.posedge)
    def gather():
        if go:
            valid1.next = at != steps.IDLE and at != steps.TEST
            bits1.next = 16
            end1.next = False
            last1.next = False
            from_head.next = 0
            from_state.next = 0
            from_word.next = 0
            from_stream.next = 0
            mark.next = 0
            if at == steps.HEAD:
                if coded:
                    from_head.next = concat("0", st_words, "00")
                mark.next = concat(raw, blk_constant)
            elif at == steps.HEAD_ZERO:
                bits1.next = 8
            elif at == steps.HEAD_INFO:
                if not raw:
                    from_head.next = blk_info
            elif at == steps.HEAD_END:
                if coded:
                    bits1.next = 8
                elif blk_constant:
                    bits1.next = 1
                    mark.next[0] = blk_info[15]
                    if index == 15:
                        end1.next = True
                        last1.next = blk_last
            elif at == steps.SEND_STATES:
                bits1.next = 12
                if missing:
                    mark.next[0] = index[0]  # 4096
                elif index[0]:
                    from_state.next = lane_state[24:12]
                else:
                    from_state.next = lane_state[12:]
            elif at == steps.SEND_WORDS:
                valid1.next = s_axis_word.tvalid
                bits1.next = 12
                end1.next = s_axis_word.tlast
                from_word.next = s_axis_word.tdata
            elif at == steps.SEND_RAW:
                valid1.next = s_axis_raw.tvalid
                end1.next = s_axis_raw.tlast
                last1.next = s_axis_raw.tlast and blk_last
                from_stream.next = s_axis_raw.tdata
            elif at == steps.SEND_VALUES:
                valid1.next = s_axis_value.tvalid
                bits1.next = blk_width
                end1.next = s_axis_value.tlast
                last1.next = s_axis_value.tlast and blk_last
                from_stream.next = s_axis_value.tdata
            valid2.next = valid1
            bits2.next = bits1
            end2.next = end1
            last2.next = last1
            field.next[16:12] = from_head[16:12] | from_stream[16:12]
            field.next[12:2] = from_head[12:2] | from_state[12:2] | from_word[12:2] | from_stream[12:2]
            field.next[2:] = from_head[2:] | from_state[2:] | from_word[2:] | from_stream[2:] | mark[2:]
        if rst:
            valid1.next = False
            valid2.next = False

    return size, packer, wiring, read_state, keep_states, control, gather
