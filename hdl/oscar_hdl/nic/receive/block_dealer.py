"""Deals the blocks of frames to decoders that are free, and says when all of a frame are done."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar.coding.asc.params import CODED, CONSTANT
from oscar_hdl.nic.receive.fetch_ring import Span
from oscar_hdl.nic.receive.ports import DealPort, DecoderUnits, ReaderUse, SpanAsk, StepPort
from oscar_hdl.nic.unit_choice import unit_choice
from oscar_hdl.streams.bundles import bit, word

PAUSE = 5  # clocks until entry, values and rows of the next block are there


@block
def block_dealer(
    clk: Any, rst: Any, deal: DealPort, span: Span, ask: SpanAsk, up: Any, up_at: Any, use: ReaderUse,
    units: DecoderUnits, starts: Any, raw_feed: StepPort, *, word_bits: int, banks: int, block_log2: int,
) -> Any:  # fmt: skip
    """Start a job for each block that is not a constant 0, as soon as a unit is idle.

    deal.places.start is where the first block begins; `done` comes when all are dealt, or need not be.
    ask: `span` goes in, of a block or, with up a clock before, the unit reader's from the word up_at on.
    starts: a strobe for each decoder, one clock before the job's. raw_feed: the span of a raw block begins
    (go); all its bytes went out (done, a level).

    Blocks of the frame before, of the other bank, may be under way. Both frames may add to the same rows: a
    block waits until nobody has that of the same number of the other frame, or where blocks do not lie on
    each other (deal.same) but meet (deal.apart), until nobody has any of it. No raw block is worked on beside
    blocks of the other frame. banks: of the memory, if not 1: a block's is for each banks-th decoder only.
    """
    jobs, raw, raw_base = units.jobs, units.raw, units.bases[-1]
    blocks, places = deal.blocks, deal.places
    UNITS, at_bits = len(jobs), len(span.at)
    top_bit = at_bits + word_bits
    ALL, RAW_SLOT = (1 << UNITS) - 1, 1 << UNITS
    idles = [job.idle for job in jobs]
    dones = [job.done for job in jobs]
    bads = [job.bad for job in jobs]
    states = enum("IDLE", "WAIT", "ADD", "CHOOSE", "PUT", "PLACE", "STEP", "DRAIN")
    state = Signal(states.IDLE)
    busy, free, turn, ended = word(UNITS), word(UNITS), word(UNITS), word(UNITS)
    pick, numbers = word(UNITS), [word(8) for _ in range(UNITS)]
    twins, clash = word(UNITS), bit()  # units with the block of the same number of the other frame
    owner, owners, raw_owner, mixed, alone = word(UNITS), word(UNITS), bit(), bit(), bit()  # their banks
    raw_busy, raw_quiet, putting, pause, late = bit(), bit(), bit(), word(3), bit()
    raw_free, coded, constant, nothing, upward = (bit() for _ in range(5))
    pairs = word(word_bits + 1)

    @always_comb
    def collect():
        deal.wrong.next = 0
        owners.next = 0
        if deal.bank:
            owners.next = starts
        for n in range(UNITS):
            free.next[n] = idles[n] and not busy[n]
            ended.next[n] = dones[n]
            if dones[n] and bads[n]:
                if owner[n]:
                    deal.wrong.next[1] = True
                else:
                    deal.wrong.next[0] = True

    choice = unit_choice(clk, free, blocks.base, turn, pick, banks=banks, block_log2=block_log2)

    @always(clk.posedge)
    def match():
        for n in range(UNITS):
            twins.next[n] = not free[n] and owner[n] != deal.bank and numbers[n] == deal.number
            if starts[n]:
                numbers[n].next = deal.number
        clash.next = not deal.apart and not alone and (not deal.same or twins != 0)
        if rst:
            clash.next = False

    @always(clk.posedge)
    def watch():
        busy.next = (busy | starts) & ~ended
        raw_busy.next = (raw_busy or raw.start) and not raw.done
        raw_quiet.next = raw.idle and not raw_busy and not raw.start and not use.raw_reads
        raw_free.next = raw.idle and not raw_busy and not raw.start and not use.raw_reads and not use.reads
        putting.next = state == states.PUT or state == states.PLACE
        use.raw_reads.next = (putting and not coded) or raw_feed.go or not raw_feed.done
        owner.next = (owner & ~starts) | owners
        deal.quiet.next[0] = (free | owner) == ALL and (raw_quiet or raw_owner)
        deal.quiet.next[1] = (free | (owner ^ ALL)) == ALL and (raw_quiet or not raw_owner)
        mixed.next = not raw_quiet and raw_owner != deal.bank
        alone.next = (deal.quiet[0] and deal.bank) or (deal.quiet[1] and not deal.bank)
        late.next = pause == PAUSE
        coded.next = deal.entry[2:] == CODED
        constant.next = deal.entry[2:] == CONSTANT
        upward.next = deal.entry[2:] != CODED
        nothing.next = deal.entry[2:] == CONSTANT and deal.entry[32:16] == 0
        if rst:
            busy.next = 0
            raw_busy.next = False

    @always(clk.posedge)
    def tell():
        """Where the reader begins: at the end for a decoder, at the begin for a raw block."""
        span.slot.next = concat(False, turn)
        span.at.next = places.end[top_bit:word_bits]
        span.bottom.next = places.start[top_bit:word_bits]
        span.low.next = places.start[word_bits:1]
        span.odd.next = places.start[0]
        # Pairs of the word in which the block ends: those that begin before the end.
        pairs.next = concat(False, places.end[word_bits:])
        if not places.start[0]:
            pairs.next = concat(False, places.end[word_bits:]) + 1
        span.top.next = pairs[word_bits:1] - 1
        span.none.next = pairs[word_bits + 1 : 1] == 0
        if upward:
            span.slot.next = RAW_SLOT
            span.at.next = places.start[top_bit:word_bits]
            span.none.next = False
        if up:
            span.slot.next = RAW_SLOT
            span.at.next = up_at
            span.none.next = False
        if state == states.CHOOSE and raw_free and alone:
            raw_owner.next = deal.bank
            raw.bank.next = deal.bank
            raw.thinning.next = deal.thinning
            raw.values.next = blocks.values
            raw.width.next = deal.entry[7:2]
            raw.constant.next = deal.entry[2:] == CONSTANT
            raw.value.next = deal.entry[32:16]
            raw_base.next = blocks.base

    @always(clk.posedge)
    def walk():
        """From a block to the next."""
        blocks.first.next = state == states.IDLE and deal.go
        blocks.forward.next = state == states.STEP
        places.forward.next = state == states.STEP and not constant
        places.add.next = state == states.WAIT and late
        pause.next = 0
        if state == states.WAIT or state == states.DRAIN:
            pause.next = pause + 1
        if state == states.IDLE:
            deal.number.next = 0
        elif state == states.STEP:
            deal.number.next = deal.number + 1

    @always(clk.posedge)
    def run():
        starts.next = 0
        raw.start.next = False
        raw_feed.go.next = False
        deal.done.next = False
        if state == states.IDLE:
            if deal.go:
                state.next = states.WAIT
        elif state == states.WAIT:
            if late:
                state.next = states.ADD
        elif state == states.ADD:
            state.next = states.CHOOSE
        elif state == states.CHOOSE:
            if deal.stop:
                state.next = states.DRAIN
            elif nothing:
                state.next = states.STEP
            elif coded and pick != 0 and not clash and not mixed:
                starts.next = pick
                turn.next = pick
                state.next = states.PUT
            elif raw_free and alone and not coded:
                raw.start.next = True
                state.next = states.PUT
                if constant:
                    state.next = states.STEP
        elif state == states.PUT:
            ask.put.next = True
            state.next = states.PLACE
        elif state == states.PLACE:
            if ask.placed:
                ask.put.next = False
                raw_feed.go.next = not coded
                state.next = states.STEP
        elif state == states.STEP:
            state.next = states.WAIT
            if blocks.final:
                state.next = states.DRAIN
        elif state == states.DRAIN and late:
            deal.done.next = True
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            ask.put.next = False
            starts.next = 0
            raw.start.next = False
            raw_feed.go.next = False
            deal.done.next = False

    return choice, collect, match, watch, walk, tell, run
