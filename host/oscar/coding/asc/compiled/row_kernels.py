"""What the compiled passes share: rows of 32 values, their contexts and counts, and steps of the coder.

Addresses are integers, and callers keep every access in bounds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oscar.coding.asc.compiled.byte_stream import MACHINE, pull_bytes, push_bytes
from oscar.coding.asc.compiled.vectors import (
    extend,
    float_bits,
    get32,
    get64,
    get_byte,
    greater,
    increment,
    lesser,
    load8,
    load16,
    load32,
    octets,
    put64,
    quotient,
    store16,
    store32,
    to16,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip
from oscar.coding.asc.params import (
    ALL_COUNTED,
    BASE,
    GROUP_ROWS,
    LANES,
    LEAST_WIDE,
    LIMIT,
    NARROW_CLASS,
    NEAR_ROWS,
    PROB_BITS,
    QUARTER_COUNTED,
    STATE_LOW,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    WIDE_SHIFT,
)  # fmt: skip

u64, i64 = np.uint64, np.int64
INLINE: dict[str, Any] = {"forceinline": True, "error_model": "numpy", "no_cpython_wrapper": True}
PART: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True}
KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

SEARCHED = MACHINE == "avx512"  # whether symbols are looked up in registers
BANKS = 4  # of counts: equal symbols side by side do not wait for each other's increments
COUNTS = TABLE_ROWS * SYMBOLS + 16  # of one bank; no power of two apart, or equal cells would look like one
BANK_BYTES = 4 * COUNTS
STRIDE_LOG2 = 8  # of a row of the encoder's table, by magnitude
CLASS_TABLE = VALUE_ROWS << STRIDE_LOG2  # where class rows start in it
NEAREST = 8  # contexts of a row: what `relative` returns
# Behind that, where symbols are looked up in registers: frequencies and cumulative ones for each row class,
# then symbols by magnitude, and what belongs to a symbol.
STEPS_AT, STEP_BYTES = 4 * CLASS_TABLE + 4 * SYMBOLS * (TABLE_ROWS - VALUE_ROWS), 4 * SYMBOLS * NEAREST
KINDS_AT = STEPS_AT + STEP_BYTES * SYMBOLS
ENCODER_ENTRIES = (KINDS_AT + 5 * 64) // 4
# A decoder's table: an entry for each place of each row's 1024; then, where symbols are searched for,
# thresholds of each row class and what a symbol stands for.
SEARCH_AT, SEARCH_BYTES = 4 * TABLE_ROWS << PROB_BITS, 2 * SYMBOLS * NEAREST
SYMBOLS_AT = SEARCH_AT + SEARCH_BYTES * SYMBOLS
DECODER_ENTRIES = (SYMBOLS_AT + 4 * 64) // 4
# An entry of either table: frequency, 11 bits; cumulative frequency or place in the interval, 10; raw bits,
# 3; symbol or its base, 8.
CUMULATIVE_AT, BITS_AT, SYMBOL_AT = 11, 21, 24
FREQUENCY_MASK, CUMULATIVE_MASK, BITS_MASK = 2 * TOTAL - 1, TOTAL - 1, 7
WIDE_1, WIDE_2, WIDE_3 = WIDE_SHIFT
BLOCK_BYTES = 56  # of a description: seven integers
LAST_BASE = BASE[-1]
SYMBOL_OFFSET = 2 * (127 + 2) - 4  # of the float 4, the base of symbol 4


class Frame(NamedTuple):
    """What a frame is coded from, or decoded to.

    values: address, of 1, 2 or 4 bytes (`size`) each; length: how many; positions: address of position
    classes with `stride` 32, or of one row of zeros for all rows with stride 0; shift: low bits of every
    value that go round the tables; least: class below which no row is; width: bits of a value; add: whether
    what is decoded is added to the values that are there.
    """

    values: Any
    size: int
    length: int
    positions: Any
    stride: int
    shift: int
    least: int
    width: int
    add: bool


class Block(NamedTuple):
    """What is known of a block.

    kind: its type; first, last: groups that are coded; seeds: rows that ride in the start states; extra: bits
    of a raw value, or the value of a constant one; at: where its bytes are; used: how many.
    """

    kind: int
    first: int
    last: int
    seeds: int
    extra: int
    at: Any
    used: int


@njit(**INLINE)
def block_at(blocks: Any, b: int) -> Any:
    """Return where block `b` is described."""
    return blocks + u64(BLOCK_BYTES) * u64(b)


@njit(**INLINE)
def put_block(at: Any, block: Block) -> None:
    """Write the description of a block."""
    put64(at, block.kind)
    put64(at + u64(8), block.first)
    put64(at + u64(16), block.last)
    put64(at + u64(24), block.seeds)
    put64(at + u64(32), block.extra)
    put64(at + u64(40), i64(block.at))
    put64(at + u64(48), block.used)


@njit(**INLINE)
def get_block(at: Any) -> Block:
    """Read the description of a block."""
    return Block(
        get64(at), get64(at + u64(8)), get64(at + u64(16)), get64(at + u64(24)), get64(at + u64(32)),
        u64(get64(at + u64(40))), get64(at + u64(48)),
    )  # fmt: skip


@njit(**INLINE)
def rows_of(frame: Frame, g: int) -> int:
    """Return the number of rows of group `g`."""
    return min(i64(GROUP_ROWS), (frame.length + LANES - 1) // LANES - GROUP_ROWS * g)


@njit(**INLINE)
def lanes_of(frame: Frame, t: int) -> int:
    """Return the number of values of row `t`."""
    return min(i64(LANES), frame.length - LANES * i64(t))


@njit(**INLINE)
def values_at(frame: Frame, t: int) -> Any:
    """Return where the values of row `t` begin."""
    return frame.values + u64(LANES * frame.size) * u64(t)


@njit(**INLINE)
def positions_at(frame: Frame, t: int) -> Any:
    """Return where the position classes of row `t` begin."""
    return frame.positions + u64(frame.stride) * u64(t)


@njit(**INLINE)
def load_values(address: Any, size: int) -> Any:
    """Return a row of 32 values."""
    if size == 2:
        return widen(load16(address))
    if size == 4:
        return load32(address)
    return widen(load8(address))


@njit(**INLINE)
def load_short(address: Any, size: int) -> Any:
    """Return a row of 32 values that fit 16 bits."""
    return load16(address) if size == 2 else to16(load_values(address, size))


@njit(**INLINE)
def store_values(address: Any, frame: Frame, values: Any) -> None:
    """Store a row of 32 values of 32 bits as those of a frame, or add it to what is there."""
    if frame.size == 2:
        cut = to16(values)
        store16(address, load16(address) + cut if frame.add else cut)
    else:
        store32(address, load32(address) + values if frame.add else values)


@njit(**INLINE)
def put_values(address: Any, frame: Frame, values: Any) -> None:
    """Store a row of 32 values of 16 bits as those of a frame, or add it to what is there."""
    if frame.size == 2:
        store16(address, load16(address) + values if frame.add else values)
    else:
        store_values(address, frame, widen(values))


@njit(**INLINE)
def low_bits(row_class: int, shift: int) -> int:
    """Return how many low bits of a row's values go round the tables."""
    if row_class <= NARROW_CLASS:
        return shift
    if row_class == NARROW_CLASS + 1:
        return shift + WIDE_1
    return shift + (WIDE_2 if row_class == NARROW_CLASS + 2 else WIDE_3)


