"""Survey a frame before it is coded: classes of rows, mean position classes, extremes, symbol counts.

One pass over the values. Everything that the encoder chooses (last symbol, sent rows, block size, raw or
constant blocks) follows from its results, so the tables are ready before the second pass codes the first
value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from oscar.coding.asc.compiled.count_kernels import (
    FOURS,
    count_classes,
    count_plain,
    count_row,
    count_step,
    plain_rows,
)
from oscar.coding.asc.compiled.row_kernels import (
    INLINE,
    KERNEL,
    PART,
    Frame,
    i64,
    lanes_of,
    load_values,
    low_bits,
    positions_at,
    rows_of,
    u64,
    values_at,
    wide_class,
)  # fmt: skip
from oscar.coding.asc.compiled.vectors import (
    bit_length,
    bits_of,
    get_byte,
    greater,
    highest,
    lesser,
    load8,
    lowest,
    put32,
    put_byte,
    reaches,
    spread,
    to8,
    total,
)  # fmt: skip
from oscar.coding.asc.params import GROUP, GROUP_ROWS, LANES, LIMIT, NARROW_CLASS
from oscar.kernels import njit

# A short row padded with zeros, then numbers of counters, int32 [FOURS][32]
SURVEY_BYTES = (5 + 4 * FOURS) * LANES


@njit(**KERNEL)
def widest(values: Any, size: int, count: int) -> int:
    """Return the largest bit length of `count` values, without their signs."""
    every = spread(0)
    for t in range(count // LANES):
        row = load_values(values + u64(LANES * size * t), size)
        every = every | (row ^ (row >> 31))
    most = highest(every)
    for i in range(count // LANES * LANES, count):
        value = get_value(values, size, i)
        most |= value ^ (value >> 31)
    return bit_length(most)


@njit(**INLINE)
def get_value(values: Any, size: int, i: int) -> int:
    """Return value `i` as int64; `size` bytes each."""
    value, at = i64(0), values + u64(size * i)
    for byte in range(size):
        value |= get_byte(at + u64(byte)) << (8 * byte)
    return value - (value >> (8 * size - 1) << (8 * size))


@njit(**PART)
def copy_bytes(source: Any, target: Any, count: int, room: int) -> None:
    """Copy `count` bytes to `target`, and fill up with zeros to `room` bytes."""
    for i in range(room):
        put_byte(target + u64(i), get_byte(source + u64(i)) if i < count else 0)


@njit(**INLINE)
def row_class(row: Any, shift: int, least: int) -> int:
    """Return the class of a row of values; least: the lowest that it may have."""
    high = row >> shift
    magnitude = greater(high, 0 - high)
    if bits_of(reaches(magnitude, LIMIT)):  # unsigned, because -2^31 has no int32 magnitude
        return wide_class(lowest(high), highest(high))
    return max(least, min(i64(NARROW_CLASS), bit_length(total(to8(magnitude)))))


class Found(NamedTuple):
    """Addresses of a survey's results: two bytes for each row; a byte and two int32 for each group."""

    classes: Any  # uint8, class of each row
    means: Any  # uint8, mean position class of each row
    live: Any  # uint8, number of rows of each group whose class is not 0
    low: Any  # int32, lowest value of each group
    high: Any  # int32, highest value of each group


@njit(**KERNEL)
def survey(frame: Frame, first: int, last: int, found: Found, counts: Any, scratch: Any) -> None:
    """Survey the groups `first` to `last` - 1.

    Fills in `found` and adds to `counts`, a thread's own counters. scratch: SURVEY_BYTES.
    """
    for g in range(first, last):
        rows, t0 = rows_of(frame, g), GROUP_ROWS * g
        low, high, live = spread(0x7FFFFFFF), spread(-0x7FFFFFFF - 1), i64(0)
        for t in range(t0, t0 + rows):
            values, positions = _row(frame, t, scratch)
            row = load_values(values, frame.size)
            low, high = lesser(low, row), greater(high, row)
            c = row_class(row, frame.shift, frame.least)
            put_byte(found.classes + u64(t), c)
            put_byte(found.means + u64(t), mean_position(positions))
            live += c > 0
        put_byte(found.live + u64(g), live)
        put32(found.low + u64(4 * g), lowest(low))
        put32(found.high + u64(4 * g), highest(high))
        if lanes_of(frame, t0 + rows - 1) < LANES:
            _last_extremes(frame, g, found)
        if live:
            _count_group(frame, g, live, found, counts, scratch)


@njit(**INLINE)
def mean_position(positions: Any) -> int:
    """Return the mean of the 32 position classes at an address, rounded."""
    return (total(load8(positions)) + LANES // 2) >> 5


@njit(**PART)
def _last_extremes(frame: Frame, g: int, found: Found) -> None:
    """Find the extremes of a group with a short last row again, from its values alone.

    `survey` saw the zeros that pad that row.
    """
    low, high = i64(1) << 31, -(i64(1) << 31)
    for i in range(GROUP * g, frame.length):
        value = get_value(frame.values, frame.size, i)
        low, high = min(low, value), max(high, value)
    put32(found.low + u64(4 * g), low)
    put32(found.high + u64(4 * g), high)


@njit(**INLINE)
def _row(frame: Frame, t: int, scratch: Any) -> Any:
    """Return the addresses of the values and position classes of row `t`.

    A short row is copied to `scratch` and padded with zeros.
    """
    values, positions, n = values_at(frame, t), positions_at(frame, t), lanes_of(frame, t)
    if n < LANES:
        copy_bytes(values, scratch, frame.size * n, frame.size * LANES)
        copy_bytes(positions, scratch + u64(4 * LANES), n, LANES)
        return scratch, scratch + u64(4 * LANES)
    return values, positions


@njit(**PART)
def _count_group(frame: Frame, g: int, live: int, found: Found, counts: Any, scratch: Any) -> None:
    """Count the sample of classes and symbols of a group with `live` rows whose class is not 0."""
    rows, t0, cells = rows_of(frame, g), GROUP_ROWS * g, scratch + u64(5 * LANES)
    classes, means, number = found.classes + u64(t0), found.means + u64(t0), g & (frame.cycle - 1)
    count_classes(classes, means, rows, number, counts)
    step, (plain, others) = count_step(frame.length, live), plain_rows(classes, rows)
    short = i64(1) << (rows - 1) if lanes_of(frame, t0 + rows - 1) < LANES else i64(0)
    slow = plain if frame.shift else plain & short
    plain, others = plain ^ slow, others | slow
    while others:
        j = bit_length(others) - 1
        others ^= i64(1) << j
        values, positions = _row(frame, t0 + j, scratch)
        c, mean, lanes = get_byte(classes + u64(j)), get_byte(means + u64(j)), lanes_of(frame, t0 + j)
        row, low = load_values(values, frame.size), low_bits(c, frame.shift)
        count_row(row, positions, mean, c, low, lanes, j, number, step, counts, cells)
    count_plain(
        plain, values_at(frame, t0), frame.size, positions_at(frame, t0), frame.stride, classes, means,
        number, step, counts, cells,
    )  # fmt: skip
