"""Which blocks are bad, and when they are done."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.decode.ports import LOW, SEED
from oscar_hdl.coder.unit.ports import ALL_THREADS, THREAD_BITS, THREADS, WIDTH
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied


@block
def block_faults(clk, phase, plan9, plan21, plan25, plan29, found, twos24, present29, wrongs):
    """Find in which threads' turns something is wrong: wrongs u8, strobes.

    plan9, ..: DecodePlan. found: Found, of which wrong10 and odd30 are looked at: states that are no start
    states, and seeds in lanes that have none. twos24 u8: a lane takes two bytes, which the second of the
    turns that load the final states must not. present29 u8: lanes that are there.
    """
    looks10, wrong11, thread11 = bit(), bit(), word(THREAD_BITS)
    low24, wrong25, present30, seed30 = bit(), bit(), word(WIDTH), bit()
    real30, wrong31, thread31 = bit(), bit(), word(THREAD_BITS)

    @always(clk.posedge)
    def states():
        if phase[2:] == 1:
            looks10.next = plan9.op == SEED and plan9.opens
        wrong11.next = looks10 and found.wrong10 != 0
        if phase[2:] == 2:
            thread11.next = plan9.thread
        if phase[2:] == 3:
            low24.next = plan21.op == LOW
        wrong25.next = low24 and twos24 != 0

    @always(clk.posedge)
    def seeds():
        present30.next = present29
        if phase[2:] == 1:
            seed30.next = plan29.op == SEED and not plan29.raw
            real30.next = plan29.real
        if phase[2:] == 2:
            thread31.next = plan29.thread
        wrong31.next = seed30 and found.odd30 != 0
        if real30:
            wrong31.next = seed30 and (found.odd30 & ~present30) != 0

    @always_comb
    def tell():
        for i in range(THREADS):
            wrongs.next[i] = (
                (wrong11 and thread11 == i) or (wrong25 and plan25.thread == i) or (wrong31 and thread31 == i)
            )

    return states, seeds, tell


@block
def block_ends(clk, rst, job, wrongs, ended, settled, over):
    """End blocks: job's results; job: DecoderJob.

    wrongs u8: of block_faults. ended u8: strobes, threads that have given all. settled: Settled. over u8:
    threads that have given all, and wait for the rest of their bytes.
    """
    bad, idle = word(THREADS), word(THREADS, ALL_THREADS)

    @always(clk.posedge)
    def follow():
        for i in range(THREADS):
            if wrongs[i]:
                bad.next[i] = True
            if ended[i]:
                over.next[i] = True
            if settled.strobe and settled.thread == i:
                over.next[i] = False
                idle.next[i] = True
            if job.start and job.thread == i:
                bad.next[i] = False
                idle.next[i] = False
        if rst:
            over.next = 0
            idle.next = ALL_THREADS
        job.done.next = settled.strobe and not rst
        job.done_thread.next = settled.thread
        job.bad.next = bad[settled.thread] or not settled.exact

    return follow, copied(None, idle, job.idle)
