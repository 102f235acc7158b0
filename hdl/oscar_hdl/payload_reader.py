"""Reads a frame's payload: parses its blocks, hands out their words and their raw stream."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.format2.params import CODED, CONSTANT, LANES, RAW
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.streams.bundles import bit, word

# What is wrong with a payload (docs/format2.md, "Frame"); the first fault counts. 0: nothing.
TRUNCATED = 1  # ends inside a block
BAD_TYPE = 2  # a block of type 3
TOO_WIDE = 3  # a constant does not fit the width
TOO_MANY_WORDS = 4  # a coded block longer than one sent raw: 8 words > 3 n
BAD_START = 5  # a start state below 4,096, or another one on a lane without values
BAD_WORDS = 6  # words left over or missing at the end of a block
BAD_END = 7  # a final state that is not 4,096
BAD_RAW = 8  # raw words left over or missing at the end of a block
TRAILING = 9  # goes on after the last block

IDLE, HEAD, WAIT, JUDGE, SPLIT, VOID, TAIL = range(7)  # the order counts
DEPTH = 16  # of each queue; 14 words are asked for ahead
OUTSTANDING = 11  # words at most that are asked for and not answered


@block
def payload_reader(
    clk: Any, rst: Any, open_frame: Any, words: Any, count: Any, width: Any, proceed: Any, fail: Any,
    described: Any, ended: Any, coded: Any, fixed: Any, size: Any, final: Any, code_words: Any, fault: Any,
    push_valid: Any, push_ready: Any, push_word: Any, words_end: Any, raw_valid: Any, raw_data: Any,
    raw_end: Any, raw_pop: Any, rd_valid: Any, rd_ready: Any, rd_addr: Any, rd_data: Any,
    rd_data_valid: Any, quiet: Any, params: LaneParams,
) -> Any:  # fmt: skip
    """Describe block after block and deliver what they hold, never reading beyond `words`.

    open_frame (strobe, while `quiet`): a frame of `count` values, `width` u5 and `words` 16-bit words,
    which hold still. proceed (strobe, when all of the block before is used): describe the next block; it
    follows when `described` rises, and holds until the next proceed: coded, or fixed (a constant, or nothing
    but zeros after a fault), or raw; size u13, final (the frame's last); code_words u11. ended comes instead
    of a block after the last one. fault u4: 0 or the first fault found here; fail (level): one found
    elsewhere. After either nothing more is read and the remaining blocks are described as fixed, of value 0.

    push_*: the decoder's words, start states first; words_end: there are no more in this block. raw_*: the
    raw stream, the values of a raw block or the constant; raw_end: there are no more in this block.
    rd_*: docs/hardware.md, asc_decoder. quiet: nothing is on its way.
    """
    top, whole = params.block_log2, params.block
    state, failed = word(3), bit()
    left, three_n = word(COUNT_BITS), word(top + 3)
    header, asked_head = word(2), word(2)
    # The header, as far as it came.
    kind, announced, upper_words, sign, sign_wrong = word(2), word(14), bit(), bit(), bit()
    raw_left, raw_one, raw_more = word(19), bit(), bit()
    coded_right, fixed_right, is_raw = bit(), bit(), bit()
    pushes, stride, too_many = word(12), word(12), bit()
    # Two pointers: headers and raw stream at `place`, start states and words at `word_place`. One adder moves
    # whichever has its turn.
    place, word_place, turn_place, moved_place = word(20), word(20), word(20), word(20)
    word_left, word_some, word_turn, raw_some, open_end = word(12), bit(), bit(), bit(), bit()
    split, step = bit(), word(12)
    pick_word, pick_raw, candidate, is_word, some_candidate = bit(), bit(), word(20), bit(), bit()
    rd_some, beyond, over, stall, rd_is_word = (bit() for _ in range(5))
    settled = bit()  # after a fault, or the end: nothing is on its way, nothing will be asked for
    tags = [word(1) for _ in range(DEPTH)]
    asked, answered, outstanding, outstanding_step = word(4), word(4), word(4), word(4)
    may_ask, tag, accepted = bit(), word(1), bit()
    # Answers wait in two queues; their levels count what was asked for.
    raw_queue = [word(16) for _ in range(DEPTH)]
    raw_put, raw_get, raw_level, raw_step = word(4), word(4), word(5), word(5)
    raw_head, raw_space, raw_ready, raw_take, in_raw = word(16), bit(), bit(), bit(), bit()
    raw_waits, raw_used, raw_taken, raw_picked, head_take = (bit() for _ in range(5))
    word_queue = [word(16) for _ in range(DEPTH)]
    word_put, word_get, word_level, word_step = word(4), word(4), word(5), word(5)
    word_head, word_take, word_taken, word_picked = word(16), bit(), bit(), bit()
    # 16 bits into 12: `kept` is what the word before left.
    phase, kept, to_push, push_some, half = word(2), word(12), word(12), bit(), word(5)
    unpack, bad_start = bit(), bit()

    @always_comb
    def queues():
        raw_head.next = raw_queue[int(raw_get)]
        word_head.next = word_queue[int(word_get)]
        tag.next = tags[int(answered)]

    @always_comb
    def flags():
        rd_valid.next = rd_some and not beyond
        stall.next = rd_some and not beyond and not rd_ready
        raw_ready.next = raw_put != raw_get
        accepted.next = rd_some and not beyond and rd_ready

    @always_comb
    def choose():
        # Words first: a decoder that waits loses more than value_rebuild, which has a queue before it.
        free = may_ask and not stall
        pick_word.next = free and word_turn and word_some
        pick_raw.next = free and raw_some and raw_space and not word_turn
        # A word of the raw queue waits in `raw_data` for its use.
        raw_valid.next = in_raw and raw_waits
        head_take.next = raw_waits and state == HEAD
        raw_used.next = (in_raw and raw_pop) or state == HEAD
        raw_take.next = raw_ready and ((in_raw and raw_pop) or state == HEAD or not raw_waits)
        # After a fault the decoder gets what it waits for, whatever it is.
        unpack.next = (
            (push_ready or not push_valid) and push_some and (phase == 3 or word_put != word_get or settled)
        )
        words_end.next = not push_some and not push_valid

    @always_comb
    def steps():
        word_take.next = unpack and phase != 3 and word_put != word_get
        turn_place.next = place
        if word_turn:
            turn_place.next = word_place
        step.next = state != JUDGE
        if split:
            step.next = stride

    @always_comb
    def add():
        moved_place.next = turn_place + step

    @always_comb
    def counts():
        raw_step.next = 1
        if raw_taken:
            raw_step.next = 31  # less one
        word_step.next = 1
        if word_taken:
            word_step.next = 31
        outstanding_step.next = 1
        if rd_data_valid:
            outstanding_step.next = 15

    @always(clk.posedge)
    def control():
        failed.next = fault != 0 or fail
        # Requests: chosen, compared with the end of the payload, sent.
        split.next = False
        if pick_word or state == JUDGE:  # here word_place becomes `place`
            word_place.next = moved_place
        if pick_word:
            word_left.next = word_left - 1
            if word_left == 1:
                word_some.next = False
        if pick_raw or split:
            place.next = moved_place
        if state == WAIT and kind == RAW:
            raw_left.next = 0
            raw_left.next[top + 1 : top - 4] = width
        if raw_picked and in_raw and not open_end:
            raw_left.next = raw_left - 1
        if pick_raw and not in_raw:
            asked_head.next = asked_head + 1
        if pick_raw and raw_one:
            raw_some.next = False
        if not stall:
            some_candidate.next = pick_word or pick_raw
            candidate.next = turn_place
            is_word.next = pick_word
            rd_some.next = some_candidate
            beyond.next = candidate >= words
            rd_addr.next = candidate[19:]
            rd_is_word.next = is_word
        if rd_some and beyond:
            over.next = True
            if fault == 0 and not open_end:
                fault.next = TRUNCATED
        if bad_start and fault == 0:
            fault.next = BAD_START

        # Header words pass; what they hold is ready one or two clocks later.
        if head_take:
            header.next = header + 1
            if header == 0:
                kind.next = raw_data[2:]
                announced.next = raw_data[16:2]
            elif header == 1:
                upper_words.next = raw_data[8:] != 0
                raw_left.next[8:] = raw_data[16:8]
                sign.next = raw_data[15]
            else:
                raw_left.next[19:8] = raw_data[11:]
                raw_more.next = raw_data[16:11] != 0
                sign_wrong.next = raw_data != 0
                if sign:
                    sign_wrong.next = raw_data != 0xFFFF
                state.next = WAIT
        pushes.next = announced[11:] + 24
        stride.next = pushes - pushes[12:2]
        three_n.next = concat(size, modbv(0)[1:]) + size
        too_many.next = announced > three_n[top + 3 : 3] or upper_words
        # In time for JUDGE.
        coded_right.next = kind == CODED and not too_many and not raw_more
        fixed_right.next = kind == CONSTANT and not sign_wrong
        is_raw.next = kind == RAW
        # In time for the first pick, which is two clocks behind WAIT; `raw_left` is a clock late.
        if state == HEAD:
            raw_one.next = (asked_head == 1 and pick_raw) or (asked_head == 2 and not pick_raw)
        else:
            raw_one.next = (
                raw_left[19:2] == 0
                and not open_end
                and (
                    (raw_left[2:] == 1 and not raw_picked and not pick_raw)
                    or (raw_left[2:] == 2 and raw_picked != pick_raw)
                    or (raw_left[2:] == 3 and raw_picked and pick_raw)
                )
            )

        if proceed:
            described.next = False
            coded.next = False
            fixed.next = True
            in_raw.next = False
            open_end.next = False
            raw_some.next = left != 0 and not failed  # the header
            raw_one.next = False
            header.next = 0
            asked_head.next = 0
            size.next = left[top:]
            final.next = True
            left.next = 0
            if left[:top] != 0:
                size.next = whole
                left.next[COUNT_BITS:top] = left[COUNT_BITS:top] - 1
                left.next[top:] = left[top:]
                final.next = left[COUNT_BITS:top] == 1 and left[top:] == 0
            state.next = HEAD
            if left == 0:
                state.next = TAIL
            elif failed:
                state.next = VOID
        elif failed and state != IDLE and state <= JUDGE:
            state.next = VOID
        elif state == VOID:
            if settled:
                described.next = True
                in_raw.next = True
                state.next = IDLE
        elif state == WAIT:
            state.next = JUDGE
        elif state == JUDGE:
            state.next = IDLE
            if coded_right:
                split.next = True
                state.next = SPLIT
            elif fixed_right:
                described.next = True
                in_raw.next = True
            elif is_raw:
                # The last block's length need not be known: all that is left is its.
                open_end.next = final
                raw_some.next = True
                fixed.next = False
                described.next = True
                in_raw.next = True
            else:
                state.next = JUDGE
                fault.next = BAD_TYPE
                if kind == CODED:
                    fault.next = TRUNCATED
                    if too_many:
                        fault.next = TOO_MANY_WORDS
                elif kind == CONSTANT:
                    fault.next = TOO_WIDE
        elif state == SPLIT:
            # `place` jumps in this clock.
            word_left.next = stride
            word_some.next = True
            raw_some.next = raw_left != 0
            coded.next = True
            fixed.next = False
            described.next = True
            in_raw.next = True
            state.next = IDLE
        elif state == TAIL:
            # Three clocks: the candidate is `place`, and compared.
            header.next = header + 1
            if header == 2:
                state.next = IDLE
                ended.next = True
                if not beyond and not failed:
                    fault.next = TRAILING

        if open_frame:
            left.next = count
            place.next = 0
            word_some.next = False
            over.next = False
            fault.next = 0
            failed.next = False
            ended.next = False
            in_raw.next = False
        if rst:
            state.next = IDLE
            described.next = False
            ended.next = False
            in_raw.next = False
            rd_some.next = False
            some_candidate.next = False
            raw_some.next = False
            word_some.next = False
            open_end.next = False
            fault.next = 0

    @always(clk.posedge)
    def answers():
        # Up to 4 more are on their way when this is known: OUTSTANDING in all.
        may_ask.next = not (outstanding[3] or over or failed)
        raw_space.next = not (raw_level[4] or (raw_level[3] and raw_level[2]))
        word_turn.next = word_some and not (word_level[4] or (word_level[3] and word_level[2]))
        if accepted != rd_data_valid:
            outstanding.next = outstanding + outstanding_step
        raw_taken.next = raw_take
        word_taken.next = word_take
        raw_picked.next = pick_raw
        word_picked.next = pick_word
        # Both a clock late: at most 14 are asked for.
        if raw_picked != raw_taken:
            raw_level.next = raw_level + raw_step
        if word_picked != word_taken:
            word_level.next = word_level + word_step
        if accepted:
            tags[int(asked)].next = rd_is_word
            asked.next = asked + 1
        if rd_data_valid:
            answered.next = answered + 1
            if tag == 1:
                word_queue[int(word_put)].next = rd_data
                word_put.next = word_put + 1
            else:
                raw_queue[int(raw_put)].next = rd_data
                raw_put.next = raw_put + 1
        if raw_take:
            raw_get.next = raw_get + 1
            raw_data.next = raw_head
            raw_waits.next = True
        elif raw_used:
            raw_waits.next = False
        raw_end.next = (
            in_raw
            and not raw_waits
            and not raw_ready
            and ((not raw_some and not raw_picked and raw_level == 0) or settled)
        )
        idle = outstanding == 0 and not rd_some and not some_candidate
        quiet.next = idle
        settled.next = idle and (over or failed) and not may_ask
        if word_take:
            word_get.next = word_get + 1
        if proceed or (state == VOID and settled):
            raw_waits.next = False
            raw_taken.next = False
            word_taken.next = False
            raw_picked.next = False
            word_picked.next = False
            raw_end.next = False
            raw_put.next = 0
            raw_get.next = 0
            raw_level.next = 0
            word_put.next = 0
            word_get.next = 0
            word_level.next = 0
        elif state == JUDGE and kind == CONSTANT:
            # The middle word of the header again: it is the value.
            raw_put.next = 2
            raw_get.next = 1
            raw_level.next = 1
        if open_frame or rst:
            settled.next = False
        if rst:
            raw_end.next = False
            quiet.next = False
            outstanding.next = 0
            asked.next = 0
            answered.next = 0

    @always(clk.posedge)
    def unpacking():
        if push_ready:
            push_valid.next = False
        if unpack:
            push_valid.next = True
            to_push.next = to_push - 1
            if to_push == 1:
                push_some.next = False
            phase.next = phase + 1
            if phase == 0:
                push_word.next = word_head[12:]
            elif phase == 1:
                push_word.next = concat(word_head[8:], kept[12:8])
            elif phase == 2:
                push_word.next = concat(word_head[4:], kept[12:4])
            else:
                push_word.next = kept
            kept.next = word_head[16:4]
        # Start states come first: lower and upper half, lane by lane. Only the lowest that is allowed stands
        # on a lane without values.
        bad_start.next = False
        if push_valid and push_ready and half != 2 * LANES:
            half.next = half + 1
            if size[:4] == 0 and half[5:1] >= size[4:]:
                bad_start.next = push_word[12:1] != 0 or push_word[0] != half[0]
            else:
                bad_start.next = half[0] and push_word == 0
        if state == SPLIT:
            to_push.next = pushes
            push_some.next = True
            code_words.next = announced[11:]
            phase.next = 0
            half.next = 0
        if open_frame or rst:
            push_some.next = False
            push_valid.next = False

    return queues, flags, choose, steps, add, counts, control, answers, unpacking
