"""The NIC without its memory: engines, tables, frames, registers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.decode.raw_decoder import raw_decoder
from oscar_hdl.coder.engine_pair import engine_pair
from oscar_hdl.coder.ports import (
    LANES,
    TURN,
    CountChain,
    CountPort,
    DecoderJob,
    EncoderJob,
    RawJob,
    TablesPort,
    TableWrites,
)
from oscar_hdl.coder.tables.link_tables import link_tables
from oscar_hdl.coder.tables.symbol_counts import symbol_counts
from oscar_hdl.nic.control.axi_lite_registers import axi_lite_registers
from oscar_hdl.nic.control.command_port import command_port
from oscar_hdl.nic.control.event_counters import event_counters, row_counter
from oscar_hdl.nic.control.list_ports import (
    ArmedReceive,
    FoundEntry,
    ListedCommand,
    ListRegisters,
    ListRun,
    RegisterFill,
    TrackerLook,
)
from oscar_hdl.nic.control.list_unit import list_unit
from oscar_hdl.nic.control.registers import BY_NAME, COUNTER_EVENTS, ID_VALUE, STORED, VERSION
from oscar_hdl.nic.memory.planner import planner
from oscar_hdl.nic.ports import FrameCommand, NicProbe, TopPort
from oscar_hdl.nic.probe_strobes import probe_strobes
from oscar_hdl.nic.receive.frame_finder import frame_finder
from oscar_hdl.nic.receive.ports import ClearPort, DecoderUnits, Dropped, HeldFrame, OldestFrame
from oscar_hdl.nic.receive.receiver import receiver
from oscar_hdl.nic.send.sender import sender
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.next_phase import next_phase
from oscar_hdl.streams.zero import zero


@block
def copy_bit(source: Any, target: Any) -> Any:
    """Let `target` be `source`: a signal may be in one list only, where lists are converted."""

    @always_comb
    def copy():
        target.next = source

    return copy


COUNTERS = len(COUNTER_EVENTS)
RAW_AHEAD = 2  # clocks that the raw decoder's phase is ahead


@block
def nic_core(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, phase: Any, positions: Any,
    sums: Any, decode_rows: Any, adopt: Any, sources: Any, encode_rows: Any, clear: Any, cleared: Any,
    clear_row: Any, clear_rows: Any, top: TopPort, bad_packets: Any, s_axis_sums: Any, s_axis_list: Any, *,
    engines: int, bus_bits: int = 64, sets: int = 16, store_log2: int = 12, rows_log2: int = 14,
    block_log2: int = 0, banks: int = 1, granule_log2: int = 8, pair: Any = engine_pair,
    probe: NicProbe | None = None,
) -> Any:  # fmt: skip
    """Decode frames into rows of memory and encode rows into frames, as a driver asks (docs/registers.md).

    s_axil: AxiLite(8). irq: level. s_axis_rx, m_axis_tx: frames_in, frames_out(bus_bits), frames of
    docs/protocol.md. Memory (docs/engine.md): phase u5; lists of engines + 1 elements, the last one for raw
    and constant blocks: positions, sums, sources (PositionPort, SumPort, SourcePort), decode_rows and
    encode_rows u20, the first row of a unit's block, still while it works; adopt: bits, local values are 0.
    clear (pulse): let clear_rows u14 rows from clear_row u20 on read as zeros, then give `cleared` (pulse),
    until which they hold. top: TopPort, of frames to send. bad_packets u3 (strobes):
    to be counted. s_axis_sums: Stream(128, keep=16), packets of final sums, for the next plan (planner).
    s_axis_list: Stream(64), lists of commands (list_unit).

    engines: pairs of a decoder and an encoder, even; sets: table sets of a direction, a power of two;
    store_log2: a frame store has 2^store_log2 words of the bus; rows_log2: memory has 2^rows_log2 rows;
    block_log2: of the blocks that memory is made for, others are refused; 0: any, 10 to 17;
    banks: of the memory; block b of it is for an engine whose number is b modulo banks, too;
    granule_log2: of the values of a plan's block, 3 to 12;
    pair: what two engines are, with engine_pair's arguments; probe: what a bench may see.
    """
    if engines % 2 or not 2 <= engines <= 64:
        raise ValueError(f"a NIC has an even number of engines, 2 to 64, got {engines}")
    if sets & (sets - 1) or not 2 <= sets <= 128:
        raise ValueError(f"a direction has a power of two of table sets, 2 to 128, got {sets}")
    if banks < 1 or engines % (2 * banks):
        raise ValueError(f"each bank has as many pairs of engines, got {engines} engines and {banks} banks")
    UNITS, PAIRS = engines + 1, engines // 2
    # Engines in the order of pairs: those of a bank are neighbours, and come to it one behind the other.
    order = [place * banks + bank for bank in range(banks) for place in range(engines // banks)]
    CONFIG_VALUE = BY_NAME["CONFIG"].pack(
        engines=engines,
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
    armed, found, gate, held = ArmedReceive(), FoundEntry(), TrackerLook(), HeldFrame()
    receive_verdict, send_verdict, ordered = word(2), word(2), word(32)
    free, denied, list_bad = bit(), bit(), bit()

    # Commands and jobs.
    receive, send = FrameCommand(), FrameCommand()
    send.count = top.count
    turn, first_adopts, second_adopts = bit(), bit(), bit()
    dropped, last_reason, clearing, oldest = Dropped(), word(4), ClearPort(), OldestFrame()
    clearing.start, clearing.done, clearing.rows = clear, cleared, clear_rows
    decoder_port, encoder_port = TablesPort(), TablesPort()
    # Tables pass from pair to pair; a block looks into them many clocks after it has begun.
    decoder_tables = [TableWrites() for _ in range(PAIRS + 1)]
    encoder_tables = [TableWrites() for _ in range(PAIRS + 1)]
    decoder_jobs = [DecoderJob() for _ in range(engines)]
    encoder_jobs = [EncoderJob() for _ in range(engines)]
    decoder_bytes = [Stream(16) for _ in range(engines)]
    encoder_bytes = [Stream(16, keep=2) for _ in range(engines)]
    raw, raw_bytes, sent, raw_phase = RawJob(), Stream(16), Stream(64), word(5)
    frame_banks = [bit() for _ in range(UNITS)]
    used_banks = [job.bank for job in (*decoder_jobs, raw)]
    none_sent = Stream(64)
    # Counts pass from the tables through all that count back to them.
    decoder_counts = [CountChain() for _ in range(PAIRS + 2)]
    encoder_counts = [CountChain() for _ in range(PAIRS + 1)]
    raw_count = CountPort()

    parts = [copy_bit(used, copy) for used, copy in zip(used_banks, frame_banks, strict=True)]
    parts += [
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
        list_unit(clk, rst, s_axis_list, lists, running, listed, fill, armed, found, gate, receive, send),
        frame_finder(clk, rst, oldest, held, armed, running, found, gate),
        planner(
            clk, rst, s_axis_sums, plan_segment, plan_issue, wr_data, rd_counter, plan_edge, plan_result,
            planned, plan_refused, granule_log2=granule_log2, blocks_log2=PLAN_LOG2,
        ),
        event_counters(clk, rst, counter_events, second_events, third_events, rd_counter, counted),
        receiver(
            clk, rst, s_axis_rx, command=receive, row=clear_row, dropped=dropped, oldest_frame=oldest,
            held_frame=held, tables=decoder_port, m_axis_sent=sent, clear=clearing, bus_bits=bus_bits,
            store_log2=store_log2, block_log2=block_log2, banks=banks,
            decoders=DecoderUnits(decoder_jobs, decoder_bytes, raw, raw_bytes, decode_rows),
        ),
        sender(
            clk, rst, m_axis_tx, send, top.row, top, encoder_port, encoder_jobs, encoder_bytes, encode_rows,
            sources[engines], bus_bits=bus_bits, store_log2=store_log2, block_log2=block_log2, banks=banks,
        ),
        link_tables(
            clk, rst, decoder_port, sent, decoder_tables[0], decoder_counts[0], decoder_counts[PAIRS + 1],
            encoding=False, sets=sets,
        ),
        link_tables(
            clk, rst, encoder_port, none_sent, encoder_tables[0], encoder_counts[0], encoder_counts[PAIRS],
            encoding=True, sets=sets,
        ),
        raw_decoder(clk, rst, raw_phase, raw, raw_bytes, positions[engines], sums[engines], raw_count),
        symbol_counts(
            clk, rst, raw_count, raw.bank, decoder_counts[PAIRS], decoder_counts[PAIRS + 1]
        ),
    ]  # fmt: skip
    parts += [zero(clk, signal) for signal in (send_abort, none_sent.tvalid)]
    phases = [phase, *(word(5) for _ in range(PAIRS - 1))]
    # From pair to pair the phase goes on by the turns of two places; with each bank it begins again.
    steps = [2 * TURN if p % (PAIRS // banks) else -2 * TURN * (PAIRS // banks - 1) for p in range(1, PAIRS)]
    parts += [
        next_phase(clk, before, after, ahead=step % LANES)
        for (before, after), step in zip(pairwise(phases), steps, strict=True)
    ]
    parts.append(next_phase(clk, phase, raw_phase, ahead=RAW_AHEAD))
    for p in range(PAIRS):
        first, second = order[2 * p : 2 * p + 2]
        two = slice(first, second + 1, banks)
        parts.append(
            pair(
                clk, rst, phases[p], decoder_tables[p], decoder_tables[p + 1], encoder_tables[p],
                encoder_tables[p + 1], decoder_jobs[two], decoder_bytes[two], positions[two], sums[two],
                decoder_counts[p], decoder_counts[p + 1], encoder_jobs[two], encoder_bytes[two], sources[two],
                encoder_counts[p], encoder_counts[p + 1],
            )
        )  # fmt: skip

    decoder_idle, encoder_idle = [bit() for _ in range(engines)], [bit() for _ in range(engines)]
    decoded, encoded, encoded_header = ([bit() for _ in range(UNITS)] for _ in range(3))
    decode_takes, encode_takes, rows_in, rows_out = word(UNITS), word(UNITS), word(3), word(3)
    parts += [
        row_counter(clk, phase, decode_takes, rows_in), row_counter(clk, phase, encode_takes, rows_out)
    ]  # fmt: skip
    for own, others in (
        (decoder_idle, [job.idle for job in decoder_jobs]),
        (encoder_idle, [job.idle for job in encoder_jobs]),
        (decoded, [port.take for port in sums]),
        (encoded, [port.take for port in sources]),
        (encoded_header, [port.header for port in sources]),
    ):
        parts += [copy_bit(other, copy) for other, copy in zip(others, own, strict=True)]
    if probe is not None:
        parts.append(probe_strobes(clk, receive, send, decode_takes, encode_takes, probe))
    decoding, encoding = bit(), bit()
    receive_failed, send_failed, refused, list_refused = bit(), bit(), bit(), bit()

    # Frames take the banks in turn, from 0 on after a reset.
    @always(clk.posedge)
    def modes():
        phase.next = phase + 1
        if receive.start:
            turn.next = not turn
            if turn:
                second_adopts.next = receive.adopt
            else:
                first_adopts.next = receive.adopt
        for i in range(UNITS):
            adopt[i].next = first_adopts
            if frame_banks[i]:
                adopt[i].next = second_adopts
        if rst:
            turn.next = False

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
        decoding.next = False
        encoding.next = False
        for i in range(engines):
            if not decoder_idle[i]:
                decoding.next = True
            if not encoder_idle[i]:
                encoding.next = True

    @always_comb
    def ends():
        for i in range(UNITS):
            decode_takes.next[i] = decoded[i]
            encode_takes.next[i] = encoded[i] and not encoded_header[i]
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
        counter_events.next[3] = receive_running != 0 and not decoding
        counter_events.next[4] = send_running != 0 and not encoding
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
            rd_value.next = concat(lists.show.state, modbv(0)[2:], lists.show.events)
        elif rd_index >= FIRST_EDGE:
            rd_value.next = plan_edge

    return parts, modes, commands, hold, locks, work, ends, notice, show
