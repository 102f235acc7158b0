"""A bank of rows: eight memories that serve up to eight engines in turn, the seldom raw units, and movers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_clocks import memory_clocks, place_clocks
from oscar_hdl.nic.memory.bank_ports import (
    FOUR,
    FOUR_BITS,
    POSITION_FOUR,
    SOURCE_FOUR,
    TURNS,
    MemoryClocks,
    PlaceClocks,
)
from oscar_hdl.nic.memory.bank_row import bank_row
from oscar_hdl.nic.memory.bank_rows import BankRows, bank_rows
from oscar_hdl.nic.memory.lane_shift import lane_shift
from oscar_hdl.nic.memory.side_bank import side_bank
from oscar_hdl.nic.memory.unit_lanes import engine_lanes, raw_lanes
from oscar_hdl.nic.memory.value_bank import value_bank
from oscar_hdl.streams.bundles import bit, word


class Place:
    """A unit at a bank: its ports, the first row of each half's block, and whether it adopts."""

    def __init__(
        self, position: Any, sums: Any, decode_base: Any, adopt: Any, source: Any, encode_base: Any
    ) -> None:
        self.position, self.sums, self.source, self.adopt = position, sums, source, adopt
        self.decode_base, self.encode_base = decode_base, encode_base


class PlaceRows:
    """Rows in the bank, of a place's ports; position and source have a bit for headers above.

    Sums are asked for by the raw decoder alone: an engine's are of the row of the positions before.
    """

    def __init__(self, row_bits: int) -> None:
        self.position, self.source = word(row_bits + 1), word(row_bits + 1)
        self.described = word(row_bits)


@block
def headed(header: Any, row: Any, both: Any) -> Any:
    """Give the row with the header's bit above."""

    @always_comb
    def join() -> None:
        both.next = concat(header, row)

    return join


@block
def place_rows(place: Place, rows: PlaceRows, *, block_bits: int, skip_bits: int) -> Any:
    """Find the rows that a place's ports ask for."""
    position, source = word(len(rows.described)), word(len(rows.described))
    places = {"block_bits": block_bits, "skip_bits": skip_bits}
    return (
        bank_row(place.decode_base, place.position.row, position, **places),
        bank_row(place.encode_base, place.source.row, source, **places),
        bank_row(place.decode_base, place.sums.described_row, rows.described, **places),
        headed(place.position.header, position, rows.position),
        headed(place.source.header, source, rows.source),
    )


class RawRows:
    """What a bank's BankRows needs of the raw units: strobes, and the rows that they ask for."""

    def __init__(
        self, position_take: Any, sum_take: Any, source_take: Any, rows: PlaceRows, sums: Any, source: Any
    ) -> None:
        self.position_take, self.position = position_take, rows.position
        self.sum_take, self.sums = sum_take, sums
        self.source_take, self.source = source_take, source


@block
def row_bank(
    clk: Any, clocks: Any, places: Sequence[Place], raw: Place, decode_here: Any, raw_position: Any,
    raw_mean: Any, raw_local: Any, raw_source: Any, values: Any, side: Any, read: Any, *, index: int,
    row_bits: int, block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Serve up to eight places, and the raw units' place, whose phases are as docs/engine.md says.

    A row whose class is 0 reads as zeros for all but encoders, who do not ask for one. decode_here: level,
    the raw decoder's block is in this bank; raw_position u4, raw_mean u4, raw_local u16, raw_source u16: what
    this bank has for raw units. values: ValueWrite, side: SideWrite, read: BankRead; index: which enables and
    phases are meant.
    """
    rows, raw_row = [PlaceRows(row_bits) for _ in places], PlaceRows(row_bits)
    ring = BankRows(row_bits)
    found = [word(FOUR_BITS) for _ in range(TURNS)]
    position_fours = [word(POSITION_FOUR) for _ in range(TURNS)]
    source_fours = [word(SOURCE_FOUR) for _ in range(TURNS)]
    positions = [word(POSITION_FOUR // FOUR) for _ in range(TURNS)]
    sources = [word(SOURCE_FOUR // FOUR) for _ in range(TURNS)]
    locals = [word(16) for _ in places]
    live, live_later, mean, source_mean = bit(), bit(), word(4), word(4)
    raw_valid, raw_described, pack_row, raw_sum_row = bit(), bit(), word(row_bits), word(row_bits)
    raw_sums = raw.sums
    memories, turns = [MemoryClocks() for _ in range(TURNS)], [PlaceClocks() for _ in range(TURNS)]
    phases = clocks.phases[2 * TURNS * index :]
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        place_rows(place, one, **placing) for place, one in zip([*places, raw], [*rows, raw_row], strict=True)
    ]
    parts += [memory_clocks(clk, phases[2 * m], memories[m], four=m) for m in range(TURNS)]
    parts += [place_clocks(clk, phases[2 * n + 1], turns[n], index=n) for n in range(TURNS)]
    parts += [
        bank_row(raw.decode_base, raw_sums.row, raw_sum_row, **placing),
        bank_rows(
            clk, clocks, memories, [row.position for row in rows], [row.source for row in rows],
            RawRows(raw.position.take, raw_sums.take, raw.source.take, raw_row, raw_sum_row, pack_row), ring,
        ),
        value_bank(
            clk, memories, turns, ring, [place.sums for place in places], raw_valid, raw_sums.total,
            values, read, found, [*locals, *[None] * (TURNS - len(places))], index=index,
        ),
        side_bank(
            clk, clocks, memories, ring, [place.sums for place in places], [row.described for row in rows],
            raw_described, raw_row.described, raw_sums, found, position_fours, source_fours, live,
            live_later, mean, source_mean, side, read, index=index,
        ),
        raw_lanes(
            clk, clocks, memories, raw, position_fours, found, live, mean, raw_position, raw_local, raw_source
        ),
    ]  # fmt: skip
    for m, near in enumerate(memories):
        parts += [
            lane_shift(clk, near.is_3, position_fours[m], positions[m], down=True),
            lane_shift(clk, near.is_3, source_fours[m], sources[m], down=False),
        ]
    parts += [
        engine_lanes(
            clk, clocks, turns[n], place, n, positions, sources, locals[n], live_later, mean, source_mean
        )
        for n, place in enumerate(places)
    ]  # fmt: skip
    raw_source_row = raw_row.source

    @always_comb
    def gate() -> None:
        raw_valid.next = raw_sums.valid and decode_here
        raw_described.next = raw_sums.described and decode_here
        pack_row.next = raw_source_row[row_bits:]

    @always(clk.posedge)
    def keep() -> None:
        if clocks.is_1:
            raw_mean.next = mean

    return parts, gate, keep
