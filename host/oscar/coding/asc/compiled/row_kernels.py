"""The parts that all compiled passes share: rows of 32 values, contexts, counters, steps of the coder.

Addresses are plain uint64 integers, and nothing checks a bound: the caller keeps every access in bounds.
`values` names an address or a vector of 32 lanes; `t` is a row of the frame, `g` a group, `b` a block.
Decorators: INLINE for parts of a loop, PART for functions that are called, KERNEL for entries from Python.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc.compiled.byte_stream import MACHINE, pull_bytes, push_bytes
from oscar.coding.asc.compiled.vectors import (
    extend,
    get64,
    greater,
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
    GROUP_ROWS,
    LANES,
    LEAST_WIDE,
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
from oscar.kernels import njit

u64, i64 = np.uint64, np.int64
INLINE: dict[str, Any] = {"forceinline": True, "error_model": "numpy", "no_cpython_wrapper": True}
PART: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True}
KERNEL: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}

SEARCHED = MACHINE == "avx512"  # whether symbols are looked up by permutations in registers (look_ups)
# Banks of counters: lane l counts in bank l % 4, so neighbouring lanes with equal symbols do not wait for
# each other's increments. COUNTS is no power of two: addresses that are a multiple of 4096 bytes apart look
# alike to a processor's load and store buffers.
BANKS = 4
COUNTS = TABLE_ROWS * SYMBOLS + 16  # uint32 of one bank
BANK_BYTES = 4 * COUNTS
STRIDE_LOG2 = 8  # log2 of the entries of a context in the encoder's table: one for each magnitude below 256
CLASS_TABLE = VALUE_ROWS << STRIDE_LOG2  # index of the first class context in the encoder's table
NEAREST = 8  # contexts that the values of one row can have; `relative` numbers them
# Encoder's table, uint32, then uint16 where SEARCHED. By byte offset:
#   0          uint32 [24][256]      entry for each context and magnitude
#   4·CLASS_TABLE  uint32 [8][16]    entry for each class context and class
#   STEPS_AT   uint16 [16][2][16][8] by row class: frequencies, then cumulative ones, by symbol and context
#   KINDS_AT   uint16 [5][32]        symbol by magnitude below 32; symbol by magnitude >> 4; then by symbol:
#                                    mask of the raw low bits, sign bit, number of raw bits
STEPS_AT, STEP_BYTES = 4 * CLASS_TABLE + 4 * SYMBOLS * (TABLE_ROWS - VALUE_ROWS), 4 * SYMBOLS * NEAREST
KINDS_AT = STEPS_AT + STEP_BYTES * SYMBOLS
ENCODER_ENTRIES = (KINDS_AT + 5 * 64) // 4
# Decoder's table, uint32, then uint16 where SEARCHED. By byte offset:
#   0          uint32 [32][1024]     entry for each table row and slot
#   SEARCH_AT  uint16 [16][4][4][8]  for each row class: thresholds, see table_kernels.search_table
#   SYMBOLS_AT uint16 [4][32]        by symbol: base, mask of the raw low bits, sign bit, number of raw bits
SEARCH_AT, SEARCH_BYTES = 4 * TABLE_ROWS << PROB_BITS, 2 * SYMBOLS * NEAREST
SYMBOLS_AT = SEARCH_AT + SEARCH_BYTES * SYMBOLS
DECODER_ENTRIES = (SYMBOLS_AT + 4 * 64) // 4
# An entry of either table, from bit 0: frequency, 11 bits; cumulative frequency (encoder) or slot minus that
# (decoder), 10; number of raw bits, 3; symbol of a class or base of a value's symbol (decoder), 8.
CUMULATIVE_AT, BITS_AT, SYMBOL_AT = 11, 21, 24
FREQUENCY_MASK, CUMULATIVE_MASK, BITS_MASK = 2 * TOTAL - 1, TOTAL - 1, 7
WIDE_1, WIDE_2, WIDE_3 = WIDE_SHIFT
BLOCK_BYTES = 56  # bytes of a block's description: seven int64


class Frame(NamedTuple):
    """The values of a frame to encode, or the room for those to decode.

    values: address of the values.
    size: bytes of a value, 1, 2 or 4.
    length: number of values.
    positions: address of the position classes, uint8.
    stride: 32, or 0 where one row of zeros serves all rows.
    shift: low bits of every value that go round the tables (F of docs/reference/asc.md).
    cycle: of `group_cycle`, a power of two: the number of group g in its block is g % cycle, mod SAMPLE.
    least: lowest class that a row may have.
    width: bits of a value.
    add: whether decoded values are added to others.
    plus: bytes from where a value goes to the one that it is added to, modulo 2^64.
    """

    values: Any
    size: int
    length: int
    positions: Any
    stride: int
    shift: int
    cycle: int
    least: int
    width: int
    add: bool
    plus: Any


class Block(NamedTuple):
    """The description of a block, seven int64.

    kind: CODED, RAW or CONSTANT; first, last: first and last coded group, numbered from the frame's begin
    seeds: number of seed rows that the directory gives
    extra: bits of a raw value, or the value of a constant block
    at: address of the block's bytes; used: number of these bytes
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
    """Return the address of the description of block `b`."""
    return blocks + u64(BLOCK_BYTES) * u64(b)


