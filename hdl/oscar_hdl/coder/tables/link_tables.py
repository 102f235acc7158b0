"""The table sets of a link direction: builds a frame's tables, learns from its counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import AscParams
from oscar_hdl.coder.ports import SET_BITS, CountChain, DecoderTables, EncoderTables, TablesPort
from oscar_hdl.coder.tables.build_control import build_control
from oscar_hdl.coder.tables.decoder_rows import decoder_rows
from oscar_hdl.coder.tables.encoder_rows import encoder_rows
from oscar_hdl.coder.tables.frame_sets import frame_sets
from oscar_hdl.coder.tables.frequency_rows import frequency_rows
from oscar_hdl.coder.tables.learn_control import learn_control
from oscar_hdl.coder.tables.learn_rows import learn_rows
from oscar_hdl.coder.tables.row_delay import row_delay
from oscar_hdl.coder.tables.row_ratio import RATIO_BITS, row_ratio
from oscar_hdl.coder.tables.row_source import row_source
from oscar_hdl.coder.tables.row_totals import row_totals
from oscar_hdl.coder.tables.row_turns import row_turns
from oscar_hdl.coder.tables.set_checksum import initial_checksum, set_checksum
from oscar_hdl.coder.tables.set_store import set_store
from oscar_hdl.streams.bundles import Stream, bit, word

DEFAULTS = AscParams()


@block
def link_tables(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, tables: DecoderTables | EncoderTables,
    request: CountChain, answer: CountChain, *, encoding: bool, sets: int = 16, params: AscParams = DEFAULTS,
) -> Any:  # fmt: skip
    """Build, learn, query (docs/engine.md, "Engine, pair, NIC core").

    A build takes 620 clocks and 16 for each wait for a sent row; a learn takes 560 and the way through the
    chain; they run side by side. After a reset all counts are taken first (about 1,200 clocks); build and
    learn are accepted meanwhile. sets: a power of two;
    encoding: tables are EncoderTables, no rows are sent and s_axis_sent is not used. The answer is the
    request, with constant delay, its total five clocks later than its address.

    A row is 16 entries, one a clock. Phases say where in its row each stage of a build is: the first pass
    (row_source, row_totals), the division, after 45 clocks the second pass, after 46 more the third.
    """
    # A build.
    phase, building_clear, built, all_written = word(4), bit(), bit(), bit()
    turn, hand, finish, fix, live = (bit() for _ in range(5))
    reading, read_at, kept, sent, levels = bit(), word(9), word(16), bit(), word(64)
    entry, possible, raw, raw_late = word(16), bit(), word(10), word(10)
    here, late, late_entry, late_possible, late_raw = word(36), word(36), word(16), bit(), word(10)
    total, lost, peak, ratio = word(19), word(4), word(4), word(RATIO_BITS)
    frequency, cumulative = word(10), word(10)
    fresh, last, bank = bit(), word(4), bit()
    # Learning.
    mute, away, hold, clear, ended = bit(True), bit(), bit(True), bit(), bit()
    counted, count = bit(), word(19)
    histogram, learn_at, old, learnt, save = word(16), word(9), word(16), word(16), word(SET_BITS)
    write, written, stored, keep_soon, keep, run, new_checksum = (
        bit(), bit(), bit(), bit(), bit(), bit(), word(16),
    )  # fmt: skip

    build = build_control(
        clk, rst, port, s_axis_sent, hold, phase, building_clear, built, reading, read_at, sent, levels,
        encoding=encoding,
    )  # fmt: skip
    turns = row_turns(clk, building_clear, phase, reading, turn, hand, finish, fix, live)
    source = row_source(
        clk, phase, fresh, last, read_at, kept, sent, levels, entry, possible, histogram, encoding=encoding
    )
    totals = row_totals(clk, turn, phase, entry, possible, total, lost, peak)
    division = row_ratio(clk, turn, hand, finish, total, lost, ratio)
    delay = row_delay(clk, here, late, delay=45)
    frequencies = frequency_rows(
        clk, turn, fix, phase, late_entry, late_possible, ratio, peak, raw, late_raw, live, frequency,
        cumulative,
    )  # fmt: skip
    if encoding:
        rows = encoder_rows(clk, building_clear, live, frequency, cumulative, bank, tables, all_written)
    else:
        rows = decoder_rows(clk, building_clear, phase, live, cumulative, bank, tables, all_written)

    store = set_store(
        clk, port.load, read_at, kept, save, clear, write, away, learnt, written, port.query,
        port.query_fresh, port.checksum, keep, new_checksum, sets=sets, initial=initial_checksum(params),
    )  # fmt: skip
    frames = frame_sets(clk, rst, port, reading, read_at, histogram, learn_at, old, save)
    drain = learn_control(
        clk, rst, port, request, answer, mute, away, hold, clear, ended, counted, count, learn_at
    )
    learning = learn_rows(clk, clear, counted, count, old, write, learnt)
    check = set_checksum(clk, clear, run, learnt, new_checksum, params=params)

    @always_comb
    def wires():
        here.next = concat(modbv(0)[9:], possible, entry, raw_late)
        late_possible.next = late[26]
        late_entry.next = late[26:10]
        late_raw.next = late[10:]
        run.next = write or stored

    # A set is complete when its last entry is written; its checksum is, a clock later.
    @always(clk.posedge)
    def finish_up():
        raw_late.next = raw
        fresh.next = port.fresh
        last.next = port.last
        bank.next = port.bank
        built.next = all_written
        stored.next = written
        keep_soon.next = stored
        keep.next = keep_soon
        ended.next = keep_soon
        if rst:
            built.next = False
            stored.next = False
            keep_soon.next = False
            keep.next = False
            ended.next = False

    return (
        build, turns, source, totals, division, delay, frequencies, rows, store, frames, drain, learning,
        check, wires, finish_up,
    )  # fmt: skip
