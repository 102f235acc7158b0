"""The decoder of the compiled twin: blocks backwards, two at a time; no bytes make it read or write elsewhere."""

from __future__ import annotations

from typing import Any

from numba import njit

from oscar.coding.asc.byte_stream import MACHINE
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
    PROB_BITS,
    RAW,
    RAW_STEP,
    STATE_LOW,
    TOTAL,
    VALUE_ROWS,
)  # fmt: skip
from oscar.coding.asc.row_kernels import (
    BITS_AT,
    BITS_MASK,
    CUMULATIVE_AT,
    CUMULATIVE_MASK,
    FREQUENCY_MASK,
    INLINE,
    KERNEL,
    PART,
    Block,
    Frame,
    block_at,
    bump_rows,
    bump_some,
    contexts,
    count_classes,
    count_step,
    find_cells,
    get_block,
    i64,
    lanes_of,
    low_bits,
    positions_at,
    pull,
    put_block,
    rows_of,
    SEARCH_AT,
    SEARCH_BYTES,
    SYMBOLS_AT,
    relative,
    put_values,
    store_cells,
    store_values,
    u64,
    values_at,
)  # fmt: skip
from oscar.coding.asc.look_ups import narrow, permute, permute_two, weigh
from oscar.coding.asc.survey_kernels import SURVEY_BYTES, Found, copy_bytes, mean_position, survey
from oscar.coding.asc.vectors import (
    bits_of,
    gather,
    get16,
    get32,
    get_byte,
    greater,
    lane_numbers,
    lesser,
    load8,
    load16,
    load32,
    move,
    put16,
    put32,
    put_byte,
    spread,
    store8,
    store32,
    to8,
    to16,
    total,
    upper_byte,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip

BAD_ENTRY, BAD_SIZE, TRUNCATED, BAD_CONSTANT, BAD_RAW, BAD_STATE, SHORT, LEFT_OVER, BAD_END, TRAILING = range(1, 11)
REASONS = {
    BAD_ENTRY: "a block's entry is none that a sender writes",
    BAD_SIZE: "a coded block is shorter than its states, or no shorter than raw",
    TRUNCATED: "payload ends inside a block",
    BAD_CONSTANT: "a constant block does not fit the width or its entry",
    BAD_RAW: "a raw block has another size, or bits a value, than its values",
    BAD_STATE: "a coder state is below 2^16",
    SHORT: "a block's bytes end before its values do",
    LEFT_OVER: "bytes of a block are left over",
    BAD_END: "a coder state does not end where it started",
    TRAILING: "bytes follow the last block",
}
BEFORE, BEHIND = 512, 64  # bytes around a block that reading it may touch
# The memory of each of two blocks: states, classes and position classes of a group's rows, their counts' places.
CLASSES, MEANS, CELLS = 128, 192, 256
SIDE = CELLS + 4 * LANES * (GROUP_ROWS + 1)
FOUND = SURVEY_BYTES + 4 * GROUP  # in that of a plain block: a survey's, a group of int32, what is found
SCRATCH = 2 * SIDE + FOUND + 256


@njit(**KERNEL)
def read_directory(entries: Any, end: Any, count: int, log2: int, width: int, blocks: Any) -> int:
    """Describe the blocks of a payload, whose bytes end at `end`, at `blocks`; return 0, or why one is refused."""
    number, per_block = (count + (1 << log2) - 1) >> log2, (1 << log2) // GROUP
    at = entries + u64(DIRECTORY_BYTES * number)
    for b in range(number):
        n, word = min(1 << log2, count - (b << log2)), i64(0)
        for i in range(DIRECTORY_BYTES):
            word |= get_byte(entries + u64(DIRECTORY_BYTES * b + i)) << (8 * i)
        kind, used, extra = word & 3, word >> 24, i64(0)
        seeds, first, last = (word >> 2) & 7, (word >> 5) & 127, (word >> 12) & 127
        if kind == CONSTANT:
            extra = (word >> 16) & 0xFFFFFFFF
            extra -= (extra >> 31) << 32
            used = i64(0)
            if (word >> 2) & 0x3FFF or extra < -(i64(1) << (width - 1)) or extra >= i64(1) << (width - 1):
                return BAD_CONSTANT
        elif kind == RAW:
            extra = (word >> 2) & 63
            if (word >> 8) & 0xFFFF or extra < 1 or extra > width or used != (n * extra + 7) // 8:
                return BAD_RAW
        elif kind != CODED or (word >> 19) & 31 or seeds > MOST_SEED_ROWS or first > last or last * GROUP >= n:
            return BAD_ENTRY
        elif used < FLUSH_BYTES or used >= (n * width + 7) // 8:
            return BAD_SIZE
        if used > i64(end - at):
            return TRUNCATED
        block = Block(kind, b * per_block + first, b * per_block + last, seeds, extra, at, used)
        put_block(block_at(blocks, b), block)
        at += u64(used)
    return 0 if at == end else TRAILING


@njit(**INLINE)
def _find(x: Any, q: Any, table: Any) -> Any:
    """Return the entries of the symbols that states stand for, and the states without them."""
    entries = gather(table, (q << PROB_BITS) + (x & (TOTAL - 1)))
    f, place = entries & FREQUENCY_MASK, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK
    return entries, (x >> PROB_BITS) * f + place


@njit(**INLINE)
def _take_by_gather(x: Any, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Take a row's symbols and their raw bits from the states; return those, and the values."""
    entries, y = _find(x, contexts(positions, mean, c), table)
    bits = (entries >> BITS_AT) & BITS_MASK
    z = y >> bits
    raw, half = y - (z << bits), (spread(1) << bits) >> 1
    magnitude = upper_byte(entries) + (raw & (half - 1))
    return z, to16(where((raw & half) == 0, magnitude, 0 - magnitude))


@njit(**INLINE)
def _take_by_search(x: Any, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Do the same without a gather: halve the symbols four times, by thresholds of the row's class."""
    at = table + u64(SEARCH_AT) + u64(SEARCH_BYTES) * u64(c)
    i = relative(positions, mean)
    slot = narrow(x) & (TOTAL - 1)
    edge = permute(at, i + 16)
    up = slot >= edge
    low, high, i = where(up, edge, 0), where(up, TOTAL, edge), where(up, i + 8, i)
    edge = permute(at, i)
    up = slot >= edge
    low, high, i = where(up, edge, low), where(up, high, edge), where(up, i + 16, i)
    edge = permute(at + u64(64), i)
    up = slot >= edge
    low, high, i = where(up, edge, low), where(up, high, edge), where(up, i + 32, i)
    edge = permute_two(at + u64(128), i)
    up = slot >= edge
    low, high, i = where(up, edge, low), where(up, high, edge), where(up, i + 64, i) >> 3
    y = weigh(x, high - low, slot - low)
    symbols, raw = table + u64(SYMBOLS_AT), narrow(y)
    magnitude = permute(symbols, i) + (raw & permute(symbols + u64(64), i))
    minus = (raw & permute(symbols + u64(128), i)) == 0
    return y >> widen_unsigned(permute(symbols + u64(192), i)), where(minus, magnitude, 0 - magnitude)


_take = _take_by_search if MACHINE == "avx512" else _take_by_gather


@njit(**PART)
def _pop_any_row(
    at: Any, side: Any, frame: Frame, t: int, add: bool, table: Any, counts: Any, step: int
) -> Any:
    """Decode row `t`, of any class and length, with the states at `side`; count it if `step`."""
    j, cells = t % GROUP_ROWS, side + u64(CELLS + 4 * LANES * GROUP_ROWS)
    c, mean, lanes = get_byte(side + u64(CLASSES + j)), get_byte(side + u64(MEANS + j)), lanes_of(frame, t)
    x, on, low, values = load32(side), lane_numbers() < lanes, low_bits(c, frame.shift), spread(0)
    done = (low - 1) // RAW_STEP * RAW_STEP if low else i64(-1)
    while done >= 0:
        part = min(i64(RAW_STEP), low - done)
        values = values | ((x & ((1 << part) - 1)) << done)
        at, x = pull(at, where(on, x >> part, x))
        done -= RAW_STEP
    if c:
        copy_bytes(positions_at(frame, t), cells, lanes, LANES)
        z, high = _take(x, load8(cells), mean, c, table)
        values = values | (widen(high) << low)
        at, x = pull(at, where(on, z, x))
        if step:
            find_cells(values, cells, mean, c, low, cells)
            bump_some(counts, cells, lanes, step)
    store32(side, x)
    _put_row(values, lanes, frame, values_at(frame, t), add, cells)
    return at


@njit(**PART)
def _put_row(values: Any, lanes: int, frame: Frame, out: Any, add: bool, cells: Any) -> None:
    """Store `lanes` values at `out`, or add them; those of a frame of up to 16 bits are reduced to 16."""
    if frame.width <= 16:
        values = widen(to16(values))
    if lanes == LANES:
        store_values(out, frame.size, values, add)
        return
    store32(cells, values)
    for i in range(lanes):
        value, at = get32(cells + u64(4 * i)), out + u64(frame.size * i)
        if frame.size == 2:
            put16(at, get16(at) + value if add else value)
        else:
            put32(at, get32(at) + value if add else value)


@njit(**INLINE)
def _pop_row(
    at: Any, x: Any, side: Any, filled: Any, frame: Frame, t: int, add: bool, table: Any, counts: Any, step: int
) -> Any:
    """Decode row `t`; return where its bytes begin, the states, and the end of the counts' places."""
    j = t % GROUP_ROWS
    c, counted = get_byte(side + u64(CLASSES + j)), j % step == 0
    if frame.shift == 0 and c <= NARROW_CLASS and LANES * (t + 1) <= frame.count:
        if c:
            positions, mean = load8(positions_at(frame, t)), get_byte(side + u64(MEANS + j))
            x, values = _take(x, positions, mean, c, table)
            put_values(values_at(frame, t), frame.size, values, add)
            if counted:
                wide = widen(values)
                store_cells(filled, contexts(positions, mean, c), greater(wide, 0 - wide))
                filled += u64(4 * LANES)
            at, x = pull(at, x)
        elif not add:
            put_values(values_at(frame, t), frame.size, to16(spread(0)), False)
        return at, x, filled
    store32(side, x)
    at = _pop_any_row(at, side, frame, t, add, table, counts, step if counted else i64(0))
    return at, load32(side), filled


@njit(**INLINE)
def _pop_classes(at: Any, x: Any, side: Any, frame: Frame, g: int, rows: int, table: Any, counts: Any) -> Any:
    """Decode and count the classes of a group's rows, 0 behind them; return the step of rows to count, too."""
    _find_means(frame, GROUP_ROWS * g, rows, side)
    on = lane_numbers() < rows
    entries, y = _find(x, lesser(widen_unsigned(load8(side + u64(MEANS))), 7) + VALUE_ROWS, table)
    classes = where(on, upper_byte(entries), 0)
    store8(side + u64(CLASSES), to8(classes))
    live = total(to8(where(classes == 0, spread(0), spread(1))))
    if live:
        count_classes(side + u64(CLASSES), side + u64(MEANS), rows, counts)
    at, x = pull(at, where(on, y, x))
    return at, x, count_step(frame.count, live)


@njit(**PART)
def _find_means(frame: Frame, t: int, rows: int, side: Any) -> None:
    """Note the mean position classes of a group's rows from row `t` on."""
    for j in range(rows):
        positions, lanes = positions_at(frame, t + j), lanes_of(frame, t + j)
        if lanes < LANES:
            copy_bytes(positions, side + u64(CELLS), lanes, LANES)
            positions = side + u64(CELLS)
        put_byte(side + u64(MEANS + j), mean_position(positions))


@njit(**PART)
def _riding(side: Any, rows: int, seeds: int) -> int:
    """Return a mask of the first `seeds` rows whose class is not 0."""
    mask = i64(0)
    for j in range(rows):
        if seeds and get_byte(side + u64(CLASSES + j)):
            mask |= i64(1) << j
            seeds -= 1
    return mask


@njit(**PART)
def _zeros(frame: Frame, first: int, last: int, add: bool) -> None:
    """Put zeros from value `first` up to `last` - 1."""
    if not add:
        for i in range(first * frame.size, last * frame.size):
            put_byte(frame.values + u64(i), 0)


@njit(**PART)
def _open(block: Block, g1: int, frame: Frame, begin: Any, end: Any, copy: Any, side: Any, add: bool) -> Any:
    """Put zeros around a coded block's groups, up to group `g1`, and its start states at `side`.

    Returns where its bytes begin and end, and its status. A block too near the ends of the payload, from `begin`
    to `end`, is read from `copy`.
    """
    _zeros(frame, GROUP * (block.last + 1), min(frame.count, GROUP * g1), add)
    at = block.at
    if at < begin + u64(BEFORE) or at + u64(block.used + BEHIND) > end:
        move(at, copy + u64(BEFORE), block.used)
        at = copy + u64(BEFORE)
    stop = at + u64(block.used - FLUSH_BYTES)
    x = widen_unsigned(load8(stop)) | ((widen(load16(stop + u64(LANES))) & 0xFFFF) << 8)
    store32(side, x)
    return at, stop, i64(BAD_STATE) if bits_of(x < STATE_LOW) else i64(0)


@njit(**PART)
def _finish(
    block: Block, left: int, mask: int, frame: Frame, side: Any, add: bool, counts: Any, step: int
) -> int:
    """Put the rows that ride in the start states in place and count them; return a block's status."""
    if left:
        return LEFT_OVER if left > 0 else SHORT
    bits, done, rest = 16 // block.seeds if block.seeds else i64(1), i64(0), load32(side) - STATE_LOW
    cells = side + u64(CELLS)
    for j in range(GROUP_ROWS):
        if (mask >> j) & 1:
            t = GROUP_ROWS * block.first + j
            lanes = lanes_of(frame, t)
            field = where(lane_numbers() < lanes, (rest >> done) & ((1 << bits) - 1), 0)
            rest, done = rest - (field << done), done + bits
            values = (field << (32 - bits)) >> (32 - bits)
            if j % step == 0:
                copy_bytes(positions_at(frame, t), cells, lanes, LANES)
                c, mean = get_byte(side + u64(CLASSES + j)), get_byte(side + u64(MEANS + j))
                find_cells(values, cells, mean, c, low_bits(c, frame.shift), cells)
                bump_some(counts, cells, lanes, step)
            _put_row(values, lanes, frame, values_at(frame, t), add, cells)
    return 0 if bits_of(rest == 0) == 0xFFFFFFFF else BAD_END


@njit(**PART)
def _plain_block(block: Block, g0: int, g1: int, frame: Frame, add: bool, counts: Any, scratch: Any) -> None:
    """Fill in the groups g0 to g1 - 1, a raw or constant block, and count their symbols."""
    held, have, at, bits = u64(0), i64(0), block.at, block.extra
    values, found = scratch + u64(SURVEY_BYTES), scratch + u64(FOUND)
    for g in range(g0, g1):
        n = min(GROUP, frame.count - GROUP * g)
        for i in range(n):
            value = bits  # of a constant block
            if block.kind == RAW:
                while have < bits:
                    held |= u64(get_byte(at)) << u64(have)
                    at += u64(1)
                    have += 8
                value = i64(held & ((u64(1) << u64(bits)) - u64(1)))
                value -= (value >> (bits - 1)) << bits
                held >>= u64(bits)
                have -= bits
            put32(values + u64(4 * i), value)
        for j in range(0, n, LANES):
            row, out = load32(values + u64(4 * j)), values_at(frame, g * GROUP_ROWS + j // LANES)
            _put_row(row, min(LANES, n - j), frame, out, add, scratch)
        here = values - u64(4 * GROUP * g)
        own = Frame(here, i64(4), frame.count, frame.positions, frame.stride, frame.shift, frame.least, frame.width)
        t, group = u64(GROUP_ROWS * g), u64(4 * g)
        rows = Found(found - t, found + u64(64) - t, found + u64(128) - u64(g), found + u64(136) - group, found + u64(144) - group)
        survey(own, g, g + 1, rows, counts, scratch)


@njit(**PART)
def _enter(
    block: Block, g0: int, g1: int, frame: Frame, begin: Any, end: Any, copy: Any, side: Any, add: bool,
    counts: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Begin the block of groups g0 to g1 - 1.

    Returns the groups to decode (none of a plain block), where the bytes begin and end, and its status.
    """
    if block.kind == CODED:
        _zeros(frame, GROUP * g0, GROUP * block.first, add)
        at, stop, status = _open(block, g1, frame, begin, end, copy, side, add)
        return block.first, block.last, at, stop, status
    if block.kind == CONSTANT and block.extra == 0 and frame.least == 0:
        _zeros(frame, GROUP * g0, min(frame.count, GROUP * g1), add)
    else:
        _plain_block(block, g0, g1, frame, add, counts, scratch)
    return i64(1), i64(0), u64(0), u64(0), i64(0)


@njit(**KERNEL)
def decode_blocks(
    begin: Any, end: Any, frame: Frame, add: bool, log2: int, first_block: int, last_block: int, blocks: Any,
    table: Any, counts: Any, copies: Any, copy: int, scratch: Any,
) -> int:  # fmt: skip
    """Decode the blocks `first_block` to `last_block` - 1 of a payload; return 0, or why one is refused.

    copies: room for two blocks, `copy` bytes each; scratch: SCRATCH bytes.
    """
    groups, per_block = (frame.count + GROUP - 1) // GROUP, (1 << log2) // GROUP
    side_a, side_b, spare = scratch, scratch + u64(SIDE), scratch + u64(2 * SIDE)
    for b in range(first_block, last_block, 2):
        a0, b0 = b * per_block, (b + 1) * per_block
        block_a = get_block(block_at(blocks, b))
        block_b = get_block(block_at(blocks, b + 1)) if b + 1 < last_block else block_a
        status_b, first_b, last_b, begin_b, to = i64(0), i64(1), i64(0), u64(0), u64(0)
        if b + 1 < last_block:
            end_b, room = min(groups, b0 + per_block), copies + u64(copy)
            first_b, last_b, begin_b, to, status_b = _enter(block_b, b0, end_b, frame, begin, end, room, side_b, add, counts, spare)
        first_a, last_a, begin_a, at, status_a = _enter(block_a, a0, min(groups, b0), frame, begin, end, copies, side_a, add, counts, spare)
        if status_a or status_b:
            return status_a or status_b
        x, y = load32(side_a), load32(side_b)
        for k in range(per_block - 1, -1, -1):
            g, h = a0 + k, b0 + k
            rows_a, step_a, skip_a, rows_b, step_b, skip_b = i64(0), i64(1), i64(0), i64(0), i64(1), i64(0)
            cells_a, cells_b = side_a + u64(CELLS), side_b + u64(CELLS)
            if first_a <= g <= last_a:
                rows_a = rows_of(frame, g)
                at, x, step_a = _pop_classes(at, x, side_a, frame, g, rows_a, table, counts)
                skip_a = _riding(side_a, rows_a, block_a.seeds) if g == first_a else i64(0)
            if first_b <= h <= last_b:
                rows_b = rows_of(frame, h)
                to, y, step_b = _pop_classes(to, y, side_b, frame, h, rows_b, table, counts)
                skip_b = _riding(side_b, rows_b, block_b.seeds) if h == first_b else i64(0)
            for j in range(max(rows_a, rows_b) - 1, -1, -1):
                if j < rows_a and not (skip_a >> j) & 1:
                    if at < begin_a:
                        return SHORT
                    t = GROUP_ROWS * g + j
                    at, x, cells_a = _pop_row(at, x, side_a, cells_a, frame, t, add, table, counts, step_a)
                if j < rows_b and not (skip_b >> j) & 1:
                    if to < begin_b:
                        return SHORT
                    t = GROUP_ROWS * h + j
                    to, y, cells_b = _pop_row(to, y, side_b, cells_b, frame, t, add, table, counts, step_b)
            bump_rows(counts, side_a + u64(CELLS), cells_a, step_a)
            bump_rows(counts, side_b + u64(CELLS), cells_b, step_b)
            if rows_a and g == first_a:
                store32(side_a, x)
                status = _finish(block_a, i64(at - begin_a), skip_a, frame, side_a, add, counts, step_a)
                if status:
                    return status
            if rows_b and h == first_b:
                store32(side_b, y)
                status = _finish(block_b, i64(to - begin_b), skip_b, frame, side_b, add, counts, step_b)
                if status:
                    return status
    return 0
