"""Receives frames and has their blocks decoded: docs/engine.md, "Receiver and sender"."""

from __future__ import annotations

from math import gcd
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import DecoderJob, TablesPort
from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.receive.block_counter import Blocks, block_counter
from oscar_hdl.nic.receive.block_dealer import block_dealer
from oscar_hdl.nic.receive.block_places import block_places
from oscar_hdl.nic.receive.deframer import deframer
from oscar_hdl.nic.receive.directory_reader import directory_reader
from oscar_hdl.nic.receive.feeder import feeder
from oscar_hdl.nic.receive.fetch_ring import Span, fetch_ring
from oscar_hdl.nic.receive.frame_match import frame_match
from oscar_hdl.nic.receive.frame_names import frame_names
from oscar_hdl.nic.receive.frame_places import Places, frame_places
from oscar_hdl.nic.receive.ports import (
    CameFrame,
    ClearPort,
    DealPort,
    DecoderUnits,
    Dropped,
    FrontFrame,
    HeldFrame,
    MatchPort,
    OldestFrame,
    ReaderUse,
    SpanAsk,
    StepPort,
)
from oscar_hdl.nic.receive.prefix_reader import prefix_reader
from oscar_hdl.nic.receive.raw_feeder import raw_feeder
from oscar_hdl.nic.receive.receive_blocks import receive_blocks
from oscar_hdl.nic.receive.receive_front import receive_front
from oscar_hdl.nic.receive.unit_reader import UnitPort, unit_reader
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def job_slot(clk: Any, rst: Any, deal: DealPort, starts: Any, n: int, job: DecoderJob, base: Any) -> Any:
    """Start a job with the block that is dealt where bit n of `starts` (strobes) is 1."""
    blocks = deal.blocks

    @always(clk.posedge)
    def hold():
        job.start.next = starts[n]
        if starts[n]:
            job.bank.next = deal.bank
            job.thinning.next = deal.thinning
            job.values.next = blocks.values
            job.seeds.next = deal.entry[5:2]
            job.first.next = deal.entry[12:5]
            job.last.next = deal.entry[19:12]
            job.odd.next = deal.entry[24]
            base.next = blocks.base
        if rst:
            job.start.next = False

    return hold


DEAL_CLOCKS = 14  # from a block that is dealt to the next, if its reader's turn comes then
KEPT_BITS = 44  # of an entry of the directory that is right: 20 of its bytes


def ring_stride(units: int) -> int:
    """Return how far apart units lie in the ring of readers, so that it is the next one's turn in time."""
    strides = [n for n in range(1, units + 1) if gcd(n, units) == 1]
    return min(strides, key=lambda n: (n - DEAL_CLOCKS) % max(units + 1, 5))


