"""Filling threads' rings with bytes: whose turns have theirs, and which blocks are over."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.ports import PLACE_BITS, RING_BITS, WORDS_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS, WORD_BYTES
from oscar_hdl.streams.bundles import bit, word

LEVEL_BITS = RING_BITS + 1


@block
def block_begin(clk, rst, phase, job, ends, begin):
    """Tell where a block begins, Begin: one clock behind job's start, or up to four.

    job: DecoderJob. ends: a word is counted, as at most every second clock.
    """
    lacks, offset = word(PLACE_BITS), word(4)

    @always_comb
    def write():
        begin.write.next = begin.waits and phase[2:] != 2 and not ends
        begin.place.next = lacks - offset

    @always(clk.posedge)
    def take():
        if begin.write:
            begin.waits.next = False
        if job.start:
            begin.waits.next = True
            begin.thread.next = job.thread
            lacks.next = 0 - job.bytes
            offset.next = job.offset
        if rst:
            begin.waits.next = False

    return write, take


@block
def feed_words(clk, rst, feed, begin, put, looked, words, ends):
    """Write words of sixteen bytes into rings, in two clocks each.

    feed: FeedPort. begin: Begin. put: Put. words u16: of thread `looked` u3, a clock later: words that are
    to come, less than 0. ends: the second clock of a word.
    """
    counts = [word(WORDS_BITS) for _ in range(THREADS)]
    first, thread, data = bit(), word(THREAD_BITS), word(8 * WORD_BYTES)
    now, following = word(WORDS_BITS), word(WORDS_BITS)

    @always_comb
    def look():
        now.next = counts[thread]

    @always(clk.posedge)
    def take():
        if feed.valid:
            thread.next = feed.thread
            data.next = feed.data
        first.next = feed.valid
        ends.next = first
        if rst:
            first.next = False
            ends.next = False
        put.write.next = first or ends
        put.at.next = concat(thread, now[RING_BITS - 4 :], ends)
        put.low.next = data[32:]
        put.high.next = data[64:32]
        if ends:
            put.low.next = data[96:64]
            put.high.next = data[128:96]

    # The thread is the same in both clocks of a word.
    @always(clk.posedge)
    def count():
        following.next = now + 1
        if begin.write:
            counts[begin.thread].next = begin.place[PLACE_BITS:4]
        elif ends:
            counts[thread].next = following
        words.next = counts[looked]

    return look, take, count


@block
def ring_levels(clk, rst, phase, job, begin, words1, place1, over, fresh, enough, room, settled):
    """Look at a thread a clock, which is the lower three bits of phase. A block's place ends at -offset.

    job: DecoderJob. begin: Begin. words1 u16, place1 u20: of the thread a clock ago. over u8: threads
    whose turns are all done; fresh u8: whose block had none yet. enough u8: the bytes of a turn are there,
    whatever the one before it took; room u8: for more. settled: Settled, blocks that have ended.
    """
    thread1, thread2, known1, known2 = word(THREAD_BITS), word(THREAD_BITS), bit(), bit()
    level2, whole2, exact2, at = word(LEVEL_BITS), bit(), bit(), word(THREAD_BITS)
    # Sixteen less the offset: the lower four bits of a block's last place; the others are 0 if it is sixteen.
    ends, end, end1, ALL = [word(5) for _ in range(THREADS)], word(5), word(5), (1 << WORDS_BITS) - 1

    @always_comb
    def point():
        at.next = phase[THREAD_BITS:]
        end.next = 16 - job.offset

    @always(clk.posedge)
    def measure():
        thread1.next = at
        known1.next = not (job.start and job.thread == at) and not (begin.waits and begin.thread == at)
        thread2.next = thread1
        known2.next = known1 and not (job.start and job.thread == thread1)
        level2.next = concat(words1[RING_BITS - 3 :], False, False, False, False) - place1[LEVEL_BITS:]
        whole2.next = words1 == 0
        exact2.next = place1[4:] == end1[4:] and (
            (end1[4] and place1[PLACE_BITS:4] == 0) or (not end1[4] and place1[PLACE_BITS:4] == ALL)
        )
        end1.next = ends[at]
        settled.thread.next = thread2
        settled.exact.next = exact2
        settled.strobe.next = known2 and whole2 and over[thread2]
        if job.start:
            ends[job.thread].next = end
        if rst:
            known1.next = False
            known2.next = False
            settled.strobe.next = False

    # What a turn takes is known 41 clocks behind its begin, when the next but one is chosen. So 128 bytes are
    # enough, 64 for a block's first turn. Before a block's first word its level is below 0, by what its first
    # word lacks.
    @always(clk.posedge)
    def tell():
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
