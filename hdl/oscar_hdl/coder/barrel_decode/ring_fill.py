"""Filling threads' rings with bytes: whose turns have theirs, and which blocks are over."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.barrel.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.barrel_decode.ports import PLACE_BITS, RING_BITS, WORDS_BITS
from oscar_hdl.streams.bundles import bit, word

LEVEL_BITS = RING_BITS + 1


@block
def block_begin(clk: Any, rst: Any, phase: Any, job: Any, begin: Any) -> Any:
    """Tell where a block begins, Begin: one clock behind job's start, or two; job: BarrelDecoderJob."""
    waits = bit()

    @always_comb
    def write() -> None:
        begin.waits.next = waits
        begin.write.next = waits and phase[2:] != 2

    @always(clk.posedge)
    def take() -> None:
        if phase[2:] != 2:
            waits.next = False
        if job.start:
            waits.next = True
            begin.thread.next = job.thread
            begin.place.next = 0 - job.bytes
        if rst:
            waits.next = False

    return write, take


@block
def feed_words(
    clk: Any, rst: Any, feed: Any, begin: Any, open_to: Any, put: Any, looked: Any, words: Any
) -> Any:
    """Write words of sixteen bytes into rings, in two clocks each.

    feed: BarrelFeed. begin: Begin. open_to u8: threads whose words are taken. put: Put. words u16: of thread
    `looked` u3, a clock later: words that are to come, less than 0.
    """
    counts = [word(WORDS_BITS) for _ in range(THREADS)]
    full, half, goes, ends, thread, data = bit(), bit(), bit(), bit(), word(THREAD_BITS), word(128)
    now, following = word(WORDS_BITS), word(WORDS_BITS)

    @always_comb
    def look() -> None:
        now.next = counts[thread]
        goes.next = full and (half or open_to[thread])
        ends.next = half and not begin.write
        feed.ready.next = not full or (half and not begin.write)

    @always(clk.posedge)
    def take() -> None:
        if ends or not full:
            full.next = feed.valid
            thread.next = feed.thread
            data.next = feed.data
        half.next = goes and not ends
        if rst:
            full.next = False
            half.next = False

    @always(clk.posedge)
    def write() -> None:
        put.write.next = goes
        put.at.next = concat(thread, now[RING_BITS - 4 :], half)
        put.low.next = data[32:]
        put.high.next = data[64:32]
        if half:
            put.low.next = data[96:64]
            put.high.next = data[128:96]

    # The thread is the same in both clocks of a word.
    @always(clk.posedge)
    def count() -> None:
        following.next = now + 1
        if begin.write:
            counts[begin.thread].next = begin.place[PLACE_BITS:4]
        elif ends:
            counts[thread].next = following
        words.next = counts[looked]

    return look, take, write, count


@block
def ring_levels(
    clk: Any, rst: Any, phase: Any, job: Any, begin: Any, words1: Any, place1: Any, over: Any, fresh: Any,
    enough: Any, room: Any, settled: Any,
) -> Any:  # fmt: skip
    """Look at a thread a clock, which is the lower three bits of phase.

    job: BarrelDecoderJob. begin: Begin. words1 u16, place1 u20: of the thread a clock ago. over u8: threads
    whose turns are all done; fresh u8: whose block had none yet. enough u8: the bytes of a turn are there,
    whatever the one before it took; room u8: for more. settled: Settled, blocks that have ended.
    """
    thread1, thread2, known1, known2 = word(THREAD_BITS), word(THREAD_BITS), bit(), bit()
    level2, whole2, exact2, at = word(LEVEL_BITS), bit(), bit(), word(THREAD_BITS)

    @always_comb
    def point() -> None:
        at.next = phase[THREAD_BITS:]
        settled.thread.next = thread2
        settled.exact.next = exact2
        settled.strobe.next = known2 and whole2 and over[thread2]

    @always(clk.posedge)
    def measure() -> None:
        thread1.next = at
        known1.next = not (job.start and job.thread == at) and not (begin.waits and begin.thread == at)
        thread2.next = thread1
        known2.next = known1 and not (job.start and job.thread == thread1)
        level2.next = concat(words1[RING_BITS - 3 :], False, False, False, False) - place1[LEVEL_BITS:]
        whole2.next = words1 == 0
        exact2.next = place1 == 0
        if rst:
            known1.next = False
            known2.next = False

    # What a turn takes is known 41 clocks behind its begin, when the next but one is chosen. So 128 bytes are
    # enough, 64 for a block's first turn. Before a block's first word its level is below 0, by what its first
    # word lacks.
    @always(clk.posedge)
    def tell() -> None:
        for i in range(THREADS):
            if known2 and thread2 == i:
                enough.next[i] = whole2 or (
                    not level2[9] and (level2[8] or level2[7] or (level2[6] and fresh[i]))
                )
                room.next[i] = level2[9] or not (level2[8] and level2[7])
            if job.start and job.thread == i:
                enough.next[i] = False
                room.next[i] = True

    return point, measure, tell
