"""The table sets of a link direction: builds a frame's tables, learns from its counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import AscParams
from oscar_hdl.coder.ports import SET_BITS, CountChain, DecoderTables, EncoderTables, TablesPort
from oscar_hdl.coder.tables.build_control import build_control
from oscar_hdl.coder.tables.frame_sets import frame_sets
from oscar_hdl.coder.tables.frequency_rows import frequency_rows
from oscar_hdl.coder.tables.learn_control import learn_control
from oscar_hdl.coder.tables.learn_rows import learn_rows
from oscar_hdl.coder.tables.reciprocal import reciprocal
from oscar_hdl.coder.tables.row_delay import row_delay
from oscar_hdl.coder.tables.row_ratio import RATIO_BITS, row_ratio
from oscar_hdl.coder.tables.row_source import row_source
from oscar_hdl.coder.tables.set_checksum import initial_checksum, set_checksum
from oscar_hdl.coder.tables.set_store import set_store
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def decoder_rows(
    clk: Any, clear: Any, phase: Any, live: Any, cumulative: Any, bank: Any, tables: DecoderTables,
    written: Any,
) -> Any:  # fmt: skip
    """Write rows in order, from row 0 after `clear` on: two levels (docs/engine.md, "Tables").

    cumulative u10: c of a symbol in phase 2 + symbol, with `live`. written: strobe, with the last write.
    """
    place, fourth, eighth = word(7), word(10), word(10)
    word0, word1, word2 = word(10), word(10), word(10)
    level1, level2 = bit(), bit()

    # c[s] is here in phase 2 + s and in word2 a clock later; three of them are complete in 6, 10, 14, 2.
    # c[12] comes in 14: with the two kept it takes the place of c[11] and c[10], which are written then.
    @always(clk.posedge)
    def gather():
        word2.next = cumulative
        word1.next = word2
        word0.next = word1
        if phase[2:] == 2:
            eighth.next = cumulative
            fourth.next = eighth
        if phase == 14:
            word1.next = eighth
            word0.next = fourth

    @always(clk.posedge)
    def write():
        level2.next = live and phase[2:] == 1
        level1.next = live and phase == 14
        if level2:
            place.next = place + 1
        if clear:
            place.next = 0

    @always_comb
    def outputs():
        tables.level1.next = level1
        tables.level2.next = level2
        tables.data.next = concat(word2, word1, word0)
        tables.address.next = concat(bank, place)
        if level1:
            tables.address.next = concat(bank, place[7:2])
        written.next = level2 and place == 127

    return gather, write, outputs


RECIPROCALS = tuple(reciprocal(f) for f in range(1 << 10))


@block
def encoder_rows(
    clk: Any, clear: Any, live: Any, frequency: Any, cumulative: Any, bank: Any, tables: EncoderTables,
    written: Any,
) -> Any:  # fmt: skip
    """Write rows in order, from row 0 after `clear` on: f, c and the reciprocal of f.

    frequency and cumulative u10: of a symbol after the other, with `live`. written: strobe, with the last
    write. Writes come two clocks behind.
    """
    live1, live2, place = bit(), bit(), word(9)
    found, factor = word(16), word(16)
    f1, f2, c1, c2 = word(10), word(10), word(10), word(10)

    @always(clk.posedge)
    def look_up():
        found.next = RECIPROCALS[int(frequency)]

    @always(clk.posedge)
    def move():
        factor.next = found
        f1.next = frequency
        f2.next = f1
        c1.next = cumulative
        c2.next = c1
        live1.next = live
        live2.next = live1
        if live2:
            place.next = place + 1
        if clear:
            place.next = 0

    @always_comb
    def outputs():
        tables.enable.next = live2
        tables.address.next = concat(bank, place)
        tables.data.next = concat(factor, c2, f2)
        written.next = live2 and place == 511

    return look_up, move, outputs


@block
def row_totals(
    clk: Any, first: Any, phase: Any, entry: Any, possible: Any, total: Any, lost: Any, peak: Any,
) -> Any:  # fmt: skip
    """Add up 16 entries, one a clock; results are there in the clock with the next row's `first`.

    first (phase 3): the row's first entry u16, which belongs to phase 3 + symbol. possible: of its symbol;
    entries of others are 0. total u19: the sum and 1; lost u4: impossible symbols; peak
    u4: the lowest symbol with the largest entry.
    """
    symbol, largest = word(4), word(16)

    @always(clk.posedge)
    def add():
        base = modbv(0)[19:]
        given = modbv(0)[17:]
        less = modbv(0)[18:]
        symbol.next = phase - 2
        base[:] = total
        if first:
            base[:] = 0
            base[0] = True
        total.next = base + entry
        given[:] = concat(first, entry)  # the first is above whatever there was
        less[:] = largest - given
        if less[17]:
            largest.next = entry[16:]
            peak.next = symbol
        if first:
            lost.next = 0
        elif not possible:
            lost.next = lost + 1

    return add


@block
def row_turns(
    clk: Any, clear: Any, phase: Any, reading: Any, turn: Any, hand: Any, finish: Any, fix: Any, live: Any
) -> Any:
    """Say when a row is in which stage.

    clear: nothing is on its way. Strobes: turn in phase 3, hand in 1, finish in 0, fix in 15. reading: a
    row's entries are read, from phase 0 on. live: the same 98 clocks later.
    """
    read1, read2, read3, read4 = bit(), bit(), bit(), bit()
    rows = word(5)

    @always(clk.posedge)
    def strobes():
        finish.next = phase == 15
        hand.next = phase == 0
        turn.next = phase == 2
        fix.next = phase == 14

    @always(clk.posedge)
    def follow():
        read1.next = reading
        read2.next = read1
        read3.next = read2
        read4.next = read3
        if turn:
            rows.next[5:1] = rows[4:]
            rows.next[0] = read4
        if hand:
            live.next = rows[4]
        if clear:
            read1.next = False
            read2.next = False
            read3.next = False
            read4.next = False
            rows.next = 0
            live.next = False

    return strobes, follow


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
