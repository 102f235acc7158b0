"""What the passes of the compiled twin share: rows of 32 values, their contexts, counts, and steps of the coder.

Addresses are integers, and callers keep every access in bounds. `size` is the bytes of a value: 1, 2 or 4.
`stride` is 32, or 0 where there are no position classes and all rows share one row of zeros.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.byte_stream import pull_bytes, push_bytes
from oscar.coding.asc.params import (
    ALL_COUNTED,
    BASE,
    LANES,
    LIMIT,
    NARROW_CLASS,
    NEAR_ROWS,
    PROB_BITS,
    STATE_LOW,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    WIDE_SHIFT,
)  # fmt: skip
from oscar.coding.asc.vectors import (
    gather,
    get32,
    get_byte,
    greater,
    lesser,
    load8,
    load16,
    load32,
    octets,
    put32,
    quotient,
    store16,
    store32,
    to16,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip

u64, i64 = np.uint64, np.int64
INLINE: dict[str, Any] = {"forceinline": True, "error_model": "numpy", "no_cpython_wrapper": True}
PART: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True}
KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

BANKS = 4  # of counts: equal symbols side by side do not wait for each other's increments
COUNTS = TABLE_ROWS * SYMBOLS  # of one bank
BANK_BYTES = 4 * COUNTS
STRIDE_LOG2 = 8  # of a row of the encoder's table, by magnitude
CLASS_TABLE = VALUE_ROWS << STRIDE_LOG2  # where class rows start in it
ENCODER_ENTRIES = CLASS_TABLE + SYMBOLS * (TABLE_ROWS - VALUE_ROWS)
DECODER_ENTRIES = TABLE_ROWS << PROB_BITS
# An entry of either table: frequency, 11 bits; cumulative frequency or place in the interval, 10; raw bits, 3;
# symbol or its base, 8.
CUMULATIVE_AT, BITS_AT, SYMBOL_AT = 11, 21, 24
FREQUENCY_MASK, CUMULATIVE_MASK, BITS_MASK = 2 * TOTAL - 1, TOTAL - 1, 7
WIDE_1, WIDE_2, WIDE_3 = WIDE_SHIFT
SYMBOL_OF = np.searchsorted(BASE, np.arange(1 << STRIDE_LOG2), side="right").astype(np.uint32) - 1


@njit(**INLINE)
def load_values(address: Any, size: int) -> Any:
    """Return a row of 32 values."""
    if size == 2:
        return widen(load16(address))
    if size == 4:
        return load32(address)
    return widen(load8(address))


@njit(**INLINE)
def store_values(address: Any, size: int, values: Any, add: bool) -> None:
    """Store a row of 32 values of 2 or 4 bytes, or add it to what is there."""
    if size == 2:
        cut = to16(values)
        store16(address, load16(address) + cut if add else cut)
    else:
        store32(address, load32(address) + values if add else values)


@njit(**INLINE)
def low_bits(row_class: int, shift: int) -> int:
    """Return how many low bits of a row's values go round the tables."""
    if row_class <= NARROW_CLASS:
        return shift
    return shift + (WIDE_1 if row_class == NARROW_CLASS + 1 else WIDE_2 if row_class == NARROW_CLASS + 2 else WIDE_3)


@njit(**INLINE)
def wide_class(low: int, high: int) -> int:
    """Return the class of a row whose values reach from `low` to `high`, beyond LIMIT."""
    if max(high >> WIDE_1, -(low >> WIDE_1)) < LIMIT:
        return NARROW_CLASS + 1
    if max(high >> WIDE_2, -(low >> WIDE_2)) < LIMIT:
        return NARROW_CLASS + 2
    return NARROW_CLASS + 3


@njit(**INLINE)
def contexts(positions: Any, mean: int, row_class: int) -> Any:
    """Return the table rows of a row's values."""
    above = positions - mean
    near = lesser(greater(above, -2), 4) + (2 * row_class - 4)
    near = lesser(greater(near, 0), NEAR_ROWS - 1)
    far = NEAR_ROWS + min(i64(2), (row_class - 1) >> 2)
    return widen_unsigned(where(above < -2, far, near))


@njit(**INLINE)
def count_step(values: int, live: int) -> int:
    """See oscar.coding.asc.params.count_step."""
    if values <= ALL_COUNTED or live <= 8:
        return 1
    return 2 if live <= 16 else 4


@njit(**INLINE)
def bump(counts: Any, cells: Any, step: int) -> None:
    """Add `step` to the counts whose 32 numbers stand at `cells`."""
    for lane in range(LANES):
        at = counts + u64((lane % BANKS) * BANK_BYTES) + (u64(get32(cells + u64(4 * lane))) << u64(2))
        put32(at, get32(at) + step)


@njit(**PART)
def count_row(
    values: Any, size: int, positions: Any, mean: int, row_class: int, low: int, lanes: int, counts: Any,
    cells: Any, symbols: Any, step: int,
) -> None:  # fmt: skip
    """Count the symbols of a row of `lanes` values."""
    high = load_values(values, size) >> low
    symbol = gather(symbols, lesser(greater(high, 0 - high), LIMIT - 1))  # a forged row may hold more
    store32(cells, (contexts(load8(positions), mean, row_class) << 4) + symbol)
    if lanes == LANES:
        bump(counts, cells, step)
        return
    for lane in range(lanes):
        at = counts + (u64(get32(cells + u64(4 * lane))) << u64(2))
        put32(at, get32(at) + step)


@njit(**PART)
def count_classes(classes: Any, means: Any, t: int, rows: int, counts: Any) -> None:
    """Count the classes of a group's `rows` rows from row `t` on."""
    for j in range(t, t + rows):
        q = VALUE_ROWS + min(i64(7), get_byte(means + u64(j)))
        at = counts + u64(4 * (SYMBOLS * q + get_byte(classes + u64(j))))
        put32(at, get32(at) + 1)


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
