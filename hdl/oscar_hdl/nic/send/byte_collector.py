"""Shifts the bytes of a block to where they belong in the frame, and gives words of the store."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.unit.ports import WORD_BYTES
from oscar_hdl.nic.send.ports import CollectJob
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.joined import joined


class Chunk:
    """Bytes on their way through a collector: as many as it takes a clock."""

    def __init__(self, size: int) -> None:
        self.valid, self.last = bit(), bit()  # last: of the block
        self.data, self.keep = word(8 * size), word(size)


@block
def take_chunks(clk, rst, move, s_axis: Stream, chunk: Chunk):
    """Take a word of sixteen bytes at once, or in halves where a chunk has eight."""
    SIZE = len(chunk.keep)
    if SIZE == WORD_BYTES:

        @always_comb
        def take():
            chunk.valid.next = s_axis.tvalid
            chunk.last.next = s_axis.tlast
            chunk.data.next = s_axis.tdata
            chunk.keep.next = s_axis.tkeep
            s_axis.tready.next = move

        return take

    BITS, ALL_BITS = 8 * SIZE, 16 * SIZE
    upper, whole = bit(), bit()

    @always_comb
    def look():
        whole.next = upper or not s_axis.tkeep[SIZE]
        chunk.valid.next = s_axis.tvalid
        chunk.data.next = s_axis.tdata[BITS:]
        chunk.keep.next = s_axis.tkeep[SIZE:]
        if upper:
            chunk.data.next = s_axis.tdata[ALL_BITS:BITS]
            chunk.keep.next = s_axis.tkeep[WORD_BYTES:SIZE]

    @always_comb
    def answer():
        chunk.last.next = s_axis.tlast and whole
        s_axis.tready.next = move and whole

    @always(clk.posedge)
    def follow():
        if move and s_axis.tvalid:
            upper.next = not whole
        if rst:
            upper.next = False

    return look, answer, follow


@block
def turn_word(clk, move, whole, by, turned, *, lane: int):
    """Turn lanes of so many bits upwards, those at the end to the begin, two clocks of `move` later."""
    BITS = len(whole)
    L1, L2, L3, L4, L8, L12 = (BITS - lane * n for n in (1, 2, 3, 4, 8, 12))
    near = word(BITS)

    if len(by) == 3:

        @always(clk.posedge)
        def by_fours():
            if move:
                near.next = whole
                if by[2]:
                    near.next = concat(whole[L4:], whole[BITS:L4])

    else:

        @always(clk.posedge)
        def by_fours():
            if move:
                if by[3]:
                    if by[2]:
                        near.next = concat(whole[L12:], whole[BITS:L12])
                    else:
                        near.next = concat(whole[L8:], whole[BITS:L8])
                elif by[2]:
                    near.next = concat(whole[L4:], whole[BITS:L4])
                else:
                    near.next = whole

    @always(clk.posedge)
    def by_ones():
        if move:
            if by[1]:
                if by[0]:
                    turned.next = concat(near[L3:], near[BITS:L3])
                else:
                    turned.next = concat(near[L2:], near[BITS:L2])
            elif by[0]:
                turned.next = concat(near[L1:], near[BITS:L1])
            else:
                turned.next = near

    return by_fours, by_ones


@block
def turn_bytes(clk, rst, move, chunk: Chunk, by, turned: Chunk):
    """Turn a chunk's bytes upwards by so many places, two clocks of `move` later."""
    near_valid, near_last = bit(), bit()
    words = [
        turn_word(clk, move, chunk.data, by, turned.data, lane=8),
        turn_word(clk, move, chunk.keep, by, turned.keep, lane=1),
    ]

    @always(clk.posedge)
    def follow():
        if move:
            near_valid.next = chunk.valid
            near_last.next = chunk.last
            turned.valid.next = near_valid
            turned.last.next = near_last
        if rst:
            near_valid.next = False
            turned.valid.next = False

    return words, follow


