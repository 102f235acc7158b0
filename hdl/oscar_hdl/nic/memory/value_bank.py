"""The values of a bank of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import FOUR, FOUR_BITS, HALF_BITS, TURNS
from oscar_hdl.nic.memory.bank_rows import WRITTEN_LATER
from oscar_hdl.nic.memory.turn_ring import turn_back
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

LAST = TURNS - 1


@block
def gather(clk: Any, valid: Any, total: Any, four: Any) -> Any:
    """Keep the last four totals, the newest lowest, and above them whether there was one a clock ago."""
    KEPT = FOUR_BITS - 16

    @always(clk.posedge)
    def shift() -> None:
        four.next = concat(valid, four[KEPT:], total)

    return shift


@block
def value_bank(
    clk: Any, clocks: Any, rows: Any, sums: Sequence[Any], raw_valid: Any, raw_total: Any, write: Any,
    read: Any, found: Sequence[Any], *, index: int,
) -> Any:  # fmt: skip
    """Keep values; read for units what BankRows says, and add what SumPorts `sums` of all places give.

    found: the words of all eight memories, three clocks behind that in which they are asked for.
    raw_valid, raw_total u16: of the raw decoder's SumPort, if it works here. write: ValueWrite, its enable is
    in clocks of even phase. read: BankRead.
    """
    low_bits, high_bits, upper = word(HALF_BITS), word(HALF_BITS), word(HALF_BITS)
    raw_four, none = word(FOUR_BITS + 1), word(FOUR_BITS + 1)
    fours = [word(FOUR_BITS + 1) for _ in sums]
    totals = [word(FOUR_BITS + 1) for _ in range(TURNS)]
    lanes = [
        value_four(clk, clocks, write, rows, totals[m], raw_four, read.row, found[m], index=index, four=m)
        for m in range(TURNS)
    ]
    parts = [gather(clk, port.valid, port.total, four) for port, four in zip(sums, fours, strict=True)]
    parts.append(gather(clk, raw_valid, raw_total, raw_four))
    parts.append(turn_back([*fours, *[none] * (TURNS - len(fours))], clocks.total_amount, totals))
    low, high = join_fours(found[:FOUR], low_bits), join_fours(found[FOUR:], high_bits)

    @always_comb
    def show() -> None:
        read.data.next = upper
        if clocks.is_1:
            read.data.next = low_bits

    @always(clk.posedge)
    def keep() -> None:
        none.next = 0
        if clocks.is_1:
            upper.next = high_bits

    return lanes, parts, low, high, show, keep


@block
def join_fours(fours: Sequence[Any], whole: Any) -> Any:
    """Give four words as one, the first lowest."""
    first, second, third, fourth = fours

    @always_comb
    def join() -> None:
        whole.next = concat(fourth, third, second, first)

    return join


@block
def value_four(
    clk: Any, clocks: Any, write: Any, rows: Any, total: Any, raw_total: Any, read_row: Any, found: Any, *,
    index: int, four: int,
) -> Any:  # fmt: skip
    """Keep four lanes of each row; `total` and what BankRows has for these are of those whose turn it is."""
    source_row, sum_row = rows.source[four], rows.sums[LAST - four]
    total_row = rows.sums[LAST - four + WRITTEN_LATER + 1]
    raw_sum_row, raw_source_row, raw_total_row = rows.raw_sums, rows.raw_source, rows.raw_total
    LOW, HIGH, UPPER = FOUR_BITS * (four % FOUR), FOUR_BITS * (four % FOUR + 1), four >= FOUR
    RAW_READ, RAW_WRITE = (6 - four) % TURNS, (1 - four) % TURNS
    ROW_BITS = len(sum_row)
    enable, data, write_at, at = bit(), word(FOUR_BITS), word(ROW_BITS), word(ROW_BITS)
    memory = block_ram(clk, enable, write_at, data, read_at=at, read=found)

    @always(clk.posedge)
    def put() -> None:
        data.next = write.data[HIGH:LOW]
        write_at.next = write.row
        enable.next = write.enable[index] and write.half == UPPER
        if clocks.is_1:
            data.next = raw_total[FOUR_BITS:]
            write_at.next = raw_total_row
            enable.next = raw_total[FOUR_BITS] and clocks.turn == RAW_WRITE
        elif clocks.is_3:
            data.next = total[FOUR_BITS:]
            write_at.next = total_row
            enable.next = total[FOUR_BITS]

    @always(clk.posedge)
    def look() -> None:
        at.next = read_row
        if clocks.is_0:
            at.next = source_row[ROW_BITS:]
        elif clocks.is_1:
            at.next = sum_row
        elif clocks.is_3:
            at.next = raw_source_row
            if clocks.turn == RAW_READ:
                at.next = raw_sum_row

    return memory, put, look
