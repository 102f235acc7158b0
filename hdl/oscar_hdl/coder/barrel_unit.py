"""A barrel unit: decoder and encoder, and what they count (docs/engine.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.coder.barrel.ports import BarrelCounts
from oscar_hdl.coder.barrel.unit_counts import unit_counts
from oscar_hdl.coder.barrel_decode.barrel_decoder import barrel_decoder
from oscar_hdl.coder.barrel_decode.ports import (
    BarrelDecoderJob,
    BarrelFeed,
    BarrelPosition,
    BarrelSums,
)
from oscar_hdl.coder.barrel_encode.barrel_encoder import barrel_encoder
from oscar_hdl.coder.barrel_encode.ports import BarrelDrain, BarrelEncoderJob, BarrelSource
from oscar_hdl.coder.ports import CountChain, TableWrites
from oscar_hdl.streams.bundles import Stream


class Decoding:
    """What a unit decodes with: a job, bytes, and the rows of its bank."""

    def __init__(self, position: BarrelPosition, sums: BarrelSums) -> None:
        self.job, self.feed, self.position, self.sums = BarrelDecoderJob(), BarrelFeed(), position, sums


class Encoding:
    """What a unit encodes with: a job, where its bytes go, and the rows of its bank."""

    def __init__(self, source: BarrelSource) -> None:
        self.job, self.drain, self.bytes = BarrelEncoderJob(), BarrelDrain(), Stream(128, keep=16)
        self.source = source


class Link:
    """What passes from unit to unit: tables of either direction, and counts on their way to what learns."""

    def __init__(self) -> None:
        self.decoder_tables, self.encoder_tables = TableWrites(), TableWrites()
        self.decoder_counts, self.encoder_counts = CountChain(), CountChain()


@block
def pass_tables(clk: Any, given: Any, passed: Any) -> Any:
    """Give TableWrites a clock later, so that no register drives all units."""

    @always(clk.posedge)
    def pass_on() -> None:
        passed.enable.next = given.enable
        passed.address.next = given.address
        passed.data.next = given.data

    return pass_on


@block
def barrel_unit(
    clk: Any, rst: Any, phase: Any, decoding: Decoding, encoding: Encoding, before: Link, after: Link
) -> Any:
    """Decode and encode side by side, eight blocks each; phase u4 is that of its bank.

    Tables and counts come from the unit before and go to the one after: tables a clock later, counts eight.
    """
    decoder_counts, encoder_counts = BarrelCounts(), BarrelCounts()
    return (
        pass_tables(clk, before.decoder_tables, after.decoder_tables),
        pass_tables(clk, before.encoder_tables, after.encoder_tables),
        barrel_decoder(
            clk, rst, phase, decoding.job, after.decoder_tables, decoding.feed, decoding.position,
            decoding.sums, decoder_counts,
        ),
        unit_counts(clk, rst, decoder_counts, before.decoder_counts, after.decoder_counts),
        barrel_encoder(
            clk, rst, phase, encoding.job, after.encoder_tables, encoding.source, encoder_counts,
            encoding.drain, encoding.bytes,
        ),
        unit_counts(clk, rst, encoder_counts, before.encoder_counts, after.encoder_counts),
    )  # fmt: skip
