"""The values of a bank of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.bank_ports import FOUR, FOUR_BITS, TURNS
from oscar_hdl.nic.memory.bank_rows import READ_LATER, WRITTEN_LATER
from oscar_hdl.nic.memory.lane_shift import lane_shift
from oscar_hdl.nic.memory.turn_ring import turn_back
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

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
def offered(clk: Any, valid: Any, total: Any, both: Any) -> Any:
    """Give a place's total and above it whether it is valid, a clock later."""

    @always(clk.posedge)
    def keep() -> None:
        both.next = concat(valid, total)

    return keep


@block
def split_total(both: Any, valid: Any, total: Any) -> Any:
    """Undo what `offered` puts together."""

    @always_comb
    def cut() -> None:
        valid.next = both[16]
        total.next = both[16:]

    return cut


@block
def value_bank(
    clk: Any, memories: Sequence[Any], places: Sequence[Any], rows: Any, sums: Sequence[Any], raw_valid: Any,
    raw_total: Any, write: Any, read: Any, found: Sequence[Any], locals: Sequence[Any], *, index: int,
) -> Any:  # fmt: skip
    """Keep values; read for units what BankRows says, and add what SumPorts `sums` of all places give.

    memories, places: MemoryClocks and PlaceClocks, eight each. found: the words of all eight memories, three
    clocks behind that in which they are asked for. locals: lanes u16 of all places (None: nobody is there), a
    clock before they are on their ports.
    raw_valid, raw_total u16: of the raw decoder's SumPort, if it works here. write: ValueWrite, its enable is
    in clocks of even phase. read: BankRead.
    """
    parts_read = [word(FOUR_BITS) for _ in range(FOUR)]
    raw_four, none = word(FOUR_BITS + 1), word(17)
    given, turned = [word(17) for _ in sums], [word(17) for _ in range(TURNS)]
    valids, totals = [bit() for _ in range(TURNS)], [word(16) for _ in range(TURNS)]
    fours = [word(FOUR_BITS + 1) for _ in range(TURNS)]
    shown = [word(16) for _ in range(TURNS)]
    lanes = [
        value_four(
            clk, memories[m], write, rows, fours[m], raw_four, read.row, found[m], shown[m], index=index,
            four=m,
        )
        for m in range(TURNS)
    ]  # fmt: skip
    parts = [offered(clk, port.valid, port.total, both) for port, both in zip(sums, given, strict=True)]
    parts += [split_total(*three) for three in zip(turned, valids, totals, strict=True)]
    parts += [gather(clk, *three) for three in zip(valids, totals, fours, strict=True)]
    parts += [
        gather(clk, raw_valid, raw_total, raw_four),
        turn_back(
            clk, [*given, *[none] * (TURNS - len(given))], [place.totals for place in places], turned
        ),
        turn_back(clk, shown, [place.local for place in places], locals),
    ]  # fmt: skip
    parts += [
        read_four(clk, memories[m], memories[FOUR + m], found[m], found[FOUR + m], parts_read[m])
        for m in range(FOUR)
    ]
    parts.append(join_fours(parts_read, read.data))

    @always(clk.posedge)
    def fill() -> None:
        none.next = 0

    return lanes, parts, fill


@block
def read_four(clk: Any, clocks: Any, upper_clocks: Any, lower: Any, upper: Any, given: Any) -> Any:
    """Give four lanes of a row's lower half in a clock of phase 1 modulo 4, and of its upper one in the next.

    clocks, upper_clocks: MemoryClocks of these lanes' memories.
    """
    kept = word(FOUR_BITS)

    @always_comb
    def show() -> None:
        given.next = kept
        if clocks.is_1:
            given.next = lower

    @always(clk.posedge)
    def keep() -> None:
        if upper_clocks.is_1:
            kept.next = upper

    return show, keep


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
    clk: Any, clocks: Any, write: Any, rows: Any, total: Any, raw_total: Any, read_row: Any, found: Any,
    local: Any, *, index: int, four: int,
) -> Any:  # fmt: skip
    """Keep four lanes of each row; `total` and what BankRows has for these are of those whose turn it is.

    local u16: a lane a clock of a decoder's local values, from four clocks behind that in which they are
    asked for.
    """
    source_row, sum_row = rows.source[four], rows.position[LAST - four + READ_LATER]
    total_row = rows.position[LAST - four + WRITTEN_LATER]
    raw_total_row = rows.raw_total
    LOW, HIGH, UPPER = FOUR_BITS * (four % FOUR), FOUR_BITS * (four % FOUR + 1), four >= FOUR
    ROW_BITS = len(read_row)
    enable, data, write_at, at = bit(), word(FOUR_BITS), word(ROW_BITS), word(ROW_BITS)
    source_at, sum_at, looked = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS)
    wanted = [source_at, sum_at, read_row, rows.raw_sums, rows.raw_source]
    choose = hot_tree(None, wanted, clocks.looks, looked)
    memory = block_ram(clk, enable, write_at, data, read_at=at, read=found)
    lanes = lane_shift(clk, clocks.is_0, found, local, down=True)

    @always(clk.posedge)
    def put() -> None:
        data.next = write.data[HIGH:LOW]
        write_at.next = write.row
        enable.next = write.enable[index] and write.half == UPPER
        if clocks.is_1:
            data.next = raw_total[FOUR_BITS:]
            write_at.next = raw_total_row
            enable.next = raw_total[FOUR_BITS] and clocks.raw_writes
        elif clocks.is_3:
            data.next = total[FOUR_BITS:]
            write_at.next = total_row[ROW_BITS:]
            enable.next = total[FOUR_BITS]

    @always_comb
    def cut() -> None:
        source_at.next = source_row[ROW_BITS:]
        sum_at.next = sum_row[ROW_BITS:]

    @always(clk.posedge)
    def look() -> None:
        at.next = looked

    return memory, lanes, choose, put, cut, look
