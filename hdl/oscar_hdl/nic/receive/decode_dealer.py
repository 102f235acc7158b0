"""Deals the blocks of frames to threads that are free, and says when all of a frame are done."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import CODED, CONSTANT
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.nic.receive.line_turns import ThreadSpan
from oscar_hdl.nic.receive.ports import (
    FRAMES,
    DealPort,
    DealtBlock,
    DecodeUnits,
    RawBlock,
    RawWord,
    ReaderUse,
    StepPort,
)
from oscar_hdl.nic.receive.unit_threads import unit_threads
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.zero import zero

# Clocks from a block that is dealt until the next one's entry is there (3), where it ends (4), its values and
# a thread that is free (5): then it is chosen.
PAUSE = 2
DRAIN_CLOCKS = 6  # until deal.quiet knows of the last block


@block
def block_bank(row, unit, found, *, block_log2: int, units: int):
    """Split a block's first row into whose bank it is in, and the row in the bank."""
    SKIP = units.bit_length() - 1
    LOW, END = block_log2 - 5, len(found) + SKIP
    if len(row) < END:
        raise ValueError(f"banks of 2^{len(found)} rows: rows have {END} bits or more, got {len(row)}")
    if units == 1:

        @always_comb
        def pass_on():
            unit.next = 0
            found.next = row[END:]

        return pass_on
    HIGH = LOW + SKIP

    @always_comb
    def split():
        unit.next = row[HIGH:LOW]
        found.next = concat(row[END:HIGH], row[LOW:])

    return split


@block
def block_facts(
    clk, choosing, raw, deal: DealPort, thread, unit, row, at, dealt: DealtBlock, span: ThreadSpan
):
    """Keep what there is to say of the block for which a thread is chosen, which is dealt a clock later.

    choosing: level; raw: it is not coded, so its bytes are whole rows of values of two bytes. thread u3,
    unit, and `at`, both: where it will be decoded; row: its first one in the bank.
    """
    AT, END = len(span.at), len(span.top) + 4
    behind, places, blocks = word(END), deal.places, deal.blocks
    whole_rows, nothing = word(13), word(6)

    if AT == THREAD_BITS:
        point = copied(None, thread, at)
    else:

        @always_comb
        def point():
            at.next = concat(unit, thread)

    @always_comb
    def tell():  # the span holds until it is written, PUT_LATER clocks on: blocks come 5 apart
        span.put.next = dealt.start != 0 and not dealt.raw
        whole_rows.next = blocks.values[18:5]
        if blocks.values[5:] != 0:
            whole_rows.next = blocks.values[18:5] + 1

    @always(clk.posedge)
    def keep():
        behind.next = places.end[END:] - 1
        if choosing:
            dealt.thread.next = thread
            dealt.bank.next = deal.bank
            dealt.values.next = blocks.values
            dealt.seeds.next = deal.entry[5:2]
            dealt.first.next = deal.entry[12:5]
            dealt.last.next = deal.entry[19:12]
            dealt.raw.next = raw
            dealt.bytes.next = deal.entry[43:24]
            dealt.offset.next = places.start[4:]
            if raw:
                dealt.bytes.next = concat(whole_rows, nothing)
                dealt.offset.next = 0
            dealt.row.next = row
            span.at.next = at
            span.top.next = behind[END:4]
            span.bottom.next = places.start[END:4]

    return point, tell, keep, zero(clk, nothing)


@block
def raw_turn(clk, deal: DealPort, use: ReaderUse, job: RawBlock, raw_feed: StepPort, idle, free):
    """Say when a raw block may be unpacked (free), and keep its fields.

    idle: no row of the one before waits for its thread.
    """

    @always(clk.posedge)
    def watch():
        use.raw_reads.next = raw_feed.go or not raw_feed.done
        free.next = job.idle and idle and not job.start and not use.raw_reads and not use.reads

    @always(clk.posedge)
    def keep():
        if free:
            job.values.next = deal.blocks.values
            job.width.next = deal.entry[7:2]
            job.constant.next = deal.entry[2:] == CONSTANT
            job.value.next = deal.entry[32:16]

    return watch, keep


