"""Encode the blocks of a frame, two at a time.

A row's step needs the states and the write address that the row before it left. The rows of two blocks
alternate in one loop, so each block computes while the other waits. For each block there are three passes:

1. `_prepare` reads the survey's extremes, decides whether the block is constant, and fills in its start
   states.
2. The groups: each row's symbols and raw bits, then low bits, then the classes of the group's rows. Table
   entries come from permutations (`_push_searched`), or from memory, where `_look_up` put those of the group.
3. `_close` turns the block into a raw one if coded it is too long.

Each block has a region of its own for its bytes, `region` bytes apart. `write_blocks` moves them together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.compiled.look_ups import permute, permute_two
from oscar.coding.asc.compiled.row_kernels import (
    BITS_AT,
    BITS_MASK,
    CLASS_TABLE,
    CUMULATIVE_AT,
    CUMULATIVE_MASK,
    FREQUENCY_MASK,
    INLINE,
    KINDS_AT,
    PART,
    SEARCHED,
    STEP_BYTES,
    STEPS_AT,
    STRIDE_LOG2,
    Block,
    Frame,
    block_at,
    contexts,
    get_block,
    i64,
    lanes_of,
    load_short,
    load_values,
    low_bits,
    positions_at,
    push,
    put_block,
    relative,
    rows_of,
    u64,
    values_at,
)  # fmt: skip
from oscar.coding.asc.compiled.survey_kernels import Facts, copy_bytes, get_value
from oscar.coding.asc.compiled.vectors import (
    bit_length,
    copy_entries,
    gather,
    get32,
    get_byte,
    greater,
    lane_numbers,
    lesser,
    load8,
    load32,
    move,
    put32,
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
from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    DIRECTORY_BYTES,
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
    raw_limit,
)  # fmt: skip
from oscar.kernels import njit

# From this many live rows of a group on, rows of class 0 are coded too: their symbol is certain (f = 1024),
# so no byte changes, and a branch that would often be mispredicted goes.
DENSE = 24
# More bytes than a group can add before the block's size is checked again: 32 rows of 8 steps, two bytes a
# lane. No row has more than 5 steps.
MOST_GROUP_BYTES = GROUP_ROWS * 8 * 2 * LANES
# Memory of one block, its side, by byte offset: 0 int32 [32] states; INDICES uint16 [32][32] table indices of
# a group's values; ENTRIES uint32 [32][32] their table entries. The scratch row of `_push_any_row` reuses
# INDICES.
INDICES, ENTRIES = 128, 128 + 64 * GROUP_ROWS
SIDE = ENTRIES + 128 * GROUP_ROWS + 64
SCRATCH = 2 * SIDE  # bytes of memory for a thread
SLACK = MOST_GROUP_BYTES + FLUSH_BYTES + 64  # bytes of a region beyond the block's size at the frame's width
_limit = njit(**INLINE)(raw_limit)


@njit(**INLINE)
def _push_values(at: Any, x: Any, row: Any, entries: Any, lanes: Any) -> Any:
    """Code the symbols and raw bits of the first `lanes` high parts of a row; lanes None: all 32.

    entries: uint32 [32] of the encoder's table. Other lanes code f = 1024 with no raw bits, which changes
    nothing.
    """
    f, cumulative = entries & FREQUENCY_MASK, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK
    bits = (entries >> BITS_AT) & BITS_MASK
    half = (spread(1) << bits) >> 1
    raw = (greater(row, 0 - row) & (half - 1)) | where(row < 0, half, 0)
    if lanes is None:
        return push(at, x, f, cumulative, raw, bits)
    on = lane_numbers() < lanes
    return push(at, x, where(on, f, TOTAL), where(on, cumulative, 0), where(on, raw, 0), where(on, bits, 0))


@njit(**INLINE)
def _is_plain(frame: Frame, t: int, c: int) -> bool:
    """Return whether row `t` has 32 values, a class of at most 12, and no bits that go round the tables."""
    return frame.shift == 0 and c <= NARROW_CLASS and LANES * (t + 1) <= frame.length


@njit(**INLINE)
def _push_searched(at: Any, x: Any, frame: Frame, t: int, mean: int, c: int, table: Any) -> Any:
    """Code the plain row `t` of class `c` with permutations in registers instead of a gather.

    The symbol comes from two tables of 32: by magnitude below 32, else by magnitude >> 4. Its frequency and
    cumulative frequency come from 128 entries, 16 symbols x 8 contexts, as two permutations of 64 each.
    """
    row = load_short(values_at(frame, t), frame.size)
    magnitude, symbols = greater(row, 0 - row), table + u64(KINDS_AT)
    s = where(magnitude < LANES, permute(symbols, magnitude), permute(symbols + u64(64), magnitude >> 4))
    i = (s << 3) + relative(load8(positions_at(frame, t)), mean)
    upper, entries = i >= 64, table + u64(STEPS_AT) + u64(STEP_BYTES) * u64(c)
    f = where(upper, permute_two(entries + u64(128), i), permute_two(entries, i))
    cumulative = where(upper, permute_two(entries + u64(384), i), permute_two(entries + u64(256), i))
    raw = magnitude & permute(symbols + u64(128), s)
    raw = raw | where(row < 0, permute(symbols + u64(192), s), 0)
    bits = permute(symbols + u64(256), s)
    return push(
        at, x, widen_unsigned(f), widen_unsigned(cumulative), widen_unsigned(raw), widen_unsigned(bits)
    )


@njit(**PART)
def _look_up(frame: Frame, g: int, rows: int, facts: Facts, table: Any, side: Any) -> None:
    """Copy the table entries of a group's plain rows to `side` + ENTRIES, 128 bytes a row.

    First all indices, then all loads: independent loads overlap, and rows then wait for none of them.
    """
    indices = side + u64(INDICES)
    for j in range(rows):
        t = GROUP_ROWS * g + j
        c = get_byte(facts.classes + u64(t))
        if c and _is_plain(frame, t, c):
            row = load_values(values_at(frame, t), frame.size)
            q = contexts(load8(positions_at(frame, t)), get_byte(facts.means + u64(t)), c)
            store16(indices + u64(64 * j), to16((q << STRIDE_LOG2) + greater(row, 0 - row)))
    for j in range(rows):
        t = GROUP_ROWS * g + j
        c = get_byte(facts.classes + u64(t))
        if c and _is_plain(frame, t, c):  # of other rows there are no indices
            copy_entries(table, indices + u64(64 * j), side + u64(ENTRIES + 128 * j))


@njit(**PART)
def _push_any_row(
    at: Any, states: Any, frame: Frame, t: int, mean: int, c: int, table: Any, scratch: Any
) -> Any:
    """Code row `t` of any class and length, with the states at `states`; return the new write address.

    at: address to write to; mean, c: the row's mean position class and class; scratch: 160 bytes.
    """
    values, positions, lanes = values_at(frame, t), positions_at(frame, t), lanes_of(frame, t)
    if lanes < LANES:
        copy_bytes(values, scratch, frame.size * lanes, frame.size * LANES)
        copy_bytes(positions, scratch + u64(4 * LANES), lanes, LANES)
        values, positions = scratch, scratch + u64(4 * LANES)
    x, row, low, done = load32(states), load_values(values, frame.size), low_bits(c, frame.shift), i64(0)
    if c:
        high = row >> low
        q = contexts(load8(positions), mean, c)
        at, x = _push_values(at, x, high, gather(table, (q << STRIDE_LOG2) + greater(high, 0 - high)), lanes)
    on = lane_numbers() < lanes
    while done < low:
        part = min(i64(RAW_STEP), low - done)
        raw = (row >> done) & ((1 << part) - 1)
        at, x = push(at, x, spread(TOTAL), spread(0), where(on, raw, 0), where(on, spread(part), 0))
        done += part
    store32(states, x)
    return at


@njit(**INLINE)
def _push_row(at: Any, x: Any, side: Any, frame: Frame, t: int, facts: Facts, table: Any, dense: bool) -> Any:
    """Code row `t`; return the write address and the states. dense: code plain rows of class 0, too.

    A row that is not plain passes its states through the memory at `side`.
    """
    c = get_byte(facts.classes + u64(t))
    if _is_plain(frame, t, c):
        if SEARCHED:
            if dense or c:
                return _push_searched(at, x, frame, t, get_byte(facts.means + u64(t)), c, table)
        elif c:
            entries = load32(side + u64(ENTRIES + 128 * (t % GROUP_ROWS)))
            return _push_values(at, x, load_values(values_at(frame, t), frame.size), entries, None)
        return at, x
    store32(side, x)
    mean = get_byte(facts.means + u64(t))
    at = _push_any_row(at, side, frame, t, mean, c, table, side + u64(INDICES))
    return at, load32(side)


@njit(**INLINE)
def _push_classes(at: Any, x: Any, facts: Facts, g: int, rows: int, table: Any) -> Any:
    """Code the classes of a group's rows in one step: lane j codes the class of row j."""
    t, on = u64(GROUP_ROWS * g), lane_numbers() < rows
    q = lesser(widen_unsigned(load8(facts.means + t)), 7)
    cell = where(on, q * SYMBOLS + widen_unsigned(load8(facts.classes + t)), 0)
    entries = gather(table, cell + CLASS_TABLE)
    f = where(on, entries & FREQUENCY_MASK, TOTAL)
    c = where(on, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK, 0)
    return push(at, x, f, c, spread(0), spread(0))