@njit(**INLINE)
def put_block(at: Any, block: Block) -> None:
    """Write a block's description."""
    put64(at, block.kind)
    put64(at + u64(8), block.first)
    put64(at + u64(16), block.last)
    put64(at + u64(24), block.seeds)
    put64(at + u64(32), block.extra)
    put64(at + u64(40), i64(block.at))
    put64(at + u64(48), block.used)


@njit(**INLINE)
def get_block(at: Any) -> Block:
    """Read a block's description."""
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
    """Return the address of the first value of row `t`."""
    return frame.values + u64(LANES * frame.size) * u64(t)


@njit(**INLINE)
def positions_at(frame: Frame, t: int) -> Any:
    """Return the address of the first position class of row `t`."""
    return frame.positions + u64(frame.stride) * u64(t)


@njit(**INLINE)
def load_values(address: Any, size: int) -> Any:
    """Load a row of 32 values of `size` bytes as int32."""
    if size == 2:
        return widen(load16(address))
    if size == 4:
        return load32(address)
    return widen(load8(address))


@njit(**INLINE)
def load_short(address: Any, size: int) -> Any:
    """Load a row of 32 values that fit 16 bits as int16."""
    return load16(address) if size == 2 else to16(load_values(address, size))


@njit(**INLINE)
def store_values(address: Any, frame: Frame, values: Any) -> None:
    """Store a row of 32 values, int32, with the frame's value size, or add it to others."""
    if frame.size == 2:
        cut = to16(values)
        store16(address, load16(address + frame.plus) + cut if frame.add else cut)
    else:
        store32(address, load32(address + frame.plus) + values if frame.add else values)


@njit(**INLINE)
def put_values(address: Any, frame: Frame, values: Any) -> None:
    """Store a row of 32 values, int16, with the frame's value size, or add it to others."""
    if frame.size == 2:
        store16(address, load16(address + frame.plus) + values if frame.add else values)
    else:
        store_values(address, frame, widen(values))


@njit(**INLINE)
def low_bits(row_class: int, shift: int) -> int:
    """Return how many low bits of a row's values go round the tables (k of docs/reference/asc.md, "Rows")."""
    if row_class <= NARROW_CLASS:
        return shift
    if row_class == NARROW_CLASS + 1:
        return shift + WIDE_1
    return shift + (WIDE_2 if row_class == NARROW_CLASS + 2 else WIDE_3)


@njit(**INLINE)
def wide_class(low: int, high: int) -> int:
    """Return the class of a wide row whose high parts reach from `low` to `high`."""
    if max(high >> WIDE_1, -(low >> WIDE_1)) < LIMIT:
        return NARROW_CLASS + 1
    if max(high >> WIDE_2, -(low >> WIDE_2)) < LIMIT:
        return NARROW_CLASS + 2
    return NARROW_CLASS + 3


@njit(**INLINE)
def scaled_class(row_class: int, mean: int) -> int:
    """Return the class that selects a row's contexts: its own, but for a wide row one by mean position."""
    if row_class <= NARROW_CLASS:
        return row_class
    scale = mean + 2 - low_bits(row_class, 0) if mean else i64(NARROW_CLASS)
    return min(i64(NARROW_CLASS), max(i64(LEAST_WIDE), scale))


@njit(**INLINE)
def contexts(positions: Any, mean: int, row_class: int) -> Any:
    """Return the table row of each value, int32 [32]; see oscar.coding.asc.params.context_of."""
    row_class = scaled_class(row_class, mean)
    above = positions - mean
    near = lesser(greater(above, -2), 4) + (2 * row_class - 4)
    near = lesser(greater(near, 0), NEAR_ROWS - 1)
    far = NEAR_ROWS + min(i64(2), (row_class - 1) >> 2)
    return widen_unsigned(where(above < -2, far, near))


@njit(**INLINE)
def relative(positions: Any, mean: int) -> Any:
    """Return the number of each value's context among the eight of its row's class, int16 [32]."""
    return extend(lesser(greater(positions - mean, -3), 4) + 3)


@njit(**INLINE)
def push(at: Any, x: Any, f: Any, c: Any, raw: Any, bits: Any) -> Any:
    """Code one step in each lane; return the address after the emitted bytes, and the new states.

    f, c, raw, bits: frequency, cumulative frequency, raw bits and their number for each lane, int32 [32]. A
    lane emits one byte if x >= f << (14 - bits), two if x >> 8 still is. The new state is (y // f << 10) + c
    + y % f, written as y + y // f·(1024 - f) + c: one division, no remainder.
    """
    top = x >> (14 - bits)
    one, two = top >= f, (top >> 8) >= f
    at = push_bytes(at, x, one, two)
    y = (x >> octets(one, two)) << bits | raw
    return at, y + quotient(y, f) * (TOTAL - f) + c


@njit(**INLINE)
def pull(at: Any, x: Any) -> Any:
    """Refill states below 2^16; return the address of the first byte taken, and the new states.

    A lane takes one byte if x < 2^16 and a second if x < 2^8, in reverse order of `push`.
    """
    one, two = x < STATE_LOW, x < (STATE_LOW >> 8)
    at, data = pull_bytes(at, one, two)
    return at, (x << octets(one, two)) | data
