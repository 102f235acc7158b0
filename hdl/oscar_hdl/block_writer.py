"""The last stage of the encoder: headers, states, words and raw stream of a block become payload."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.bit_packer import bit_packer
from oscar_hdl.size_test import size_test
from oscar_hdl.streams.bundles import bit, word

# The steps of a block.
IDLE, TEST, HEAD, ZERO, INFO, END, STATES, WORDS, RAW, VALUES = range(10)
STEPS = 10


@block
def block_writer(
    clk: Any, rst: Any, blk_valid: Any, blk_constant: Any, blk_last: Any, blk_overflow: Any, blk_n: Any,
    blk_width: Any, blk_info: Any, blk_done: Any, raw_event: Any, states_sent: Any, state_valid: Any,
    state_lane: Any, state: Any, st_valid: Any, st_words: Any, st_drop: Any, s_axis_word: Any,
    s_axis_raw: Any, s_axis_value: Any, m_axis: Any,
) -> Any:  # fmt: skip
    """Decide whether a block is sent raw, and write it (docs/format2.md, "Payload").

    blk_valid and the fields of the block, blk_constant, blk_last, blk_overflow, blk_n u13, blk_width u5,
    blk_info u16 (its value or its raw words): hold still until blk_done. raw_event, states_sent: pulses.
    state_valid, state_lane u4, state u24: from rans_encoder; one buffer. st_valid, st_words u13, st_drop and
    s_axis_word (Stream u12): word_stack. s_axis_raw (Stream u16): raw stream, tlast with a block's last word.
    s_axis_value (Stream u16): values of a raw block, tlast with the last. m_axis: Stream u16.
    What each is for and when is in docs/hardware.md.

    A block is a row of fields for the bit packer. They are gathered in two ranks, so that many sources need
    few gates: registers that are 0 unless their source is meant, then the OR of them.
    """
    # One bit a step: with so many exits and sources that takes the fewest gates.
    at = word(STEPS, 1)  # IDLE
    was_idle, was_body, was_raw_stream, was_raw = bit(1), bit(), bit(), bit()
    index = word(5)  # state and half of it, or bit of a constant's sign
    raw, coded = bit(), bit()
    done, event, sent = bit(), bit(), bit()
    some_words = bit()
    tested, too_long, raw_words = bit(), bit(), word(14)
    testing = bit()

    kept = [word(24) for _ in range(16)]
    collecting, buffered = bit(), bit()  # some, all states of a block are there
    top, lane, lane_state, missing = word(4), word(4), word(24), bit()

    # The source ranks, the field they make, and what the packer is to know of it.
    from_head, from_state, from_word, from_stream, mark = word(16), word(12), word(12), word(16), word(2)
    valid1, bits1, end1, last1 = bit(), word(5), bit(), bit()
    valid2, bits2, end2, last2, field = bit(), word(5), bit(), bit(), word(16)
    go = bit()

    size = size_test(clk, testing, blk_n, blk_width, st_words, raw_words, tested, too_long)
    packer = bit_packer(clk, rst, valid2, go, field, bits2, end2, last2, m_axis)

    @always_comb
    def wiring():
        testing.next = at[TEST]
        raw_words.next = blk_info[14:]
        s_axis_word.tready.next = go and at[WORDS]
        s_axis_raw.tready.next = go and at[RAW]
        s_axis_value.tready.next = go and at[VALUES]
        lane.next = index[5:1]
        done.next = at[IDLE] and not was_idle
        event.next = raw and not was_raw
        sent.next = (at[WORDS] or at[RAW]) and not was_body
        st_drop.next = at[RAW] and not was_raw_stream

    @always_comb
    def outputs():
        blk_done.next = done
        raw_event.next = event
        states_sent.next = sent or event
        lane_state.next = kept[lane]

    @always(clk.posedge)
    def keep_states():
        if state_valid:
            kept[state_lane].next = state
            if not collecting:  # the first one, of the highest lane
                top.next = state_lane
            collecting.next = state_lane != 0
            if state_lane == 0:  # the last one
                buffered.next = True
        if rst or sent or event:
            collecting.next = False
            buffered.next = False

    @always(clk.posedge)
    def control():
        some_words.next = st_words != 0
        was_idle.next = at[IDLE]
        was_body.next = at[WORDS] or at[RAW]
        was_raw_stream.next = at[RAW]
        was_raw.next = raw
        if at[IDLE]:
            index.next = 0
            missing.next = False
            raw.next = False
            coded.next = not blk_constant
            if blk_valid and was_idle:
                if blk_constant:
                    at.next[IDLE] = False
                    at.next[HEAD] = True
                elif st_valid and buffered:
                    at.next[IDLE] = False
                    at.next[TEST] = True
        if at[TEST] and tested:
            raw.next = too_long or blk_overflow
            coded.next = not (too_long or blk_overflow)
            at.next[TEST] = False
            at.next[HEAD] = True
        if go:
            at.next[ZERO] = at[HEAD] and coded
            at.next[INFO] = at[ZERO] or (at[HEAD] and not coded)
            if at[HEAD]:
                at.next[HEAD] = False
            if at[INFO]:
                at.next[END] = True
            if at[END] and (raw or coded or index == 15):
                at.next[END] = False
                at.next[IDLE] = not raw and not coded
                at.next[STATES] = coded
                at.next[VALUES] = raw
            if (at[END] and not coded) or at[STATES]:
                index.next = index + 1
            if at[STATES] and index[0] and lane == top:
                missing.next = True
            if at[STATES] and index == 23:
                at.next[STATES] = False
                at.next[WORDS] = True
            if at[WORDS] and (not some_words or (s_axis_word.tvalid and s_axis_word.tlast)):
                at.next[WORDS] = False
                at.next[RAW] = True
            if at[RAW] and s_axis_raw.tvalid and s_axis_raw.tlast:
                at.next[RAW] = False
                at.next[IDLE] = True
            if at[VALUES] and s_axis_value.tvalid and s_axis_value.tlast:
                at.next[VALUES] = False
                at.next[IDLE] = True
        if rst:
            at.next = 1
            was_idle.next = True
            was_body.next = False
            was_raw_stream.next = False
            was_raw.next = False
            raw.next = False

    # The sign of a constant is sent bit by bit: that is cheaper than a source of 16 bits.
    @always(clk.posedge)
    def gather():
        if go:
            if at[HEAD]:
                from_head.next = concat("0", st_words, "00")
            else:
                from_head.next = blk_info
            if not (at[HEAD] and coded) and not (at[INFO] and not raw):
                from_head.next = 0
            if index[0]:
                from_state.next = lane_state[24:12]
            else:
                from_state.next = lane_state[12:]
            if not at[STATES] or missing:
                from_state.next = 0
            from_word.next = s_axis_word.tdata
            if not at[WORDS]:
                from_word.next = 0
            if at[RAW]:
                from_stream.next = s_axis_raw.tdata
            else:
                from_stream.next = s_axis_value.tdata
            if not at[RAW] and not at[VALUES]:
                from_stream.next = 0
            mark.next[0] = (
                (at[HEAD] and blk_constant)
                or (at[STATES] and missing and index[0])  # 4096
                or (at[END] and blk_constant and blk_info[15])
            )
            mark.next[1] = at[HEAD] and raw

            valid1.next = (
                at[HEAD] or at[ZERO] or at[INFO] or at[END] or at[STATES]
                or (at[WORDS] and s_axis_word.tvalid)
                or (at[RAW] and s_axis_raw.tvalid)
                or (at[VALUES] and s_axis_value.tvalid)
            )  # fmt: skip
            bits1.next = 16
            if at[ZERO] or (at[END] and coded):
                bits1.next = 8
            if at[END] and blk_constant:
                bits1.next = 1
            if at[STATES] or at[WORDS]:
                bits1.next = 12
            if at[VALUES]:
                bits1.next = blk_width
            end1.next = (
                (at[END] and blk_constant and index == 15)
                or (at[WORDS] and s_axis_word.tlast)
                or (at[RAW] and s_axis_raw.tlast)
                or (at[VALUES] and s_axis_value.tlast)
            )
            last1.next = blk_last and not at[WORDS]
            valid2.next = valid1
            bits2.next = bits1
            end2.next = end1
            last2.next = last1 and end1
            field.next[16:12] = from_head[16:12] | from_stream[16:12]
            field.next[12:2] = from_head[12:2] | from_state[12:2] | from_word[12:2] | from_stream[12:2]
            field.next[2:] = from_head[2:] | from_state[2:] | from_word[2:] | from_stream[2:] | mark[2:]
        if rst:
            valid1.next = False
            valid2.next = False

    return size, packer, wiring, outputs, keep_states, control, gather