@njit(**PART)
def _prepare(frame: Frame, g0: int, g1: int, facts: Facts, block: Any, states: Any) -> Any:
    """Describe the block of groups g0 to g1 - 1 at `block`, and put its start states at `states`.

    Returns the first and last group to code (last below first for a constant block), the mask of seed rows in
    the first, and the size in bytes, without flush, from which on the block goes raw: coding stops there.
    """
    low, high, first, last = get32(facts.low + u64(4 * g0)), get32(facts.high + u64(4 * g0)), g1, g0 - 1
    for g in range(g0, g1):
        low = min(low, get32(facts.low + u64(4 * g)))
        high = max(high, get32(facts.high + u64(4 * g)))
        if frame.shift or get_byte(facts.live + u64(g)):
            first, last = min(first, g), g
    bits = bit_length(max(high, ~low)) + 1
    values = min(frame.length, GROUP * g1) - GROUP * g0
    limit = _limit(values, bits, frame.width, values == frame.length)
    store32(states, spread(STATE_LOW))
    if low == high:
        put_block(block, Block(i64(CONSTANT), first, last, i64(0), low, u64(0), i64(0)))
        return i64(1), i64(0), i64(0), i64(0)
    mask, seeds = _seed(frame, first, facts, states)
    put_block(block, Block(i64(CODED), first, last, seeds, bits, u64(0), limit))
    return first, last, mask, max(i64(1), limit - FLUSH_BYTES)


