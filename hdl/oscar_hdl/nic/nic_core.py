"""The NIC without its memory: barrel units, tables, frames, registers."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.barrel_unit import Decoding, Encoding, Link, barrel_unit
from oscar_hdl.coder.ports import TablesPort, banks_of
from oscar_hdl.coder.tables.link_tables import link_tables
from oscar_hdl.coder.unit.ports import ALL_THREADS, THREADS
from oscar_hdl.nic.control import list_ports, register_ports
from oscar_hdl.nic.control.axi_lite_registers import axi_lite_registers, read_choice
from oscar_hdl.nic.control.command_port import command_port
from oscar_hdl.nic.control.event_counters import event_counters, row_counter
from oscar_hdl.nic.control.list_unit import list_unit
from oscar_hdl.nic.control.registers import BY_NAME, COMMAND_PARTS, ID_VALUE, PEERS_LOG2, STORED, VERSION
from oscar_hdl.nic.memory.planner import planner
from oscar_hdl.nic.memory.ports import MemoryPort
from oscar_hdl.nic.ports import FrameCommand, NicProbe
from oscar_hdl.nic.receive.drop_counts import KEPT_BITS, drop_counts
from oscar_hdl.nic.receive.frame_finder import frame_finder
from oscar_hdl.nic.receive.frame_receiver import frame_receiver
from oscar_hdl.nic.receive.ports import ClearPort, DecodeUnits, Dropped, HeldFrame, OldestFrame
from oscar_hdl.nic.send.frame_sender import EncodeUnits, frame_sender
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.passed_on import first_phase, next_phase, next_reset
from oscar_hdl.streams.zero import zero


@block
def probe_strobes(
    clk, receive: FrameCommand, send: FrameCommand, located: Sequence, encode_takes, phase, probe: NicProbe
):
    """Give what a NicProbe has, a clock late. located, encode_takes: of each unit (strobes)."""
    UNITS = len(located)

    @always(clk.posedge)
    def tell():
        probe.received.next = receive.done
        probe.sent.next = send.done
        probe.encode_row.next = encode_takes != 0
        probe.phase.next = phase
        probe.decode_row.next = False
        for i in range(UNITS):
            if located[i]:
                probe.decode_row.next = True

    return tell


@block
def command_source(
    running, stored: register_ports.CommandFields, data, listed: list_ports.ListedCommand,
    fields: register_ports.CommandFields, order,
):  # fmt: skip
    """Select a command's fields and order: from a list's entry while a list runs, else from registers."""

    @always_comb
    def choose():
        order.next = data
        fields.frame.next = stored.frame
        fields.shape.next = stored.shape
        fields.tables.next = stored.tables
        if running:
            order.next = listed.second[64:32]
            fields.frame.next = listed.first[32:]
            fields.shape.next = listed.first[64:32]
            fields.tables.next = listed.second[32:]

    return choose


# Registers that are read, in the order of `shown`; the last, "", stands for all others, which are counters.
SHOWN = (
    "ID", "CONFIG", "STATUS", "RECEIVE_RESULT", "SEND_RESULT", "PLAN_RESULT", "OLDEST_FRAME", "OLDEST_NAME",
    "LIST_RESULT", "PEER_DROPS", "ENTRY_STATE", "PLAN_EDGE_", "SATURATED", "VALUES_BAD", "",
)  # fmt: skip


@block
def nic_core(
    clk, rst, s_axil, irq, s_axis_rx, m_axis_tx, s_axis_list, memory: MemoryPort, *, bus_bits: int = 64,
    sets: int = 16, store_log2: int = 12, rows_log2: int = 14, block_log2: int = 12, granule_log2: int = 8,
    floats: bool = False, probe: NicProbe | None = None,
):  # fmt: skip
    """Decode frames into rows of memory and encode rows into frames, as a driver asks (registers.md).

    s_axil: AxiLite(8). irq: level. s_axis_rx, m_axis_tx: frames_in, frames_out(bus_bits), frames of
    protocol.md. s_axis_list: Stream(64), lists of commands (list_unit). memory: its side. The parameters
    are oscar_nic's.
    """
    rows, raw_rows, top, clear_row = memory.rows, memory.raw, memory.top, memory.clear_row
    rows_rst, bad_packets = memory.rows_rst, memory.bad_packets
    units = len(rows.positions)
    if units not in (1, 2, 4, 8):
        raise ValueError(f"a NIC has 1, 2, 4 or 8 barrel units, got {units}")
    if sets & (sets - 1) or not 2 <= sets <= 128:
        raise ValueError(f"a direction has a power of two of table sets, 2 to 128, got {sets}")
    CONFIG_VALUE = BY_NAME["CONFIG"].pack(
        units=units, bus_bytes=bus_bits // 8, store_log2=store_log2, sets_log2=sets.bit_length() - 1,
        version=VERSION,
    )  # fmt: skip
    ROWS_LOG2, BLOCK_LOG2, GRANULE_LOG2 = rows_log2, block_log2, granule_log2
    FLOATS, PLAN_LOG2 = int(floats), min(max(rows_log2 + 5 - granule_log2, 3), 15)
    INDEX = {name: register.index for name, register in BY_NAME.items()}
    RECEIVE_COMMAND, SEND_COMMAND = INDEX["RECEIVE_COMMAND"], INDEX["SEND_COMMAND"]
    PLAN_SEGMENT, PLAN_COMMAND = INDEX["PLAN_SEGMENT"], INDEX["PLAN_COMMAND"]
    LIST_COMMAND, LIST_SHOW, PEER_SHOW = INDEX["LIST_COMMAND"], INDEX["LIST_SHOW"], INDEX["PEER_SHOW"]
    ABORT = INDEX["ABORT"]

    # Registers.
    values = [word(32) for _ in STORED]
    stored = register_ports.CommandFields([values[STORED.index(name)] for name in COMMAND_PARTS])
    wr, rd = register_ports.RegisterWrite(), register_ports.RegisterRead()
    rd_counter, counted, shown = word(4), word(32), [word(32) for _ in SHOWN]
    events = word(32)
    counter_events, second_events, third_events = word(16), word(16), word(16)
    plan_segment, plan_issue, plan_edge, plan_result = bit(), bit(), word(16), word(10)
    planned, plan_refused = bit(), bit()

    # Lists.
    lists, running, listed = list_ports.ListRegisters(), list_ports.ListRun(), list_ports.ListedCommand()
    lists.bad_floats = memory.floats.bad
    finder, held, fields = list_ports.FinderLinks(), HeldFrame(), register_ports.CommandFields()
    ordered, free, denied, list_bad = word(32), bit(), bit(), bit()
    receive_ask, send_ask = (register_ports.CommandAsk(listed.trial, ordered, fields) for _ in range(2))
    receive_state, send_state = register_ports.CommandState(), register_ports.CommandState()

    # Commands and jobs.
    receive, send = FrameCommand(), FrameCommand()
    send.count = top.count
    dropped, last_reason, clearing, oldest = Dropped(), word(4), ClearPort(), OldestFrame()
    drops_of, drops = word(PEERS_LOG2), word(KEPT_BITS)
    clearing.start, clearing.done, clearing.rows = memory.clear, memory.cleared, memory.clear_rows
    decoder_port, encoder_port = TablesPort(), TablesPort()
    decoding = [Decoding(*two) for two in zip(rows.positions, rows.sums, strict=True)]
    encoding = [Encoding(source) for source in rows.sources]
    # Phase, reset and tables pass from unit to unit, and counts through all that count back to the tables.
    # All are reset at once. What takes a stream is released after those to which it gives work, and after
    # what counts it.
    links = [Link() for _ in range(units + 1)]
    links[0].reset, first, last = rst, links[0].phase, links[units].phase
    tables_rst, own_rst, send_rst, receive_rst = resets = [bit() for _ in range(4)]

    parts = [
        axi_lite_registers(clk, own_rst, s_axil, values, wr, rd, events, irq),
        command_source(running.running, stored, wr.data, listed, fields, ordered),
        command_port(
            clk, own_rst, receive_ask, receive, clear_row, receive_state, receive=True, sets=sets,
            rows_log2=rows_log2, block_log2=block_log2,
        ),
        command_port(
            clk, own_rst, send_ask, send, top.row, send_state, receive=False, sets=sets, rows_log2=rows_log2,
            block_log2=block_log2,
        ),
        list_unit(clk, own_rst, s_axis_list, lists, running, listed, finder, memory.made, receive, send),
        frame_finder(clk, own_rst, oldest, held, finder.armed, running, finder.found, finder.gate),
        planner(
            clk, own_rst, memory.planned.words, plan_segment, plan_issue, wr.data, rd_counter, plan_edge,
            plan_result, planned, plan_refused, memory.planned.counts, granule_log2=granule_log2,
            blocks_log2=PLAN_LOG2,
        ),
        drop_counts(clk, own_rst, dropped, drops_of, drops),
        read_choice(clk, rd, shown, rd_counter, names=SHOWN),
        event_counters(clk, own_rst, counter_events, second_events, third_events, rd_counter, counted),
        frame_receiver(
            clk, receive_rst, s_axis_rx, command=receive, row=clear_row, dropped=dropped, oldest_frame=oldest,
            held_frame=held, tables=decoder_port, clear=clearing, bus_bits=bus_bits,
            store_log2=store_log2, block_log2=block_log2,
            units=DecodeUnits(
                [one.job for one in decoding], [one.feed for one in decoding], rows.decode_blocks
            ),
        ),
        frame_sender(
            clk, send_rst, m_axis_tx, send, top.row, top, encoder_port,
            EncodeUnits(
                [one.job for one in encoding], [one.drain for one in encoding],
                [one.bytes for one in encoding], rows.encode_blocks, raw_rows.source, raw_rows.first,
            ),
            bus_bits=bus_bits, store_log2=store_log2, block_log2=block_log2,
        ),
        link_tables(
            clk, tables_rst, decoder_port, links[0].decoder_tables, links[0].decoder_counts,
            links[units].decoder_counts, encoding=False, sets=sets,
        ),
        link_tables(
            clk, tables_rst, encoder_port, links[0].encoder_tables, links[0].encoder_counts,
            links[units].encoder_counts, encoding=True, sets=sets,
        ),
    ]  # fmt: skip
    parts += [
        barrel_unit(clk, rst, decoding[u], encoding[u], links[u], links[u + 1], banks=banks_of(units))
        for u in range(units)
    ]
    parts += [first_phase(clk, first), next_phase(clk, last, memory.phase)]
    parts += [next_reset(clk, rst, *two) for two in pairwise([links[units].reset, *resets, rows_rst])]
    parts += [zero(clk, send_state.abort)]
    decoder_idle, encoder_idle = ([word(THREADS) for _ in range(units)] for _ in range(2))
    described, taken, headed, located = ([bit() for _ in range(units)] for _ in range(4))
    decode_takes, encode_takes, rows_in, rows_out = word(units), word(units + 1), word(3), word(3)
    parts += [row_counter(clk, first, decode_takes, rows_in), row_counter(clk, first, encode_takes, rows_out)]
    for own, others in (  # copies: a signal may be in one list only, where lists are converted
        (decoder_idle, [one.job.idle for one in decoding]),
        (encoder_idle, [one.job.idle for one in encoding]),
        (described, [one.sums.described for one in decoding]),
        (located, [one.position.take for one in decoding]),
        (taken, [one.source.take for one in encoding]),
        (headed, [one.source.header for one in encoding]),
    ):
        parts += [copied(None, other, copy) for other, copy in zip(others, own, strict=True)]
    if probe is not None:
        parts.append(probe_strobes(clk, receive, send, located, encode_takes, first, probe))
    decodes, encodes = bit(), bit()
    receive_failed, send_failed, refused, list_refused = bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def commands():
        receive_ask.issue.next = listed.issue_receive or (free and wr.index == RECEIVE_COMMAND)
        send_ask.issue.next = listed.issue_send or (free and wr.index == SEND_COMMAND)
        receive_state.abort.next = finder.found.aborts or (free and wr.index == ABORT and wr.data[0])
        denied.next = wr.strobe and not free and wr.index == RECEIVE_COMMAND
        if wr.strobe and not free and wr.index == SEND_COMMAND:
            denied.next = True
        lists.abort.next = wr.strobe and wr.index == ABORT and wr.data[0]
        lists.issue.next = wr.strobe and wr.index == LIST_COMMAND
        if wr.strobe and wr.index == LIST_SHOW:
            lists.show.at.next = wr.data[8:]
        if wr.strobe and wr.index == PEER_SHOW:
            drops_of.next = wr.data[PEERS_LOG2:]
        plan_segment.next = wr.strobe and wr.index == PLAN_SEGMENT
        plan_issue.next = wr.strobe and wr.index == PLAN_COMMAND
        if dropped.bad:
            last_reason.next = dropped.reason
        if own_rst:
            last_reason.next = 0

    @always_comb
    def hold():
        """Commands are the list's while one runs."""
        lists.busy.next = (
            receive_ask.locked or send_ask.locked or receive_state.running != 0 or send_state.running != 0
        )
        lists.order.next = wr.data
        free.next = wr.strobe and not running.running
        listed.receive_open.next = not receive_ask.locked
        listed.send_open.next = not send_ask.locked
        listed.judged.next = receive_ask.judged or send_ask.judged
        listed.bad.next = receive_ask.bad or send_ask.bad

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
        encode_takes.next[units] = raw_rows.source.take
        receive_failed.next = receive.done and receive.error != 0
        send_failed.next = send.done and send.error != 0
        refused.next = receive_ask.refused or send_ask.refused or plan_refused or list_refused
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
        counter_events.next[1] = receive_state.running != 0
        counter_events.next[2] = send_state.running != 0
        counter_events.next[3] = receive_state.running != 0 and not decodes
        counter_events.next[4] = send_state.running != 0 and not encodes
        counter_events.next[5] = rows_in[0]
        counter_events.next[6] = rows_out[0]
        counter_events.next[7] = s_axis_rx.tvalid and s_axis_rx.tready
        counter_events.next[8] = m_axis_tx.tvalid and m_axis_tx.tready
        counter_events.next[9] = receive.done and not receive_failed
        counter_events.next[10] = send.done and not send_failed
        counter_events.next[11] = dropped.bad
        counter_events.next[12] = s_axis_rx.tvalid and not s_axis_rx.tready
        counter_events.next[13] = m_axis_tx.tvalid and not m_axis_tx.tready
        counter_events.next[14] = plan_refused or list_refused
        # One of a list waits while another packet is counted.
        counter_events.next[15] = bad_packets[0] or list_bad or lists.bad_packet
        list_bad.next = (list_bad or lists.bad_packet) and bad_packets[0] and not own_rst
        # What happens more than once in a clock.
        second_events.next[5] = rows_in[1]
        third_events.next[5] = rows_in[2]
        second_events.next[6] = rows_out[1]
        third_events.next[6] = rows_out[2]
        second_events.next[11] = receive_failed
        third_events.next[11] = send_failed
        second_events.next[14] = receive_ask.refused
        third_events.next[14] = send_ask.refused
        second_events.next[15] = bad_packets[1]
        third_events.next[15] = bad_packets[2]

    @always_comb
    def show():
        """In the order of SHOWN."""
        shown[0].next = ID_VALUE
        shown[1].next = CONFIG_VALUE
        shown[2].next = concat(
            modbv(FLOATS)[1:], modbv(PLAN_LOG2)[4:], modbv(GRANULE_LOG2)[4:], modbv(BLOCK_LOG2)[5:],
            modbv(ROWS_LOG2)[5:],
            send_state.running, send_ask.locked, receive_state.running, receive_ask.locked,
        )  # fmt: skip
        shown[3].next = concat(last_reason, receive_state.result)
        shown[4].next = send_state.result
        shown[5].next = plan_result
        shown[6].next = concat(oldest.chunk, oldest.step)
        shown[7].next = concat(oldest.there, modbv(0)[7:], oldest.number, oldest.sub, oldest.peer)
        shown[8].next = lists.result
        shown[9].next = drops
        shown[10].next = concat(
            lists.show.left, modbv(0)[2:], lists.show.state, modbv(0)[2:], lists.show.events
        )
        shown[11].next = plan_edge
        shown[12].next = memory.floats.saturated
        shown[13].next = concat(memory.floats.packets, memory.floats.tensor)
        shown[14].next = counted

    return parts, commands, hold, work, ends, notice, show
