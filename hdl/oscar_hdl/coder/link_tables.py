"""The table sets of a link direction: builds a frame's tables, learns from its counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar.coding.asc.params import AscParams
from oscar_hdl.coder.decoder_rows import decoder_rows
from oscar_hdl.coder.encoder_rows import encoder_rows
from oscar_hdl.coder.frequency_rows import frequency_rows
from oscar_hdl.coder.ports import DecoderTables, EncoderTables
from oscar_hdl.coder.row_delay import row_delay
from oscar_hdl.coder.row_ratio import RATIO_BITS, row_ratio
from oscar_hdl.coder.row_source import row_source
from oscar_hdl.coder.row_totals import row_totals
from oscar_hdl.coder.row_turns import row_turns
from oscar_hdl.coder.set_checksum import initial_checksum, set_checksum
from oscar_hdl.coder.set_store import set_store
from oscar_hdl.coder.tables_control import tables_control
from oscar_hdl.nic.ports import CountChain, TablesPort
from oscar_hdl.streams.bundles import Stream, bit, word

DEFAULTS = AscParams()


@block
def link_tables(
    clk: Any, rst: Any, port: TablesPort, s_axis_sent: Stream, tables: DecoderTables | EncoderTables,
    request: CountChain, answer: CountChain, *, encoding: bool, sets: int = 16, params: AscParams = DEFAULTS,
) -> Any:  # fmt: skip
    """Build, learn, query (docs/engine.md, "Tables"); one at a time, fields hold until built or learnt.

    A build takes 620 clocks and 16 for each wait for a sent row; a learn takes 590, the way through the
    chain, and what symbol_counts have to wait for counts under way. After a reset all counts are taken first
    (about 1,200 clocks); build and learn are accepted meanwhile. sets: a power of two; encoding: tables are
    EncoderTables, no rows are sent and s_axis_sent is not used. The answer is the request, with constant
    delay, its total five clocks later than its address.

    A row is 16 entries, one a clock. Phases say where in its row each stage of the pipeline is: the first
    pass (row_source, row_totals), the division, after 45 clocks the second pass, after 46 more the third.
    """
    phase, learning, mute, clear, ended = word(4), bit(), bit(True), bit(), bit()
    turn, hand, finish, fix = bit(), bit(), bit(), bit()
    live, learns, fade = bit(), bit(), bit()
    reading, read_at, kept, count = bit(), word(9), word(16), word(19)
    sent, levels = bit(), word(64)
    entry, possible, back, raw = word(19), bit(), word(16), word(10)
    here, late, late_entry, late_possible, late_back = word(36), word(36), word(19), bit(), word(16)
    total, lost, peak, ratio = word(19), word(4), word(4), word(RATIO_BITS)
    frequency, cumulative, learnt = word(10), word(10), word(16)
    learns_soon, learns_now = bit(), bit()
    fresh, last, bank = bit(), word(4), bit()
    written, all_written, stored, keep_soon, keep = (bit() for _ in range(5))
    run, new_checksum = bit(), word(16)

    control = tables_control(
        clk, rst, port, s_axis_sent, request, answer, phase, learning, mute, clear, ended, reading, read_at,
        sent, levels, count, encoding=encoding,
    )  # fmt: skip
    turns = row_turns(clk, clear, phase, learning, reading, back, turn, hand, finish, fix, live, learns, fade)
    store = set_store(
        clk, port.load, read_at, kept, port.save, clear, learns_now, mute, learnt, written, port.query,
        port.query_fresh, port.checksum, keep, new_checksum, sets=sets, initial=initial_checksum(params),
    )  # fmt: skip
    source = row_source(
        clk, phase, learning, fresh, last, read_at, kept, sent, levels, count, raw, entry, possible, back,
        encoding=encoding,
    )  # fmt: skip
    totals = row_totals(clk, turn, phase, entry, possible, learning, total, lost, peak)
    division = row_ratio(clk, turn, hand, finish, learning, total, lost, ratio)
    delay = row_delay(clk, here, late)
    frequencies = frequency_rows(
        clk, turn, fix, phase, learning, learns, fade, late_entry, late_possible, ratio, peak, raw, late_back,
        live, frequency, cumulative, learnt,
    )  # fmt: skip
    check = set_checksum(clk, clear, run, learnt, new_checksum, params=params)
    if encoding:
        rows = encoder_rows(clk, clear, live, frequency, cumulative, bank, tables, all_written)
    else:
        rows = decoder_rows(clk, clear, phase, live, cumulative, bank, tables, all_written)

    @always_comb
    def wires():
        here.next = concat(possible, entry, back)
        late_possible.next = late[35]
        late_entry.next = late[35:16]
        late_back.next = late[16:]
        run.next = learns_now or stored

    # A set is complete when its last entry is written; its checksum is, a clock later.
    @always(clk.posedge)
    def finish_up():
        fresh.next = port.fresh
        last.next = port.last
        bank.next = port.bank
        learns_soon.next = learns
        learns_now.next = learns_soon
        stored.next = written
        keep_soon.next = stored
        keep.next = keep_soon and not mute
        ended.next = keep_soon or all_written
        if rst:
            learns_soon.next = False
            learns_now.next = False
            stored.next = False
            keep_soon.next = False
            keep.next = False
            ended.next = False

    return (
        control, turns, store, source, totals, division, delay, frequencies, check, rows, wires, finish_up,
    )  # fmt: skip