@njit(**INLINE)
def wide_class(low: int, high: int) -> int:
    """Return the class of a row whose values reach from `low` to `high`, beyond LIMIT."""
    if max(high >> WIDE_1, -(low >> WIDE_1)) < LIMIT:
        return NARROW_CLASS + 1
    if max(high >> WIDE_2, -(low >> WIDE_2)) < LIMIT:
        return NARROW_CLASS + 2
    return NARROW_CLASS + 3


@njit(**INLINE)
def scaled_class(row_class: int, mean: int) -> int:
    """Return the class whose contexts a row's values have: its own, but of wide rows one by position."""
    if row_class <= NARROW_CLASS:
        return row_class
    scale = mean + 2 - low_bits(row_class, 0) if mean else i64(NARROW_CLASS)
    return min(i64(NARROW_CLASS), max(i64(LEAST_WIDE), scale))


@njit(**INLINE)
def contexts(positions: Any, mean: int, row_class: int) -> Any:
    """Return the table rows of a row's values; see oscar.coding.asc.params.context_of."""
    row_class = scaled_class(row_class, mean)
    above = positions - mean
    near = lesser(greater(above, -2), 4) + (2 * row_class - 4)
    near = lesser(greater(near, 0), NEAR_ROWS - 1)
    far = NEAR_ROWS + min(i64(2), (row_class - 1) >> 2)
    return widen_unsigned(where(above < -2, far, near))


