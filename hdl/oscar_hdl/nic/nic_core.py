"""The NIC without its memory: barrel units, tables, frames, registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.barrel.ports import ALL_THREADS, THREADS
from oscar_hdl.coder.barrel_unit import Decoding, Encoding, Link, barrel_unit
from oscar_hdl.coder.decode.raw_decoder import raw_decoder
from oscar_hdl.coder.ports import CountChain, CountPort, RawJob, TablesPort
from oscar_hdl.coder.tables.link_tables import link_tables
from oscar_hdl.coder.tables.symbol_counts import symbol_counts
from oscar_hdl.nic.control.axi_lite_registers import axi_lite_registers
from oscar_hdl.nic.control.command_port import command_port
from oscar_hdl.nic.control.event_counters import event_counters, row_counter
from oscar_hdl.nic.control.list_ports import (
    FinderLinks,
    ListedCommand,
    ListRegisters,
    ListRun,
    RegisterFill,
)
from oscar_hdl.nic.control.list_unit import list_unit
from oscar_hdl.nic.control.registers import BY_NAME, COUNTER_EVENTS, ID_VALUE, STORED, VERSION
from oscar_hdl.nic.memory.barrel_ports import BarrelUnits, RawUnits
from oscar_hdl.nic.memory.planner import planner
from oscar_hdl.nic.ports import FrameCommand, MadeRows, NicProbe, TopPort
from oscar_hdl.nic.receive.barrel_receiver import barrel_receiver
from oscar_hdl.nic.receive.frame_finder import frame_finder
from oscar_hdl.nic.receive.ports import BarrelUnits as DecodeUnits
from oscar_hdl.nic.receive.ports import ClearPort, Dropped, HeldFrame, OldestFrame
from oscar_hdl.nic.send.barrel_sender import EncodeUnits, barrel_sender
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.zero import zero


@block
def copy_bit(source: Any, target: Any) -> Any:
    """Let `target` be `source`: a signal may be in one list only, where lists are converted."""

    @always_comb
    def copy():
        target.next = source

    return copy


@block
def probe_strobes(
    clk: Any, receive: FrameCommand, send: FrameCommand, located: Sequence[Any], encode_takes: Any,
    probe: NicProbe,
) -> Any:  # fmt: skip
    """Give a NicProbe's strobes, a clock late. located, encode_takes: of each unit (strobes)."""
    UNITS = len(located)

    @always(clk.posedge)
    def tell():
        probe.received.next = receive.done
        probe.sent.next = send.done
        probe.encode_row.next = encode_takes != 0
        probe.decode_row.next = False
        for i in range(UNITS):
            if located[i]:
                probe.decode_row.next = True

    return tell


COUNTERS = len(COUNTER_EVENTS)


