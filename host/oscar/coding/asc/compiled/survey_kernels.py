"""Survey a frame before it is coded: classes of rows, mean position classes, extremes, symbol counts.

One pass over the values. Everything that the encoder chooses (last symbol, sent rows, block size, raw or
constant blocks) follows from its results, so the tables are ready before the second pass codes the first
value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from oscar.coding.asc.compiled.row_kernels import (
    BANK_BYTES,
    BANKS,
    INLINE,
    KERNEL,
    PART,
    Frame,
    contexts,
    i64,
    lanes_of,
    load_short,
    load_values,
    low_bits,
    positions_at,
    rows_of,
    u64,
    values_at,
    wide_class,
)  # fmt: skip
from oscar.coding.asc.compiled.vectors import (
    I32,
    V8,
    N,
    bit_length,
    bits_of,
    float_bits,
    get32,
    get_byte,
    greater,
    highest,
    increment,
    lane_numbers,
    lesser,
    load8,
    lowest,
    put32,
    put_byte,
    reaches,
    spread,
    store32,
    to8,
    to16,
    total,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip
from oscar.coding.asc.params import (
    BASE,
    CROWD,
    GROUP,
    GROUP_ROWS,
    HALF_COUNTED,
    LANES,
    LIMIT,
    NARROW_CLASS,
    NEAR_ROWS,
    SAMPLE,
    SYMBOLS,
    TABLE_ROWS,
    VALUE_ROWS,
    counted_lane,
)  # fmt: skip
from oscar.kernels import njit

FOURS = GROUP_ROWS // SAMPLE  # rows are counted by fours, of which each lane counts in one
NOWHERE = TABLE_ROWS * SYMBOLS  # a counter that nobody reads
LAST_BASE = BASE[-1]
SYMBOL_OFFSET = 2 * (127 + 2) - 4  # float32 bits 22.. of 4.0 are 2·(127 + 2); 4 is the base of symbol 4

_first_lane = njit(**INLINE)(counted_lane)
# A short row padded with zeros, then numbers of counters, int32 [FOURS][32]
SURVEY_BYTES = (5 + 4 * FOURS) * LANES


@intrinsic
def four_bytes(typing: Any, word: Any) -> Any:
    """Return the four low bytes of an integer again and again, 8 bits a lane, the lowest in lane 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        words, none = ir.VectorType(I32, N // 4), ir.Constant(I32, 0)
        empty = ir.Constant(words, ir.Undefined)
        one = builder.insert_element(empty, builder.trunc(args[0], I32), none)
        return builder.bitcast(
            builder.shuffle_vector(one, empty, ir.Constant(words, [0] * (N // 4))), V8.llvm
        )

    return V8(types.int64), codegen


@njit(**INLINE)
def count_step(values: int, live: int) -> int:
    """See oscar.coding.asc.params.count_step."""
    return i64(2) if values > HALF_COUNTED and live > CROWD else i64(1)


@njit(**INLINE)
def plain_rows(classes: Any, rows: int) -> Any:
    """Return the masks of a group's rows of classes 1 to 12, and of its wide rows; classes: address."""
    c, here = load8(classes), (i64(1) << rows) - 1
    return i64(bits_of((c >= 1) & (c < NARROW_CLASS + 1))) & here, i64(bits_of(c >= NARROW_CLASS + 1)) & here


@njit(**PART)
def count_plain(
    mask: int, values: Any, size: int, positions: Any, stride: int, classes: Any, means: Any, number: int,
    step: int, counts: Any, cells: Any,
) -> None:  # fmt: skip
    """Count the sample of a group's plain rows, those of the mask.

    values, positions: addresses of those of the group's first row.
    size: bytes of a value.
    stride: from row to row of positions.
    classes, means: addresses, uint8 [32].
    number: of the group in its block, mod SAMPLE.
    step: its count step.
    cells: 128 * FOURS bytes.

    Of four rows one after another each lane counts in one: so four rows are mixed into one. Numbers of
    counters are stored first: reading single integers of a vector that was just stored stalls, since the
    store buffer cannot forward parts of it.
    """
    end = cells
    for i in range(FOURS):
        four = (mask >> (SAMPLE * i)) & 15
        if four and (i + number) & (step - 1) == 0:
            _four_cells(four, i, values, size, positions, stride, classes, means, number, end)
            end += u64(4 * LANES)
    while cells < end:
        for lane in range(LANES):
            bank = counts + u64((lane % BANKS) * BANK_BYTES)
            increment(bank, get32(cells + u64(4 * lane)), SAMPLE * step)
        cells += u64(4 * LANES)


@njit(**INLINE)
def _four_cells(
    four: int, i: int, values: Any, size: int, positions: Any, stride: int, classes: Any, means: Any,
    number: int, cells: Any,
) -> None:  # fmt: skip
    """Store the numbers of the counters of four rows from 4i on, of those in the mask `four`.

    `turn` is the first lane of row 4i that is counted, so lane l is that of row 4i + (l - turn) % 4.
    """
    turn, near = (i + (i >> 2) + number) & (SAMPLE - 1), lane_numbers() & (SAMPLE - 1)
    lowest = bit_length(four & -four) - 1
    row, place = to16(near), to8(near)
    for n in range(SAMPLE):
        k = (n - turn) & (SAMPLE - 1)
        j = u64(SAMPLE * i + (k if (four >> k) & 1 else lowest))  # only rows of the mask are there to be read
        row = where(near == n, load_short(values + u64(LANES * size) * j, size), row)
        place = where(near == n, load8(positions + u64(stride) * j), place)
    mask = ((four * 0x204081) & 0x01010101) * 255
    c = four_bytes(_turned(get32(classes + u64(SAMPLE * i)) & mask, turn))
    above = place - four_bytes(_turned(get32(means + u64(SAMPLE * i)), turn))
    q = lesser(greater(lesser(greater(above, -2), 4) + c + c - 4, 0), NEAR_ROWS - 1)
    q = where(above < -2, lesser((c - 1) >> 2, 2) + NEAR_ROWS, q)
    counters = counters_of(widen_unsigned(q), widen(greater(row, 0 - row)))
    store32(cells, where(c == 0, NOWHERE, counters))


@njit(**INLINE)
def _turned(word: int, turn: int) -> int:
    """Return the four bytes of a word, each `turn` places further."""
    word &= 0xFFFFFFFF
    return word << (8 * turn) | word >> (32 - 8 * turn)


@njit(**PART)
def count_row(
    values: Any, positions: Any, mean: int, row_class: int, low: int, lanes: int, j: int, number: int,
    step: int, counts: Any, cells: Any,
) -> None:  # fmt: skip
    """Count the sample of row j, of any class and length; `count_plain` names the rest.

    low: its low bits that go round the tables; cells: 128 bytes. High parts of forged rows may be LIMIT or
    more.
    """
    if ((j >> 2) + number) & (step - 1) == 0:
        high = values >> low
        store32(cells, counters_of(contexts(load8(positions), mean, row_class), greater(high, 0 - high)))
        for lane in range(_first_lane(j, number), lanes, SAMPLE):
            increment(counts, get32(cells + u64(4 * lane)), SAMPLE * step)


@njit(**INLINE)
def counters_of(q: Any, magnitude: Any) -> Any:
    """Return the numbers of the counters of values, int32 [32].

    q: table row of each value; magnitude: |high part|, below LIMIT or of a forged row. Counter 16·q + s
    counts symbol s. Symbols 4 to 14 come two to an octave, so exponent and first mantissa bit of the
    magnitude as a float number them. Below 4 the magnitude is the symbol, from 160 on the symbol is 15.
    """
    octave = (float_bits(magnitude) >> 22) - SYMBOL_OFFSET
    large = where(magnitude < LAST_BASE, lesser(octave, SYMBOLS - 2), SYMBOLS - 1)
    return (q << 4) + where(magnitude < 4, magnitude, large)


@njit(**PART)
def count_classes(classes: Any, means: Any, rows: int, number: int, counts: Any) -> None:
    """Count the sample of the classes of a group's `rows` rows; number: of the group in its block."""
    for j in range(number & (SAMPLE - 1), rows, SAMPLE):
        q = VALUE_ROWS + min(i64(7), get_byte(means + u64(j)))
        bank = counts + u64(BANK_BYTES) * u64(j // SAMPLE % BANKS)
        increment(bank, SYMBOLS * q + get_byte(classes + u64(j)), SAMPLE)


@njit(**KERNEL)
def widest(values: Any, size: int, count: int) -> int:
    """Return the largest bit length of `count` values, without their signs."""
    magnitudes = spread(0)
    for t in range(count // LANES):
        row = load_values(values + u64(LANES * size * t), size)
        magnitudes = magnitudes | (row ^ (row >> 31))
    most = highest(magnitudes)
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


class Facts(NamedTuple):
    """Addresses of a survey's results: two bytes for each row; a byte and two int32 for each group."""

    classes: Any  # uint8, class of each row
    means: Any  # uint8, mean position class of each row
    live: Any  # uint8, number of rows of each group whose class is not 0
    low: Any  # int32, lowest value of each group
    high: Any  # int32, highest value of each group


@njit(**PART)
def survey(frame: Frame, first: int, last: int, facts: Facts, counts: Any, scratch: Any) -> None:
    """Survey the groups `first` to `last` - 1.

    Fills in `facts` and adds to `counts`, a thread's own counters. scratch: SURVEY_BYTES.
    """
    for g in range(first, last):
        rows, t0 = rows_of(frame, g), GROUP_ROWS * g
        low, high, live = spread(0x7FFFFFFF), spread(-0x7FFFFFFF - 1), i64(0)
        for t in range(t0, t0 + rows):
            values, positions = _row(frame, t, scratch)
            row = load_values(values, frame.size)
            low, high = lesser(low, row), greater(high, row)
            c = row_class(row, frame.shift, frame.least)
            put_byte(facts.classes + u64(t), c)
            put_byte(facts.means + u64(t), mean_position(positions))
            live += c > 0
        put_byte(facts.live + u64(g), live)
        put32(facts.low + u64(4 * g), lowest(low))
        put32(facts.high + u64(4 * g), highest(high))
        if lanes_of(frame, t0 + rows - 1) < LANES:
            _last_extremes(frame, g, facts)
        if live:
            _count_group(frame, g, live, facts, counts, scratch)


@njit(**INLINE)
def mean_position(positions: Any) -> int:
    """Return the mean of the 32 position classes at an address, rounded."""
    return (total(load8(positions)) + LANES // 2) >> 5


@njit(**PART)
def _last_extremes(frame: Frame, g: int, facts: Facts) -> None:
    """Find the extremes of a group with a short last row again, from its values alone.

    `survey` saw the zeros that pad that row.
    """
    low, high = i64(1) << 31, -(i64(1) << 31)
    for i in range(GROUP * g, frame.length):
        value = get_value(frame.values, frame.size, i)
        low, high = min(low, value), max(high, value)
    put32(facts.low + u64(4 * g), low)
    put32(facts.high + u64(4 * g), high)


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
def _count_group(frame: Frame, g: int, live: int, facts: Facts, counts: Any, scratch: Any) -> None:
    """Count the sample of classes and symbols of a group with `live` rows whose class is not 0."""
    rows, t0, cells = rows_of(frame, g), GROUP_ROWS * g, scratch + u64(5 * LANES)
    classes, means, number = facts.classes + u64(t0), facts.means + u64(t0), g & (frame.cycle - 1)
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
