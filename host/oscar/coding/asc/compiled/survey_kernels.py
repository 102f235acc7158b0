"""The encoder's first pass: classes of rows, mean position classes, extremes, and what tables learn."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

from oscar.coding.asc.compiled.row_kernels import (
    INLINE,
    KERNEL,
    PART,
    Frame,
    bump_rows,
    bump_some,
    count_classes,
    count_step,
    find_cells,
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

SURVEY_BYTES = (5 + 4 * (GROUP_ROWS + 1)) * LANES  # a short row, and where the symbols of a group are counted


@njit(**KERNEL)
def widest(values: Any, size: int, count: int) -> int:
    """Return the bit length of the widest of `count` values, without its sign."""
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
    """Return one value."""
    value, at = i64(0), values + u64(size * i)
    for byte in range(size):
        value |= get_byte(at + u64(byte)) << (8 * byte)
    return value - (value >> (8 * size - 1) << (8 * size))


@njit(**PART)
def copy_bytes(source: Any, target: Any, count: int, room: int) -> None:
    """Copy `count` bytes, and zeros behind them up to `room`."""
    for i in range(room):
        put_byte(target + u64(i), get_byte(source + u64(i)) if i < count else 0)


@njit(**INLINE)
def row_class(row: Any, shift: int, least: int) -> int:
    """Return the class of a row of values."""
    high = row >> shift
    magnitude = greater(high, 0 - high)
    if bits_of(reaches(magnitude, LIMIT)):  # without a sign: the least value of all has no magnitude
        return wide_class(lowest(high), highest(high))
    return max(least, min(i64(NARROW_CLASS), bit_length(total(to8(magnitude)))))


class Found(NamedTuple):
    """Addresses of what a survey finds: a byte for each row, a byte and two int32 for each group."""

    classes: Any
    means: Any  # position classes
    live: Any  # rows of the group whose class is not 0
    low: Any
    high: Any


@njit(**KERNEL)
def survey(frame: Frame, first: int, last: int, found: Found, counts: Any, scratch: Any) -> None:
    """Survey the groups `first` to `last` - 1: fill in `found`, add to `counts`. scratch: SURVEY_BYTES."""
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
    """Return the mean of a row's position classes."""
    return (total(load8(positions)) + LANES // 2) >> 5


@njit(**PART)
def _last_extremes(frame: Frame, g: int, found: Found) -> None:
    """Take the extremes of a group whose last row is short from its values, not from zeros behind them."""
    low, high = i64(1) << 31, -(i64(1) << 31)
    for i in range(GROUP * g, frame.length):
        value = get_value(frame.values, frame.size, i)
        low, high = min(low, value), max(high, value)
    put32(found.low + u64(4 * g), low)
    put32(found.high + u64(4 * g), high)


@njit(**INLINE)
def _row(frame: Frame, t: int, scratch: Any) -> Any:
    """Return where values and position classes of row `t` are; a short one is in `scratch`, with zeros."""
    values, positions, n = values_at(frame, t), positions_at(frame, t), lanes_of(frame, t)
    if n < LANES:
        copy_bytes(values, scratch, frame.size * n, frame.size * LANES)
        copy_bytes(positions, scratch + u64(4 * LANES), n, LANES)
        return scratch, scratch + u64(4 * LANES)
    return values, positions


@njit(**PART)
def _count_group(frame: Frame, g: int, live: int, found: Found, counts: Any, scratch: Any) -> None:
    """Add what tables learn from a group of which `live` rows have a class."""
    rows, t0 = rows_of(frame, g), GROUP_ROWS * g
    count_classes(found.classes + u64(t0), found.means + u64(t0), rows, counts)
    step = count_step(frame.length, live)
    cells = filled = scratch + u64(5 * LANES)
    for t in range(t0, t0 + rows, step):
        c = get_byte(found.classes + u64(t))
        if c:
            values, positions = _row(frame, t, scratch)
            low, mean = low_bits(c, frame.shift), get_byte(found.means + u64(t))
            find_cells(load_values(values, frame.size), positions, mean, c, low, filled)
            if lanes_of(frame, t) == LANES:
                filled += u64(4 * LANES)
            else:
                bump_some(counts, filled, lanes_of(frame, t), step)
    bump_rows(counts, cells, filled, step)