@block
def nic_core(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, phase: Any, rows: BarrelUnits,
    raw_rows: RawUnits, clear: Any, cleared: Any, clear_row: Any, clear_rows: Any, top: TopPort,
    bad_packets: Any, s_axis_sums: Any, s_axis_list: Any, made: MadeRows, *, bus_bits: int = 64,
    sets: int = 16, store_log2: int = 12, rows_log2: int = 14, block_log2: int = 12, granule_log2: int = 8,
    probe: NicProbe | None = None,
) -> Any:  # fmt: skip
    """Decode frames into rows of memory and encode rows into frames, as a driver asks (docs/registers.md).

    s_axil: AxiLite(8). irq: level. s_axis_rx, m_axis_tx: frames_in, frames_out(bus_bits), frames of
    docs/protocol.md. Memory (docs/engine.md): phase u4; rows: of barrel units, as many as there are banks;
    raw_rows: of raw and constant blocks.
    clear (pulse): let clear_rows u14 rows from clear_row u20 on read as zeros, then give `cleared` (pulse),
    until which they hold. top: TopPort, of frames to send. bad_packets u3 (strobes):
    to be counted. s_axis_sums: Stream(128, keep=16), packets of final sums, for the next plan (planner).
    s_axis_list: Stream(64), lists of commands (list_unit). made: packets of rows that count for a list.

    sets: table sets of a direction, a power of two;
    store_log2: a frame store has 2^store_log2 words of the bus; rows_log2: memory has 2^rows_log2 rows;
    block_log2: of the blocks that memory is made for, others are refused, 10 to 17;
    granule_log2: of the values of a plan's block, 3 to 12; probe: what a bench may see.
    """
    units = len(rows.positions)
    if units not in (1, 2, 4, 8):
        raise ValueError(f"a NIC has 1, 2, 4 or 8 barrel units, got {units}")
    if sets & (sets - 1) or not 2 <= sets <= 128:
        raise ValueError(f"a direction has a power of two of table sets, 2 to 128, got {sets}")
    CONFIG_VALUE = BY_NAME["CONFIG"].pack(
        units=units,
        bus_bytes=bus_bits // 8,
        store_log2=store_log2,
        sets_log2=sets.bit_length() - 1,
        version=VERSION,
    )
    ROWS_LOG2, BLOCK_LOG2, GRANULE_LOG2 = rows_log2, block_log2, granule_log2
    PLAN_LOG2 = min(max(rows_log2 + 5 - granule_log2, 3), 15)
    INDEX = {name: register.index for name, register in BY_NAME.items()}
    ID, CONFIG, STATUS, ABORT = (INDEX[name] for name in ("ID", "CONFIG", "STATUS", "ABORT"))
    RECEIVE_COMMAND, SEND_COMMAND = INDEX["RECEIVE_COMMAND"], INDEX["SEND_COMMAND"]
    RECEIVE_RESULT, SEND_RESULT = INDEX["RECEIVE_RESULT"], INDEX["SEND_RESULT"]
    OLDEST_FRAME, OLDEST_NAME = INDEX["OLDEST_FRAME"], INDEX["OLDEST_NAME"]
    PLAN_SEGMENT, PLAN_COMMAND = INDEX["PLAN_SEGMENT"], INDEX["PLAN_COMMAND"]
    PLAN_RESULT, FIRST_EDGE = INDEX["PLAN_RESULT"], INDEX["PLAN_EDGE_1"]
    LIST_COMMAND, LIST_RESULT = INDEX["LIST_COMMAND"], INDEX["LIST_RESULT"]
    LIST_SHOW, ENTRY_STATE = INDEX["LIST_SHOW"], INDEX["ENTRY_STATE"]
    STORED_COUNT = len(STORED)

    # Registers.
    values = [word(32) for _ in STORED]
    receive_values = [values[STORED.index(f"RECEIVE_{part}")] for part in ("FRAME", "SHAPE", "TABLES")]
    send_values = [values[STORED.index(f"SEND_{part}")] for part in ("FRAME", "SHAPE", "TABLES")]
    wr_strobe, wr_index, wr_data = bit(), word(6), word(32)
    rd_index, rd_value, rd_counter, counted = word(6), word(32), word(4), word(32)
    locked, write_refused, events = word(STORED_COUNT), bit(), word(32)
    counter_events, second_events, third_events = word(16), word(16), word(16)
    receive_issue, send_issue, receive_abort = bit(), bit(), bit()
    receive_locked, send_locked, receive_held, send_held = bit(), bit(), bit(), bit()
    receive_refused, send_refused = bit(), bit()
    receive_result, send_result = word(23), word(23)
    receive_running, send_running = word(2), word(2)
    send_abort = bit()
    plan_segment, plan_issue, plan_edge, plan_result = bit(), bit(), word(16), word(10)
    planned, plan_refused = bit(), bit()

    # Lists.
    lists, running, listed, fill = ListRegisters(), ListRun(), ListedCommand(), RegisterFill(STORED_COUNT)
    finder, held = FinderLinks(), HeldFrame()
    found = finder.found
    receive_verdict, send_verdict, ordered = word(2), word(2), word(32)
    free, denied, list_bad = bit(), bit(), bit()

    # Commands and jobs.
    receive, send = FrameCommand(), FrameCommand()
    send.count = top.count
    dropped, last_reason, clearing, oldest = Dropped(), word(4), ClearPort(), OldestFrame()
    clearing.start, clearing.done, clearing.rows = clear, cleared, clear_rows
    decoder_port, encoder_port = TablesPort(), TablesPort()
    decoding = [Decoding(*two) for two in zip(rows.positions, rows.sums, strict=True)]
    encoding = [Encoding(source) for source in rows.sources]
    # Tables pass from unit to unit, and counts through all that count back to the tables.
    links = [Link() for _ in range(units + 1)]
    raw, raw_bytes, sent, raw_phase = RawJob(), Stream(16), Stream(64), word(5)
    none_sent, raw_count, raw_chain = Stream(64), CountPort(), CountChain()

    parts = [
        axi_lite_registers(
            clk, rst, s_axil, values, locked, write_refused, wr_strobe, wr_index, wr_data, rd_index, rd_value,
            events, irq, fill,
        ),
        command_port(
            clk, rst, receive_issue, listed.trial, ordered, *receive_values, receive_abort, receive,
            clear_row, receive_running, receive_locked, receive_refused, receive_verdict, receive_result,
            receive=True, sets=sets, rows_log2=rows_log2, block_log2=block_log2,
        ),
        command_port(
            clk, rst, send_issue, listed.trial, ordered, *send_values, send_abort, send, top.row,
            send_running, send_locked, send_refused, send_verdict, send_result, receive=False, sets=sets,
            rows_log2=rows_log2, block_log2=block_log2,
        ),
        list_unit(
            clk, rst, s_axis_list, lists, running, listed, fill, finder, made, receive, send
        ),
        frame_finder(clk, rst, oldest, held, finder.armed, running, found, finder.gate),
        planner(
            clk, rst, s_axis_sums, plan_segment, plan_issue, wr_data, rd_counter, plan_edge, plan_result,
            planned, plan_refused, granule_log2=granule_log2, blocks_log2=PLAN_LOG2,
        ),
        event_counters(clk, rst, counter_events, second_events, third_events, rd_counter, counted),
        barrel_receiver(
            clk, rst, s_axis_rx, command=receive, row=clear_row, dropped=dropped, oldest_frame=oldest,
            held_frame=held, tables=decoder_port, m_axis_sent=sent, clear=clearing, bus_bits=bus_bits,
            store_log2=store_log2, block_log2=block_log2,
            units=DecodeUnits(
                [one.job for one in decoding], [one.feed for one in decoding], rows.decode_blocks, raw,
                raw_bytes, raw_rows.decode_row,
            ),
        ),
        barrel_sender(
            clk, rst, m_axis_tx, send, top.row, top, encoder_port,
            EncodeUnits(
                [one.job for one in encoding], [one.drain for one in encoding],
                [one.bytes for one in encoding], rows.encode_blocks, raw_rows.source, raw_rows.encode_row,
            ),
            bus_bits=bus_bits, store_log2=store_log2, block_log2=block_log2,
        ),
        link_tables(
            clk, rst, decoder_port, sent, links[0].decoder_tables, links[0].decoder_counts, raw_chain,
            encoding=False, sets=sets,
        ),
        link_tables(
            clk, rst, encoder_port, none_sent, links[0].encoder_tables, links[0].encoder_counts,
            links[units].encoder_counts, encoding=True, sets=sets,
        ),
        raw_decoder(clk, rst, raw_phase, raw, raw_bytes, raw_rows.position, raw_rows.sums, raw_count),
        symbol_counts(clk, rst, raw_count, raw.bank, links[units].decoder_counts, raw_chain),
    ]  # fmt: skip
    parts += [
        barrel_unit(clk, rst, phase, decoding[u], encoding[u], links[u], links[u + 1]) for u in range(units)
    ]
    parts += [zero(clk, signal) for signal in (send_abort, none_sent.tvalid)]
    decoder_idle, encoder_idle = ([word(THREADS) for _ in range(units)] for _ in range(2))
    described, taken, headed, located = ([bit() for _ in range(units)] for _ in range(4))
    decode_takes, encode_takes, rows_in, rows_out = word(units + 1), word(units + 1), word(3), word(3)
    parts += [
        row_counter(clk, phase, decode_takes, rows_in), row_counter(clk, phase, encode_takes, rows_out)
    ]  # fmt: skip
    for own, others in (
        (decoder_idle, [one.job.idle for one in decoding]),
        (encoder_idle, [one.job.idle for one in encoding]),
        (described, [one.sums.described for one in decoding]),
        (located, [one.position.take for one in decoding]),
        (taken, [one.source.take for one in encoding]),
        (headed, [one.source.header for one in encoding]),
    ):
        parts += [copy_bit(other, copy) for other, copy in zip(others, own, strict=True)]
    raw_described, raw_taken = raw_rows.sums.described, raw_rows.source.take
    if probe is not None:
        parts.append(probe_strobes(clk, receive, send, located, encode_takes, probe))
    decodes, encodes = bit(), bit()
    receive_failed, send_failed, refused, list_refused = bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def phases():
        phase.next = phase + 1
        raw_phase.next = raw_phase + 1

    @always(clk.posedge)
    def commands():
        receive_issue.next = listed.issue_receive or (free and wr_index == RECEIVE_COMMAND)
        send_issue.next = listed.issue_send or (free and wr_index == SEND_COMMAND)
        receive_abort.next = found.aborts or (free and wr_index == ABORT and wr_data[0])
        denied.next = wr_strobe and not free and wr_index == RECEIVE_COMMAND
        if wr_strobe and not free and wr_index == SEND_COMMAND:
            denied.next = True
        lists.abort.next = wr_strobe and wr_index == ABORT and wr_data[0]
        lists.issue.next = wr_strobe and wr_index == LIST_COMMAND
        if wr_strobe and wr_index == LIST_SHOW:
            lists.show.at.next = wr_data[8:]
        plan_segment.next = wr_strobe and wr_index == PLAN_SEGMENT
        plan_issue.next = wr_strobe and wr_index == PLAN_COMMAND
        if dropped.bad:
            last_reason.next = dropped.reason
        if rst:
            last_reason.next = 0

    @always_comb
    def hold():
        """Registers of commands are the list's while one runs."""
        receive_held.next = receive_locked or running.running
        send_held.next = send_locked or running.running
        lists.busy.next = receive_locked or send_locked or receive_running != 0 or send_running != 0
        lists.order.next = wr_data
        ordered.next = wr_data
        if running.running:
            ordered.next = listed.order
        free.next = wr_strobe and not running.running
        listed.receive_open.next = not receive_locked
        listed.send_open.next = not send_locked
        listed.judged.next = receive_verdict[0] or send_verdict[0]
        listed.bad.next = receive_verdict[1] or send_verdict[1]

    @always_comb
    def locks():
        locked.next = concat(
            send_held, send_held, send_held, receive_held, receive_held, receive_held, modbv(0)[1:]
        )  # fmt: skip

    @always(clk.posedge)
    def work():
        decodes.next = False
        encodes.next = False
        for i in range(units):
            if decoder_idle[i] != ALL_THREADS:
                decodes.next = True
            if encoder_idle[i] != ALL_THREADS:
                encodes.next = True

    @always_comb
    def ends():
        for i in range(units):
            decode_takes.next[i] = described[i]
            encode_takes.next[i] = taken[i] and not headed[i]
        decode_takes.next[units] = raw_described
        encode_takes.next[units] = raw_taken
        receive_failed.next = receive.done and receive.error != 0
        send_failed.next = send.done and send.error != 0
        refused.next = receive_refused or send_refused or write_refused or plan_refused or list_refused
        list_refused.next = denied or lists.refused

    @always(clk.posedge)
    def notice():
        events.next[0] = receive.done
        events.next[1] = receive_failed
        events.next[2] = dropped.bad
        events.next[3] = send.done
        events.next[4] = send_failed
        events.next[5] = bad_packets != 0 or lists.bad_packet
        events.next[6] = refused
        events.next[7] = planned
        events.next[8] = oldest.arrived
        events.next[9] = lists.ended
        # In the order of COUNTER_EVENTS.
        counter_events.next[0] = True
        counter_events.next[1] = receive_running != 0
        counter_events.next[2] = send_running != 0
        counter_events.next[3] = receive_running != 0 and not decodes
        counter_events.next[4] = send_running != 0 and not encodes
        counter_events.next[5] = rows_in[0]
        counter_events.next[6] = rows_out[0]
        counter_events.next[7] = s_axis_rx.tvalid and s_axis_rx.tready
        counter_events.next[8] = m_axis_tx.tvalid and m_axis_tx.tready
        counter_events.next[9] = receive.done and not receive_failed
        counter_events.next[10] = send.done and not send_failed
        counter_events.next[11] = dropped.bad
        counter_events.next[12] = s_axis_rx.tvalid and not s_axis_rx.tready
        counter_events.next[13] = m_axis_tx.tvalid and not m_axis_tx.tready
        counter_events.next[14] = write_refused or plan_refused or list_refused
        # One of a list waits while another packet is counted.
        counter_events.next[15] = bad_packets[0] or list_bad or lists.bad_packet
        list_bad.next = (list_bad or lists.bad_packet) and bad_packets[0] and not rst
        # What happens more than once in a clock.
        second_events.next[5] = rows_in[1]
        third_events.next[5] = rows_in[2]
        second_events.next[6] = rows_out[1]
        third_events.next[6] = rows_out[2]
        second_events.next[11] = receive_failed
        third_events.next[11] = send_failed
        second_events.next[14] = receive_refused
        third_events.next[14] = send_refused
        second_events.next[15] = bad_packets[1]
        third_events.next[15] = bad_packets[2]

    @always(clk.posedge)
    def show():
        rd_counter.next = rd_index[4:]
        rd_value.next = counted
        if rd_index == ID:
            rd_value.next = ID_VALUE
        elif rd_index == CONFIG:
            rd_value.next = CONFIG_VALUE
        elif rd_index == STATUS:
            rd_value.next = concat(
                modbv(PLAN_LOG2)[4:], modbv(GRANULE_LOG2)[4:], modbv(BLOCK_LOG2)[5:], modbv(ROWS_LOG2)[5:],
                modbv(0)[2:], send_running, send_locked, receive_running, receive_locked,
            )  # fmt: skip
        elif rd_index == RECEIVE_RESULT:
            rd_value.next = concat(last_reason, receive_result)
        elif rd_index == OLDEST_FRAME:
            rd_value.next = concat(oldest.chunk, oldest.step)
        elif rd_index == OLDEST_NAME:
            rd_value.next = concat(oldest.there, modbv(0)[7:], oldest.number, oldest.sub, oldest.peer)
        elif rd_index == SEND_RESULT:
            rd_value.next = send_result
        elif rd_index == PLAN_RESULT:
            rd_value.next = plan_result
        elif rd_index == LIST_RESULT:
            rd_value.next = lists.result
        elif rd_index == ENTRY_STATE:
            rd_value.next = concat(
                lists.show.left, modbv(0)[2:], lists.show.state, modbv(0)[2:], lists.show.events
            )
        elif rd_index >= FIRST_EDGE:
            rd_value.next = plan_edge

    return parts, phases, commands, hold, locks, work, ends, notice, show