@block
def decode_dealer(
    clk, rst, deal: DealPort, span: ThreadSpan, opened, use: ReaderUse, units: DecodeUnits, job: RawBlock,
    raw: RawWord, raw_feed: StepPort, raw_idle, *, block_log2: int,
):  # fmt: skip
    """Start a job for each block that is not a constant 0, as soon as a thread of its unit is free.

    deal.places.start is where the first block begins; `done` comes when all are dealt, or need not be. span:
    where a coded block lies. opened (strobe): the reader of chunks begins at a raw block, which raw_feed
    gives (go) until all its bytes went out (done, a level), to job, which unpacks it for thread raw.at.
    raw_idle: nothing of it waits any more.
    """
    jobs, bank_places = units.jobs, units.places
    blocks, places, UNITS, EVERY = deal.blocks, deal.places, len(jobs), (1 << FRAMES) - 1
    states = enum("IDLE", "BEGIN", "WAIT", "CHOOSE", "STEP", "DRAIN")
    state = Signal(states.IDLE)
    dealt = DealtBlock(UNITS, len(bank_places[0].first))
    free_of = [word(THREADS) for _ in jobs]
    quiet_of, wrong_of = [word(FRAMES) for _ in jobs], [word(FRAMES) for _ in jobs]
    unit, row = word(max(1, UNITS.bit_length() - 1)), word(len(dealt.row))
    free, thread, some, choosing, pause = word(THREADS), word(THREAD_BITS), bit(), bit(), word(3)
    coded, constant, nothing, raw_free, plain = bit(), bit(), bit(), bit(), bit()
    at = word(len(span.at))
    # Strobes: a block is dealt to a thread, as a raw one, or one of both or to nobody.
    decodes, raws, deals = bit(), bit(), bit()

    parts = [
        block_bank(blocks.base, unit, row, block_log2=block_log2, units=UNITS),
        block_facts(clk, choosing, plain, deal, thread, unit, row, at, dealt, span),
        raw_turn(clk, deal, use, job, raw_feed, raw_idle, raw_free),
    ]
    threads = [
        unit_threads(clk, rst, dealt, jobs[n], bank_places[n], free_of[n], quiet_of[n], wrong_of[n], unit=n)
        for n in range(UNITS)
    ]

    @always_comb
    def collect():
        all_quiet = modbv(EVERY)[FRAMES:]
        any_wrong = modbv(0)[FRAMES:]
        for n in range(UNITS):
            all_quiet[:] = all_quiet & quiet_of[n]
            any_wrong[:] = any_wrong | wrong_of[n]
        deal.quiet.next = all_quiet
        deal.wrong.next = any_wrong
        choosing.next = state == states.CHOOSE

    @always_comb
    def decide():
        decodes.next = choosing and not deal.stop and some and (coded or raws)
        raws.next = choosing and not deal.stop and some and plain and not nothing and raw_free
        deals.next = decodes or (choosing and not deal.stop and nothing)
        plain.next = not coded

    @always(clk.posedge)
    def choose():
        free.next = free_of[unit]
        some.next = free != 0
        for i in range(THREADS):
            if free[THREADS - 1 - i]:
                thread.next = THREADS - 1 - i

    @always(clk.posedge)
    def look():
        coded.next = deal.entry[2:] == CODED
        constant.next = deal.entry[2:] == CONSTANT
        nothing.next = deal.entry[2:] == CONSTANT and deal.entry[32:16] == 0

    @always(clk.posedge)
    def walk():
        """From a block to the next."""
        blocks.first.next = state == states.IDLE and deal.go
        blocks.forward.next = deals
        places.forward.next = state == states.STEP and not constant
        places.add.next = state == states.WAIT and pause == 0
        pause.next = 0
        if state == states.WAIT or state == states.DRAIN:
            pause.next = pause + 1
        if state == states.IDLE:
            deal.number.next = 0
        elif deals:
            deal.number.next = deal.number + 1

    @always(clk.posedge)
    def run():
        dealt.start.next = 0
        job.start.next = False
        raw_feed.go.next = False
        opened.next = False
        deal.done.next = False
        if state == states.IDLE:
            if deal.go:
                state.next = states.BEGIN
        elif state == states.BEGIN:
            state.next = states.WAIT
        elif state == states.WAIT:
            if pause == PAUSE:
                state.next = states.CHOOSE
        elif state == states.CHOOSE:
            if deal.stop:
                state.next = states.DRAIN
            elif deals:
                state.next = states.STEP
            dealt.start.next[unit] = decodes
            job.start.next = raws
            if raws:
                raw.at.next = at
            raw_feed.go.next = raws and not constant
            opened.next = raws and not constant
        elif state == states.STEP:
            state.next = states.WAIT
            if blocks.final:
                state.next = states.DRAIN
        elif state == states.DRAIN and pause == DRAIN_CLOCKS:
            deal.done.next = True
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            dealt.start.next = 0
            job.start.next = False
            raw_feed.go.next = False
            opened.next = False
            deal.done.next = False

    return parts, threads, collect, decide, choose, look, walk, run
