"""The encoder's first pass: classes of rows, mean position classes, extremes, and what tables learn."""

from __future__ import annotations

from typing import Any

from numba import njit

from oscar.coding.asc.params import GROUP_ROWS, LANES, LIMIT, NARROW_CLASS
from oscar.coding.asc.row_kernels import (
    INLINE,
    KERNEL,
    PART,
    count_classes,
    count_row,
    count_step,
    i64,
    load_values,
    low_bits,
    u64,
    wide_class,
)  # fmt: skip
from oscar.coding.asc.vectors import (
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
    spread,
    to8,
    total,
)  # fmt: skip


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
    if bits_of(magnitude >= LIMIT):
        return wide_class(lowest(high), highest(high))
    return max(least, min(i64(NARROW_CLASS), bit_length(total(to8(magnitude)))))


@njit(**KERNEL)
def survey(
    values: Any, size: int, count: int, positions: Any, stride: int, shift: int, least: int,
    first: int, last: int, classes: Any, means: Any, live: Any, low: Any, high: Any, counts: Any,
    symbols: Any, scratch: Any,
) -> None:  # fmt: skip
    """Survey the groups `first` to `last` - 1 of a frame of `count` values.

    Fills a byte for each row at `classes` and `means`, a byte for each group at `live` (rows whose class is
    not 0), and int32 extremes of each group at `low` and `high`; adds to `counts`. scratch: 512 bytes.
    """
    rows = (count + LANES - 1) // LANES
    for g in range(first, last):
        t0 = GROUP_ROWS * g
        full = min(GROUP_ROWS, rows - t0)
        least_value, most_value, alive = spread(0x7FFFFFFF), spread(-0x7FFFFFFF - 1), 0
        for t in range(t0, t0 + full):
            at, places = _row(values, size, positions, stride, count, t, scratch)
            row = load_values(at, size)
            least_value, most_value = lesser(least_value, row), greater(most_value, row)
            c = row_class(row, shift, least)
            put_byte(classes + u64(t), c)
            put_byte(means + u64(t), (total(load8(places)) + LANES // 2) >> 5)
            alive += c > 0
        put_byte(live + u64(g), alive)
        put32(low + u64(4 * g), lowest(least_value))
        put32(high + u64(4 * g), highest(most_value))
        if LANES * (t0 + full) > count:
            _last_extremes(values, size, count, g, low, high)
        if alive:
            count_group(values, size, count, positions, stride, shift, g, alive, classes, means, counts, symbols, scratch)


@njit(**PART)
def _last_extremes(values: Any, size: int, count: int, g: int, low: Any, high: Any) -> None:
    """Take the extremes of a group whose last row is short from its values alone, not from the zeros behind."""
    least_value, most_value = i64(1) << 31, -(i64(1) << 31)
    for i in range(GROUP_ROWS * LANES * g, count):
        value = get_value(values, size, i)
        least_value, most_value = min(least_value, value), max(most_value, value)
    put32(low + u64(4 * g), least_value)
    put32(high + u64(4 * g), most_value)


@njit(**INLINE)
def _row(values: Any, size: int, positions: Any, stride: int, count: int, t: int, scratch: Any) -> Any:
    """Return where values and position classes of row `t` are; a short last row is in `scratch`, with zeros."""
    at, places = values + u64(LANES * size * t), positions + u64(stride * t)
    if LANES * (t + 1) > count:
        n = count - LANES * t
        copy_bytes(at, scratch, size * n, LANES * size)
        copy_bytes(places, scratch + u64(128), n, LANES)
        return scratch, scratch + u64(128)
    return at, places


@njit(**PART)
def count_group(
    values: Any, size: int, count: int, positions: Any, stride: int, shift: int, g: int, live: int,
    classes: Any, means: Any, counts: Any, symbols: Any, scratch: Any,
) -> None:  # fmt: skip
    """Add what tables learn from a group of which `live` rows have a class."""
    t0 = GROUP_ROWS * g
    rows = min(GROUP_ROWS, (count + LANES - 1) // LANES - t0)
    count_classes(classes, means, t0, rows, counts)
    step = count_step(count, live)
    for j in range(0, rows, step):
        t = t0 + j
        c = get_byte(classes + u64(t))
        if c:
            at, places = _row(values, size, positions, stride, count, t, scratch)
            lanes = min(LANES, count - LANES * t)
            mean = get_byte(means + u64(t))
            count_row(at, size, places, mean, c, low_bits(c, shift), lanes, counts, scratch + u64(256), symbols, step)
