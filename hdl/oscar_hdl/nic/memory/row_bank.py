"""A bank of rows in block RAM, with the ports of one engine."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat

from oscar_hdl.nic.memory.side_bank import side_bank
from oscar_hdl.nic.memory.value_bank import value_bank
from oscar_hdl.streams.bundles import bit, word

# Whether takes of positions, sums, sources come with odd phases: those that decoders and encoders choose.
POSITION_ODD, SUMS_ODD, SOURCE_ODD = False, True, False


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
            read, index=index, sums_odd=SUMS_ODD, source_odd=SOURCE_ODD,
        ),
        side_bank(
            clk, rst, phase, position, position_row, sums, sum_row, described_row, live, source.take,
            source.header, source_row, distance, instead, header, source.mean, side, read, index=index,
            position_odd=POSITION_ODD, source_odd=SOURCE_ODD,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        source.data.next = concat(distance, value)
        no_local.next = adopt or not live

    return parts, show
