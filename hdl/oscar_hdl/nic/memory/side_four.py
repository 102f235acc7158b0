"""Distances, means and descriptors of four rows of each group, and of four lanes of each row."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, FOUR, TURNS
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

LAST = TURNS - 1
DISTANCES, MEANS = 3 * FOUR, 4 * FOUR


@block
def side_four(
    clk: Any, clocks: Any, rows: Any, write: Any, means: Any, described: Any, look_group: Any, value: Any,
    position: Any, source: Any, descriptors: Any, *, index: int, four: int,
) -> Any:  # fmt: skip
    """Keep what a row's header and its distances are, and show what its ring's rows ask for.

    rows: BankRows. write: SideWrite, in clocks of phase 1 modulo 4; means u16: of the last four rows whose
    header was written, with this one's highest. described: DescriptorWrite.
    look_group: a group of which `descriptors` (four) are shown three clocks later.
    value u64: the four values that are shown. position u16, source u76: words of PositionPort and SourcePort,
    in the third clock behind the one in which they are asked for.
    """
    ROW_BITS = len(write.row)
    GROUP_BITS = ROW_BITS - 5
    LOW, HIGH = DISTANCES * four, DISTANCES * (four + 1)
    position_row, shown_row = rows.position[LAST - four], rows.position[LAST - four + 1]
    source_row, shown_source = rows.source[four], rows.source[four + 1]
    raw_row = rows.raw_position
    enable, at, data = bit(), word(ROW_BITS), word(DISTANCES)
    source_at, found, source_found = word(ROW_BITS), word(DISTANCES), word(DISTANCES)
    group_at, source_group_at, mean_enable, mean_data = word(GROUP_BITS), word(GROUP_BITS), bit(), word(MEANS)
    mean_found, source_means, looked = word(MEANS), word(MEANS), word(ROW_BITS)
    position_at, raw_at = word(ROW_BITS), word(ROW_BITS)
    headers = [word(DESCRIPTOR_BITS) for _ in range(FOUR)]
    position_header, source_header, descriptor_data = bit(), bit(), word(DESCRIPTOR_BITS)
    descriptor_at = word(GROUP_BITS)
    described_group, described_data = described.group, described.data

    memories = [
        hot_tree(None, [position_at, write.row, raw_at], clocks.looks, looked),
        block_ram(clk, enable, at, data, read_at=source_at, read=source_found, found=found),
        block_ram(
            clk, mean_enable, group_at, mean_data, read_at=source_group_at, read=source_means,
            found=mean_found,
        ),
    ]  # fmt: skip
    for lane in range(FOUR):
        memories.append(
            descriptor_lane(
                clk, described, descriptor_at, descriptor_data, look_group, headers[lane], descriptors[lane],
                row=FOUR * four + lane,
            )
        )  # fmt: skip
    words = [
        position_four(position_header, mean_found, found, position),
        source_four(source_header, source_means, headers, source_found, value, source),
    ]

    @always_comb
    def cut() -> None:
        position_at.next = position_row[ROW_BITS:]
        raw_at.next = raw_row[ROW_BITS:]
        group_at.next = at[ROW_BITS:5]
        source_group_at.next = source_at[ROW_BITS:5]

    @always(clk.posedge)
    def look() -> None:
        at.next = looked
        source_at.next = source_row[ROW_BITS:]

    @always(clk.posedge)
    def put() -> None:
        data.next = write.data[HIGH:LOW]
        mean_data.next = means
        enable.next = clocks.is_1 and write.distances[index]
        mean_enable.next = (
            clocks.is_1 and write.header[index] and write.row[2:] == 3 and write.row[5:2] == four
        )

    @always(clk.posedge)
    def what() -> None:
        descriptor_data.next = described_data
        descriptor_at.next = described_group
        if clocks.is_0:
            descriptor_at.next = source_row[ROW_BITS:5]
        source_header.next = clocks.is_2 and shown_source[ROW_BITS]
        position_header.next = shown_row[ROW_BITS]
        if clocks.is_0:
            position_header.next = raw_row[ROW_BITS]

    return memories, words, cut, look, put, what


class Described:
    """A row whose descriptor (class, size, top) is to be written: valid: until the next phase 0 modulo 4."""

    def __init__(self, row_bits: int) -> None:
        self.valid, self.row, self.data = bit(), word(row_bits), word(DESCRIPTOR_BITS)


class DescriptorWrite:
    """Descriptors of a group that are written, never in phase 0 modulo 4; lanes: a bit for each row."""

    def __init__(self, row_bits: int) -> None:
        self.lanes, self.group, self.data = word(32), word(row_bits - 5), word(DESCRIPTOR_BITS)


@block
def descriptor_lane(
    clk: Any, write: Any, at: Any, data: Any, look_group: Any, header: Any, descriptor: Any, *, row: int
) -> Any:
    """Keep the descriptor of one row of each group; header is for group `at`, descriptor for look_group.

    write: DescriptorWrite, whose data, and group in `at`, are given a clock later.
    """
    ROW, enable = row, bit()
    memory = block_ram(clk, enable, at, data, read_at=look_group, read=descriptor, found=header)

    @always(clk.posedge)
    def put() -> None:
        enable.next = write.lanes[ROW]

    return memory, put


@block
def position_four(header: Any, means: Any, distances: Any, four: Any) -> Any:
    """Give four means or four distances, in four bits each."""

    @always_comb
    def choose() -> None:
        four.next = concat(
            modbv(0)[1:], distances[12:9], modbv(0)[1:], distances[9:6], modbv(0)[1:], distances[6:3],
            modbv(0)[1:], distances[3:],
        )  # fmt: skip
        if header:
            four.next = means

    return choose


@block
def source_four(header: Any, means: Any, descriptors: Any, distances: Any, values: Any, four: Any) -> Any:
    """Give four headers (class, size << 4, mean << 7) or four values and distances, in 19 bits each."""
    first, second, third, fourth = descriptors

    @always_comb
    def choose() -> None:
        four.next = concat(
            distances[12:9], values[64:48], distances[9:6], values[48:32], distances[6:3], values[32:16],
            distances[3:], values[16:],
        )  # fmt: skip
        if header:
            four.next = concat(
                modbv(0)[8:], means[16:12], fourth[7:], modbv(0)[8:], means[12:8], third[7:], modbv(0)[8:],
                means[8:4], second[7:], modbv(0)[8:], means[4:], first[7:],
            )  # fmt: skip

    return choose
