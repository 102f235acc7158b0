"""The decoder of the compiled twin: blocks backwards, two at a time; no bytes make it read or write elsewhere."""

from __future__ import annotations

from typing import Any

from numba import njit

from oscar.coding.asc.params import (
    BASE,
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
    SYMBOLS,
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
    bump,
    contexts,
    count_classes,
    count_row,
    count_step,
    i64,
    low_bits,
    pull,
    store_values,
    u64,
)  # fmt: skip
from oscar.coding.asc.survey_kernels import copy_bytes, survey
from oscar.coding.asc.vectors import (
    bits_of,
    gather,
    get32,
    get64,
    get_byte,
    get16,
    lane_numbers,
    lesser,
    load8,
    load16,
    load32,
    move,
    put16,
    put32,
    put64,
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

BAD_ENTRY, TRUNCATED, BAD_CONSTANT, BAD_RAW, BAD_STATE, SHORT, LEFT_OVER, BAD_END, TRAILING = range(1, 10)
REASONS = {
    BAD_ENTRY: "a block's entry is none that a sender writes",
    TRUNCATED: "payload ends inside a block",
    BAD_CONSTANT: "a constant block does not fit the width or its entry",
    BAD_RAW: "a raw block has another size, or bits a value, than its values",
    BAD_STATE: "a coder state is below 2^16",
    SHORT: "a block's bytes end before its values do",
    LEFT_OVER: "bytes of a block are left over",
    BAD_END: "a coder state does not end where it started",
    TRAILING: "bytes follow the last block",
}
SCRATCH = 8192  # bytes of memory for a thread
BEFORE, BEHIND = 512, 64  # bytes around a block that reading it may touch


@njit(**KERNEL)
def read_directory(entries: Any, end: Any, count: int, log2: int, width: int, directory: Any) -> int:
    """Check the entries of a frame's blocks; return 0, or why they are refused.

    Writes of each block, int64 [8] at `directory`: type, first and last group, seed rows, bits of a raw value or
    the value of a constant one, address and bytes.
    """
    blocks = (count + (1 << log2) - 1) >> log2
    at = entries + u64(DIRECTORY_BYTES * blocks)
    for b in range(blocks):
        n = min(1 << log2, count - (b << log2))
        word = i64(0)
        for i in range(DIRECTORY_BYTES):
            word |= get_byte(entries + u64(DIRECTORY_BYTES * b + i)) << (8 * i)
        kind, used = word & 3, word >> 24
        entry = directory + u64(64 * b)
        first, last, seeds = (word >> 5) & 127, (word >> 12) & 127, (word >> 2) & 7
        extra = i64(0)
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
        elif used < FLUSH_BYTES:
            return TRUNCATED
        if used > i64(end - at):
            return TRUNCATED
        put64(entry, kind)
        put64(entry + u64(8), (i64(b) << log2) // GROUP + first)
        put64(entry + u64(16), (i64(b) << log2) // GROUP + last)
        put64(entry + u64(24), seeds)
        put64(entry + u64(32), extra)
        put64(entry + u64(40), i64(at))
        put64(entry + u64(48), used)
        at += u64(used)
    return 0 if at == end else TRAILING


@njit(**INLINE)
def _find(x: Any, q: Any, table: Any) -> Any:
    """Return the entries of the symbols that states stand for, and the states without them."""
    entries = gather(table, (q << PROB_BITS) + (x & (TOTAL - 1)))
    f, place = entries & FREQUENCY_MASK, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK
    return entries, (x >> PROB_BITS) * f + place


@njit(**INLINE)
def _value(entries: Any, raw: Any, bits: Any) -> Any:
    """Return values from their entries and raw bits."""
    half = (spread(1) << bits) >> 1
    magnitude = upper_byte(entries) + (raw & (half - 1))
    return where((raw & half) == 0, magnitude, 0 - magnitude)


@njit(**INLINE)
def _pop_row(
    at: Any, x: Any, positions: Any, mean: int, c: int, table: Any, out: Any, size: int, add: bool,
    counts: Any, cells: Any, bases: Any, step: int,
) -> Any:  # fmt: skip
    """Decode a full row of a frame without shift whose class is at most NARROW_CLASS; count it if `step`."""
    q = contexts(load8(positions), mean, c)
    entries, y = _find(x, q, table)
    if step:
        _bump_bases(q, entries, cells, bases, counts, step)
    bits = (entries >> BITS_AT) & BITS_MASK
    x = y >> bits
    store_values(out, size, _value(entries, y - (x << bits), bits), add)
    return pull(at, x)


@njit(**INLINE)
def _bump_bases(q: Any, entries: Any, cells: Any, bases: Any, counts: Any, step: int) -> None:
    """Count symbols of which the tables know contexts and bases."""
    store32(cells, (q << 4) + gather(bases, upper_byte(entries)))
    bump(counts, cells, step)


@njit(**PART)
def _pop_any_row(
    at: Any, states: Any, positions: Any, mean: int, c: int, table: Any, shift: int, width: int,
    lanes: int, out: Any, size: int, add: bool, scratch: Any, counts: Any, symbols: Any, step: int,
) -> Any:  # fmt: skip
    """Decode a row of `lanes` values, of any class, with the states at `states`; count it if `step`."""
    x, on = load32(states), lane_numbers() < lanes
    low, values = low_bits(c, shift), spread(0)
    done = (low - 1) // RAW_STEP * RAW_STEP if low else i64(-1)
    while done >= 0:
        part = min(i64(RAW_STEP), low - done)
        values = values | ((x & ((1 << part) - 1)) << done)
        x = where(on, x >> part, x)
        at, x = pull(at, x)
        done -= RAW_STEP
    if c:
        copy_bytes(positions, scratch, lanes, LANES)
        entries, y = _find(x, contexts(load8(scratch), mean, c), table)
        bits = (entries >> BITS_AT) & BITS_MASK
        z = y >> bits
        values = values | (_value(entries, y - (z << bits), bits) << low)
        at, x = pull(at, where(on, z, x))
        if step:
            _count_values(values, positions, mean, c, low, lanes, counts, symbols, step, scratch)
    store32(states, x)
    put_row(values, lanes, width, out, size, add, scratch)
    return at


@njit(**PART)
def _count_values(
    values: Any, positions: Any, mean: int, c: int, low: int, lanes: int, counts: Any, symbols: Any, step: int,
    scratch: Any,
) -> None:  # fmt: skip
    """Count a row that was decoded; scratch: 320 bytes."""
    store32(scratch, values)
    copy_bytes(positions, scratch + u64(128), lanes, LANES)
    count_row(scratch, 4, scratch + u64(128), mean, c, low, lanes, counts, scratch + u64(192), symbols, step)


@njit(**PART)
def put_row(values: Any, lanes: int, width: int, out: Any, size: int, add: bool, scratch: Any) -> None:
    """Store `lanes` values, or add them; those of a frame of up to 16 bits are reduced to 16."""
    if width <= 16:
        values = widen(to16(values))
    if lanes == LANES:
        store_values(out, size, values, add)
        return
    store32(scratch, values)
    for i in range(lanes):
        value, at = get32(scratch + u64(4 * i)), out + u64(size * i)
        if size == 2:
            put16(at, get16(at) + value if add else value)
        else:
            put32(at, get32(at) + value if add else value)


@njit(**INLINE)
def _pop_classes(at: Any, x: Any, means: Any, rows: int, table: Any, classes: Any) -> Any:
    """Decode the classes of a group's rows to `classes`, 0 behind them."""
    on = lane_numbers() < rows
    entries, y = _find(x, lesser(widen_unsigned(load8(means)), 7) + VALUE_ROWS, table)
    store8(classes, to8(where(on, upper_byte(entries), 0)))
    return pull(at, where(on, y, x))


@njit(**PART)
def _find_means(positions: Any, stride: int, t: int, rows: int, count: int, means: Any, scratch: Any) -> None:
    """Fill `means` with the mean position classes of a group's rows from row `t` on."""
    for j in range(rows):
        places = positions + u64(stride * (t + j))
        if LANES * (t + j + 1) > count:
            copy_bytes(places, scratch, count - LANES * (t + j), LANES)
            places = scratch
        put_byte(means + u64(j), (total(load8(places)) + LANES // 2) >> 5)


@njit(**PART)
def _riding(classes: Any, rows: int, seeds: int) -> int:
    """Return a mask of the first `seeds` rows whose class is not 0."""
    mask = i64(0)
    for j in range(rows):
        if seeds and get_byte(classes + u64(j)):
            mask |= i64(1) << j
            seeds -= 1
    return mask


@njit(**INLINE)
def _live(classes: Any) -> int:
    return total(to8(where(widen_unsigned(load8(classes)) == 0, spread(0), spread(1))))


@njit(**PART)
def _zeros(out: Any, size: int, first: int, last: int, add: bool) -> None:
    """Put zeros from value `first` up to `last` - 1."""
    if not add:
        for i in range(first * size, last * size):
            put_byte(out + u64(i), 0)


@njit(**PART)
def _plain_block(
    entry: Any, first: int, last: int, count: int, positions: Any, stride: int, shift: int, least: int,
    width: int, out: Any, size: int, add: bool, counts: Any, symbols: Any, scratch: Any,
) -> None:  # fmt: skip
    """Fill in groups `first` to `last` - 1, a raw or constant block, and count their symbols.

    scratch: 512 bytes for a survey, 256 for what it finds, and a group of int32.
    """
    kind, extra, at = get64(entry), get64(entry + u64(32)), u64(get64(entry + u64(40)))
    values, found, held, have = scratch + u64(768), scratch + u64(512), u64(0), 0
    classes, means, ends = found, found + u64(GROUP_ROWS), found + u64(2 * GROUP_ROWS)
    if kind == CONSTANT and extra == 0 and least == 0:
        _zeros(out, size, GROUP * first, min(count, GROUP * last), add)
        return
    for g in range(first, last):
        n = min(GROUP, count - GROUP * g)
        for i in range(n):
            value = extra
            if kind == RAW:
                while have < extra:
                    held |= u64(get_byte(at)) << u64(have)
                    at += u64(1)
                    have += 8
                value = i64(held & ((u64(1) << u64(extra)) - u64(1)))
                value -= (value >> (extra - 1)) << extra
                held >>= u64(extra)
                have -= extra
            put32(values + u64(4 * i), value)
        place = out + u64(size * GROUP * g)
        for j in range(0, n, LANES):
            put_row(load32(values + u64(4 * j)), min(LANES, n - j), width, place + u64(size * j), size, add, scratch)
        survey(
            values - u64(4 * GROUP * g), 4, count, positions, stride, shift, least, g, g + 1,
            classes - u64(GROUP_ROWS * g), means - u64(GROUP_ROWS * g), ends - u64(g), ends + u64(8) - u64(4 * g),
            ends + u64(16) - u64(4 * g), counts, symbols, scratch,
        )  # fmt: skip


@njit(**PART)
def _open(entry: Any, begin: Any, end: Any, copy: Any, states: Any) -> Any:
    """Put the start states of a coded block at `states`; return where its bytes begin and end, and its status.

    A block too near the ends of the payload, from `begin` to `end`, is read from `copy`.
    """
    at, used = u64(get64(entry + u64(40))), get64(entry + u64(48))
    if at < begin + u64(BEFORE) or at + u64(used + BEHIND) > end:
        move(at, copy + u64(BEFORE), used)
        at = copy + u64(BEFORE)
    stop = at + u64(used - FLUSH_BYTES)
    x = widen_unsigned(load8(stop)) | ((widen(load16(stop + u64(LANES))) & 0xFFFF) << 8)
    store32(states, x)
    return at, stop, BAD_STATE if bits_of(x < STATE_LOW) else 0


@njit(**PART)
def _finish(
    entry: Any, states: Any, left: int, t: int, rows: int, count: int, classes: Any, means: Any, positions: Any,
    stride: int, shift: int, width: int, out: Any, size: int, add: bool, counts: Any, symbols: Any, scratch: Any,
) -> int:  # fmt: skip
    """Put the rows that ride in the start states in place and count them; return a block's status."""
    if left:
        return LEFT_OVER if left > 0 else SHORT
    seeds = get64(entry + u64(24))
    mask = _riding(classes, rows, seeds)
    rest, done = load32(states) - STATE_LOW, i64(0)
    bits = 16 // seeds if seeds else i64(0)
    live = _live(classes)
    step = count_step(count, live)
    for j in range(rows):
        if (mask >> j) & 1:
            lanes = min(LANES, count - LANES * (t + j))
            field = where(lane_numbers() < lanes, (rest >> done) & ((1 << bits) - 1), 0)
            rest = rest - (field << done)
            done += bits
            values = (field << (32 - bits)) >> (32 - bits)
            put_row(values, lanes, width, out + u64(size * LANES * (t + j)), size, add, scratch)
            if j % step == 0:
                c, mean, places = get_byte(classes + u64(j)), get_byte(means + u64(j)), positions + u64(stride * (t + j))
                _count_values(values, places, mean, c, low_bits(c, shift), lanes, counts, symbols, step, scratch)
    return BAD_END if bits_of(rest == 0) != 0xFFFFFFFF else 0


@njit(**KERNEL)
def decode_blocks(
    begin: Any, end: Any, count: int, positions: Any, stride: int, shift: int, least: int, width: int,
    log2: int, first_block: int, last_block: int, directory: Any, table: Any, out: Any, size: int, add: bool,
    counts: Any, symbols: Any, bases: Any, copies: Any, copy: int, scratch: Any,
) -> int:  # fmt: skip
    """Decode the blocks `first_block` to `last_block` - 1 of a payload; return 0, or why one is refused.

    copies: room for two blocks, `copy` bytes each; scratch: SCRATCH bytes.
    """
    groups, rows, full = (count + GROUP - 1) // GROUP, (count + LANES - 1) // LANES, count // LANES
    per_block = (1 << log2) // GROUP
    cells, states_a, states_b = scratch, scratch + u64(4864), scratch + u64(4992)
    classes_a, classes_b = scratch + u64(5120), scratch + u64(5184)
    means_a, means_b = scratch + u64(5248), scratch + u64(5312)
    quick = shift == 0
    status = i64(0)
    for b in range(first_block, last_block, 2):
        pair = b + 1 < last_block
        entry_a, entry_b = directory + u64(64 * b), directory + u64(64 * (b + 1))
        a0, b0 = b * per_block, (b + 1) * per_block
        first_a, last_a = _span(entry_a, a0, groups, per_block, count, out, size, add)
        begin_a, begin_b, at, to = u64(0), u64(0), u64(0), u64(0)
        first_b, last_b = i64(1), i64(0)
        if first_a <= last_a:
            begin_a, at, bad = _open(entry_a, begin, end, copies, states_a)
            status = status or bad
        else:
            _plain_block(entry_a, a0, min(groups, b0), count, positions, stride, shift, least, width, out, size, add, counts, symbols, scratch)
        if pair:
            first_b, last_b = _span(entry_b, b0, groups, per_block, count, out, size, add)
            if first_b <= last_b:
                begin_b, to, bad = _open(entry_b, begin, end, copies + u64(copy), states_b)
                status = status or bad
            else:
                _plain_block(entry_b, b0, min(groups, b0 + per_block), count, positions, stride, shift, least, width, out, size, add, counts, symbols, scratch)
        if status:
            return status
        x, y = load32(states_a), load32(states_b)
        for k in range(per_block - 1, -1, -1):
            g, h = a0 + k, b0 + k
            on_a, on_b = first_a <= g <= last_a, first_b <= h <= last_b
            mask_a, mask_b, step_a, step_b, rows_a, rows_b = i64(0), i64(0), i64(1), i64(1), i64(0), i64(0)
            t0, r0 = GROUP_ROWS * g, GROUP_ROWS * h
            if on_a:
                rows_a = min(GROUP_ROWS, rows - t0)
                _find_means(positions, stride, t0, rows_a, count, means_a, cells)
                at, x = _pop_classes(at, x, means_a, rows_a, table, classes_a)
                step_a = count_step(count, _live(classes_a))
                mask_a = _riding(classes_a, rows_a, get64(entry_a + u64(24))) if g == first_a else i64(0)
                if _live(classes_a):
                    count_classes(classes_a, means_a, 0, rows_a, counts)
            if on_b:
                rows_b = min(GROUP_ROWS, rows - r0)
                _find_means(positions, stride, r0, rows_b, count, means_b, cells)
                to, y = _pop_classes(to, y, means_b, rows_b, table, classes_b)
                step_b = count_step(count, _live(classes_b))
                mask_b = _riding(classes_b, rows_b, get64(entry_b + u64(24))) if h == first_b else i64(0)
                if _live(classes_b):
                    count_classes(classes_b, means_b, 0, rows_b, counts)
            for j in range(GROUP_ROWS - 1, -1, -1):
                if j < rows_a and (mask_a >> j) & 1 == 0:
                    if at < begin_a:
                        return SHORT
                    t = u64(t0 + j)
                    c, mean = get_byte(classes_a + u64(j)), get_byte(means_a + u64(j))
                    place, p = out + u64(LANES * size) * t, positions + u64(stride) * t
                    step = step_a if j % step_a == 0 else i64(0)
                    if quick and c <= NARROW_CLASS and i64(t) < full:
                        if c:
                            at, x = _pop_row(at, x, p, mean, c, table, place, size, add, counts, cells, bases, step)
                        elif not add:
                            store_values(place, size, spread(0), False)
                    else:
                        store32(states_a, x)
                        at = _pop_any_row(at, states_a, p, mean, c, table, shift, width, min(LANES, count - LANES * i64(t)), place, size, add, cells, counts, symbols, step)
                        x = load32(states_a)
                if j < rows_b and (mask_b >> j) & 1 == 0:
                    if to < begin_b:
                        return SHORT
                    t = u64(r0 + j)
                    c, mean = get_byte(classes_b + u64(j)), get_byte(means_b + u64(j))
                    place, p = out + u64(LANES * size) * t, positions + u64(stride) * t
                    step = step_b if j % step_b == 0 else i64(0)
                    if quick and c <= NARROW_CLASS and i64(t) < full:
                        if c:
                            to, y = _pop_row(to, y, p, mean, c, table, place, size, add, counts, cells, bases, step)
                        elif not add:
                            store_values(place, size, spread(0), False)
                    else:
                        store32(states_b, y)
                        to = _pop_any_row(to, states_b, p, mean, c, table, shift, width, min(LANES, count - LANES * i64(t)), place, size, add, cells, counts, symbols, step)
                        y = load32(states_b)
            if on_a and g == first_a:
                store32(states_a, x)
                status = _finish(entry_a, states_a, i64(at - begin_a), t0, rows_a, count, classes_a, means_a, positions, stride, shift, width, out, size, add, counts, symbols, cells)
                if status:
                    return status
            if on_b and h == first_b:
                store32(states_b, y)
                status = _finish(entry_b, states_b, i64(to - begin_b), r0, rows_b, count, classes_b, means_b, positions, stride, shift, width, out, size, add, counts, symbols, cells)
                if status:
                    return status
    return 0


@njit(**PART)
def _span(entry: Any, g0: int, groups: int, per_block: int, count: int, out: Any, size: int, add: bool) -> Any:
    """Return first and last group to decode, with zeros around them; the first behind the last of a plain block."""
    if get64(entry) != CODED:
        return i64(1), i64(0)
    g, h = get64(entry + u64(8)), get64(entry + u64(16))
    _zeros(out, size, GROUP * g0, GROUP * g, add)
    stop = min(groups, g0 + per_block)
    if h + 1 < stop:
        _zeros(out, size, GROUP * (h + 1), min(count, GROUP * stop), add)
    return g, h
