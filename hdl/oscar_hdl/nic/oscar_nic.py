"""The NIC with its memory in block RAM, and streams to load and read it."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat

from oscar_hdl.coder.barrel_decode.ports import BarrelPosition, BarrelSums
from oscar_hdl.coder.barrel_encode.ports import BarrelSource
from oscar_hdl.coder.ports import RawPosition, RawSource, SumPort
from oscar_hdl.nic.control.registers import ROW_BITS
from oscar_hdl.nic.memory.bank_ports import RowCommand
from oscar_hdl.nic.memory.barrel_memory import barrel_memory
from oscar_hdl.nic.memory.barrel_ports import BarrelUnits, RawUnits, RowCommands
from oscar_hdl.nic.memory.made_turns import made_turns, nothing_made
from oscar_hdl.nic.memory.row_port import row_port
from oscar_hdl.nic.nic_core import nic_core
from oscar_hdl.nic.ports import FRAME_ROW_BITS, STREAM_BITS, BankBlock, MadeRows, NicProbe, TopPort
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import reset_hold
from oscar_hdl.streams.stream_copy import stream_copy
from oscar_hdl.streams.zero import zero


@block
def oscar_nic(
    clk: Any, rst: Any, s_axil: Any, irq: Any, s_axis_rx: Any, m_axis_tx: Any, s_axis_values: Any,
    s_axis_side: Any, s_axis_read: Any, m_axis_values: Any, m_axis_descriptors: Any, s_axis_list: Any, *,
    units: int = 1, bus_bits: int = 64, sets: int = 16, store_log2: int = 12, rows_log2: int = 10,
    block_log2: int = 12, granule_log2: int = 8, probe: NicProbe | None = None,
) -> Any:  # fmt: skip
    """Decode frames into memory and encode memory into frames, as a driver asks (docs/registers.md).

    s_axil: AxiLite(8). irq: level. s_axis_rx, m_axis_tx: frames_in, frames_out(bus_bits), frames of
    docs/protocol.md. Rows come and go in packets (row_port): s_axis_values, Stream(128), eight values a word;
    s_axis_side, Stream(128), a word a row (side_in); s_axis_read, Stream(64), packets of one word, which
    ask for m_axis_values, Stream(128), eight values a word, and m_axis_descriptors, Stream(16), one a row
    (rows_out). What is read goes to the planner, too. s_axis_list, Stream(64): lists of
    commands (list_unit).

    units: 1, 2, 4 or 8, each with a bank of memory; sets: table sets of a direction; store_log2: a frame
    store has 2^store_log2 words of the bus; rows_log2: memory has 2^rows_log2 rows; block_log2: of all
    frames; others are refused; granule_log2: of the values of a plan's block; probe: what a bench may see.
    """
    phase, clear, cleared, never, held = word(4), bit(), bit(), bit(), bit()
    clear_row, clear_rows = word(ROW_BITS), word(FRAME_ROW_BITS)
    bad_values, bad_side, bad_read, bad_packets = bit(), bit(), bit(), word(3)
    no_row, no_rows, unused_values, unused_read = word(ROW_BITS), word(FRAME_ROW_BITS), bit(), bit()
    bank_bits = rows_log2 - (units.bit_length() - 1)
    if bank_bits <= block_log2 - 5:
        raise ValueError(
            f"a bank has two blocks or more: with {units} of them and blocks of 2^{block_log2} values "
            f"rows_log2 is {rows_log2 - bank_bits + block_log2 - 4} or more, got {rows_log2}"
        )
    rows = BarrelUnits(
        [BarrelPosition() for _ in range(units)], [BankBlock(bank_bits) for _ in range(units)],
        [BarrelSums() for _ in range(units)], [BarrelSource() for _ in range(units)],
        [BankBlock(bank_bits) for _ in range(units)],
    )  # fmt: skip
    raw_rows = RawUnits(RawPosition(), SumPort(), RawSource(), word(ROW_BITS), word(ROW_BITS))
    top, made, made_values, made_side, none_made = TopPort(), *(MadeRows() for _ in range(4))
    load_values, load_side, unload = RowCommand(rows_log2), RowCommand(rows_log2), RowCommand(rows_log2)
    values, side, read, nothing = Stream(STREAM_BITS), Stream(STREAM_BITS), Stream(STREAM_BITS), Stream(64)
    totals = Stream(STREAM_BITS, keep=STREAM_BITS // 8)

    reset = reset_hold(clk, rst, held)
    core = nic_core(
        clk, held, s_axil, irq, s_axis_rx, m_axis_tx, phase, rows, raw_rows, clear, cleared, clear_row,
        clear_rows, top, bad_packets, totals, s_axis_list, made, bus_bits=bus_bits, sets=sets,
        store_log2=store_log2, rows_log2=rows_log2, block_log2=block_log2, granule_log2=granule_log2,
        probe=probe,
    )  # fmt: skip
    memory = barrel_memory(
        clk,
        held,
        phase,
        rows,
        raw_rows,
        RowCommands(load_values, load_side, unload),
        top,
        values,
        side,
        read,
        m_axis_descriptors,
        row_bits=rows_log2,
        block_log2=block_log2,
    )
    copy = stream_copy(clk, held, unload.count, read, m_axis_values, totals)
    ports = [
        row_port(
            clk, held, s_axis_values, values, never, no_row, no_rows, unused_values, load_values, bad_values,
            made_values,
        ),
        row_port(
            clk, held, s_axis_side, side, clear, clear_row, clear_rows, cleared, load_side, bad_side,
            made_side, align=5,
        ),
        row_port(
            clk, held, s_axis_read, nothing, never, no_row, no_rows, unused_read, unload, bad_read, none_made
        ),
        made_turns(clk, held, made_values, made_side, made),
        nothing_made(clk, none_made),
    ]  # fmt: skip

    @always_comb
    def join() -> None:
        bad_packets.next = concat(bad_read, bad_side, bad_values)

    unused = [never, no_row, no_rows, nothing.tready]
    return reset, core, memory, copy, ports, join, [zero(clk, signal) for signal in unused]