@block
def receiver(
    clk: Any, rst: Any, s_axis_rx: Stream, command: FrameCommand, row: Any, dropped: Dropped,
    oldest_frame: OldestFrame, held_frame: HeldFrame, tables: TablesPort, m_axis_sent: Stream,
    decoders: DecoderUnits, clear: ClearPort, *, bus_bits: int = 64, store_log2: int = 12,
    buffer_log2: int = 9, block_log2: int = 0, banks: int = 1,
) -> Any:  # fmt: skip
    """Take the frames that commands name, and give their blocks to decoders; two commands at a time.

    s_axis_rx: frames_in(bus_bits). row (14 bits or more, holds as the command's
    fields do): the first one of the frame. tables, m_axis_sent Stream(64): link_tables. decoders: their bases
    are as wide as row.
    bus_bits: 64, 128, 256 or 512. store_log2: log2 of the words of bus_bits in which frames wait, 6 to 17; 8
    stay empty. buffer_log2: log2 of the pairs that a decoder buffers: it is left alone so many clocks when
    it was not ready, so that others are served. block_log2: of frames that are not refused; 0: any. banks: of
    the memory: block b of it is for a decoder whose number is b modulo banks, too.
    """
    jobs, bytes, bases, units = decoders.jobs, decoders.bytes, decoders.bases, len(decoders.jobs)
    if bus_bits not in (64, 128, 256, 512):
        raise ValueError(f"bus_bits is 64, 128, 256 or 512, got {bus_bits}")
    if not 6 <= store_log2 <= 17:
        raise ValueError(f"store_log2 is 6 to 17, got {store_log2}")
    word_bits = (bus_bits // 8 - 1).bit_length()
    pair_bits, lanes = word_bits - 1, min(units, bus_bits // 16)

    # The store, and what is read from it in turn.
    wr_en, wr_addr, wr_data = bit(), word(store_log2), word(bus_bits)
    rd_addr, rd_data = word(store_log2), word(bus_bits)
    head, tail, faulty, fault = word(store_log2), word(store_log2), bit(), word(4)
    # The first frame that the front has not handed on, where the one before it begins, and of which banks
    # frames are still read.
    oldest, begun, held = word(store_log2), word(store_log2), word(2)
    span, avail, land = Span(units + 1, store_log2, pair_bits), word(units + 1), word(units + 1)
    pairs, top, low, final = word(bus_bits), word(pair_bits), word(pair_bits), bit()
    store = block_ram(clk, wr_en, wr_addr, wr_data, rd_addr, rd_data)
    came, match = CameFrame(), MatchPort()
    frames = deframer(clk, rst, s_axis_rx, wr_en, wr_addr, wr_data, head, tail, came, faulty, fault)
    names = frame_names(clk, rst, came, match.gone, oldest_frame)
    # Unit n is reader STRIDE n modulo units of the ring, the unit reader is the last.
    STRIDE, ring_span, landed = ring_stride(units), Span(units + 1, store_log2, pair_bits), word(units + 1)
    for name in ("put", "placed", "at", "bottom", "low", "top", "none", "odd"):
        setattr(ring_span, name, getattr(span, name))
    ring = fetch_ring(clk, rst, ring_span, avail, rd_addr, rd_data, land, pairs, top, low, final)

    # Feeder n has decoders n, n + lanes, ..
    tick, ticks = bit(), word(buffer_log2)
    takes = [bit() for _ in jobs]
    feeders = [
        feeder(
            clk, rst, landed, pairs, top, low, final, tick, takes[n::lanes], bytes[n::lanes], first=n,
            stride=lanes,
        )
        for n in range(lanes)
    ]  # fmt: skip

    # One reader of units: prefix, directory and raw blocks have their turns.
    port, match_units, prefix_units, list_units, raw_units = (UnitPort() for _ in range(5))
    for user in (match_units, prefix_units, list_units, raw_units):
        user.ready, user.units = port.ready, port.units
    opened, unit_land, unit_avail, opened_at = bit(), bit(), bit(), word(pair_bits)
    reader = unit_reader(clk, rst, opened, opened_at, unit_land, rd_data, unit_avail, port)

    # Where things are, and the walk over blocks: of the directory's reader, and of the dealer.
    places, log2, frame = Places(store_log2, word_bits), word(5), FrontFrame()
    match_places, list_places = Places(store_log2, word_bits), Places(store_log2, word_bits)
    for user in (match_places, list_places):
        user.start, user.end, user.same = places.start, places.end, places.same
    deal = DealPort(len(row), len(places.start), entry_bits=48)
    list_blocks, deal_blocks, deal_places, deal_log2 = Blocks(len(row)), deal.blocks, deal.places, word(5)
    length, entry_bytes, block_bytes = word(20), word(20), word(20)
    placing = [
        frame_places(clk, places, length, entry_bytes, word_bits=word_bits),
        block_places(clk, deal_places, block_bytes),
    ]
    counting = [
        block_counter(clk, list_blocks, command.count, log2, row),
        block_counter(clk, deal_blocks, deal.count, deal_log2, deal.row),
    ]

    # Entries of the directories of two frames wait here until they are dealt.
    keep, entry, kept, keep_at = bit(), word(48), word(KEPT_BITS), word(8)
    dealt, keep_place, deal_place = word(KEPT_BITS), word(9), word(9)
    entries = block_ram(clk, keep, keep_place, kept, deal_place, dealt)

    # The steps of a command.
    use, prefix, listing, raw_feed = ReaderUse(), StepPort(), StepPort(), StepPort()
    match_ask, deal_ask, up, up_late, starts = SpanAsk(), SpanAsk(), bit(), bit(), word(units)
    alike = bit()
    matcher = frame_match(
        clk, rst, match=match, command=command, checksum=tables.checksum, head=head, oldest=oldest,
        held=held_frame, places=match_places, ask=match_ask,
        units=match_units, use=use, word_bits=word_bits,
    )  # fmt: skip
    read_prefix = prefix_reader(
        clk, rst, go=prefix.go, units=prefix_units, log2=log2, build=tables.build, last=tables.last,
        mask=tables.mask, m_axis_sent=m_axis_sent, done=prefix.done, right=prefix.right,
        block_log2=block_log2,
    )  # fmt: skip
    directory = directory_reader(
        clk, rst, go=listing.go, width=command.width, units=list_units, blocks=list_blocks,
        places=list_places, keep=keep, entry=entry, done=listing.done, right=listing.right,
    )  # fmt: skip
    front = receive_front(
        clk, rst, command, tables, match=match, empty=places.same, prefix=prefix, listing=listing, use=use,
        less=places.less, frame=frame,
    )  # fmt: skip
    back = receive_blocks(
        clk, rst, command, tables, row=row, frame=frame, alike=alike, deal=deal, match=match, held=held,
        clear=clear,
    )  # fmt: skip
    dealer = block_dealer(
        clk, rst, deal, span=span, ask=deal_ask, up=up, up_at=oldest, use=use, units=decoders, starts=starts,
        raw_feed=raw_feed, word_bits=word_bits, banks=banks, block_log2=block_log2,
    )  # fmt: skip
    feed_raw = raw_feeder(
        clk, rst, raw_feed.go, deal_places.start(0), block_bytes, raw_units, decoders.raw_bytes, raw_feed.done
    )
    slots = [job_slot(clk, rst, deal, starts, n, jobs[n], bases[n]) for n in range(units)]

    @always_comb
    def readers():
        avail.next = 0
        ring_span.slot.next = 0
        landed.next = 0
        for n in range(units):
            avail.next[n * STRIDE % units] = takes[n]
            ring_span.slot.next[n * STRIDE % units] = span.slot[n]
            landed.next[n] = land[n * STRIDE % units]
        avail.next[units] = unit_avail
        ring_span.slot.next[units] = span.slot[units]
        unit_land.next = land[units]
        opened.next = span.placed and span.slot[units]
        opened_at.next = deal_places.start[word_bits:1]
        if up:
            opened_at.next = 0
        match.heard.next = match.refuse and not faulty
        held_frame.peer.next = oldest_frame.peer

    # A span is of the match's or the dealer's: its fields follow `up` a clock later.
    @always_comb
    def spans():
        span.put.next = (up and up_late and match_ask.put) or (deal_ask.put and not up and not up_late)
        match_ask.placed.next = span.placed and up
        deal_ask.placed.next = span.placed and not up

    @always_comb
    def share():
        port.get.next = match_units.get or prefix_units.get or list_units.get or raw_units.get
        port.amount.next = list_units.amount
        if match_units.get:
            port.amount.next = match_units.amount
        elif prefix_units.get:
            port.amount.next = prefix_units.amount
        elif raw_units.get:
            port.amount.next = raw_units.amount

    @always_comb
    def merge():
        places.begin.next = match_places.begin
        places.at.next = match_places.at
        places.add.next = match_places.add or list_places.add
        deal_places.begin.next = frame.taken
        deal_places.first.next = places.start
        length.next = port.units[20:]
        entry_bytes.next = entry[44:24]
        block_bytes.next = dealt[44:24]
        kept.next = entry[KEPT_BITS:]
        keep_place.next = concat(frame.bank, keep_at)
        deal_place.next = concat(deal.bank, deal.number)
        deal.entry.next = concat(modbv(0)[4:], dealt)

    @always(clk.posedge)
    def run():
        places.get.next = port.get and not raw_units.get
        places.amount.next = port.amount
        ticks.next = ticks + 1
        tick.next = ticks == 0
        dropped.bad.next = faulty or match.refuse
        dropped.reason.next = match.reason
        if faulty:
            dropped.reason.next = fault
        if keep:
            keep_at.next = keep_at + 1
        if listing.go:
            keep_at.next = 0
        alike.next = log2 == deal_log2
        if frame.taken:
            deal_log2.next = log2
            begun.next = oldest
        if held == 0:
            tail.next = oldest
        elif held != 3:
            tail.next = begun
        up_late.next = up
        if up:
            up.next = match_ask.put
        else:
            up.next = match_ask.put and not deal_ask.put
        if rst:
            dropped.bad.next = False
            tail.next = 0
            up.next = False

    return (
        store, frames, names, ring, feeders, reader, placing, counting, entries, matcher, read_prefix,
        directory, front, back, dealer, feed_raw, slots, readers, spans, share, merge, run,
    )  # fmt: skip
