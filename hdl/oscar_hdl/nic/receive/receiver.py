"""Receives frames and has their blocks decoded: docs/engine.md, "Receiver and sender"."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import DecoderJob, RawJob, TablesPort
from oscar_hdl.nic.first_unit import first_unit, unit_word
from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.receive.block_counter import Blocks, block_counter
from oscar_hdl.nic.receive.block_dealer import block_dealer
from oscar_hdl.nic.receive.block_places import BlockPlaces, block_places
from oscar_hdl.nic.receive.deframer import deframer
from oscar_hdl.nic.receive.directory_reader import directory_reader
from oscar_hdl.nic.receive.feeder import feeder
from oscar_hdl.nic.receive.fetch_ring import Span, fetch_ring
from oscar_hdl.nic.receive.frame_match import frame_match
from oscar_hdl.nic.receive.frame_places import Places, frame_places
from oscar_hdl.nic.receive.prefix_reader import prefix_reader
from oscar_hdl.nic.receive.raw_feeder import raw_feeder
from oscar_hdl.nic.receive.receive_blocks import receive_blocks
from oscar_hdl.nic.receive.receive_front import FrontFrame, receive_front
from oscar_hdl.nic.receive.receive_store import receive_store
from oscar_hdl.nic.receive.unit_reader import UnitPort, unit_reader
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def job_slot(
    clk: Any, rst: Any, starts: Any, n: int, bank: Any, thinning: Any, entry: Any,
    values: Any, row: Any, job: DecoderJob, base: Any,
) -> Any:  # fmt: skip
    """Start a job with entry u48 of values u18 from `row` on, where bit n of `starts` (strobes) is 1."""

    @always(clk.posedge)
    def hold():
        job.start.next = starts[n]
        if starts[n]:
            job.bank.next = bank
            job.thinning.next = thinning
            job.values.next = values
            job.seeds.next = entry[5:2]
            job.first.next = entry[12:5]
            job.last.next = entry[19:12]
            job.odd.next = entry[24]
            base.next = row
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
    clk: Any, rst: Any, s_axis_rx: Stream, command: FrameCommand, row: Any, bad: Any, reason: Any,
    tables: TablesPort, m_axis_sent: Stream, jobs: Sequence[DecoderJob], bytes: Sequence[Stream],
    bases: Sequence[Any], raw: RawJob, m_axis_raw: Stream, clear: Any, cleared: Any, clear_rows: Any, *,
    bus_bits: int = 64, store_log2: int = 12, buffer_log2: int = 9, block_log2: int = 0,
) -> Any:  # fmt: skip
    """Take the frames that commands name, and give their blocks to decoders; two commands at a time.

    s_axis_rx: Stream(bus_bits, keep=bus_bits / 8), frames. bad (strobe), reason u4 (see deframer): a frame
    was dropped. tables, m_axis_sent Stream(64): link_tables. jobs, bytes (Stream(16)): a decoder each. bases:
    for each decoder and one for raw_decoder, as wide as row: first row of its block; row (14 bits or more,
    holds as the command's fields do) is the frame's first. raw, m_axis_raw Stream(16): raw_decoder.
    clear (strobe): clear_rows u14 from row on are to be adopted and have to become 0; cleared (strobe).
    bus_bits: 64, 128, 256 or 512. store_log2: log2 of the words of bus_bits in which frames wait, 6 to 17; 8
    stay empty. buffer_log2: log2 of the pairs that a decoder buffers: it is left alone so many clocks when
    it was not ready, so that others are served. block_log2: of frames that are not refused; 0: any.
    """
    units = len(jobs)
    if bus_bits not in (64, 128, 256, 512):
        raise ValueError(f"bus_bits is 64, 128, 256 or 512, got {bus_bits}")
    if not 6 <= store_log2 <= 17:
        raise ValueError(f"store_log2 is 6 to 17, got {store_log2}")
    if units < 1 or len(bytes) != units or len(bases) != units + 1:
        raise ValueError(
            f"expected {units} byte streams and {units + 1} bases, got {len(bytes)}, {len(bases)}"
        )
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
    store = receive_store(clk, wr_en, wr_addr, wr_data, rd_addr, rd_data)
    frames = deframer(clk, rst, s_axis_rx, wr_en, wr_addr, wr_data, head, tail, faulty, fault)
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
    list_blocks, deal_blocks, deal_places = Blocks(len(row)), Blocks(len(row)), BlockPlaces(len(places.start))
    deal_count, deal_log2, deal_row = word(len(command.count)), word(5), word(len(row))
    length, entry_bytes, block_bytes = word(20), word(20), word(20)
    placing = [
        frame_places(clk, places, length, entry_bytes, word_bits=word_bits),
        block_places(clk, deal_places, block_bytes),
    ]
    counting = [
        block_counter(clk, list_blocks, command.count, log2, row),
        block_counter(clk, deal_blocks, deal_count, deal_log2, deal_row),
    ]

    # Entries of the directories of two frames wait here until they are dealt.
    keep, entry, kept, keep_at, number = bit(), word(48), word(KEPT_BITS), word(8), word(8)
    dealt, keep_place, deal_place = word(KEPT_BITS), word(9), word(9)
    entries = receive_store(clk, keep, keep_place, kept, deal_place, dealt)

    # The steps of a command.
    seek, matched, match_idle, match_put, match_placed = (bit() for _ in range(5))
    refuse, refused, heard, forget = bit(), word(4), bit(), bit()
    reads, released, raw_reads, up, up_late = (bit() for _ in range(5))
    prefix_go, prefix_done, prefix_right, list_go, list_done, list_right = (bit() for _ in range(6))
    deal_go, deal_done, stop, crowded, deal_put, deal_placed, raw_go, raw_fed = (bit() for _ in range(8))
    quiet, wrong, first, first_known = word(2), word(2), unit_word(units), bit()
    bank, thinning, starts, job_entry = bit(), word(2), word(units), word(48)
    matcher = frame_match(
        clk, rst, seek, command, tables.checksum, head, oldest, match_places, match_put, match_placed,
        match_units, reads, released, raw_reads, matched, match_idle, refuse, refused, heard, forget,
        word_bits=word_bits,
    )  # fmt: skip
    prefix = prefix_reader(
        clk, rst, prefix_go, prefix_units, log2, tables.build, tables.last, tables.mask, m_axis_sent,
        prefix_done, prefix_right, block_log2=block_log2,
    )  # fmt: skip
    directory = directory_reader(
        clk, rst, list_go, command.width, list_units, list_blocks, list_places, keep, entry, list_done,
        list_right,
    )  # fmt: skip
    front = receive_front(
        clk, rst, command, tables, seek, matched, match_idle, places.same, prefix_go, prefix_done,
        prefix_right, list_go, list_done, list_right, first_known, released, places.less, frame, crowded,
    )  # fmt: skip
    firsts = first_unit(clk, rst, prefix_done, row, log2, first_known, first, units=units)
    back = receive_blocks(
        clk, rst, command, tables, row, frame, deal_go, deal_done, stop, quiet, wrong, held, crowded, forget,
        bank, thinning, deal_count, deal_row, clear, cleared, clear_rows,
    )  # fmt: skip
    deal = block_dealer(
        clk, rst, deal_go, stop, bank, first, thinning, job_entry, number, deal_blocks, deal_places, span,
        deal_put, deal_placed, up, oldest, reads, raw_reads, jobs, starts, raw, bases[units], raw_go, raw_fed,
        deal_done, quiet, wrong, word_bits=word_bits,
    )  # fmt: skip
    raw_feed = raw_feeder(clk, rst, raw_go, deal_places.start(0), block_bytes, raw_units, m_axis_raw, raw_fed)
    slots = [
        job_slot(
            clk, rst, starts, n, bank, thinning, job_entry, deal_blocks.values, deal_blocks.base,
            jobs[n], bases[n],
        )
        for n in range(units)
    ]  # fmt: skip

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
        heard.next = refuse and not faulty

    # A span is of the match's or the dealer's: its fields follow `up` a clock later.
    @always_comb
    def spans():
        span.put.next = (up and up_late and match_put) or (deal_put and not up and not up_late)
        match_placed.next = span.placed and up
        deal_placed.next = span.placed and not up

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
        deal_place.next = concat(bank, number)
        job_entry.next = concat(modbv(0)[4:], dealt)

    @always(clk.posedge)
    def run():
        places.get.next = port.get and not raw_units.get
        places.amount.next = port.amount
        ticks.next = ticks + 1
        tick.next = ticks == 0
        bad.next = faulty or refuse
        reason.next = refused
        if faulty:
            reason.next = fault
        if keep:
            keep_at.next = keep_at + 1
        if list_go:
            keep_at.next = 0
        if frame.taken:
            deal_log2.next = log2
            begun.next = oldest
        if held == 0:
            tail.next = oldest
        elif held != 3:
            tail.next = begun
        up_late.next = up
        if up:
            up.next = match_put
        else:
            up.next = match_put and not deal_put
        if rst:
            bad.next = False
            tail.next = 0
            up.next = False

    return (
        store, frames, ring, feeders, reader, placing, counting, entries, matcher, prefix, directory, front,
        firsts, back, deal, raw_feed, slots, readers, spans, share, merge, run,
    )  # fmt: skip
