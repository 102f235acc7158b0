"""The ports of an encoder and of the raw packer, joined for a bank."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block

from oscar_hdl.nic.memory.bank_row import bank_row
from oscar_hdl.nic.memory.slot_share import slot_share
from oscar_hdl.streams.bundles import bit, word


@block
def encode_share(
    clk: Any, rst: Any, phase: Any, source: Any, base: Any, raw_source: Any, raw_base: Any, raw_here: Any,
    raw_ok: Any, bank_source: Any, source_row: Any, *, block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Pass on what either unit asks for; tell each when it may ask.

    source: SourcePort of the encoder, base of its block; raw_source, raw_base: of the raw packer, whose block
    is in this bank if raw_here; data and ok of its port are left to others, who get raw_ok. bank_source: to
    the bank; source_row is the row there.
    """
    own_row, raw_row, taken = word(len(source_row)), word(len(source_row)), bit()
    places = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        slot_share(clk, rst, phase, raw_here, taken, source.ok, raw_ok, slots=1),
        bank_row(base, source.row, own_row, **places),
        bank_row(raw_base, raw_source.row, raw_row, **places),
    ]

    @always_comb
    def choose() -> None:
        taken.next = raw_source.take and raw_here

    @always_comb
    def ask() -> None:
        bank_source.take.next = source.take or taken
        bank_source.header.next = source.header
        source_row.next = own_row
        if taken:
            bank_source.header.next = raw_source.header
            source_row.next = raw_row

    @always_comb
    def receive() -> None:
        source.data.next = bank_source.data
        source.mean.next = bank_source.mean

    return parts, choose, ask, receive
