"""Blocks as they are converted for proofs: each alone, small, with flat ports."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder import ports
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.nic.memory.bank_ports import RowCommand, SideWrite, ValueWrite
from oscar_hdl.nic.ports import STREAM_BITS, FrameCommand, TopPort, frames_in
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word


class _Command(RowCommand):
    """For who does not look at `clear`."""

    def __init__(self, first_bits: int) -> None:
        super().__init__(first_bits)
        del self.clear


@block
def _link(source, sink):  # type: ignore[no-untyped-def]
    """Let `sink` be `source`, a stream without tkeep: ports may not be in lists, and are all driven."""

    @always_comb
    def connect():
        sink.tdata.next = source.tdata
        sink.tvalid.next = source.tvalid
        sink.tlast.next = source.tlast
        source.tready.next = sink.tready

    return connect


def pair_fifo(depth_log2: int = 2) -> Any:
    from oscar_hdl.streams.pair_fifo import pair_fifo as made

    return made(bit(), bit(), bit(), word(16), bit(), bit(), Stream(16, keep=2), bit(), depth_log2=depth_log2)


@block
def _byte_sink(clk, rst, phase, put, put_two, data, at_end, clear, counting, size, room, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.coder.encode.byte_sink import byte_sink as made

    return made(clk, rst, phase, put, put_two, data, at_end, clear, counting, size, room, m_axis)


def byte_sink() -> Any:
    return _byte_sink(
        bit(), bit(), word(5), bit(), bit(), word(16), bit(), bit(), bit(), word(19), bit(),
        Stream(16, keep=2),
    )  # fmt: skip


def byte_source() -> Any:
    from oscar_hdl.coder.decode.byte_source import byte_source as made

    return made(
        bit(), bit(), Stream(16), bit(), bit(), bit(), bit(), bit(), bit(), bit(), word(16), word(8), bit(),
        bit(), bit(),
    )  # fmt: skip


@block
def _feeder(clk, rst, land, pairs, top, low, closes, tick, takes, m_axis_a, m_axis_b):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.receive.feeder import feeder as made

    flags, streams = [bit(), bit()], [Stream(16), Stream(16)]
    feeders = made(clk, rst, land, pairs, top, low, closes, tick, flags, streams, first=0, stride=1)
    links = [_link(streams[0], m_axis_a), _link(streams[1], m_axis_b)]

    @always_comb
    def join():
        takes.next = concat(flags[1], flags[0])

    return feeders, links, join


def feeder() -> Any:
    """Two decoders share it."""
    return _feeder(
        bit(), bit(), word(2), word(64), word(2), word(2), bit(), bit(), word(2), Stream(16), Stream(16)
    )


@block
def _raw_feeder(clk, rst, go, odd, size, first, land, data, avail, m_axis, idle):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.receive.raw_feeder import raw_feeder as made
    from oscar_hdl.nic.receive.unit_reader import UnitPort, unit_reader

    units = UnitPort()
    return (
        unit_reader(clk, rst, go, first, land, data, avail, units),
        made(clk, rst, go, odd, size, units, m_axis, idle),
    )


def raw_feeder() -> Any:
    """With the reader of units that it asks."""
    return _raw_feeder(
        bit(), bit(), bit(), bit(), word(20), word(2), bit(), word(64), bit(), Stream(16), bit()
    )


@block
def _frame_reader(clk, rst, start, words, tail, peer, idle, left, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.send.frame_reader import frame_reader as made

    address, advance, before = word(len(words)), bit(), word(len(words))
    reader = made(clk, rst, start, words, tail, peer, idle, left, address, advance, m_axis)

    @always(clk.posedge)
    def store():
        if advance:
            before.next = address
            m_axis.tdata.next = before

    return reader, store


def _sums() -> Stream:
    return Stream(STREAM_BITS, keep=STREAM_BITS // 8)


def stream_copy() -> Any:
    from oscar_hdl.streams.stream_copy import stream_copy as made

    return made(bit(), bit(), word(19), Stream(STREAM_BITS), Stream(STREAM_BITS), _sums())


def sum_feed() -> Any:
    from oscar_hdl.nic.memory.sum_feed import sum_feed as made

    return made(bit(), bit(), bit(), word(5), bit(), bit(), _sums(), Stream(16), word(5), bit())


def frame_reader() -> Any:
    """With a store that holds at each address the address."""
    return _frame_reader(
        bit(), bit(), bit(), word(5), word(3), word(8), bit(), word(6), Stream(5, keep=8, dest=8)
    )


@block
def _axi_lite_registers(
    clk,
    rst,
    s_axil,
    locked,
    refused,
    wr_strobe,
    wr_index,
    wr_data,
    rd_index,
    rd_value,
    events,
    irq,
    fill,
):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.control.axi_lite_registers import axi_lite_registers as made
    from oscar_hdl.nic.control.registers import REGISTERS

    values = [word(32) for register in REGISTERS if register.access == "RW"]
    return made(
        clk, rst, s_axil, values, locked, refused, wr_strobe, wr_index, wr_data, rd_index, rd_value, events,
        irq, fill,
    )  # fmt: skip


def axi_lite_registers() -> Any:
    from oscar_hdl.nic.control.list_ports import RegisterFill
    from oscar_hdl.nic.control.registers import REGISTERS

    locked = word(sum(register.access == "RW" for register in REGISTERS))
    return _axi_lite_registers(
        bit(), bit(), AxiLite(8), locked, bit(), bit(), word(6), word(32), word(6), word(32), word(32), bit(),
        RegisterFill(len(locked)),
    )  # fmt: skip


def command_port() -> Any:
    from oscar_hdl.nic.control.command_port import command_port as made

    return made(
        bit(), bit(), bit(), bit(), word(32), word(32), word(32), word(32), bit(), FrameCommand(), word(20),
        word(2), bit(), bit(), word(2), word(23), receive=True, sets=16, rows_log2=10, block_log2=0,
    )  # fmt: skip


def tracker() -> Any:
    """Of four entries, not 256."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.control.tracker import tracker as made

    updates = [lists.TrackerUpdate(arms=n == 0) for n in range(3)]
    looks = [lists.TrackerLook() for _ in range(2)]
    return made(bit(), bit(), *updates, lists.FiredEntry(), *looks, lists.TrackerStatus(), entries_log2=2)


