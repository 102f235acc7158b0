"""Starts blocks on the threads of a barrel decoder, and knows of which frame each thread has one."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.decode.ports import DecoderJob
from oscar_hdl.coder.unit.ports import ALL_THREADS, THREADS
from oscar_hdl.nic.ports import BankBlock
from oscar_hdl.nic.receive.ports import FRAMES, DealtBlock
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied_fields


@block
def unit_threads(
    clk, rst, dealt: DealtBlock, job: DecoderJob, place: BankBlock, free, quiet, wrong, *, unit: int
):
    """Pass on the blocks that are for this unit.

    free u8: threads without a block. quiet: levels, a bit for each bank of tables and counts: no thread has a
    block of it. wrong: strobes, a bit for each bank: a block of it was bad.
    """
    busy = word(THREADS * FRAMES)  # threads with a block, of one bank behind the other
    start = bit()
    block_of = copied_fields(
        None, dealt, job, "thread", "bank", "values", "raw", "seeds", "first", "last", "bytes", "offset"
    )

    # Rows that a frame adopts are cleared before its blocks are dealt, so that all blocks add.
    @always_comb
    def pass_on():
        start.next = dealt.start[unit]
        job.start.next = dealt.start[unit]
        place.start.next = dealt.start[unit]
        place.thread.next = dealt.thread
        place.first.next = dealt.row

    @always(clk.posedge)
    def follow():
        for b in range(FRAMES):
            for i in range(THREADS):
                if start and dealt.thread == i and dealt.bank == b:
                    busy.next[THREADS * b + i] = True
                elif job.done and job.done_thread == i:
                    busy.next[THREADS * b + i] = False
        if rst:
            busy.next = 0

    @always(clk.posedge)
    def tell():
        free.next = job.idle
        wrong.next = 0
        for b in range(FRAMES):
            quiet.next[b] = True
            for i in range(THREADS):
                if busy[THREADS * b + i]:
                    quiet.next[b] = False
                if job.done and job.bad and job.done_thread == i and busy[THREADS * b + i]:
                    wrong.next[b] = True
        if rst:
            free.next = ALL_THREADS
            wrong.next = 0

    return block_of, pass_on, follow, tell
