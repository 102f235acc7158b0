"""A NIC's memory of rows in block RAM: banks for eight engines each, and what loads and reads them."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_clocks import bank_clocks
from oscar_hdl.nic.memory.bank_ports import BankClocks, BankRead, SideWrite, ValueWrite, bank_count
from oscar_hdl.nic.memory.frame_top import frame_top
from oscar_hdl.nic.memory.row_bank import Place, row_bank
from oscar_hdl.nic.memory.row_unloader import row_unloader
from oscar_hdl.nic.memory.side_loader import side_loader
from oscar_hdl.nic.memory.value_loader import value_loader
from oscar_hdl.nic.ports import TopPort
from oscar_hdl.streams.bundles import bit, word

RAW_TAKES = 21  # the phase in which a raw packer sees that it may take a row two clocks later


@block
def row_memory(
    clk: Any, rst: Any, phase: Any, positions: Any, sums: Any, decode_rows: Any, adopt: Any, sources: Any,
    encode_rows: Any, load_values: Any, load_side: Any, unload: Any, top: TopPort, s_axis_values: Any,
    s_axis_side: Any, m_axis_values: Any, m_axis_descriptors: Any, *, row_bits: int, block_log2: int,
    banks: int = 0,
) -> Any:  # fmt: skip
    """Serve E engines, 2, 4, 8 .. 64, and a raw unit of each direction.

    positions, sums, sources: lists of E + 1 PositionPort, SumPort, SourcePort, the last of them the raw
    unit's; decode_rows, encode_rows: first rows of the blocks they work on, adopt: a block's local values are
    0; all stable while it is worked on. load_values, load_side, unload: RowCommand, side by side. top: see
    frame_top.
    s_axis_values, m_axis_values, s_axis_side: Stream(128), m_axis_descriptors: Stream(16); see value_loader,
    side_loader (which clears rows, too) and row_unloader: each takes four clocks a row.

    The memory has 2^row_bits rows in B banks: `banks`, or if that is 0 bank_count's. Row r belongs to block
    r >> (block_log2 - 5), this to bank block mod B, and unit e works on blocks of bank e mod B. So frames
    begin where blocks do, and all have blocks of 2^block_log2 values.
    """
    ENGINES = len(positions) - 1
    BANKS = banks or bank_count(ENGINES)
    SKIP, BLOCK = BANKS.bit_length() - 1, block_log2 - 5
    BANK_BITS = row_bits - SKIP
    values, side, clocks = ValueWrite(BANKS, BANK_BITS), SideWrite(BANKS, BANK_BITS), BankClocks(BANKS)
    row, described, top_row, behind = word(BANK_BITS), word(BANK_BITS), word(BANK_BITS), bit()
    reads = [BankRead(row, described, top_row) for _ in range(BANKS)]
    tops = [read.top for read in reads]
    words, descriptors = [read.data for read in reads], [read.descriptor for read in reads]
    placing = {"block_bits": BLOCK, "skip_bits": SKIP}
    places = [
        Place(*six) for six in zip(positions, sums, decode_rows, adopt, sources, encode_rows, strict=True)
    ]
    raw = places[ENGINES]
    raw_position, raw_sums, raw_source = raw.position, raw.sums, raw.source
    raw_decode_row, raw_encode_row = raw.decode_base, raw.encode_base
    decode_here, encode_here = [bit() for _ in range(BANKS)], [bit() for _ in range(BANKS)]
    raw_data, raw_means = [word(4) for _ in range(BANKS)], [word(4) for _ in range(BANKS)]
    raw_locals, raw_values = [word(16) for _ in range(BANKS)], [word(16) for _ in range(BANKS)]

    banks = [
        row_bank(
            clk, clocks, places[i:ENGINES:BANKS], raw, decode_here[i], raw_data[i], raw_means[i],
            raw_locals[i], raw_values[i], values, side, reads[i], index=i, row_bits=BANK_BITS,
            **placing,
        )
        for i in range(BANKS)
    ]  # fmt: skip
    movers = [
        bank_clocks(clk, phase, clocks),
        value_loader(clk, rst, phase, load_values, s_axis_values, values, **placing),
        side_loader(clk, rst, phase, load_side, s_axis_side, side, behind, **placing),
        frame_top(clk, rst, phase, top, behind, top_row, tops, **placing),
        row_unloader(
            clk, rst, phase, unload, row, described, words, descriptors, m_axis_values, m_axis_descriptors,
            **placing,
        ),
    ]  # fmt: skip

    if BANKS == 1:

        @always(clk.posedge)
        def find() -> None:
            for i in range(BANKS):
                decode_here[i].next = True
                encode_here[i].next = True
    else:

        @always(clk.posedge)
        def find() -> None:
            for i in range(BANKS):
                decode_here[i].next = raw_decode_row[BLOCK + SKIP : BLOCK] == i
                encode_here[i].next = raw_encode_row[BLOCK + SKIP : BLOCK] == i

    @always(clk.posedge)
    def allow() -> None:
        raw_position.ok.next = True
        raw_source.ok.next = phase == RAW_TAKES - 1

    @always_comb
    def serve_raw_decoder() -> None:
        raw_position.data.next = 0
        raw_position.mean.next = 0
        raw_sums.local.next = 0
        for i in range(BANKS):
            if decode_here[i]:
                raw_position.data.next = raw_data[i]
                raw_position.mean.next = raw_means[i]
                raw_sums.local.next = raw_locals[i]

    @always_comb
    def serve_raw_packer() -> None:
        raw_source.data.next = 0
        raw_source.mean.next = 0
        for i in range(BANKS):
            if encode_here[i]:
                raw_source.data.next = concat(modbv(0)[3:], raw_values[i])

    return banks, movers, find, allow, serve_raw_decoder, serve_raw_packer
