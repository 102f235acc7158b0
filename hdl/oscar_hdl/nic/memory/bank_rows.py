"""Which rows the memories of a bank look at, each for the unit whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.nic.memory.bank_ports import TURNS
from oscar_hdl.nic.memory.turn_ring import turn_chain
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.hot_tree import hot_tree

READ_LATER = 6  # turns: a decoder's local values are read so long behind the row's positions
WRITTEN_LATER = 10  # and its sums are written
RAW_TOTALS = 1  # the turn in whose last clock the raw decoder's row is the one that it gives totals for


class BankRows:
    """Rows of a bank; chains have what enters a ring first, then one behind each memory.

    position, source: with the bit above the row for headers; position goes on behind the last memory, to the
    sums that a decoder takes of the same row. Of raw units: of the present clock or the last that there was;
    raw_total: of the raw decoder's totals.
    """

    def __init__(self, row_bits: int) -> None:
        self.position = [word(row_bits + 1) for _ in range(TURNS + WRITTEN_LATER)]
        self.source = [word(row_bits + 1) for _ in range(TURNS + 1)]
        self.raw_position, self.raw_sums = word(row_bits + 1), word(row_bits)
        self.raw_source, self.raw_total = word(row_bits), word(row_bits)


@block
def kept_row(clk: Any, take: Any, asked: Any, row: Any) -> Any:
    """Let `row` be what is asked for with take, until the next."""
    kept = word(len(row))

    @always_comb
    def choose() -> None:
        row.next = kept
        if take:
            row.next = asked

    @always(clk.posedge)
    def keep() -> None:
        kept.next = row

    return choose, keep


@block
def bank_rows(
    clk: Any, clocks: Any, memories: Sequence[Any], positions: Sequence[Any], sources: Sequence[Any],
    raw: Any, rows: BankRows,
) -> Any:  # fmt: skip
    """Have the rows of all places (lists) move along the memories, in one ring for each kind.

    memories: MemoryClocks. positions, sources: with a bit for headers above the row. raw: RawRows.
    """

    @always(clk.posedge)
    def follow_totals() -> None:
        if clocks.is_3 and clocks.turn == RAW_TOTALS:
            rows.raw_total.next = rows.raw_sums

    return (
        hot_tree(None, positions, clocks.takes, rows.position[0]),
        hot_tree(None, sources, clocks.takes, rows.source[0]),
        turn_chain(clk, memories, rows.position),
        turn_chain(clk, memories, rows.source),
        kept_row(clk, raw.position_take, raw.position, rows.raw_position),
        kept_row(clk, raw.sum_take, raw.sums, rows.raw_sums),
        kept_row(clk, raw.source_take, raw.source, rows.raw_source),
        follow_totals,
    )
