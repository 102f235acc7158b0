"""The ports of a decoder and of the raw decoder, joined for a bank."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_row import bank_row
from oscar_hdl.nic.memory.slot_share import slot_share
from oscar_hdl.streams.bundles import bit, word

SLOTS = 2  # a decoder asks for sums in phase 25 of a row's slot, the raw decoder at once


@block
def decode_share(
    clk: Any, rst: Any, phase: Any, position: Any, sums: Any, base: Any, adopt: Any, raw_position: Any,
    raw_sums: Any, raw_base: Any, raw_adopt: Any, raw_here: Any, raw_ok: Any, bank_position: Any,
    position_row: Any, bank_sums: Any, sum_row: Any, described_row: Any, bank_adopt: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Pass on what either unit asks for and gives; tell each when it may ask.

    position, sums: PositionPort and SumPort of the decoder, base and adopt of its block; raw_position ..: of
    the raw decoder, whose block is in this bank if raw_here; data and ok of its ports are left to others, who
    get raw_ok. bank_position, bank_sums, bank_adopt: to the bank; position_row, sum_row and described_row are
    the rows there.
    """
    ROW_BITS = len(position_row)
    own_row, own_sum, own_described = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS)
    raw_row, raw_sum, raw_described = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS)
    taken, valid, described = bit(), bit(), bit()  # by the raw decoder, here
    places = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        slot_share(clk, rst, phase, raw_here, taken, position.ok, raw_ok, slots=SLOTS),
        bank_row(base, position.row, own_row, **places),
        bank_row(base, sums.row, own_sum, **places),
        bank_row(base, sums.described_row, own_described, **places),
        bank_row(raw_base, raw_position.row, raw_row, **places),
        bank_row(raw_base, raw_sums.row, raw_sum, **places),
        bank_row(raw_base, raw_sums.described_row, raw_described, **places),
    ]

    @always_comb
    def choose() -> None:
        taken.next = raw_position.take and raw_here
        valid.next = raw_sums.valid and raw_here
        described.next = raw_sums.described and raw_here

    @always_comb
    def ask() -> None:
        bank_position.take.next = position.take or taken
        bank_position.header.next = position.header
        position_row.next = own_row
        if taken:
            bank_position.header.next = raw_position.header
            position_row.next = raw_row
        bank_sums.take.next = sums.take or (raw_sums.take and raw_here)
        sum_row.next = own_sum
        if raw_sums.take and raw_here:
            sum_row.next = raw_sum

    @always(clk.posedge)
    def keep() -> None:
        if raw_sums.take and raw_here:
            bank_adopt.next = raw_adopt
        elif sums.take:
            bank_adopt.next = adopt

    @always_comb
    def give() -> None:
        bank_sums.valid.next = sums.valid or valid
        bank_sums.total.next = sums.total
        if valid:
            bank_sums.total.next = raw_sums.total
        bank_sums.described.next = sums.described or described
        described_row.next = own_described
        bank_sums.row_class.next = sums.row_class
        bank_sums.row_size.next = sums.row_size
        if described:
            described_row.next = raw_described
            bank_sums.row_class.next = raw_sums.row_class
            bank_sums.row_size.next = raw_sums.row_size

    @always_comb
    def receive() -> None:
        position.data.next = bank_position.data
        position.mean.next = bank_position.mean
        sums.local.next = bank_sums.local

    return parts, choose, ask, keep, give, receive