@njit(**PART)
def _seed(frame: Frame, g: int, facts: Facts, states: Any) -> Any:
    """Put as many rows of group `g` as fit into the start states; return their mask and the number n.

    asc.md, "Seed rows". sizes[k] is the width of the widest value in the first k + 1 live rows, so each
    n is one comparison.
    """
    places, sizes = np.zeros(MOST_SEED_ROWS, np.int64), np.zeros(MOST_SEED_ROWS, np.int64)
    riders, widest = i64(0), i64(0)
    for t in range(GROUP_ROWS * g, GROUP_ROWS * g + rows_of(frame, g)):
        if riders < MOST_SEED_ROWS and get_byte(facts.classes + u64(t)):
            for i in range(LANES * t, LANES * t + lanes_of(frame, t)):
                value = get_value(frame.values, frame.size, i)
                widest = max(widest, bit_length(value ^ (value >> 63)) + 1)
            places[riders], sizes[riders] = t, widest
            riders += 1
    for seeds in range(MOST_SEED_ROWS, 0, -1):
        riding, bits, mask = min(riders, i64(seeds)), i64(16 // seeds), i64(0)
        if riding and sizes[riding - 1] <= bits:
            for k in range(riding):
                mask |= i64(1) << (places[k] - GROUP_ROWS * g)
                for lane in range(lanes_of(frame, places[k])):
                    value = get_value(frame.values, frame.size, LANES * places[k] + lane)
                    state = states + u64(4 * lane)
                    put32(state, get32(state) | (value & ((1 << bits) - 1)) << (bits * k))
            return mask, i64(seeds)
    return i64(0), i64(0)


@njit(**PART)
def encode_blocks(
    frame: Frame, log2: int, first_block: int, last_block: int, facts: Facts, table: Any, regions: Any,
    region: int, blocks: Any, scratch: Any,
) -> None:  # fmt: skip
    """Code the blocks first_block to last_block - 1; block b goes to `regions` + b·`region`.

    log2: log2 of the values of a block; facts: of the rows, from the survey.
    table, blocks: addresses of the encoder's table, and of the descriptions to fill.
    scratch: SCRATCH bytes. Variables of a pair's first block end in _a (at, x, g), its second's in _b.
    """
    groups, per_block = (frame.length + GROUP - 1) // GROUP, (1 << log2) // GROUP
    side_a, side_b = scratch, scratch + u64(SIDE)
    for b in range(first_block, last_block, 2):
        block_a, block_b = block_at(blocks, b), block_at(blocks, b + 1)
        a0, b0, pair = b * per_block, (b + 1) * per_block, b + 1 < last_block
        first_a, last_a, mask_a, room_a = _prepare(frame, a0, min(groups, b0), facts, block_a, side_a)
        first_b, last_b, mask_b, room_b = i64(1), i64(0), i64(0), i64(0)
        if pair:
            end = min(groups, b0 + per_block)
            first_b, last_b, mask_b, room_b = _prepare(frame, b0, end, facts, block_b, side_b)
        begin_a = regions + u64(b) * u64(region)
        begin_b = begin_a + u64(region)
        at, x, to, y = begin_a, load32(side_a), begin_b, load32(side_b)
        for k in range(per_block):
            g, h = a0 + k, b0 + k
            on_a = first_a <= g <= last_a and i64(at - begin_a) < room_a
            on_b = first_b <= h <= last_b and i64(to - begin_b) < room_b
            rows_a, rows_b = rows_of(frame, g) if on_a else i64(0), rows_of(frame, h) if on_b else i64(0)
            skip_a, skip_b = mask_a if g == first_a else i64(0), mask_b if h == first_b else i64(0)
            if not SEARCHED:
                _look_up(frame, g, rows_a, facts, table, side_a)
                _look_up(frame, h, rows_b, facts, table, side_b)
            dense_a = rows_a > 0 and get_byte(facts.live + u64(g)) >= DENSE
            dense_b = rows_b > 0 and get_byte(facts.live + u64(h)) >= DENSE
            for j in range(max(rows_a, rows_b)):
                if j < rows_a and not (skip_a >> j) & 1:
                    at, x = _push_row(at, x, side_a, frame, GROUP_ROWS * g + j, facts, table, dense_a)
                if j < rows_b and not (skip_b >> j) & 1:
                    to, y = _push_row(to, y, side_b, frame, GROUP_ROWS * h + j, facts, table, dense_b)
            if on_a:
                at, x = _push_classes(at, x, facts, g, rows_a, table)
            if on_b:
                to, y = _push_classes(to, y, facts, h, rows_b, table)
        _flush(at, x)
        _close(frame, a0, min(groups, b0), block_a, begin_a, at)
        if pair:
            _flush(to, y)
            _close(frame, b0, min(groups, b0 + per_block), block_b, begin_b, to)


@njit(**INLINE)
def _flush(at: Any, x: Any) -> None:
    """Store the final states: the low byte of each lane, then the upper two bytes of each."""
    store8(at, to8(x))
    store16(at + u64(LANES), to16(x >> 8))


@njit(**PART)
def _close(frame: Frame, g0: int, g1: int, block: Any, begin: Any, at: Any) -> None:
    """Note the size of a block's bytes, and rewrite the block raw if coded it is too long."""
    b = get_block(block)
    if b.kind == CONSTANT:
        return
    kind, used = i64(CODED), i64(at - begin) + FLUSH_BYTES
    if used >= b.used:
        start, stop = GROUP * g0, min(frame.length, GROUP * g1)
        kind, used = i64(RAW), ((stop - start) * b.extra + 7) // 8
        _write_raw(frame, start, stop, b.extra, begin)
    put_block(block, Block(kind, b.first, b.last, b.seeds, b.extra, u64(0), used))


@njit(**PART)
def _write_raw(frame: Frame, first: int, last: int, bits: int, out: Any) -> None:
    """Write the values `first` to `last` - 1 in `bits` bits each, lowest bit first."""
    pending, have = u64(0), 0
    for i in range(first, last):
        pending |= u64(get_value(frame.values, frame.size, i) & ((1 << bits) - 1)) << u64(have)
        have += bits
        while have >= 8:
            put_byte(out, i64(pending & u64(255)))
            out += u64(1)
            pending >>= u64(8)
            have -= 8
    if have:
        put_byte(out, i64(pending & u64(255)))


@njit(**PART)
def write_blocks(blocks: Any, log2: int, count: int, regions: Any, region: int, out: Any) -> int:
    """Write the directory of `count` blocks and then their bytes at `out`; return the number of bytes."""
    at, per_block = out + u64(DIRECTORY_BYTES * count), (1 << log2) // GROUP
    for n in range(count):
        b = get_block(block_at(blocks, n))
        word = b.kind | b.used << 24
        if b.kind == CODED:
            word |= b.seeds << 2 | (b.first - n * per_block) << 5 | (b.last - n * per_block) << 12
        elif b.kind == RAW:
            word |= b.extra << 2
        else:
            word |= (b.extra & 0xFFFFFFFF) << 16
        for i in range(DIRECTORY_BYTES):
            put_byte(out + u64(DIRECTORY_BYTES * n + i), (word >> (8 * i)) & 255)
        move(regions + u64(n) * u64(region), at, b.used)
        at += u64(b.used)
    return i64(at - out)
