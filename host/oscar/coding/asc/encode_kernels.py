"""The encoder of the compiled twin: blocks coded two at a time, so that one's arithmetic hides the other's waits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    FLUSH_BYTES,
    GROUP,
    GROUP_ROWS,
    LANES,
    MOST_SEED_ROWS,
    NARROW_CLASS,
    RAW,
    RAW_STEP,
    STATE_LOW,
    SYMBOLS,
    TOTAL,
)  # fmt: skip
from oscar.coding.asc.row_kernels import (
    BITS_AT,
    BITS_MASK,
    CLASS_TABLE,
    CUMULATIVE_AT,
    CUMULATIVE_MASK,
    FREQUENCY_MASK,
    INLINE,
    KERNEL,
    PART,
    STRIDE_LOG2,
    contexts,
    i64,
    load_values,
    low_bits,
    push,
    u64,
)  # fmt: skip
from oscar.coding.asc.survey_kernels import copy_bytes, get_value
from oscar.coding.asc.vectors import (
    bit_length,
    gather,
    get32,
    get64,
    get_byte,
    greater,
    lane_numbers,
    lesser,
    load8,
    load32,
    move,
    put32,
    put64,
    put_byte,
    spread,
    store8,
    store16,
    store32,
    to8,
    to16,
    where,
    widen_unsigned,
)  # fmt: skip

MOST_GROUP_BYTES = GROUP_ROWS * 8 * 2 * LANES  # that a group adds before its size is looked at, and more
SLACK = MOST_GROUP_BYTES + FLUSH_BYTES + 64


@njit(**INLINE)
def _value_steps(values: Any, entries: Any) -> Any:
    """Return the steps of values whose magnitudes have `entries`: frequencies, cumulative ones, raw bits, sizes."""
    f, c = entries & FREQUENCY_MASK, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK
    bits = (entries >> BITS_AT) & BITS_MASK
    half = (spread(1) << bits) >> 1
    raw = (greater(values, 0 - values) & (half - 1)) | where(values < 0, half, 0)
    return f, c, raw, bits


@njit(**INLINE)
def _push_row(at: Any, x: Any, values: Any, size: int, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Code a full row of a frame without shift whose class is at most NARROW_CLASS."""
    row = load_values(values, size)
    q = contexts(load8(positions), mean, c)
    entries = gather(table, (q << STRIDE_LOG2) + greater(row, 0 - row))
    f, cumulative, raw, bits = _value_steps(row, entries)
    return push(at, x, f, cumulative, raw, bits)


@njit(**PART)
def _push_any_row(
    at: Any, states: Any, values: Any, size: int, positions: Any, mean: int, c: int, table: Any,
    shift: int, lanes: int, scratch: Any,
) -> Any:  # fmt: skip
    """Code a row of `lanes` values, of any class, with the states at `states`."""
    x, on = load32(states), lane_numbers() < lanes
    if lanes < LANES:
        copy_bytes(values, scratch, size * lanes, LANES * size)
        copy_bytes(positions, scratch + u64(128), lanes, LANES)
        values, positions = scratch, scratch + u64(128)
    low = low_bits(c, shift)
    row = load_values(values, size)
    if c:
        high = row >> low
        q = contexts(load8(positions), mean, c)
        f, cumulative, raw, bits = _value_steps(high, gather(table, (q << STRIDE_LOG2) + greater(high, 0 - high)))
        at, x = push(at, x, where(on, f, TOTAL), where(on, cumulative, 0), where(on, raw, 0), where(on, bits, 0))
    done = i64(0)
    while done < low:
        step = min(i64(RAW_STEP), low - done)
        raw = (row >> done) & ((1 << step) - 1)
        at, x = push(at, x, spread(TOTAL), spread(0), where(on, raw, 0), where(on, spread(step), 0))
        done += step
    store32(states, x)
    return at


@njit(**INLINE)
def _push_classes(at: Any, x: Any, classes: Any, means: Any, rows: int, table: Any) -> Any:
    """Code the classes of a group's rows."""
    q = lesser(widen_unsigned(load8(means)), 7)
    cell = where(lane_numbers() < rows, q * SYMBOLS + widen_unsigned(load8(classes)), 0)
    entries = gather(table, cell + CLASS_TABLE)
    on = lane_numbers() < rows
    f = where(on, entries & FREQUENCY_MASK, TOTAL)
    c = where(on, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK, 0)
    return push(at, x, f, c, spread(0), spread(0))


