"""The table sets of a link direction: builds a frame's tables, learns from its counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar.coding.asc.params import AscParams
from oscar_hdl.coder.ports import COUNT_BITS, SET_BITS, CountChain, TablesPort, TableWrites
from oscar_hdl.coder.tables.build_control import RowReads, build_control
from oscar_hdl.coder.tables.frame_sets import frame_sets
from oscar_hdl.coder.tables.learn_control import learn_control
from oscar_hdl.coder.tables.learn_rows import learn_rows
from oscar_hdl.coder.tables.row_quads import row_quads
from oscar_hdl.coder.tables.row_ratio import RATIO_BITS, row_ratio
from oscar_hdl.coder.tables.row_source import row_source
from oscar_hdl.coder.tables.row_totals import TOTAL_BITS, row_totals
from oscar_hdl.coder.tables.set_store import initial_checksum, set_checksum, set_store
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.lane_delay import lane_delay

QUADS_AT, QUAD_BITS = 36, 50  # clocks from a quad that is read to its write
# Clocks from a sender's `built` to the last quad: a block looks no symbol up sooner than 40 clocks behind its
# start, and quads pass eight units at most, a clock each. A build asked for sooner would spoil the last rows;
# send_front cuts a frame into blocks first (frame_plan), some 30 clocks.
EARLY = 24


@block
def table_writer(
    clk: Any, rst: Any, reading: Any, quad: Any, bank: Any, tables: TableWrites, ended: Any, *, early: int
) -> Any:  # fmt: skip
    """Write quads u50 QUADS_AT clocks after they were read. ended: strobe, 1 + early before the last."""
    LAST = 126 - early
    way, place, own = word(QUADS_AT), word(7), bit()

    @always(clk.posedge)
    def follow():
        way.next[QUADS_AT:1] = way[QUADS_AT - 1 :]
        way.next[0] = reading
        if way[QUADS_AT - 1]:
            place.next = place + 1
        if place == 0:  # a command's fields may change behind `built`
            own.next = bank
        if rst:
            way.next = 0
            place.next = 0

    @always_comb
    def outputs():
        tables.enable.next = way[QUADS_AT - 1]
        tables.address.next = concat(own, place)
        tables.data.next = quad
        ended.next = way[QUADS_AT - 1] and place == LAST

    return follow, outputs


@block
def table_builder(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, hold: Any, kept: Any, reads: RowReads,
    histogram: Any, tables: TableWrites, *, encoding: bool,
) -> Any:  # fmt: skip
    """Build tables, four symbols a clock: from port.build to port.built.

    kept u64: of the set, two clocks behind reads.at, with which `histogram` u64 comes: what the row was.
    Phases say where in its row each stage is; docs/engine.md, "A build", has the clocks.
    """
    fresh, last, bank, ended = bit(), word(4), bit(), bit()
    entries, possible, possible_late, quad = word(64), word(4), word(4), word(QUAD_BITS)
    total, lost, peak, ratio = word(TOTAL_BITS), word(4), word(4), word(RATIO_BITS)
    here, middle, late, late_entries, late_possible = word(68), word(68), word(68), word(64), word(4)
    ticks = word(4)

    control = build_control(clk, rst, port, s_axis_sent, hold, ended, reads, encoding=encoding)
    source = row_source(clk, reads, fresh, last, kept, entries, possible, histogram, encoding=encoding)
    totals = row_totals(clk, reads.phase, entries, possible, total, lost, peak)
    division = row_ratio(clk, reads.phase, total, lost, ratio)
    delays = [lane_delay(clk, ticks, here, middle, 16), lane_delay(clk, ticks, middle, late, 7)]
    quads = row_quads(clk, reads.phase, late_entries, late_possible, ratio, peak, quad)
    writer = table_writer(clk, rst, reads.reading, quad, bank, tables, ended, early=EARLY if encoding else 0)

    @always_comb
    def wires():
        here.next = concat(possible_late, entries)
        late_possible.next = late[68:64]
        late_entries.next = late[64:]

    @always(clk.posedge)
    def fields():
        ticks.next = ticks + 1
        possible_late.next = possible
        fresh.next = port.fresh
        last.next = port.last
        bank.next = port.bank

    return control, source, totals, division, delays, quads, writer, wires, fields


DEFAULTS = AscParams()


@block
def link_tables(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, tables: TableWrites, request: CountChain,
    answer: CountChain, *, encoding: bool, sets: int = 16, params: AscParams = DEFAULTS,
) -> Any:  # fmt: skip
    """Build, learn, query (docs/engine.md, "Tables").

    A build takes 163 clocks and 4 for each wait for a sent row; a learn takes 280 and the way through the
    chain; they run side by side. When `encoding`, the next build is asked for EARLY clocks behind `built` or
    later, when the last quad is written. After a reset all counts are taken first (about 580 clocks); build
    and learn are accepted meanwhile. sets: a power of two; encoding: no rows are sent and s_axis_sent is not
    used. The answer is the request, with constant delay, its totals five clocks later than its address.
    """
    mute, away, hold, clear, ended = bit(True), bit(), bit(True), bit(), bit()
    reads, kept, histogram = RowReads(), word(64), word(64)
    counted, counts, learn_at = bit(), word(2 * COUNT_BITS), word(8)
    olds, learnt, save, new_checksum = word(32), word(32), word(SET_BITS), word(16)
    write, written, stored = bit(), bit(), bit()

    builder = table_builder(
        clk, rst, port, s_axis_sent, hold, kept, reads, histogram, tables, encoding=encoding
    )
    store = set_store(
        clk, port.load, reads.at, kept, save, clear, write, away, learnt, written, port.query,
        port.query_fresh, port.checksum, ended, new_checksum, sets=sets, initial=initial_checksum(params),
    )  # fmt: skip
    frames = frame_sets(clk, rst, port, reads.reading, reads.at, histogram, learn_at, olds, save)
    drain = learn_control(
        clk, rst, port, request, answer, mute, away, hold, clear, ended, counted, counts, learn_at
    )
    learning = learn_rows(clk, clear, counted, counts, olds, write, learnt)
    check = set_checksum(clk, clear, write, learnt, new_checksum, params=params)

    # A set is complete when its last pair is written; its checksum is, two clocks later.
    @always(clk.posedge)
    def finish_up():
        stored.next = written
        ended.next = stored
        if rst:
            stored.next = False
            ended.next = False

    return builder, store, frames, drain, learning, check, finish_up
