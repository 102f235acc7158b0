"""What tables learn from: a sample of the symbols of a frame, one in four (docs/asc.md, "Counts")."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from oscar.coding.asc.compiled.row_kernels import (
    BANK_BYTES,
    BANKS,
    INLINE,
    PART,
    contexts,
    i64,
    load_short,
    u64,
)
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
    increment,
    lane_numbers,
    lesser,
    load8,
    store32,
    to8,
    to16,
    where,
    widen,
    widen_unsigned,
)
from oscar.coding.asc.params import (
    BASE,
    CROWD,
    GROUP_ROWS,
    HALF_COUNTED,
    LANES,
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

    values, positions: addresses of those of the group's first row; size: bytes of a value; stride: from row
    to row of positions; classes, means: addresses, uint8 [32]; number: of the group in its block, mod SAMPLE;
    step: its count step; cells: 128 * FOURS bytes.

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
    kept = ((four * 0x204081) & 0x01010101) * 255
    c = four_bytes(_turned(get32(classes + u64(SAMPLE * i)) & kept, turn))
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
