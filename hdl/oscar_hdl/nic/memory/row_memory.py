"""A NIC's memory of rows in block RAM: a bank for each engine, and what loads and reads them."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import PositionPort, SourcePort, SumPort
from oscar_hdl.nic.memory.bank_ports import BankRead, SideWrite, ValueWrite
from oscar_hdl.nic.memory.bank_share import decode_share, encode_share
from oscar_hdl.nic.memory.row_unloader import row_unloader
from oscar_hdl.nic.memory.side_bank import side_bank
from oscar_hdl.nic.memory.side_loader import side_loader
from oscar_hdl.nic.memory.value_bank import value_bank
from oscar_hdl.nic.memory.value_loader import value_loader
from oscar_hdl.streams.bundles import bit, word


@block
def row_bank(
    clk: Any, rst: Any, phase: Any, position: Any, position_row: Any, sums: Any, sum_row: Any,
    described_row: Any, adopt: Any, source: Any, source_row: Any, values: Any, side: Any, read: Any, *,
    index: int,
) -> Any:  # fmt: skip
    """Keep rows and serve a decoder and an encoder; a row whose class is 0 reads as zeros.

    position, sums, source: PositionPort, SumPort, SourcePort but for their rows, which come as position_row,
    sum_row, described_row, source_row in the bank, and for ok. adopt: local values are 0, from the clock
    behind sums.take on. values: ValueWrite, side: SideWrite, read: BankRead; index: which enables are meant.
    """
    value, distance, header, instead, live = word(16), word(3), word(16), bit(), bit()
    no_local = bit()

    parts = [
        value_bank(
            clk, rst, phase, sums, sum_row, no_local, source.take, source_row, instead, header, value, values,
            read, index=index,
        ),
        side_bank(
            clk, rst, phase, position, position_row, sums, sum_row, described_row, live, source.take,
            source.header, source_row, distance, instead, header, source.mean, side, read, index=index,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        source.data.next = concat(distance, value)
        no_local.next = adopt or not live

    return parts, show


@block
def row_memory(
    clk: Any, rst: Any, phase: Any, positions: Any, sums: Any, decode_rows: Any, adopt: Any, sources: Any,
    encode_rows: Any, load_values: Any, load_side: Any, unload: Any, s_axis_values: Any, s_axis_side: Any,
    m_axis_values: Any, m_axis_descriptors: Any, *, row_bits: int, block_log2: int,
) -> Any:  # fmt: skip
    """Serve E engines, a power of two, and a raw unit of each direction.

    positions, sums, sources: lists of E + 1 PositionPort, SumPort, SourcePort, the last of them the raw
    unit's; decode_rows, encode_rows: first rows of the blocks they work on, adopt: a block's local values are
    0; all stable while it is worked on. load_values, load_side, unload: RowCommand, side by side.
    s_axis_values, m_axis_values, s_axis_side: Stream(128), m_axis_descriptors: Stream(8); see value_loader,
    side_loader (which clears rows, too) and row_unloader: each takes four clocks a row.

    The memory has 2^row_bits rows. Row r belongs to block r >> (block_log2 - 5), and this to bank and engine
    block mod E. So frames begin where blocks do, and all have blocks of 2^block_log2 values.
    A row of class 0 reads as zeros, whatever its values are.
    """
    BANKS = len(positions) - 1
    SKIP, BLOCK = BANKS.bit_length() - 1, block_log2 - 5
    BANK_BITS = row_bits - SKIP
    if BANKS < 2 or BANKS & (BANKS - 1):
        raise ValueError(f"memory has 2, 4, 8 .. banks, one for each engine, got {BANKS}")
    values, side = ValueWrite(BANKS, BANK_BITS), SideWrite(BANKS, BANK_BITS)
    row, described = word(BANK_BITS), word(BANK_BITS)
    reads = [BankRead(row, described) for _ in range(BANKS)]
    words, descriptors = [read.data for read in reads], [read.descriptor for read in reads]
    places = {"block_bits": BLOCK, "skip_bits": SKIP}
    # What the banks give.
    bank_positions = [PositionPort() for _ in range(BANKS)]
    bank_sums = [SumPort() for _ in range(BANKS)]
    bank_sources = [SourcePort() for _ in range(BANKS)]
    data, means = [port.data for port in bank_positions], [port.mean for port in bank_positions]
    local_data = [port.local for port in bank_sums]
    source_data = [port.data for port in bank_sources]
    source_means = [port.mean for port in bank_sources]
    adopts = [bit() for _ in range(BANKS)]
    position_rows, sum_rows, described_rows, source_rows = (
        [word(BANK_BITS) for _ in range(BANKS)] for _ in range(4)
    )
    # The raw units: which bank they work in, and whether it lets them.
    decode_here, encode_here = [bit() for _ in range(BANKS)], [bit() for _ in range(BANKS)]
    decode_ok, encode_ok = [bit() for _ in range(BANKS)], [bit() for _ in range(BANKS)]
    decode_bank, encode_bank = word(SKIP), word(SKIP)
    raw_position, raw_sums, raw_source = positions[BANKS], sums[BANKS], sources[BANKS]
    raw_decode_row, raw_encode_row, raw_adopt = decode_rows[BANKS], encode_rows[BANKS], adopt[BANKS]
    banks = []

    for i in range(BANKS):
        banks.append(
            decode_share(
                clk, rst, phase, positions[i], sums[i], decode_rows[i], adopt[i], raw_position, raw_sums,
                raw_decode_row, raw_adopt, decode_here[i], decode_ok[i], bank_positions[i], position_rows[i],
                bank_sums[i], sum_rows[i], described_rows[i], adopts[i], **places,
            )
        )  # fmt: skip
        banks.append(
            encode_share(
                clk, rst, phase, sources[i], encode_rows[i], raw_source, raw_encode_row, encode_here[i],
                encode_ok[i], bank_sources[i], source_rows[i], **places,
            )
        )  # fmt: skip
        banks.append(
            row_bank(
                clk, rst, phase, bank_positions[i], position_rows[i], bank_sums[i], sum_rows[i],
                described_rows[i], adopts[i], bank_sources[i], source_rows[i], values, side, reads[i],
                index=i,
            )
        )  # fmt: skip
    movers = [
        value_loader(clk, rst, phase, load_values, s_axis_values, values, **places),
        side_loader(clk, rst, phase, load_side, s_axis_side, side, **places),
        row_unloader(
            clk, rst, phase, unload, row, described, words, descriptors, m_axis_values, m_axis_descriptors,
            **places,
        ),
    ]  # fmt: skip

    @always_comb
    def choose() -> None:
        decode_bank.next = raw_decode_row[BLOCK + SKIP : BLOCK]
        encode_bank.next = raw_encode_row[BLOCK + SKIP : BLOCK]

    @always(clk.posedge)
    def find() -> None:
        for i in range(BANKS):
            decode_here[i].next = decode_bank == i
            encode_here[i].next = encode_bank == i

    @always_comb
    def serve_raw_decoder() -> None:
        raw_position.ok.next = False
        raw_position.data.next = 0
        raw_position.mean.next = 0
        raw_sums.local.next = 0
        for i in range(BANKS):
            if decode_here[i]:
                raw_position.data.next = data[i]
                raw_position.mean.next = means[i]
                raw_sums.local.next = local_data[i]
            if decode_ok[i]:
                raw_position.ok.next = True

    @always_comb
    def serve_raw_packer() -> None:
        raw_source.ok.next = False
        raw_source.data.next = 0
        raw_source.mean.next = 0
        for i in range(BANKS):
            if encode_here[i]:
                raw_source.data.next = source_data[i]
                raw_source.mean.next = source_means[i]
            if encode_ok[i]:
                raw_source.ok.next = True

    return banks, movers, choose, find, serve_raw_decoder, serve_raw_packer