def deframer(at_bits: int = 5) -> Any:
    from oscar_hdl.nic.receive.deframer import deframer as made
    from oscar_hdl.nic.receive.ports import CameFrame

    at = [word(at_bits) for _ in range(3)]
    return made(
        bit(), bit(), frames_in(64), bit(), at[0], word(64), at[1], at[2], CameFrame(), bit(), word(4)
    )


def frame_names() -> Any:
    """For four frames, not sixteen."""
    from oscar_hdl.nic.receive.frame_names import frame_names as made
    from oscar_hdl.nic.receive.ports import CameFrame, OldestFrame

    return made(bit(), bit(), CameFrame(), bit(), OldestFrame(), most_log2=2)


def raw_decoder() -> Any:
    from oscar_hdl.coder.decode.raw_decoder import raw_decoder as made

    return made(
        bit(), bit(), word(5), RawJob(), Stream(16), ports.PositionPort(), ports.SumPort(), ports.CountPort()
    )


def value_loader() -> Any:
    from oscar_hdl.nic.memory.value_loader import value_loader as made

    return made(
        bit(), bit(), word(5), _Command(6), Stream(STREAM_BITS), ValueWrite(2, 5), block_bits=2, skip_bits=1
    )


def values_in() -> Any:
    from oscar_hdl.nic.memory.barrel_ports import GroupWrite
    from oscar_hdl.nic.memory.values_in import values_in as made

    return made(
        bit(), bit(), word(4), _Command(6), bit(), Stream(STREAM_BITS), GroupWrite(2, 5), block_bits=2,
        skip_bits=1,
    )  # fmt: skip


def side_in() -> Any:
    from oscar_hdl.nic.memory.side_in import side_in as made

    write = SideWrite(2, 6)
    del write.kind  # of the raw decoder's rows
    return made(
        bit(), bit(), word(4), RowCommand(7), bit(), Stream(STREAM_BITS), write, bit(), block_bits=5,
        skip_bits=1,
    )  # fmt: skip


def side_loader() -> Any:
    from oscar_hdl.nic.memory.side_loader import side_loader as made

    write = SideWrite(2, 6)
    del write.kind
    return made(
        bit(), bit(), word(5), RowCommand(7), Stream(STREAM_BITS), write, bit(), block_bits=5, skip_bits=1
    )


@block
def _frame_top(clk, rst, phase, port, behind, row, top_a, top_b):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.memory.frame_top import frame_top as made

    tops = [word(len(top_a)), word(len(top_b))]
    search = made(clk, rst, phase, port, behind, row, tops, block_bits=5, skip_bits=1)

    @always_comb
    def copy():
        tops[0].next = top_a
        tops[1].next = top_b

    return search, copy


def frame_top() -> Any:
    """With a memory of eight groups of 32 rows."""
    port = TopPort()
    port.row = word(8)
    return _frame_top(bit(), bit(), word(5), port, bit(), word(7), word(4), word(4))


@block
def _frame_symbol(clk, rst, port, behind, row, words, ask, known, symbol_a, symbol_b):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.memory.barrel_ports import BankTop
    from oscar_hdl.nic.memory.frame_symbol import frame_symbol as made

    one, other = BankTop(row, words), BankTop(row, words)
    search = made(clk, rst, port, behind, row, words, [one, other], block_bits=5, skip_bits=1)

    @always_comb
    def copy():
        ask.next = concat(other.ask, one.ask)
        one.known.next = known[0]
        other.known.next = known[1]
        one.symbol.next = symbol_a
        other.symbol.next = symbol_b

    return search, copy


def frame_symbol() -> Any:
    """With a memory of four blocks of 32 rows in two banks."""
    port = TopPort()
    port.row = word(7)
    return _frame_symbol(bit(), bit(), port, bit(), word(6), word(4), word(2), word(2), word(4), word(4))