@block
def merge_bytes(clk, rst, move, start, by, turned: Chunk, merged: Chunk):
    """Give chunks as they lie in the frame: the begin of each is the end of the one before; combinational.

    A block's bytes may end in one chunk more than it has.
    """
    SIZE, BITS = len(turned.keep), len(turned.data)
    below, rest, wide_before, wide_now = word(SIZE), word(SIZE), word(BITS), word(BITS)
    before, now, kept, carry = word(SIZE), word(SIZE), word(SIZE), word(BITS)
    flush = bit()

    @always_comb
    def look():
        before.next = kept & below
        now.next = 0
        if turned.valid:
            now.next = turned.keep & ~below
        rest.next = turned.keep & below

    @always_comb
    def widen():
        for i in range(BITS):
            wide_before.next[i] = before[i // 8]
            wide_now.next[i] = now[i // 8]

    @always_comb
    def give():
        merged.data.next = (carry & wide_before) | (turned.data & wide_now)
        merged.keep.next = before | now
        merged.valid.next = turned.valid or flush
        merged.last.next = flush or (turned.last and rest == 0)

    @always(clk.posedge)
    def follow():
        for i in range(SIZE):
            below.next[i] = i < by
        if move:
            flush.next = turned.valid and turned.last and rest != 0
            if turned.valid:
                carry.next = turned.data
                kept.next = turned.keep
        if start:
            kept.next = 0
        if rst:
            flush.next = False

    return look, widen, give, follow


@block
def chunk_slots(clk, start, first_slot, move, merged: Chunk, held: Sequence, enables: Sequence, full):
    """Put chunks side by side into a word of the store; `move` empties one that is full.

    full (combinational): the chunk that comes now is the last of its word.
    """
    SLOTS = len(held)
    if SLOTS == 1:
        data, enable = held[0], enables[0]

        @always_comb
        def always_full():
            full.next = merged.valid

        @always(clk.posedge)
        def take():
            if move:
                data.next = merged.data
                enable.next = 0
                if merged.valid:
                    enable.next = merged.keep

        return always_full, take

    LAST = SLOTS - 1
    slot, clean = word(len(first_slot)), bit()

    @always_comb
    def look():
        full.next = merged.valid and (merged.last or slot == LAST)

    # `clean`: the word that was held was given, or none was begun.
    @always(clk.posedge)
    def hold():
        if move:
            clean.next = merged.valid and (merged.last or slot == LAST)
            if merged.valid:
                slot.next = slot + 1
            for j in range(SLOTS):
                if merged.valid and slot == j:
                    held[j].next = merged.data
                    enables[j].next = merged.keep
                elif clean:
                    held[j].next = 0
                    enables[j].next = 0
        if start:
            slot.next = first_slot
            clean.next = True

    return look, hold


@block
def byte_collector(
    clk, rst, job: CollectJob, s_axis: Stream, mine, limit, nothing_left, given, give, first, offset
):
    """Collect one block: give words of the store, each when it is the collector's turn and has room.

    s_axis: Stream(128, keep=16) of the job alone. mine: level, it may give a word. limit: words from four
    times so many of the frame on are not free, unless nothing_left. give: strobe, combinational: `given` is
    data, and above them a bit for each byte that is the block's; the others are 0. first: the block's first
    word; offset: its word of the frame. At the last word but three it stays: the frame is too long.
    """
    SIZE, BITS = len(given) // 9, len(offset)
    CHUNK = min(SIZE, WORD_BYTES)
    SLOTS, BY_BITS = SIZE // CHUNK, CHUNK.bit_length() - 1
    BYTES_LOG2 = SIZE.bit_length() - 1
    FULL, END = (1 << (BITS - 2)) - 1, BYTES_LOG2 + BITS
    move, accepted, ends, over_1, over_2, complete = (bit() for _ in range(6))
    by, first_slot, room, full = word(BY_BITS), word(max(1, BYTES_LOG2 - BY_BITS)), bit(), bit()
    chunk, turned, merged = (Chunk(CHUNK) for _ in range(3))
    held, enables = [word(8 * CHUNK) for _ in range(SLOTS)], [word(CHUNK) for _ in range(SLOTS)]
    data, enable = word(8 * SIZE), word(SIZE)

    parts = [
        take_chunks(clk, rst, move, s_axis, chunk),
        turn_bytes(clk, rst, move, chunk, by, turned),
        merge_bytes(clk, rst, move, job.start, by, turned, merged),
        chunk_slots(clk, job.start, first_slot, move, merged, held, enables, full),
        joined(held, data),
        joined(enables, enable),
    ]

    @always_comb
    def look():
        give.next = complete and mine and room
        move.next = not complete or (mine and room)
        given.next = concat(enable, data)
        if job.discard:
            given.next = data
        accepted.next = chunk.valid and (not complete or (mine and room))

    # The place is that of the next words, which come many clocks behind start.
    @always(clk.posedge)
    def follow():
        if give:
            first.next = False
            if offset[BITS:2] != FULL:
                offset.next = offset + 1
        if job.start:
            first.next = True
            by.next = job.place[BY_BITS:]
            offset.next = job.place[END:BYTES_LOG2]
        room.next = nothing_left or concat(modbv(0)[1:], offset[BITS:2]) + 1 < limit

    if SLOTS > 1:

        @always_comb
        def place_slot():
            first_slot.next = job.place[BYTES_LOG2:BY_BITS]

        parts.append(place_slot)

    @always(clk.posedge)
    def run():
        if move:
            complete.next = full
            ends.next = merged.last
        over_1.next = give and ends
        over_2.next = over_1
        if accepted:
            job.busy.next = True
        elif over_2:
            job.busy.next = False
        if rst:
            complete.next = False
            over_1.next = False
            over_2.next = False
            job.busy.next = False

    return parts, look, follow, run
