"""Frame in, payload out: nothing of a frame that is damaged or not the expected one (docs/protocol.md)."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar.coding.frame import HEADER_BYTES, MAGIC
from oscar_hdl.crc32 import ONES, crc32
from oscar_hdl.format2.link import ASC_CODE
from oscar_hdl.frame_store import frame_store
from oscar_hdl.streams.bundles import bit, word

HEADER_WORDS = HEADER_BYTES // 2
COVERED = HEADER_WORDS - 2  # words of the header that the CRC covers
COMPARED = 7  # words 1..7 of the header say which frame it is

# Why a frame was dropped.
LENGTH, VERSION, CODEC, DAMAGED, TOO_LONG, STEP, CHUNK, SUB_WIDTH, SEQUENCE, CHECKSUM, COUNT = range(1, 12)
REASONS = {
    LENGTH: "length",
    VERSION: "magic or version",
    CODEC: "codec",
    DAMAGED: "CRC",
    TOO_LONG: "too long for the store",
    STEP: "step",
    CHUNK: "chunk",
    SUB_WIDTH: "sub-frame or width",
    SEQUENCE: "sequence",
    CHECKSUM: "checksum",
    COUNT: "count",
}


@block
def deframer(
    clk: Any, rst: Any, s_axis: Any, wanted: Any, exp_step: Any, exp_chunk: Any, exp_sub: Any, exp_width: Any,
    exp_sequence: Any, exp_checksum: Any, exp_count: Any, matched: Any, words: Any, rd_valid: Any,
    rd_ready: Any, rd_addr: Any, rd_data: Any, rd_data_valid: Any, free: Any, bad: Any, reason: Any,
    word_taken: Any, *, depth_log2: int = 12, lanes: int = 1, lane: int = 0,
) -> Any:  # fmt: skip
    """Receive frames, check them whole, and let one at a time be read.

    s_axis: Stream(16, keep=2), frames with their headers. wanted (level): a frame is expected, with
    exp_step u16, exp_chunk u16, exp_sub u8, exp_width u8, exp_sequence u16, exp_checksum u16 and exp_count
    u19, which hold still until `matched`. matched (pulse): the frame is open and has `words` u19 of payload.
    rd_valid, rd_ready, rd_addr u19: ask for a word of the payload; rd_data, rd_data_valid: the answer, 3
    clocks later, one a clock. free (pulse): forget the open frame. bad (pulse), reason u4 (until the next):
    a frame was dropped. word_taken: strobe.

    depth_log2: the store has 2^depth_log2 words; the next frame is received while one is read. lanes (a
    power of two), lane: frames whose sub-frame mod lanes is not `lane` are passed over.
    """
    if not 6 <= depth_log2 <= 19:
        raise ValueError(f"depth_log2 is 6 to 19, got {depth_log2}")
    if lanes not in (1, 2, 4, 8, 16) or not 0 <= lane < lanes:
        raise ValueError(f"lanes is a power of two up to 16 and lane below it, got {lanes} and {lane}")
    DEPTH = 1 << depth_log2
    MASK = DEPTH - 1
    MOST = DEPTH - HEADER_WORDS - 1  # payload words of a frame that fits; a ring is never quite full
    MAGIC_WORD, CODEC_WORD, LANES_MASK = MAGIC, ASC_CODE, lanes - 1

    states = enum("START", "RECEIVE", "SETTLE", "COMPARE", "JUDGE", "SETTLED")
    state = Signal(states.START)
    base, wr_at = word(depth_log2), word(depth_log2)
    index, taken = word(4), word(19)  # words of the header, of the payload so far
    length_low, length_high, sum_low, sum_high = word(16), word(16), word(16), word(16)
    odd, foreign, unknown, other, too_long, covered = bit(), bit(), bit(), bit(), bit(), bit()
    length_ok, sum_ok, fault = bit(), bit(), word(4)
    wr_en, wr_addr, wr_data = bit(), word(depth_log2), word(16)
    crc, crc_next = word(32), word(32)
    take, fits = bit(), bit()
    # The frame that is complete and intact: held; then looked at; then open.
    held, checking, opened, differs = bit(), bit(), bit(), bit()
    held_base, payload_base = word(depth_log2), word(depth_log2)
    look, seen, expected, why = word(4), word(4), word(16), word(4)
    ask, ask_addr, asked, answered, looked, decided = bit(), word(depth_log2), bit(), bit(), bit(), bit()
    rd_word = word(16)

    store = frame_store(clk, wr_en, wr_addr, wr_data, asked, ask_addr, rd_word)
    crc_step = crc32(crc, wr_data, crc_next)

    @always_comb
    def space():
        fits.next = not held or wr_at != held_base

    @always_comb
    def handshake():
        s_axis.tready.next = state == states.RECEIVE and (fits or other)
        take.next = s_axis.tvalid and state == states.RECEIVE and (fits or other)
        word_taken.next = s_axis.tvalid and state == states.RECEIVE and (fits or other)
        rd_ready.next = opened
        decided.next = checking and seen > COMPARED and not looked
        ask.next = (rd_valid and opened) or (checking and look <= COMPARED)

    @always(clk.posedge)
    def choose():
        expected.next = exp_step
        if seen == 2:
            expected.next = exp_chunk
        elif seen == 3:
            expected.next = concat(exp_width, exp_sub)
        elif seen == 4:
            expected.next = exp_sequence
        elif seen == 5:
            expected.next = exp_checksum
        elif seen == 6:
            expected.next = exp_count[16:]
        elif seen == 7:
            expected.next = exp_count[19:16]

    @always(clk.posedge)
    def run():
        bad.next = False
        matched.next = False
        wr_en.next = False
        wr_addr.next = wr_at
        wr_data.next = s_axis.tdata
        covered.next = take and (index < COVERED or index == HEADER_WORDS)
        if covered:
            crc.next = crc_next
        length_ok.next = length_low == concat(taken[15:], False) and length_high == taken[19:15]
        sum_ok.next = concat(sum_high, sum_low) == (crc ^ ONES)

        if state == states.START:
            index.next = 0
            taken.next = 0
            odd.next = False
            other.next = False
            too_long.next = False
            wr_at.next = base
            crc.next = ONES
            state.next = states.RECEIVE

        elif state == states.RECEIVE:
            if take:
                if index != HEADER_WORDS:
                    index.next = index + 1
                elif taken != MOST:
                    taken.next = taken + 1
                if index == HEADER_WORDS and taken == MOST:
                    too_long.next = True
                elif not (too_long or other):
                    wr_en.next = True
                    wr_at.next = (wr_at + 1) & MASK
                if s_axis.tkeep != 3:
                    odd.next = True
                if index == 0:
                    foreign.next = s_axis.tdata[8:] != MAGIC_WORD
                    unknown.next = s_axis.tdata[16:8] != CODEC_WORD
                elif index == 3:
                    other.next = (s_axis.tdata[8:] & LANES_MASK) != lane
                elif index == 8:
                    length_low.next = s_axis.tdata
                elif index == 9:
                    length_high.next = s_axis.tdata
                elif index == 10:
                    sum_low.next = s_axis.tdata
                elif index == 11:
                    sum_high.next = s_axis.tdata
                if s_axis.tlast:
                    state.next = states.SETTLE

        elif state == states.SETTLE:  # the last word reaches counters and CRC
            state.next = states.COMPARE

        elif state == states.COMPARE:  # and these length_ok and sum_ok
            state.next = states.JUDGE

        elif state == states.JUDGE:
            fault.next = 0
            if too_long:
                fault.next = TOO_LONG
            elif odd or index != HEADER_WORDS or not length_ok:
                fault.next = LENGTH
            elif foreign:
                fault.next = VERSION
            elif not sum_ok:
                fault.next = DAMAGED
            elif unknown:
                fault.next = CODEC
            state.next = states.SETTLED

        elif other:
            state.next = states.START

        elif fault != 0:
            if not decided:  # one report at a time
                bad.next = True
                reason.next = fault
                state.next = states.START

        elif not held:
            held.next = True
            held_base.next = base
            payload_base.next = (base + HEADER_WORDS) & MASK
            words.next = taken
            base.next = wr_at
            state.next = states.START

        # The frame in `held`: compare its header when somebody wants it, then let it be read.
        asked.next = ask
        answered.next = asked
        looked.next = answered and checking
        rd_data_valid.next = answered and opened
        rd_data.next = rd_word
        ask_addr.next = (held_base + look) & MASK
        if opened:
            ask_addr.next = (payload_base + rd_addr[depth_log2:]) & MASK
        if not checking:
            checking.next = held and wanted and not opened
            look.next = 1
            seen.next = 1
            differs.next = False
        else:
            if look <= COMPARED:
                look.next = look + 1
            if answered:  # in the next clock `expected` is of this word, `seen` one further
                seen.next = seen + 1
            if looked and rd_data != expected and not differs:
                differs.next = True
                why.next = seen + (STEP - 2)
                if seen >= COMPARED:
                    why.next = COUNT
            if decided:
                checking.next = False
                if wanted and differs:
                    bad.next = True
                    reason.next = why
                    held.next = False
                elif wanted:
                    matched.next = True
                    opened.next = True
        if free:
            opened.next = False
            held.next = False

        if rst:
            state.next = states.START
            base.next = 0
            bad.next = False
            matched.next = False
            wr_en.next = False
            covered.next = False
            held.next = False
            checking.next = False
            opened.next = False
            asked.next = False
            answered.next = False
            looked.next = False
            rd_data_valid.next = False

    return store, crc_step, space, handshake, choose, run