@njit(**PART)
def _prepare(
    values: Any, size: int, count: int, shift: int, g0: int, g1: int, classes: Any, live: Any, low: Any,
    high: Any, entry: Any, states: Any,
) -> None:  # fmt: skip
    """Describe the block of groups g0 to g1 - 1 at `entry`, seven int64, and put its start states at `states`.

    entry: type, first and last group to code, mask of the rows that ride in the start states, how many may,
    bits of a raw value, and the value of a constant block.
    """
    least_value, most_value = get32(low + u64(4 * g0)), get32(high + u64(4 * g0))
    first, last = g1, g0 - 1
    for g in range(g0, g1):
        least_value = min(least_value, get32(low + u64(4 * g)))
        most_value = max(most_value, get32(high + u64(4 * g)))
        if shift or get_byte(live + u64(g)):
            first, last = min(first, g), g
    store32(states, spread(STATE_LOW))
    put64(entry, CODED)
    put64(entry + u64(8), first)
    put64(entry + u64(16), last)
    put64(entry + u64(24), 0)
    put64(entry + u64(32), 0)
    put64(entry + u64(40), bit_length(max(most_value, ~least_value)) + 1)
    put64(entry + u64(48), least_value)
    if least_value == most_value:
        put64(entry, CONSTANT)
        put64(entry + u64(8), g1)
        return
    _seed(values, size, count, first, classes, entry, states)


