"""Blocks of a NIC's memory, as they are converted for proofs."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.flow.proofs.tops.bundles import without
from oscar_hdl.nic.memory.ports import DISTANCE_BITS, HEADER_BITS, RowCommand, SideWrite
from oscar_hdl.nic.ports import STREAM_BITS, MadeRows, TopPort
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.zero import zero


def _sums() -> Stream:
    return Stream(STREAM_BITS, keep=STREAM_BITS // 8)


def sum_feed() -> Any:
    """With a stream of 16 bits."""
    from oscar_hdl.nic.memory.sum_feed import sum_feed as made

    return made(bit(), bit(), bit(), word(5), bit(), bit(), _sums(), Stream(16), word(5), bit(), bit())


@block
def _values_in(  # type: ignore[no-untyped-def]
    clk, rst, phase, command, s_axis_values, want, taken, busy, old, row, enable, data
):
    from oscar_hdl.nic.memory.ports import AddedRows, Adding, BankAdds, GroupWrite, RowAsk
    from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
    from oscar_hdl.nic.memory.values_in import values_in as made

    lines, one, other = RowLines(1), GroupWrite(row), GroupWrite(row)
    ask, added, kind_row = RowAsk(2, len(row)), AddedRows(len(row)), word(len(row))
    adding = Adding(ask, [old, old], added, [BankAdds(kind_row, added) for _ in range(2)])
    parts = [
        row_lines(clk, command, lines, skip_bits=1),
        made(
            clk, rst, phase, command, lines, s_axis_values, adding, row, [one, other], skip_bits=1, adds=True
        ),
    ]  # fmt: skip

    @always_comb
    def join():
        adding.busy.next = busy
        want.next = ask.want
        ask.taken.next = taken
        enable.next = concat(other.enable, one.enable)
        data.next = concat(other.data, one.data)

    return parts, join


def values_in() -> Any:
    """Of two banks of sixteen rows, in blocks of two."""
    command = without(RowCommand(5), "clear")
    return _values_in(
        bit(), bit(), word(4), command, Stream(2 * STREAM_BITS), bit(), bit(), bit(),
        word(STREAM_BITS), word(4), word(2), word(2 * STREAM_BITS),
    )  # fmt: skip


@block
def _loader_order(clk, rst, phase, command, s_axis_values, want, taken, at, row, asks, given):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.memory.ports import AddedRows, Adding, BankAdds, GroupWrite, RowAsk
    from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
    from oscar_hdl.nic.memory.rows_under_way import rows_under_way
    from oscar_hdl.nic.memory.values_in import values_in as made

    ROW_BITS = len(row)
    lines, write, old = RowLines(1), GroupWrite(word(ROW_BITS)), word(STREAM_BITS)
    ask, added, row3 = RowAsk(1, ROW_BITS), AddedRows(ROW_BITS), word(ROW_BITS)
    bank, hit, gives = BankAdds(word(ROW_BITS), added), bit(), bit()
    adding = Adding(ask, [old], added, [bank])
    parts = [
        row_lines(clk, command, lines, skip_bits=0),
        made(
            clk, rst, phase, command, lines, s_axis_values, adding, write.row, [write], skip_bits=0,
            adds=True,
        ),
        rows_under_way(clk, rst, phase, row, row3, gives, bank, hit),
        zero(clk, old),
    ]  # fmt: skip

    @always_comb
    def join():
        adding.busy.next = bank.busy
        want.next = ask.want
        ask.taken.next = taken
        at.next = ask.row
        gives.next = asks and not hit and phase[2:] == 3
        given.next = gives

    @always(clk.posedge)
    def follow():
        row3.next = row

    return parts, join, follow


def loader_order() -> Any:
    """Of a bank of 32 rows: its loader, and a decoder that asks.

    It asks for `row` in phase 2, with `asks` in 3.
    """
    command = without(RowCommand(5), "clear")
    return _loader_order(
        bit(), bit(), word(4), command, Stream(STREAM_BITS), bit(), bit(), word(5), word(5), bit(), bit()
    )


@block
def _side_in(  # type: ignore[no-untyped-def]
    clk,
    rst,
    phase,
    command,
    s_axis_side,
    row,
    lanes,
    header,
    clear,
    distances,
    header_data,
    data,
    behind,
):
    from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
    from oscar_hdl.nic.memory.side_in import side_in as made

    lines, one, other = RowLines(5), SideWrite(row, lanes), SideWrite(row, lanes)
    parts = [
        row_lines(clk, command, lines, skip_bits=1),
        made(clk, rst, phase, command, lines, s_axis_side, row, lanes, [one, other], behind, skip_bits=1),
    ]

    @always_comb
    def join():
        header.next = concat(other.header, one.header)
        clear.next = concat(other.clear, one.clear)
        distances.next = concat(other.distances, one.distances)
        header_data.next = concat(other.header_data, one.header_data)
        data.next = concat(other.data, one.data)

    return parts, join


def side_in() -> Any:
    """Of two banks of two blocks of 32 rows."""
    strobes, command = (word(2), word(2), word(2)), without(RowCommand(7), "adds")
    return _side_in(
        bit(), bit(), word(4), command, Stream(2 * STREAM_BITS), word(6), word(8), *strobes,
        word(2 * HEADER_BITS), word(2 * DISTANCE_BITS), bit(),
    )  # fmt: skip


@block
def _frame_symbol(clk, rst, port, behind, row, words, ask, known, symbol_a, symbol_b):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.memory.frame_symbol import frame_symbol as made
    from oscar_hdl.nic.memory.ports import BankTop

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
def _rows_out(  # type: ignore[no-untyped-def]
    clk, rst, command, want, row, taken, comes, data, descriptor, waits, m_axis_values, m_axis_descriptors
):
    from oscar_hdl.nic.memory.ports import LineRead, RowAsk
    from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
    from oscar_hdl.nic.memory.rows_out import rows_out as made

    lines, ask, found = RowLines(1), RowAsk(2, len(row)), LineRead(2)
    ask.want, ask.row, ask.taken, ask.comes = want, row, taken, comes
    found.data, found.descriptor = data, descriptor
    return (
        row_lines(clk, command, lines, skip_bits=1),
        made(
            clk, rst, command, lines, ask, found, waits, m_axis_values, m_axis_descriptors, skip_bits=1
        ),
    )  # fmt: skip


def rows_out() -> Any:
    """Of two banks of sixteen rows, in blocks of two; with words of eight bits a bank."""
    command = without(RowCommand(5), "clear", "adds")
    return _rows_out(
        bit(), bit(), command, bit(), word(4), bit(), bit(), word(16), word(22), bit(), Stream(16),
        Stream(32),
    )  # fmt: skip


@block
def _sum_rows(clk, rst, command, counts, want, row, bank, taken, comes, data, m_axis, reads):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.memory.ports import PlannedRows, RowAsk, RowsRead
    from oscar_hdl.nic.memory.sum_rows import sum_rows as made

    ask, found = RowAsk(len(bank), len(row)), RowsRead()
    ask.want, ask.row, ask.bank, ask.taken, ask.comes, found.data = want, row, bank, taken, comes, data
    return made(clk, rst, command, PlannedRows(counts, m_axis), ask, found, reads, block_bits=1, skip_bits=1)


def sum_rows() -> Any:
    """Of two banks of sixteen rows, in blocks of two."""
    command = without(RowCommand(5), "clear", "adds", "idle", "done")
    return _sum_rows(
        bit(), bit(), command, bit(), bit(), word(4), word(2), bit(), bit(), word(STREAM_BITS), _sums(), bit()
    )


def row_port() -> Any:
    """For packets that may add."""
    from oscar_hdl.nic.memory.row_port import row_port as made

    return made(
        bit(), bit(), Stream(64), Stream(64), bit(), word(10), word(14), bit(), RowCommand(10), bit(),
        MadeRows(), adds=True,
    )  # fmt: skip
