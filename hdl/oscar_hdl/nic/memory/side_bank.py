"""Distances, means and descriptors of a bank of rows."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import (
    DESCRIPTOR_BITS,
    DISTANCE_BITS,
    FOUR,
    POSITION_PHASE,
    SOURCE_PHASE,
)
from oscar_hdl.nic.memory.lane_reader import lane_reader
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word


@block
def side_bank(
    clk: Any, rst: Any, phase: Any, position: Any, position_row: Any, sums: Any, sum_row: Any,
    described_row: Any, live: Any, source_take: Any, source_header: Any, source_row: Any,
    source_distance: Any, instead: Any, header: Any, source_mean: Any, write: Any, read: Any, *, index: int,
) -> Any:  # fmt: skip
    """Serve a PositionPort, keep descriptors of sums, and serve what a SourcePort gives beside values.

    position, sums: PositionPort and SumPort; position_row, sum_row, described_row, source_row: rows of ports
    in the bank. live: the class of the row taken is above 0; from the third to the 34th clock behind
    sums.take. instead: the next clock's data of the SourcePort are `header` u16, which is 0 for a row of
    class 0; otherwise source_distance u3 goes with its value.
    write: SideWrite, in clocks of odd phase. read: BankRead.
    """
    ROW_BITS = len(position_row)
    step, row_kept, at_row, at_half = word(5), word(ROW_BITS), word(ROW_BITS), bit()
    source_step, source_half = word(5), bit()
    source_kept, source_at = word(ROW_BITS), word(ROW_BITS)
    # Distances of half a row, and fours of them; the position port has each in a nibble.
    enable, at, data, found = bit(), word(ROW_BITS + 1), word(DISTANCE_BITS), word(DISTANCE_BITS)
    second_at, second_found = word(ROW_BITS + 1), word(DISTANCE_BITS)
    nibbles, fours = [word(4 * FOUR) for _ in range(FOUR)], [word(3 * FOUR) for _ in range(FOUR)]
    # Means, for each direction of its own, and descriptors.
    means = [word(4) for _ in range(1 << ROW_BITS)]
    source_means = [word(4) for _ in range(1 << ROW_BITS)]
    mean_write, write_row, mean_data = bit(), word(ROW_BITS), word(4)
    mean_at, mean_fetched, mean_found = word(ROW_BITS), word(4), word(4)
    source_mean_at, source_mean_fetched, source_mean_found = word(ROW_BITS), word(4), word(4)
    d_enable, d_at, d_data, d_found = bit(), word(ROW_BITS), word(DESCRIPTOR_BITS), word(DESCRIPTOR_BITS)
    d_second_found = word(DESCRIPTOR_BITS)
    lives = [bit() for _ in range(1 << ROW_BITS)]
    live_at, live_fetched = word(ROW_BITS), bit()
    pending, pending_row, pending_data = bit(), word(ROW_BITS), word(DESCRIPTOR_BITS)
    header_now, header3, was_header, was_source_header = bit(), bit(), bit(), bit()

    parts = [
        block_ram(clk, enable, at, data, read_at=second_at, read=second_found, found=found),
        block_ram(clk, d_enable, d_at, d_data, read_at=source_mean_at, read=d_second_found, found=d_found),
        lane_reader(
            clk, rst, phase, position.take, position_row, step, row_kept, at_row, at_half, nibbles, header3,
            mean_found, position.data, down=True, begin=POSITION_PHASE,
        ),
        lane_reader(
            clk, rst, phase, source_take, source_row, source_step, source_kept, source_at, source_half,
            fours, instead, None, source_distance, down=False, begin=SOURCE_PHASE,
        ),
        *[four_distances(found, second_found, nibbles[i], fours[i], four_at=i) for i in range(FOUR)],
    ]  # fmt: skip

    @always_comb
    def show() -> None:
        header.next = 0
        if header_now:
            header.next = concat(modbv(0)[5:], source_mean_found, d_second_found)
        instead.next = header_now or d_second_found[4:] == 0

    @always(clk.posedge)
    def distances() -> None:
        at.next = concat(at_row, at_half)
        enable.next = False
        data.next = write.data
        if phase[0]:
            at.next = concat(write.row, write.half)
            enable.next = write.distances[index]
        second_at.next = concat(source_at, source_half)

    # A header's rows come one a clock, in the order of lanes; a row's mean is the first that is read.
    @always(clk.posedge)
    def means_of_rows() -> None:
        if mean_write:
            means[write_row].next = mean_data
            source_means[write_row].next = mean_data
        mean_fetched.next = means[mean_at]
        mean_found.next = mean_fetched
        source_mean_fetched.next = source_means[source_mean_at]
        source_mean_found.next = source_mean_fetched

    @always(clk.posedge)
    def positions() -> None:
        mean_at.next = mean_at - 1
        if position.take:
            was_header.next = position.header
            mean_at.next = position_row
            if position.header:
                mean_at.next[5:] = 31
        if step == 2:
            header3.next = was_header
        if step == 3:
            position.mean.next = mean_found
        if was_source_header:
            source_mean_at.next = source_mean_at + 1
        if source_take:
            was_source_header.next = source_header
            source_mean_at.next = source_row
        if source_step == 2:
            header_now.next = was_source_header
        if source_step == 3:
            source_mean.next = source_mean_found

    # Descriptors of sums wait for the clock that is theirs.
    @always(clk.posedge)
    def descriptors() -> None:
        mean_write.next = False
        mean_data.next = write.header_data[11:7]
        write_row.next = write.row
        d_enable.next = False
        d_at.next = write.row
        d_data.next = write.header_data[7:]
        if phase[0]:
            d_enable.next = write.header[index] or write.clear[index]
            mean_write.next = write.header[index]
            if write.clear[index]:
                d_data.next = 0
        elif phase[1]:
            d_at.next = read.described
        else:
            d_at.next = pending_row
            d_data.next = pending_data
            d_enable.next = pending
            pending.next = False
        if sums.described:
            pending.next = True
            pending_row.next = described_row
            pending_data.next = concat(sums.row_size, sums.row_class)
        if phase[2:] == 1:
            read.descriptor.next = d_found
        if rst:
            pending.next = False

    @always(clk.posedge)
    def classes_above_0() -> None:
        if d_enable:
            lives[d_at].next = d_data[4:] != 0
        if sums.take:
            live_at.next = sum_row
        live_fetched.next = lives[live_at]
        live.next = live_fetched

    return parts, show, distances, means_of_rows, positions, descriptors, classes_above_0


@block
def four_distances(found: Any, other: Any, nibbles: Any, four: Any, *, four_at: int) -> Any:
    """Give four distances of half a row in four bits each, and four of another as they are."""
    A, B, C, D, E = (3 * (FOUR * four_at + lane) for lane in range(FOUR + 1))

    @always_comb
    def cut() -> None:
        nibbles.next = concat(
            modbv(0)[1:], found[E:D], modbv(0)[1:], found[D:C], modbv(0)[1:], found[C:B], modbv(0)[1:],
            found[B:A],
        )  # fmt: skip
        four.next = other[E:A]

    return cut
