"""The values of a bank of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import FOUR, SOURCE_PHASE, SUM_PHASE
from oscar_hdl.nic.memory.lane_reader import lane_reader
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

FOUR_BITS = 16 * FOUR


@block
def value_bank(
    clk: Any, rst: Any, phase: Any, sums: Any, sum_row: Any, adopt: Any, source_take: Any, source_row: Any,
    instead: Any, other: Any, source_value: Any, write: Any, read: Any, *, index: int,
) -> Any:  # fmt: skip
    """Serve a SumPort and the values of a SourcePort, and be loaded and read half a row at a time.

    sums: SumPort; sum_row: sums.row in the bank; adopt: its local values are 0. source_take, source_row (in
    the bank): rows whose values go to source_value u16, or `other` does where `instead` says so.
    write: ValueWrite, its enable is in clocks of even phase. read: BankRead.
    """
    ROW_BITS = len(sum_row)
    at, write_at = word(ROW_BITS + 1), word(ROW_BITS + 1)
    found = [word(FOUR_BITS) for _ in range(FOUR)]
    first, second, third, fourth = found
    step, row_kept, at_row, at_half = word(5), word(ROW_BITS), word(ROW_BITS), bit()
    source_step, source_kept, source_at, source_half = word(5), word(ROW_BITS), word(ROW_BITS), bit()
    totals, valid, total_row, total_four = word(FOUR_BITS), bit(), word(ROW_BITS), word(3)

    fours = [
        four_lanes(
            clk, phase, write, valid, total_four, totals, write_at, at, found[four], index=index, four=four
        )
        for four in range(FOUR)
    ]
    readers = [
        lane_reader(
            clk, rst, phase, sums.take, sum_row, step, row_kept, at_row, at_half, found, adopt, None,
            sums.local, down=True, begin=SUM_PHASE,
        ),
        lane_reader(
            clk, rst, phase, source_take, source_row, source_step, source_kept, source_at, source_half,
            found, instead, other, source_value, down=False, begin=SOURCE_PHASE,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        read.data.next = concat(fourth, third, second, first)

    # Totals come from the sixth clock on, four of them are complete in the tenth.
    @always(clk.posedge)
    def gather() -> None:
        totals.next = concat(totals[FOUR_BITS - 16 :], sums.total)
        valid.next = sums.valid
        total_four.next = 1 - step[5:2]
        if step == 8:
            total_row.next = row_kept
        write_at.next = concat(total_row, total_four[2])
        if not phase[0]:
            write_at.next = concat(write.row, write.half)

    @always(clk.posedge)
    def look() -> None:
        at.next = concat(read.row, phase[0])
        if phase[2:] == SOURCE_PHASE:
            at.next = concat(source_at, source_half)
        elif phase[2:] == SUM_PHASE:
            at.next = concat(at_row, at_half)

    return fours, readers, show, gather, look


@block
def four_lanes(
    clk: Any, phase: Any, write: Any, valid: Any, total_four: Any, totals: Any, write_at: Any, at: Any,
    found: Any, *, index: int, four: int,
) -> Any:  # fmt: skip
    """Keep four lanes of each half: what is loaded in clocks of even phase, or totals of these lanes."""
    LOW, HIGH = FOUR_BITS * four, FOUR_BITS * (four + 1)
    enable, data = bit(), word(FOUR_BITS)
    memory = block_ram(clk, enable, write_at, data, read_at=at, read=found)

    @always(clk.posedge)
    def put() -> None:
        data.next = totals
        enable.next = phase[1] and valid and total_four[2:] == four
        if not phase[0]:
            data.next = write.data[HIGH:LOW]
            enable.next = write.enable[index]

    return memory, put
