"""A NIC's memory of rows in block RAM: a bank for each engine, and what loads and reads them."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.nic.bank_ports import PART_BITS, BankRead, SideWrite, ValueWrite
from oscar_hdl.nic.row_memory import row_memory
from oscar_hdl.nic.row_unloader import row_unloader
from oscar_hdl.nic.side_loader import side_loader
from oscar_hdl.nic.stream_join import stream_join
from oscar_hdl.nic.stream_split import stream_split
from oscar_hdl.nic.value_loader import value_loader
from oscar_hdl.streams.bundles import Stream, word


@block
def row_banks(
    clk: Any, rst: Any, phase: Any, positions: Any, sums: Any, adopts: Any, decoder_bases: Any, sources: Any,
    encoder_bases: Any, load_values: Any, load_side: Any, unload: Any, s_axis_values: Any, s_axis_side: Any,
    m_axis_values: Any, m_axis_descriptors: Any, *, row_bits: int, block_bits: int,
    odd: tuple[bool, bool, bool],
) -> Any:  # fmt: skip
    """Keep 2^row_bits rows a bank; see row_memory for the map of rows and for `odd`.

    positions, sums, adopts, decoder_bases, sources, encoder_bases: lists, an item for each bank.
    load_values, load_side, unload: RowCommand, side by side. s_axis_values, m_axis_values: Stream(64..512),
    s_axis_side: Stream(64), m_axis_descriptors: Stream(8); see value_loader, side_loader, row_unloader.
    """
    BANKS = len(positions)
    SKIP = BANKS.bit_length() - 1
    values, side = ValueWrite(BANKS, row_bits), SideWrite(BANKS, row_bits)
    row, part = word(row_bits), word(PART_BITS)
    reads = [BankRead(row, part) for _ in range(BANKS)]
    words, descriptors = [read.data for read in reads], [read.descriptor for read in reads]
    narrow_in, narrow_out = Stream(64), Stream(64)
    places = {"block_bits": block_bits, "skip_bits": SKIP}

    banks = [
        row_memory(
            clk, rst, phase, positions[i], sums[i], adopts[i], decoder_bases[i], sources[i],
            encoder_bases[i], values, side, reads[i], index=i, row_bits=row_bits, odd=odd, **places,
        )
        for i in range(BANKS)
    ]  # fmt: skip
    movers = [
        stream_split(clk, rst, load_values.done, s_axis_values, narrow_in),
        value_loader(clk, rst, phase, load_values, narrow_in, values, odd=odd[1], **places),
        side_loader(clk, rst, phase, load_side, s_axis_side, side, odd=odd[0], **places),
        row_unloader(
            clk, rst, phase, unload, row, part, words, descriptors, narrow_out, m_axis_descriptors,
            odd=odd[2], **places,
        ),
        stream_join(clk, rst, narrow_out, m_axis_values),
    ]  # fmt: skip
    return banks, movers
