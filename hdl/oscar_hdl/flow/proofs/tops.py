"""Blocks as they are converted for proofs: each alone, small, with flat ports."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder import ports
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.nic.memory.bank_ports import RowCommand, SideWrite
from oscar_hdl.nic.ports import STREAM_BITS, FrameCommand, MadeRows, TopPort, frames_in
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word


class _Command(RowCommand):
    """For who does not look at `clear`."""

    def __init__(self, first_bits: int) -> None:
        super().__init__(first_bits)
        del self.clear


def pair_fifo(depth_log2: int = 2) -> Any:
    from oscar_hdl.streams.pair_fifo import pair_fifo as made

    return made(bit(), bit(), bit(), word(16), bit(), bit(), Stream(16, keep=2), bit(), depth_log2=depth_log2)


@block
def _byte_drain(clk, rst, start, begun, ask, over, over_thread, level, busy, address, issues, data, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.coder.barrel_encode.byte_drain import byte_drain as made
    from oscar_hdl.coder.barrel_encode.ports import Ended

    ended = Ended()
    ended.strobe16, ended.thread16 = over, over_thread
    return made(clk, rst, start, begun, ask, ended, level, busy, address, issues, data, m_axis)


def byte_drain() -> Any:
    """Without what it does not look at of blocks that end."""
    from oscar_hdl.coder.barrel_encode.ports import BarrelDrain, Level

    return _byte_drain(
        bit(), bit(), bit(), word(3), BarrelDrain(), bit(), word(3), Level(), bit(), word(10), bit(),
        word(128), Stream(128, keep=16),
    )  # fmt: skip


@block
def _raw_feeder(clk, rst, go, odd, size, first, ask, land, data, m_axis, idle):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.receive.chunk_reader import ChunkAsk, UnitPort, chunk_reader
    from oscar_hdl.nic.receive.raw_feeder import raw_feeder as made

    units, chunk, place = UnitPort(), ChunkAsk(4), word(7)
    chunk.ask, chunk.land, chunk.data = ask, land, data

    @always_comb
    def join():
        place.next = first

    return (
        chunk_reader(clk, rst, go, place, chunk, units),
        made(clk, rst, go, odd, size, units, m_axis, idle),
        join,
    )


def raw_feeder() -> Any:
    """With the reader of chunks that it asks."""
    return _raw_feeder(
        bit(), bit(), bit(), bit(), word(20), word(3), bit(), bit(), word(128), Stream(16), bit()
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
    looks, run = [lists.TrackerLook() for _ in range(2)], lists.ListRun()
    for name in set(vars(run)) - {"active", "entries"}:  # nobody looks at them
        delattr(run, name)
    return made(
        bit(), bit(), *updates, MadeRows(), run, lists.FiredEntry(), *looks,
        lists.TrackerStatus(), entries_log2=2,
    )  # fmt: skip


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


def prefix_reader() -> Any:
    from oscar_hdl.nic.receive.chunk_reader import UnitPort
    from oscar_hdl.nic.receive.prefix_reader import prefix_reader as made

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
    del job.constant, job.value, job.bank, job.thinning, source.mean  # nobody looks at them
    return made(bit(), bit(), job, source, Stream(16, keep=2), depth_log2=4)


def row_port() -> Any:
    from oscar_hdl.nic.memory.row_port import row_port as made

    return made(
        bit(), bit(), Stream(64), Stream(64), bit(), word(10), word(14), bit(), RowCommand(10), bit(),
        MadeRows(),
    )  # fmt: skip