@njit(**PART)
def _seed(values: Any, size: int, count: int, g: int, classes: Any, entry: Any, states: Any) -> None:
    """Let as many rows of group `g` as fit ride in the start states."""
    rows = min(GROUP_ROWS, (count + LANES - 1) // LANES - GROUP_ROWS * g)
    places, sizes = np.zeros(MOST_SEED_ROWS, np.int64), np.zeros(MOST_SEED_ROWS, np.int64)
    found, widest = i64(0), i64(0)
    for j in range(rows):
        t = GROUP_ROWS * g + j
        if found < MOST_SEED_ROWS and get_byte(classes + u64(t)):
            for i in range(LANES * t, min(count, LANES * (t + 1))):
                value = get_value(values, size, i)
                widest = max(widest, bit_length(value ^ (value >> 63)) + 1)
            places[found], sizes[found] = j, widest
            found += 1
    for seeds in range(MOST_SEED_ROWS, 0, -1):
        riding, bits = min(found, i64(seeds)), 16 // seeds
        if riding and sizes[riding - 1] <= bits:
            mask = i64(0)
            for k in range(riding):
                mask |= i64(1) << places[k]
                begin = LANES * (GROUP_ROWS * g + places[k])
                for i in range(begin, min(count, begin + LANES)):
                    state = states + u64(4 * (i - begin))
                    field = get_value(values, size, i) & ((1 << bits) - 1)
                    put32(state, get32(state) | field << (bits * k))
            put64(entry + u64(24), mask)
            put64(entry + u64(32), seeds)
            return


@njit(**INLINE)
def _skips(mask: int, g: int, first: int, j: int) -> bool:
    return g == first and (mask >> j) & 1 == 1


@njit(**KERNEL)
def encode_blocks(
    values: Any, size: int, count: int, positions: Any, stride: int, shift: int, log2: int, first_block: int,
    last_block: int, classes: Any, means: Any, live: Any, low: Any, high: Any, table: Any, regions: Any,
    region: int, directory: Any, scratch: Any,
) -> None:  # fmt: skip
    """Code the blocks `first_block` to `last_block` - 1, block b from regions + b * region on.

    Writes the type, seeds, first and last group, raw bits, value and bytes of each, int64 [8], at `directory`.
    scratch: 1,024 bytes.
    """
    groups = (count + GROUP - 1) // GROUP
    per_block = (1 << log2) // GROUP
    rows = (count + LANES - 1) // LANES
    cells, states_a, states_b = scratch, scratch + u64(512), scratch + u64(640)
    full = count // LANES  # rows of 32 values
    for b in range(first_block, last_block, 2):
        pair = b + 1 < last_block
        entry_a, entry_b = directory + u64(64 * b), directory + u64(64 * (b + 1))
        a0 = b * per_block
        _prepare(values, size, count, shift, a0, min(groups, a0 + per_block), classes, live, low, high, entry_a, states_a)
        first_a, last_a, mask_a = get64(entry_a + u64(8)), get64(entry_a + u64(16)), get64(entry_a + u64(24))
        begin_a = regions + u64(b) * u64(region)
        begin_b = begin_a + u64(region)
        b0 = a0 + per_block
        first_b, last_b, mask_b = i64(1), i64(0), i64(0)
        if pair:
            _prepare(values, size, count, shift, b0, min(groups, b0 + per_block), classes, live, low, high, entry_b, states_b)
            first_b, last_b, mask_b = get64(entry_b + u64(8)), get64(entry_b + u64(16)), get64(entry_b + u64(24))
        x, y, at, to = load32(states_a), load32(states_b), begin_a, begin_b
        room_a, room_b = _room(entry_a, count, a0, per_block), _room(entry_b, count, b0, per_block) if pair else i64(0)
        for k in range(per_block):
            g, h = a0 + k, b0 + k
            on_a, on_b = first_a <= g <= last_a and at - begin_a < room_a, first_b <= h <= last_b and to - begin_b < room_b
            if not (on_a or on_b):
                continue
            rows_a, rows_b = min(GROUP_ROWS, rows - GROUP_ROWS * g), min(GROUP_ROWS, rows - GROUP_ROWS * h)
            for j in range(GROUP_ROWS):
                if on_a and j < rows_a and not _skips(mask_a, g, first_a, j):
                    t = u64(GROUP_ROWS * g + j)
                    c = get_byte(classes + t)
                    v, p = values + u64(LANES * size) * t, positions + u64(stride) * t
                    if shift == 0 and c <= NARROW_CLASS and i64(t) < full:
                        if c:
                            at, x = _push_row(at, x, v, size, p, get_byte(means + t), c, table)
                    else:
                        store32(states_a, x)
                        at = _push_any_row(at, states_a, v, size, p, get_byte(means + t), c, table, shift, min(LANES, count - LANES * i64(t)), cells)
                        x = load32(states_a)
                if on_b and j < rows_b and not _skips(mask_b, h, first_b, j):
                    t = u64(GROUP_ROWS * h + j)
                    c = get_byte(classes + t)
                    v, p = values + u64(LANES * size) * t, positions + u64(stride) * t
                    if shift == 0 and c <= NARROW_CLASS and i64(t) < full:
                        if c:
                            to, y = _push_row(to, y, v, size, p, get_byte(means + t), c, table)
                    else:
                        store32(states_b, y)
                        to = _push_any_row(to, states_b, v, size, p, get_byte(means + t), c, table, shift, min(LANES, count - LANES * i64(t)), cells)
                        y = load32(states_b)
            if on_a:
                t = u64(GROUP_ROWS * g)
                at, x = _push_classes(at, x, classes + t, means + t, rows_a, table)
            if on_b:
                t = u64(GROUP_ROWS * h)
                to, y = _push_classes(to, y, classes + t, means + t, rows_b, table)
        _finish(values, size, count, a0, per_block, entry_a, begin_a, at, x)
        if pair:
            _finish(values, size, count, b0, per_block, entry_b, begin_b, to, y)


@njit(**PART)
def _raw_bytes(entry: Any, count: int, g0: int, per_block: int) -> int:
    n = min(per_block * GROUP, count - g0 * GROUP)
    return (n * get64(entry + u64(40)) + 7) // 8


@njit(**PART)
def _room(entry: Any, count: int, g0: int, per_block: int) -> int:
    """Return the bytes from which on a coded block is no shorter than a raw one, flush left out."""
    return max(i64(1), _raw_bytes(entry, count, g0, per_block) - FLUSH_BYTES)


@njit(**INLINE)
def _finish(
    values: Any, size: int, count: int, g0: int, per_block: int, entry: Any, begin: Any, at: Any, x: Any
) -> None:
    """Flush the states of a block, or make it raw; write its bytes behind its type."""
    store8(at, to8(x))
    store16(at + u64(LANES), to16(x >> 8))
    _close(values, size, count, g0, per_block, entry, begin, at)


@njit(**PART)
def _close(values: Any, size: int, count: int, g0: int, per_block: int, entry: Any, begin: Any, at: Any) -> None:
    raw = _raw_bytes(entry, count, g0, per_block)
    written = i64(at - begin) + FLUSH_BYTES
    if get64(entry) == CONSTANT:
        written = 0
    elif written >= raw:
        put64(entry, RAW)
        written = raw
        _write_raw(values, size, GROUP * g0, min(count, GROUP * (g0 + per_block)), get64(entry + u64(40)), begin)
    put64(entry + u64(56), written)


@njit(**PART)
def _write_raw(values: Any, size: int, first: int, last: int, bits: int, out: Any) -> None:
    """Write the values `first` to `last` - 1, `bits` each, lowest bit first."""
    held, have = u64(0), 0
    for i in range(first, last):
        held |= u64(get_value(values, size, i) & ((1 << bits) - 1)) << u64(have)
        have += bits
        while have >= 8:
            put_byte(out, i64(held & u64(255)))
            out += u64(1)
            held >>= u64(8)
            have -= 8
    if have:
        put_byte(out, i64(held & u64(255)))


@njit(**KERNEL)
def write_directory(directory: Any, log2: int, blocks: int, regions: Any, region: int, out: Any) -> int:
    """Write the entries of a frame's blocks and their bytes, one after another, at `out`; return how many."""
    at, per_block = out + u64(6 * blocks), (1 << log2) // GROUP
    for b in range(blocks):
        entry = directory + u64(64 * b)
        kind, written = get64(entry), get64(entry + u64(56))
        word = kind | written << 24
        if kind == CODED:
            first, last = get64(entry + u64(8)) - b * per_block, get64(entry + u64(16)) - b * per_block
            word |= get64(entry + u64(32)) << 2 | first << 5 | last << 12
        elif kind == RAW:
            word |= get64(entry + u64(40)) << 2
        else:
            word |= (get64(entry + u64(48)) & 0xFFFFFFFF) << 16
        for i in range(6):
            put_byte(out + u64(6 * b + i), (word >> (8 * i)) & 255)
        begin = regions + u64(b) * u64(region)
        move(begin, at, written)
        at += u64(written)
    return i64(at - out)

