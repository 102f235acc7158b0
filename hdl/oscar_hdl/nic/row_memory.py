"""A bank of rows in block RAM, behind the ports of one engine (docs/engine.md, "Ports of memory")."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat

from oscar_hdl.nic.side_bank import side_bank
from oscar_hdl.nic.value_bank import value_bank
from oscar_hdl.streams.bundles import bit, word


@block
def row_memory(
    clk: Any, rst: Any, phase: Any, position: Any, sums: Any, adopt: Any, decoder_base: Any, source: Any,
    encoder_base: Any, values: Any, side: Any, read: Any, *, index: int, row_bits: int, block_bits: int,
    skip_bits: int, odd: tuple[bool, bool, bool] = (False, False, False),
) -> Any:  # fmt: skip
    """Keep 2^row_bits rows of the blocks that bank `index` has, and serve a decoder and an encoder.

    position, sums, source: PositionPort, SumPort, SourcePort; ok is always high. decoder_base, encoder_base:
    first row, in the NIC's memory, of the block that each works on, a multiple of 2^block_bits; adopt: local
    values of the decoder's block are 0. They hold while takes are under way and until the last descriptor.
    values: ValueWrite, side: SideWrite, read: BankRead; see value_bank and side_bank for their clocks.

    Blocks have 2^block_bits rows. Of a row's number in the NIC's memory the skip_bits above these say
    nothing here: with 2^skip_bits banks or more, blocks of a frame that come to one bank differ in the
    others, if the frame begins at a multiple of 2^(block_bits + skip_bits).
    odd: whether takes of position, sums, source are in clocks with odd phases.
    """
    if not 5 <= block_bits <= min(12, row_bits):
        raise ValueError(f"a block has 2^5 to 2^12 rows and fits a bank, got 2^{block_bits} of 2^{row_bits}")
    TOP, LOW = row_bits + skip_bits, block_bits + skip_bits
    if len(decoder_base) < TOP or len(encoder_base) < TOP:
        raise ValueError(f"rows of the NIC's memory have {TOP} bits, the bases fewer")
    position_row, sum_row, described_row, source_row = (word(row_bits) for _ in range(4))
    value, distance, header, header_now = word(16), word(3), word(16), bit()

    parts = [
        value_bank(
            clk, rst, phase, sums, sum_row, adopt, source.take, source_row, header_now, header, value, values,
            read, index=index, sums_odd=odd[1], source_odd=odd[2],
        ),
        side_bank(
            clk, rst, phase, position, position_row, sums.described, described_row, sums.row_class,
            sums.row_size, source.take, source.header, source_row, distance, header_now, header, source.mean,
            side, read, index=index, position_odd=odd[0], source_odd=odd[2],
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        position.ok.next = True
        source.ok.next = True
        source.data.next = concat(distance, value)

    if row_bits == block_bits:

        @always_comb
        def place() -> None:
            position_row.next = position.row[block_bits:]
            sum_row.next = sums.row[block_bits:]
            described_row.next = sums.described_row[block_bits:]
            source_row.next = source.row[block_bits:]
    else:

        @always_comb
        def place() -> None:
            position_row.next = concat(decoder_base[TOP:LOW], position.row[block_bits:])
            sum_row.next = concat(decoder_base[TOP:LOW], sums.row[block_bits:])
            described_row.next = concat(decoder_base[TOP:LOW], sums.described_row[block_bits:])
            source_row.next = concat(encoder_base[TOP:LOW], source.row[block_bits:])

    return parts, show, place
