"""The values of a bank of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import PART_BITS, WORD_BITS
from oscar_hdl.nic.memory.lane_reader import lane_reader
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word


@block
def value_bank(
    clk: Any, rst: Any, phase: Any, sums: Any, sum_row: Any, adopt: Any, source_take: Any, source_row: Any,
    instead: Any, other: Any, source_value: Any, write: Any, read: Any, *, index: int, sums_odd: bool,
    source_odd: bool,
) -> Any:  # fmt: skip
    """Serve a SumPort and the values of a SourcePort, and be loaded and read four values at a time.

    sums: SumPort; sum_row: sums.row in the bank; adopt: its local values are 0. source_take, source_row (in
    the bank): rows whose values go to source_value u16, or `other` does where `instead` says so.
    write: ValueWrite, its enable is in clocks of even phase if sums are taken in odd ones (sums_odd), and the
    other way round. read: BankRead, its data are there three clocks after row and part in a clock of even
    phase if source_odd, and the other way round.
    """
    ROW_BITS = len(sum_row)
    at, second_at = word(ROW_BITS + PART_BITS), word(ROW_BITS + PART_BITS)
    enable, data, found, second_found = bit(), word(WORD_BITS), word(WORD_BITS), word(WORD_BITS)
    step, row_kept, at_row, at_part = word(5), word(ROW_BITS), word(ROW_BITS), word(PART_BITS)
    source_step, source_kept, source_at, source_part = word(5), word(ROW_BITS), word(ROW_BITS), word(3)
    totals, valid, total_row, total_part = word(WORD_BITS), bit(), word(ROW_BITS), word(PART_BITS)

    parts = [
        block_ram(clk, enable, at, data, read_at=second_at, read=second_found, found=found),
        lane_reader(
            clk, rst, phase, sums.take, sum_row, step, row_kept, at_row, at_part, found, adopt, None,
            sums.local, down=True, odd=sums_odd,
        ),
        lane_reader(
            clk, rst, phase, source_take, source_row, source_step, source_kept, source_at, source_part,
            second_found, instead, other, source_value, down=False, odd=source_odd,
        ),
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        read.data.next = second_found

    # Totals come from the sixth clock on, four of them are complete in the tenth. In every fourth clock a
    # word is read, two clocks later one is written, and the clocks between are for what is loaded.
    @always(clk.posedge)
    def first_port() -> None:
        totals.next = concat(totals[WORD_BITS - 16 :], sums.total)
        valid.next = sums.valid
        total_part.next = 1 - step[5:2]
        if step == 8:
            total_row.next = row_kept
        at.next = concat(at_row, at_part)
        enable.next = False
        data.next = totals
        if step[0]:
            at.next = concat(write.row, write.part)
            enable.next = write.enable[index]
            data.next = write.data
        elif step[1]:
            at.next = concat(total_row, total_part)
            enable.next = valid

    @always(clk.posedge)
    def second_port() -> None:
        second_at.next = concat(source_at, source_part)
        if source_step[0]:
            second_at.next = concat(read.row, read.part)

    return parts, show, first_port, second_port
