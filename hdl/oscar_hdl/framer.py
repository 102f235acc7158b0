"""Payload in, frame out: header and CRC-32 before a payload whose length is known last (docs/protocol.md)."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar.coding.frame import HEADER_BYTES, MAGIC
from oscar_hdl.crc32 import ONES, POLY, crc32
from oscar_hdl.format2.link import ASC_CODE
from oscar_hdl.frame_store import frame_store
from oscar_hdl.streams.bundles import bit, word

HEADER_WORDS = HEADER_BYTES // 2
COVERED = HEADER_WORDS - 2  # words of the header that the CRC covers
START = MAGIC | ASC_CODE << 8  # first word of every frame
POWER_ONE = 1 << 31  # the polynomial 1, reflected


@block
def framer(
    clk: Any, rst: Any, s_axis: Any, complete: Any, finish: Any, drop: Any, head_step: Any, head_chunk: Any,
    head_sub: Any, head_width: Any, head_sequence: Any, head_checksum: Any, head_count: Any, done: Any,
    overflow: Any, m_axis: Any, word_sent: Any, *, depth_log2: int = 12,
) -> Any:  # fmt: skip
    """Collect a payload, then send it behind its header.

    s_axis: Stream(16), the payload. complete: its tlast was taken. finish: its last word was taken;
    head_step u16, head_chunk u16, head_sub u8, head_width u8, head_sequence u16, head_checksum u16 and
    head_count u19 hold still until `done`, a pulse 47 clocks later, more while the frame before is still
    being sent. drop: forget what was collected; done one clock later. finish and drop are held until
    `done`. overflow: the payload did not fit, its rest was swallowed; finish then drops. m_axis:
    Stream(16, keep=2), whole frames, a word a clock. word_sent: strobe.

    depth_log2: the store has 2^depth_log2 words; the next payload is collected while a frame is sent.
    """
    if not 6 <= depth_log2 <= 22:
        raise ValueError(f"depth_log2 is 6 to 22, got {depth_log2}")
    DEPTH = 1 << depth_log2
    MASK = DEPTH - 1
    MOST = DEPTH - HEADER_WORDS - 1  # payload words of a frame that fits; a ring is never quite full

    states = enum("RESERVE", "COLLECT", "HEADER", "MULTIPLY", "SUM_LOW", "SUM_HIGH", "SEND")
    state = Signal(states.RESERVE)
    base, wr_at = word(depth_log2), word(depth_log2)
    words = word(max(16, depth_log2 + 1))
    index = word(5)
    wr_en, wr_addr, wr_data = bit(), word(depth_log2), word(16)
    rd_en, rd_at, rd_end = bit(), word(depth_log2), word(depth_log2)
    # crc: of the payload, started from 0, then of the header. power: x to the number of bits of the payload.
    crc, crc_next = word(32), word(32)
    power, power_next, zero = word(32), word(32), word(16)
    total = word(32)
    head = word(16)
    ready, take, fits, idle = bit(), bit(), bit(), bit()

    store = frame_store(clk, wr_en, wr_addr, wr_data, rd_en, rd_at, m_axis.tdata)
    crc_step = crc32(crc, wr_data, crc_next)
    power_step = crc32(power, zero, power_next)

    # The ring holds the frame that is being sent, up to rd_end = base, and the one that is collected. `ready`
    # is a clock old: there must be room for the word that is taken meanwhile.
    @always_comb
    def handshake():
        idle.next = rd_at == rd_end
        fits.next = rd_at == rd_end or wr_at != rd_at
        s_axis.tready.next = ready
        take.next = s_axis.tvalid and ready and words != MOST and not overflow
        rd_en.next = (m_axis.tready or not m_axis.tvalid) and rd_at != rd_end
        word_sent.next = m_axis.tready and m_axis.tvalid
        m_axis.tkeep.next = 3
        zero.next = 0

    @always_comb
    def choose():
        head.next = START
        if index == 1:
            head.next = head_step
        elif index == 2:
            head.next = head_chunk
        elif index == 3:
            head.next = concat(head_width, head_sub)
        elif index == 4:
            head.next = head_sequence
        elif index == 5:
            head.next = head_checksum
        elif index == 6:
            head.next = head_count[16:]
        elif index == 7:
            head.next = head_count[19:16]
        elif index == 8:
            head.next = concat(words[15:], False)
        elif index == 9:
            head.next = words >> 15

    @always(clk.posedge)
    def run():
        done.next = False
        wr_en.next = False
        wr_addr.next = (base + index) & MASK
        wr_data.next = head
        if wr_en:
            crc.next = crc_next
        ready.next = state == states.COLLECT and (
            overflow or idle or (wr_at != rd_at and ((wr_at + 1) & MASK) != rd_at)
        )

        if state == states.RESERVE:
            crc.next = 0
            power.next = POWER_ONE
            words.next = 0
            overflow.next = False
            complete.next = False
            if fits:  # room for the header, word by word
                wr_at.next = (wr_at + 1) & MASK
                index.next = index + 1
            if fits and index == HEADER_WORDS - 1:
                index.next = 0
                state.next = states.COLLECT

        elif state == states.COLLECT:
            wr_data.next = s_axis.tdata
            wr_addr.next = wr_at
            wr_en.next = take
            if wr_en:
                power.next = power_next
            if take:
                wr_at.next = (wr_at + 1) & MASK
                words.next = words + 1
            elif s_axis.tvalid and ready:
                overflow.next = True
            if s_axis.tvalid and ready and s_axis.tlast:
                complete.next = True
            if drop or (finish and overflow):
                done.next = True
                wr_at.next = base
                state.next = states.RESERVE
            elif finish:
                state.next = states.HEADER

        elif state == states.HEADER:
            wr_en.next = index != COVERED
            index.next = index + 1
            if index == 0:
                total.next = crc
                crc.next = ONES
            if index == COVERED:  # the clock in which the last word reaches the CRC
                index.next = 0
                state.next = states.MULTIPLY

        # total += crc * power: what the header's CRC becomes behind the payload
        elif state == states.MULTIPLY:
            if crc[31]:
                total.next = total ^ power
            crc.next = (crc << 1) & ONES
            power.next = power >> 1
            if power[0]:
                power.next = (power >> 1) ^ POLY
            index.next = (index + 1) & 31
            if index == 31:
                index.next = COVERED
                state.next = states.SUM_LOW

        elif state == states.SUM_LOW:
            wr_en.next = True
            wr_data.next = total[16:] ^ 0xFFFF
            index.next = COVERED + 1
            state.next = states.SUM_HIGH

        elif state == states.SUM_HIGH:
            wr_en.next = True
            wr_data.next = total[32:16] ^ 0xFFFF
            state.next = states.SEND

        elif idle:
            base.next = wr_at
            rd_end.next = wr_at
            done.next = True
            index.next = 0
            state.next = states.RESERVE

        if m_axis.tready or not m_axis.tvalid:
            m_axis.tvalid.next = rd_en
            m_axis.tlast.next = ((rd_at + 1) & MASK) == rd_end
        if rd_en:
            rd_at.next = (rd_at + 1) & MASK

        if rst:
            state.next = states.RESERVE
            base.next = 0
            wr_at.next = 0
            index.next = 0
            rd_at.next = 0
            rd_end.next = 0
            wr_en.next = False
            done.next = False
            ready.next = False
            overflow.next = False
            complete.next = False
            m_axis.tvalid.next = False

    return store, crc_step, power_step, handshake, choose, run
