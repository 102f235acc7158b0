"""The eight threads of a barrel encoder as a ring: each has the next block when its last one left."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.coder.encode.ports import DrainPort, EncoderJob
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.nic.ports import BankBlock
from oscar_hdl.nic.send.ports import RESULT_BITS, CollectJob, DealtBlock, SettledBlock, UnitRing
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import bit, word


@block
def ring_jobs(clk, rst, job: EncoderJob, rows: BankBlock, dealt: DealtBlock, ring: UnitRing, frees, waiting):
    """Start jobs, and keep what came of them until it is taken, in the order in which they were started.

    frees (strobe): the oldest block left. waiting (level): one was started whose result was not taken.
    """
    memory = [word(RESULT_BITS) for _ in range(THREADS)]
    done, next_at, taken_at = word(THREADS), word(THREAD_BITS), word(THREAD_BITS)
    blocks, untaken = word(THREAD_BITS + 1), word(THREAD_BITS + 1)

    @always(clk.posedge)
    def start():
        ring.room.next = not blocks[THREAD_BITS] and not rst
        job.start.next = ring.go and not rst
        job.thread.next = next_at
        job.bank.next = dealt.bank
        job.values.next = dealt.values
        rows.start.next = ring.go and not rst
        rows.thread.next = next_at
        rows.first.next = dealt.first
        if ring.go:
            next_at.next = next_at + 1
        if rst:
            next_at.next = 0

    @always(clk.posedge)
    def keep():
        if job.done:
            memory[job.done_thread].next = concat(
                job.bad, job.bytes, job.last, job.first, job.seeds, job.bits, job.value, job.constant
            )
        for n in range(THREADS):
            if ring.take and taken_at == n:
                done.next[n] = False
            if job.done and job.done_thread == n:
                done.next[n] = True
        ring.ready.next = done[taken_at] and not ring.take and not rst
        if ring.take:
            taken_at.next = taken_at + 1
        if rst:
            done.next = 0
            taken_at.next = 0

    @always_comb
    def show():
        ring.result.next = memory[taken_at]
        waiting.next = untaken != 0

    counts = [balance(clk, rst, ring.go, frees, blocks), balance(clk, rst, ring.go, ring.take, untaken)]
    return counts, start, keep, show


@block
def unit_ring(
    clk, rst, job: EncoderJob, rows: BankBlock, drain: DrainPort, dealt: DealtBlock, ring: UnitRing,
    settled: SettledBlock, collect: CollectJob,
):  # fmt: skip
    """Give threads blocks in turn, and have the bytes of each collected or forgotten, in the same order.

    A block is collected once the judge has settled it, or before, if it is the one for which the judge waits:
    a block may be longer than its thread's buffer. What was collected of a block that is dropped does not
    count for the CRC, and is overwritten.
    """
    PLACE_BITS = len(settled.place)
    states = enum("REST", "RUN", "SUM")
    state = Signal(states.REST)
    places = [word(PLACE_BITS + 1) for _ in range(THREADS)]
    settled_at, oldest, entry, clocks = word(THREAD_BITS), word(THREAD_BITS), word(PLACE_BITS + 1), word(2)
    owed, some, keeps = word(THREAD_BITS + 1), bit(), bit()  # blocks that are settled and have not left
    frees, waiting, early, begins, over = bit(), bit(), bit(), bit(), bit()

    jobs = ring_jobs(clk, rst, job, rows, dealt, ring, frees, waiting)

    @always_comb
    def look():
        entry.next = places[oldest]
        some.next = owed != 0

    @always_comb
    def judge():
        keeps.next = entry[PLACE_BITS]
        early.next = not some and waiting and ring.early and not ring.ready and not ring.settle

    @always_comb
    def choose():
        begins.next = state == states.REST and not collect.claimed and ((some and keeps) or early)
        frees.next = (
            (state == states.REST and some and not keeps)
            or (state == states.RUN and over and some and not keeps)
            or (state == states.SUM and collect.summed)
        )
        collect.free.next = state == states.REST
        collect.sum.next = state == states.SUM
        collect.discard.next = state == states.RUN and some and not keeps
        ring.drained.next = state == states.REST and not some and not ring.settle

    @always(clk.posedge)
    def launch():
        drain.start.next = begins and not rst
        drain.thread.next = oldest
        collect.start.next = begins and not rst
        collect.place.next = settled.judge_place
        if some:
            collect.place.next = entry[PLACE_BITS:]

    @always(clk.posedge)
    def follow():
        if ring.settle:
            places[settled_at].next = concat(settled.keep, settled.place)
            settled_at.next = settled_at + 1
        if frees:
            oldest.next = oldest + 1
        if rst:
            settled_at.next = 0
            oldest.next = 0

    # A drain is not idle from the second clock behind its start on. A block of zeros has no word.
    @always(clk.posedge)
    def run():
        clocks.next = 0
        over.next = state == states.RUN and clocks == 3 and drain.idle and not collect.busy
        if state == states.REST:
            if begins:
                state.next = states.RUN
        elif state == states.RUN:
            clocks.next = clocks + 1
            if clocks == 3:
                clocks.next = clocks
            if over and some:
                state.next = states.REST
                if keeps:
                    state.next = states.SUM
        elif collect.summed:
            state.next = states.REST
        if rst:
            state.next = states.REST

    return jobs, balance(clk, rst, ring.settle, frees, owed), look, judge, choose, launch, follow, run
