"""A FIFO for the raw stream whose newest block can still be taken back."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.frame_store import frame_store
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word

# Words that may still come after `full`, and one more. A block that leaves no more than this free is raw:
# with 18 words of states it is as long as its values (docs/format2.md, "Payload").
MARGIN = 18
CHUNK_LOG2 = 5  # more than the margin


@block
def raw_ring(
    clk: Any, rst: Any, wr_valid: Any, wr_last: Any, wr_data: Any, commit: Any, rewind: Any, flush: Any,
    own: Any, full: Any, overflow: Any, m_axis: Any, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Hold raw words u16 of up to three blocks; 3 or 4 times 2^(block_log2 - 2) words.

    wr_valid, wr_last, wr_data u16: a word of the block being written. commit: the block is complete, m_axis
    may give its words; rewind: forget its words; flush: forget everything, what m_axis shows too (all three
    are strobes, not in a clock with wr_valid or in the next).
    own: words of the block being written, two clocks after the last. full: send at most 17 words more.
    overflow: the block does not fit the ring (so it is a raw block); its words are dropped from here on,
    until rewind or flush, and it must not be committed. m_axis: Stream u16, a word a clock, tlast from
    wr_last.
    """
    banks = 3 if params.width_max <= 12 else 4
    depth_log2 = params.block_log2 - 2
    bits = depth_log2 + 2  # a pointer: bank, address
    end = banks << depth_log2
    limit = end - MARGIN
    chunks = end >> CHUNK_LOG2
    chunk_end = (1 << CHUNK_LOG2) - 1
    chunk_bits = bits - CHUNK_LOG2

    head, mark, tail = (word(bits) for _ in range(3))  # next write, end of what m_axis may give, next read
    ahead, older = word(bits, 1), bit()  # tail + 1; tail is not at mark
    head_reg, data_reg = word(bits), word(17)  # the highest bit is tlast
    write_low, write_high, read_low, read_high = bit(), bit(), word(17), word(17)
    count = word(bits + 1)  # words of the block being written
    chunk, chunk1, chunk2 = word(chunk_bits), word(chunk_bits, chunks - 1), word(chunk_bits, chunks - 2)
    gave, tail_low = bit(), word(CHUNK_LOG2)  # of the clock before: chunk* belong to that
    near, same, below = bit(), bit(), bit()  # head is up to two chunks below tail; in its chunk; lower in it
    move, from_high, read_valid = bit(), bit(), bit()

    # Two memories, the upper one as large as the lower or half of that: so three banks need no fourth.
    high_bits = depth_log2 + (banks == 4)
    wr_addr, rd_addr = head_reg(depth_log2 + 1, 0), tail(depth_log2 + 1, 0)
    wr_addr_high, rd_addr_high = head_reg(high_bits, 0), tail(high_bits, 0)
    low = frame_store(clk, write_low, wr_addr, data_reg, move, rd_addr, read_low)
    high = frame_store(clk, write_high, wr_addr_high, data_reg, move, rd_addr_high, read_high)

    @always_comb
    def outputs():
        move.next = m_axis.tready or not m_axis.tvalid
        own.next = count

    # `older` is a clock late to see a commit, no more.
    # At least one place is always free, so equal pointers mean empty: the words of one block are counted, and
    # with older ones about, writing ends two chunks below the one that is being read.
    @always(clk.posedge)
    def control():
        give = older and move
        take = wr_valid and not overflow
        write_low.next = take and not head[bits - 1]
        write_high.next = take and head[bits - 1]
        head_reg.next = head
        data_reg.next = concat(wr_last, wr_data)
        head_chunk = modbv(0)[chunk_bits:]
        head_chunk[:] = head[bits:CHUNK_LOG2]
        near.next = bool(head_chunk == chunk1) or bool(head_chunk == chunk2)
        same.next = head_chunk == chunk
        below.next = head[CHUNK_LOG2:] < tail_low
        full.next = older and (near or (same and below))
        overflow.next = overflow or count == limit
        older.next = tail != mark
        if give:
            older.next = ahead != mark
        if move:
            read_valid.next = give
            m_axis.tvalid.next = read_valid
        if take:
            head.next = head + 1
            if head == end - 1:
                head.next = 0
            count.next = count + 1
        if give:
            tail.next = ahead
            ahead.next = ahead + 1
            if ahead == end - 1:
                ahead.next = 0
        gave.next = give
        tail_low.next = tail[CHUNK_LOG2:]
        if gave and tail_low == chunk_end:
            chunk.next = chunk + 1
            if chunk == chunks - 1:
                chunk.next = 0
            chunk1.next = chunk
            chunk2.next = chunk1
        if commit:
            mark.next = head
        if rewind:
            head.next = mark
        if commit or rewind or flush or rst:
            count.next = 0
        if rewind or flush or rst:
            overflow.next = False
        if flush or rst:
            head.next = 0
            mark.next = 0
            tail.next = 0
            ahead.next = 1
            older.next = False
            gave.next = False
            tail_low.next = 0
            chunk.next = 0
            chunk1.next = chunks - 1
            chunk2.next = chunks - 2
            read_valid.next = False
            m_axis.tvalid.next = False

    @always(clk.posedge)
    def output():
        if move:
            from_high.next = tail[bits - 1]
            m_axis.tdata.next = read_low[16:]
            m_axis.tlast.next = read_low[16]
            if from_high:
                m_axis.tdata.next = read_high[16:]
                m_axis.tlast.next = read_high[16]

    return low, high, outputs, control, output
