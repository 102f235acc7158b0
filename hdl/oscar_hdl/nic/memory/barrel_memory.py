"""A NIC's memory of rows in block RAM: a bank for each barrel unit, and what all banks have once."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block

from oscar_hdl.nic.memory.bank_ports import SideWrite
from oscar_hdl.nic.memory.barrel_bank import barrel_bank
from oscar_hdl.nic.memory.barrel_ports import (
    BankTop,
    BarrelUnits,
    GroupRead,
    GroupWrite,
    RawUnits,
    RowAsk,
    RowCommands,
    RowsRead,
)
from oscar_hdl.nic.memory.frame_symbol import frame_symbol
from oscar_hdl.nic.memory.raw_rows import raw_decode_rows, raw_encode_rows, raw_sum_rows
from oscar_hdl.nic.memory.read_turns import read_turns
from oscar_hdl.nic.memory.rows_out import rows_out
from oscar_hdl.nic.memory.side_in import side_in
from oscar_hdl.nic.memory.values_in import values_in
from oscar_hdl.nic.ports import TopPort
from oscar_hdl.streams.bundles import bit, word


@block
def either_values(loaded: GroupWrite, raw: GroupWrite, writes: Any, both: GroupWrite) -> Any:
    """Write what is loaded, or while `writes` what the raw decoder added."""

    @always_comb
    def choose() -> None:
        both.enable.next = loaded.enable | raw.enable
        both.row.next = loaded.row
        both.data.next = loaded.data
        if writes:
            both.row.next = raw.row
            both.data.next = raw.data

    return choose


@block
def either_side(loaded: SideWrite, raw: SideWrite, writes: Any, both: SideWrite) -> Any:
    """The same of all but the values."""

    @always_comb
    def choose() -> None:
        both.distances.next = loaded.distances
        both.header.next = loaded.header
        both.clear.next = loaded.clear
        both.lanes.next = loaded.lanes
        both.data.next = loaded.data
        both.kind.next = raw.kind
        both.row.next = loaded.row
        both.header_data.next = loaded.header_data
        if writes:
            both.row.next = raw.row
            both.header_data.next = raw.header_data

    return choose


@block
def barrel_memory(
    clk: Any, rst: Any, phase: Any, units: BarrelUnits, raw: RawUnits, commands: RowCommands, top: TopPort,
    s_axis_values: Any, s_axis_side: Any, m_axis_values: Any, m_axis_descriptors: Any, *, row_bits: int,
    block_log2: int,
) -> Any:  # fmt: skip
    """Serve 1, 2, 4 or 8 barrel encoders and decoders, and the raw units.

    phase: of the units. commands: side by side. top: see frame_symbol. s_axis_values, m_axis_values,
    s_axis_side: Stream(128), m_axis_descriptors: Stream(16); see values_in, side_in (which clears rows, too)
    and rows_out: each takes four clocks a row.

    The memory has 2^row_bits rows in as many banks as there are units. Row r belongs to block
    r >> (block_log2 - 5), this to bank block mod B, and the units of a bank work on its blocks alone. So
    frames begin where blocks do, and all have blocks of 2^block_log2 values.
    """
    BANKS = len(units.positions)
    if BANKS not in (1, 2, 4, 8):
        raise ValueError(f"memory serves 1, 2, 4 or 8 barrel units, got {BANKS}")
    SKIP, BLOCK = BANKS.bit_length() - 1, block_log2 - 5
    ROW_BITS = row_bits - SKIP
    loaded, added, values = (GroupWrite(BANKS, ROW_BITS) for _ in range(3))
    loaded_side, added_side, side = (SideWrite(BANKS, ROW_BITS) for _ in range(3))
    row, top_row, top_words = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS - 2)
    reads = [GroupRead(row) for _ in range(BANKS)]
    tops = [BankTop(top_row, top_words) for _ in range(BANKS)]
    asks, found = [RowAsk(BANKS, ROW_BITS) for _ in range(3)], RowsRead()
    held, writes, behind = bit(), bit(), bit()
    placing = {"block_bits": BLOCK, "skip_bits": SKIP}

    banks = [
        barrel_bank(
            clk, rst, phase, units.positions[i], units.decode_blocks[i], units.sums[i], units.sources[i],
            units.encode_blocks[i], values, side, reads[i], tops[i], block_bits=BLOCK, index=i,
        )
        for i in range(BANKS)
    ]  # fmt: skip
    loaders = [
        values_in(clk, rst, phase, commands.load_values, held, s_axis_values, loaded, **placing),
        side_in(clk, rst, phase, commands.load_side, held, s_axis_side, loaded_side, behind, **placing),
        raw_sum_rows(clk, rst, phase, raw.sums, raw.decode_row, held, writes, added, added_side, **placing),
        either_values(loaded, added, writes, values),
        either_side(loaded_side, added_side, writes, side),
    ]
    readers = [
        raw_decode_rows(clk, rst, raw.position, raw.sums, raw.decode_row, asks[0], found, **placing),
        raw_encode_rows(clk, rst, raw.source, raw.encode_row, asks[1], found, **placing),
        rows_out(clk, rst, commands.unload, asks[2], found, m_axis_values, m_axis_descriptors, **placing),
        read_turns(clk, rst, phase, asks, row, reads, found),
        frame_symbol(clk, rst, top, behind, top_row, top_words, tops, **placing),
    ]
    return banks, loaders, readers