@njit(**INLINE)
def relative(positions: Any, mean: int) -> Any:
    """Return which of the eight contexts of their row's class the values have, 16 bits each."""
    return extend(lesser(greater(positions - mean, -3), 4) + 3)


@njit(**INLINE)
def count_step(values: int, live: int) -> int:
    """See oscar.coding.asc.params.count_step."""
    if values <= ALL_COUNTED or live <= 8:
        return 1
    if live <= 16:
        return 2
    return 4 if values <= QUARTER_COUNTED else 8


@njit(**INLINE)
def bump_rows(counts: Any, cells: Any, end: Any, step: int) -> None:
    """Add `step` to the counts whose numbers, 32 int32 a row, stand from `cells` up to `end`.

    It comes some rows behind `store_cells`: integers of a vector just stored would have to be waited for.
    """
    while cells < end:
        for lane in range(LANES):
            increment(counts + u64((lane % BANKS) * BANK_BYTES), get32(cells + u64(4 * lane)), step)
        cells += u64(4 * LANES)


@njit(**PART)
def bump_some(counts: Any, cells: Any, lanes: int, step: int) -> None:
    """Add `step` to the counts of the first lanes alone."""
    for lane in range(lanes):
        increment(counts, get32(cells + u64(4 * lane)), step)


@njit(**INLINE)
def store_cells(cells: Any, q: Any, magnitude: Any) -> None:
    """Store the numbers of the cells in which magnitudes below LIMIT in contexts `q` are counted.

    From 4 to 159, exponent and first bit of the mantissa number the symbols.
    """
    octave = (float_bits(magnitude) >> 22) - SYMBOL_OFFSET
    large = where(magnitude < LAST_BASE, lesser(octave, SYMBOLS - 2), SYMBOLS - 1)
    store32(cells, (q << 4) + where(magnitude < 4, magnitude, large))


@njit(**INLINE)
def find_cells(values: Any, positions: Any, mean: int, row_class: int, low: int, cells: Any) -> None:
    """Store where the symbols of a row of values are counted; those of forged rows may be beyond LIMIT."""
    high = values >> low
    store_cells(cells, contexts(load8(positions), mean, row_class), greater(high, 0 - high))


@njit(**PART)
def count_classes(classes: Any, means: Any, rows: int, counts: Any) -> None:
    """Count the classes of a group's `rows` rows."""
    for j in range(rows):
        q = VALUE_ROWS + min(i64(7), get_byte(means + u64(j)))
        bank = counts + u64(BANK_BYTES) * u64(j % BANKS)
        increment(bank, SYMBOLS * q + get_byte(classes + u64(j)), 1)


@njit(**INLINE)
def push(at: Any, x: Any, f: Any, c: Any, raw: Any, bits: Any) -> Any:
    """Code a step in each lane; return the address behind the bytes emitted, and the states."""
    top = x >> (14 - bits)
    one, two = top >= f, (top >> 8) >= f
    at = push_bytes(at, x, one, two)
    y = (x >> octets(one, two)) << bits | raw
    return at, y + quotient(y, f) * (TOTAL - f) + c


@njit(**INLINE)
def pull(at: Any, x: Any) -> Any:
    """Take back the bytes that lanes below 2^16 need; return where those begin, and the states."""
    one, two = x < STATE_LOW, x < (STATE_LOW >> 8)
    at, data = pull_bytes(at, one, two)
    return at, (x << octets(one, two)) | data