@block
def _rows_out(
    clk, rst, command, want, row, bank, taken, comes, data, descriptor, m_axis_values, m_axis_descriptors,
):  # type: ignore[no-untyped-def]  # fmt: skip
    from oscar_hdl.nic.memory.barrel_ports import RowAsk, RowsRead
    from oscar_hdl.nic.memory.rows_out import rows_out as made

    ask, found = RowAsk(len(bank), len(row)), RowsRead()
    ask.want, ask.row, ask.bank, ask.taken, ask.comes = want, row, bank, taken, comes
    found.data, found.descriptor = data, descriptor
    return made(clk, rst, command, ask, found, m_axis_values, m_axis_descriptors, block_bits=2, skip_bits=1)


def rows_out() -> Any:
    """With words of eight bits."""
    return _rows_out(
        bit(), bit(), _Command(6), bit(), word(5), word(2), bit(), bit(), word(8), word(11), Stream(8),
        Stream(16),
    )  # fmt: skip


@block
def _row_unloader(
    clk, rst, phase, command, row, described, data_a, data_b, kind_a, kind_b, m_axis_values,
    m_axis_descriptors,
):  # type: ignore[no-untyped-def]  # fmt: skip
    from oscar_hdl.nic.memory.row_unloader import row_unloader as made

    halves, kinds = [word(len(data_a)), word(len(data_b))], [word(11), word(11)]
    reader = made(
        clk, rst, phase, command, row, described, halves, kinds, m_axis_values, m_axis_descriptors,
        block_bits=2, skip_bits=1,
    )  # fmt: skip

    @always_comb
    def copy():
        halves[0].next = data_a
        halves[1].next = data_b
        kinds[0].next = kind_a
        kinds[1].next = kind_b

    return reader, copy


def row_unloader() -> Any:
    """With halves of 16 bits."""
    return _row_unloader(
        bit(), bit(), word(5), _Command(6), word(5), word(5), word(16), word(16), word(11), word(11),
        Stream(8), Stream(16),
    )  # fmt: skip


def prefix_reader() -> Any:
    from oscar_hdl.nic.receive.prefix_reader import prefix_reader as made
    from oscar_hdl.nic.receive.unit_reader import UnitPort

    return made(
        bit(), bit(), bit(), UnitPort(), word(5), bit(), word(4), word(32), Stream(64), bit(), bit(),
        block_log2=0,
    )  # fmt: skip


@block
def _head_writer(clk, rst, clear, write, entry, entry_last, fields, length, crc, start, whole, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.send.head_writer import head_writer as made
    from oscar_hdl.nic.send.ports import EntryPort

    entries = EntryPort()
    entries.write, entries.entry, entries.last = write, entry, entry_last
    return made(clk, rst, clear, entries, fields, length, crc, start, whole, m_axis)


def head_writer() -> Any:
    from oscar_hdl.nic.send.head_writer import HeadFields

    return _head_writer(
        bit(), bit(), bit(), bit(), word(16), bit(), HeadFields(), word(20), word(32), bit(), bit(),
        Stream(16, keep=2),
    )  # fmt: skip


def raw_packer() -> Any:
    from oscar_hdl.nic.send.raw_packer import raw_packer as made

    job, source = RawJob(), ports.SourcePort()
    del job.bank, job.thinning, source.mean  # nobody looks at them
    return made(bit(), bit(), job, bit(), source, Stream(16, keep=2))


def row_port() -> Any:
    from oscar_hdl.nic.memory.row_port import row_port as made

    return made(bit(), bit(), Stream(64), Stream(64), bit(), word(10), word(14), bit(), RowCommand(10), bit())


@block
def _collector(
    clk,
    rst,
    turn,
    start,
    odd,
    lane,
    keep,
    drop,
    cancel,
    absorb,
    room,
    s_axis,
    busy,
    words,
    enables,
    valid,
    first,
    ended,
):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.send.collector import collector as made
    from oscar_hdl.nic.send.frame_builder import pair_port
    from oscar_hdl.nic.send.ports import CollectorPort

    ready, mark, pair, next_pair = bit(), word(2), word(17), word(17)
    lanes, marks = [word(16) for _ in range(4)], [word(2) for _ in range(4)]
    port = pair_port(s_axis, pair, mark, ready)
    own = CollectorPort(
        start=start, odd=odd, lane=lane, keep=keep, drop=drop, cancel=cancel, room=room, busy=busy,
        valid=valid, first=first, ended=ended, absorb=absorb,
    )  # fmt: skip
    collect = made(clk, rst, turn, own, ready, mark, next_pair, lanes, marks, index=0)

    @always(clk.posedge)
    def hand():
        next_pair.next = pair

    @always_comb
    def join():
        words.next = concat(lanes[3], lanes[2], lanes[1], lanes[0])
        enables.next = concat(marks[3], marks[2], marks[1], marks[0])

    return port, collect, hand, join


def collector() -> Any:
    """Of four lanes, with one stream to take from."""
    return _collector(
        bit(), bit(), word(2), bit(), bit(), word(2), bit(), bit(), bit(), bit(), bit(), Stream(16, keep=2),
        bit(), word(64), word(8), bit(), bit(), bit(),
    )  # fmt: skip
