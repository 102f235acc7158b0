"""The decoder of the compiled twin: blocks backwards, some at a time; no bytes make it read or write elsewhere."""

from __future__ import annotations

from typing import Any

from numba import njit

from oscar.coding.asc.look_ups import narrow, permute, weigh
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
    SEARCH_AT,
    SEARCH_BYTES,
    SEARCHED,
    SYMBOLS_AT,
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
    put_values,
    relative,
    rows_of,
    store_cells,
    store_values,
    u64,
    values_at,
)  # fmt: skip
from oscar.coding.asc.survey_kernels import SURVEY_BYTES, Found, copy_bytes, mean_position, survey
from oscar.coding.asc.vectors import (
    bit_length,
    bits_of,
    clear,
    gather,
    get16,
    get32,
    get64,
    get_byte,
    greater,
    lane_numbers,
    lesser,
    load8,
    load16,
    load32,
    move,
    popcount,
    prefetch,
    put16,
    put32,
    put64,
    put_byte,
    spread,
    store8,
    store32,
    to8,
    to16,
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
BEFORE, BEHIND = 8192, 64  # bytes around a block that reading it may touch: 32 rows' most, 192 each, is 6144
SIDES = 4 if SEARCHED else 2  # blocks that are decoded at once: with gathers, two keep a machine busy
# The memory of each: states, classes and position classes of a group's rows, the rows to decode, integers, and
# where symbols are counted.
CLASSES, MEANS, ORDER, AT, BEGIN, FIRST, LAST, STEP, ROWS, DONE, MASK, WIDE = 128, 192, 256, *range(320, 392, 8)
CELLS = 448
DENSE = 24  # rows of a class other than 0 from which on the others are decoded, too
SIDE = CELLS + 4 * LANES * (GROUP_ROWS + 1)
FOUND = SURVEY_BYTES + 4 * GROUP  # in that of a plain block: a survey's, a group of int32, what is found
SCRATCH = SIDES * SIDE + FOUND + 256


@njit(**KERNEL)
def read_directory(
    entries: Any, end: Any, count: int, log2: int, width: int, shift: int, blocks: Any
) -> int:
    """Describe the blocks of a payload, whose bytes end at `end`, at `blocks`; return 0, or why one is refused."""
    number, per_block = (count + (1 << log2) - 1) >> log2, (1 << log2) // GROUP
    plain = min(width, 16 + shift)  # bits of a value in a block without symbols
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
            if (word >> 2) & 0x3FFF or extra < -(i64(1) << (plain - 1)) or extra >= i64(1) << (plain - 1):
                return BAD_CONSTANT
        elif kind == RAW:
            extra = (word >> 2) & 63
            if (word >> 8) & 0xFFFF or extra < 1 or extra > plain or used != (n * extra + 7) // 8:
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
def _climb(slot: Any, i: Any, step: int, low: Any, one: Any, two: Any, three: Any, high: Any) -> Any:
    """Add `step` to `i` for each threshold a slot reaches; return it, and the thresholds that the slot is between."""
    first, second, third = slot >= one, slot >= two, slot >= three
    i = where(first, i + step, i)
    i = where(second, i + step, i)
    i = where(third, i + step, i)
    low, high = where(first, one, low), where(third, high, three)
    return i, where(third, three, where(second, two, low)), where(first, where(second, high, two), one)


@njit(**INLINE)
def _take_by_search(x: Any, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Do the same without a gather: twice, count the thresholds of three that a state's place reaches."""
    at = table + u64(SEARCH_AT) + u64(SEARCH_BYTES) * u64(c)
    i, slot = relative(positions, mean), narrow(x) & (TOTAL - 1)
    i, low, high = _climb(slot, i, 8, 0, permute(at, i), permute(at, i + 8), permute(at, i + 16), TOTAL)
    at += u64(64)
    i, low, high = _climb(slot, i, 32, low, permute(at, i), permute(at + u64(64), i), permute(at + u64(128), i), high)
    i = i >> 3
    y = weigh(x, high - low, slot - low)
    symbols, raw = table + u64(SYMBOLS_AT), narrow(y)
    magnitude = permute(symbols, i) + (raw & permute(symbols + u64(64), i))
    minus = (raw & permute(symbols + u64(128), i)) == 0
    return y >> widen_unsigned(permute(symbols + u64(192), i)), where(minus, magnitude, 0 - magnitude)


_take = _take_by_search if SEARCHED else _take_by_gather


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
def _pop_row(at: Any, x: Any, side: Any, i: int, frame: Frame, t0: int, add: bool, table: Any, step: int) -> Any:
    """Decode the plain row that is number `i` to be in its group; return where its bytes begin, and the states."""
    j = get_byte(side + u64(ORDER) + u64(i))
    c, mean = get_byte(side + u64(CLASSES) + u64(j)), get_byte(side + u64(MEANS) + u64(j))
    positions = load8(positions_at(frame, t0 + j))
    x, values = _take(x, positions, mean, c, table)
    put_values(values_at(frame, t0 + j), frame.size, values, add)
    if j & (step - 1) == 0:
        wide = widen(values)
        store_cells(side + u64(CELLS) + u64(4 * LANES * j), contexts(positions, mean, c), greater(wide, 0 - wide))
    return pull(at, x)


@njit(**PART)
def _pop_one(a: Any, last: int, frame: Frame, t0: int, add: bool, table: Any) -> None:
    """Decode the rows of a block's group up to number `last` - 1; the group starts with row `t0`."""
    at, x, step = u64(get64(a + u64(AT))), load32(a), get64(a + u64(STEP))
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, add, table, step)
    _leave(a, at, x, last)


@njit(**INLINE)
def _leave(side: Any, at: Any, x: Any, done: int) -> None:
    """Note where the rows of a group were left."""
    store32(side, x)
    put64(side + u64(AT), i64(at))
    put64(side + u64(DONE), done)


@njit(**PART)
def _pop_two(a: Any, last: int, frame: Frame, t0: int, apart: int, add: bool, table: Any) -> None:
    """Do the same for two blocks whose sides lie one after the other, and whose groups are `apart` rows apart."""
    b, u0 = a + u64(SIDE), t0 + apart
    at, x, step = u64(get64(a + u64(AT))), load32(a), get64(a + u64(STEP))
    bt, y, pets = u64(get64(b + u64(AT))), load32(b), get64(b + u64(STEP))
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, add, table, step)
        bt, y = _pop_row(bt, y, b, i, frame, u0, add, table, pets)
    _leave(a, at, x, last)
    _leave(b, bt, y, last)


@njit(**PART)
def _pop_four(a: Any, last: int, frame: Frame, t0: int, apart: int, add: bool, table: Any) -> None:
    """Do the same for four blocks."""
    b, c, d = a + u64(SIDE), a + u64(2 * SIDE), a + u64(3 * SIDE)
    at, x, step_a = u64(get64(a + u64(AT))), load32(a), get64(a + u64(STEP))
    bt, y, step_b = u64(get64(b + u64(AT))), load32(b), get64(b + u64(STEP))
    ct, z, step_c = u64(get64(c + u64(AT))), load32(c), get64(c + u64(STEP))
    dt, w, step_d = u64(get64(d + u64(AT))), load32(d), get64(d + u64(STEP))
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, add, table, step_a)
        bt, y = _pop_row(bt, y, b, i, frame, t0 + apart, add, table, step_b)
        ct, z = _pop_row(ct, z, c, i, frame, t0 + 2 * apart, add, table, step_c)
        dt, w = _pop_row(dt, w, d, i, frame, t0 + 3 * apart, add, table, step_d)
    _leave(a, at, x, last)
    _leave(b, bt, y, last)
    _leave(c, ct, z, last)
    _leave(d, dt, w, last)


@njit(**INLINE)
def _fetch_group(frame: Frame, g: int) -> None:
    """Have the position classes of a group, and what its values are added to, fetched; memory is far."""
    values, positions = values_at(frame, GROUP_ROWS * g), positions_at(frame, GROUP_ROWS * g)
    for i in range(0, frame.stride * GROUP_ROWS, 64):
        prefetch(positions + u64(i))
    for i in range(0, frame.size * GROUP, 64):
        prefetch(values + u64(i))


@njit(**INLINE)
def _pop_classes(side: Any, frame: Frame, g: int, add: bool, seeds: int, table: Any, counts: Any) -> None:
    """Decode and count the classes of group `g`, and note the rows to decode, the last first.

    seeds: rows that ride in the start states.
    """
    rows, at, x = rows_of(frame, g), u64(get64(side + u64(AT))), load32(side)
    _fetch_group(frame, g - 1)
    _find_means(frame, GROUP_ROWS * g, rows, side)
    on = lane_numbers() < rows
    entries, y = _find(x, lesser(widen_unsigned(load8(side + u64(MEANS))), 7) + VALUE_ROWS, table)
    classes = where(on, upper_byte(entries), 0)
    store8(side + u64(CLASSES), to8(classes))
    dead = i64(bits_of(classes == 0))
    live = GROUP_ROWS - i64(popcount(dead))
    at, x = pull(at, where(on, y, x))
    _leave(side, at, x, i64(0))
    put64(side + u64(STEP), count_step(frame.count, live))
    put64(side + u64(MASK), _riding(side, rows, seeds) if seeds else i64(0))
    if live:
        count_classes(side + u64(CLASSES), side + u64(MEANS), rows, counts)
    if live < GROUP_ROWS:
        _zeros(frame, GROUP * g, min(frame.count, GROUP * (g + 1)), add)
    if frame.shift or (SEARCHED and live >= DENSE):
        dead = i64(0)  # rows of class 0 are searched, too, and change nothing: blocks stay in step
    left = ((i64(1) << rows) - 1) & ~(get64(side + u64(MASK)) | dead)
    put64(side + u64(ROWS), popcount(left))
    _list_rows(side, left, i64(bits_of(classes < NARROW_CLASS + 1)))


@njit(**INLINE)
def _list_rows(side: Any, left: int, plain: int) -> None:
    """Note the rows of a mask, the last first, and which numbers of these are not plain."""
    order, wide, i = side + u64(ORDER), i64(0), i64(0)
    if left == 0xFFFFFFFF:
        store8(order, to8(GROUP_ROWS - 1 - lane_numbers()))
        if plain == 0xFFFFFFFF:
            left = i64(0)
    while left:
        j = bit_length(left) - 1
        put_byte(order + u64(i), j)
        wide |= (1 - ((plain >> j) & 1)) << i
        left ^= i64(1) << j
        i += 1
    put64(side + u64(WIDE), wide)


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
    if not add and last > first:
        clear(frame.values + u64(first * frame.size), (last - first) * frame.size)


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
        return i64(LEFT_OVER)
    bits, done, rest = 16 // block.seeds if block.seeds else i64(1), i64(0), load32(side) - STATE_LOW
    cells = side + u64(CELLS)
    for j in range(GROUP_ROWS):
        if (mask >> j) & 1:
            t = GROUP_ROWS * block.first + j
            lanes = lanes_of(frame, t)
            field = where(lane_numbers() < lanes, (rest >> done) & ((1 << bits) - 1), 0)
            rest, done = rest - (field << done), done + bits
            values = (field << (32 - bits)) >> (32 - bits)
            if j & (step - 1) == 0:
                copy_bytes(positions_at(frame, t), cells, lanes, LANES)
                c, mean = get_byte(side + u64(CLASSES + j)), get_byte(side + u64(MEANS + j))
                find_cells(values, cells, mean, c, low_bits(c, frame.shift), cells)
                bump_some(counts, cells, lanes, step)
            _put_row(values, lanes, frame, values_at(frame, t), add, cells)
    return i64(0) if bits_of(rest == 0) == 0xFFFFFFFF else i64(BAD_END)


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

    Notes the groups to decode (none of a plain block) and where the bytes are; returns its status.
    """
    put64(side + u64(FIRST), i64(1))
    put64(side + u64(LAST), i64(0))
    if block.kind == CODED:
        _zeros(frame, GROUP * g0, GROUP * block.first, add)
        at, stop, status = _open(block, g1, frame, begin, end, copy, side, add)
        put64(side + u64(FIRST), block.first)
        put64(side + u64(LAST), block.last)
        put64(side + u64(BEGIN), i64(at))
        put64(side + u64(AT), i64(stop))
        return status
    if block.kind == CONSTANT and block.extra == 0 and frame.least == 0:
        _zeros(frame, GROUP * g0, min(frame.count, GROUP * g1), add)
    else:
        _plain_block(block, g0, g1, frame, add, counts, scratch)
    return i64(0)


@njit(**INLINE)
def _check(at: Any, side: Any, g: int, frame: Frame, add: bool, counts: Any) -> int:
    """Return the status of a block of which group `g` is decoded; finish it after its first one."""
    left = get64(side + u64(AT)) - get64(side + u64(BEGIN))
    if left < 0:
        return SHORT
    if g == get64(side + u64(FIRST)):
        step, mask = get64(side + u64(STEP)), get64(side + u64(MASK))
        return _finish(get_block(at), left, mask, frame, side, add, counts, step)
    return i64(0)


@njit(**INLINE)
def _plain_end(sides: Any, number: int) -> int:
    """Return up to which number all of the first `number` sides have plain rows of their group to decode."""
    least = i64(GROUP_ROWS)
    for s in range(number):
        side = sides + u64(SIDE * s)
        wide = get64(side + u64(WIDE)) >> get64(side + u64(DONE))
        if wide:
            least = min(least, get64(side + u64(DONE)) + bit_length(wide & -wide) - 1)
        least = min(least, get64(side + u64(ROWS)))
    return least


@njit(**PART)
def _pop_abreast(sides: Any, number: int, frame: Frame, t0: int, apart: int, add: bool, table: Any, counts: Any) -> None:
    """Decode rows of the groups of two or four blocks, until one has none left."""
    going = True
    while going:
        if number == 4:
            _pop_four(sides, _plain_end(sides, 4), frame, t0, apart, add, table)
        else:
            _pop_two(sides, _plain_end(sides, 2), frame, t0, apart, add, table)
        for s in range(number):
            one = sides + u64(SIDE * s)
            going &= get64(one + u64(DONE)) < get64(one + u64(ROWS))
        for s in range(number if going else 0):
            _pop_next(sides + u64(SIDE * s), frame, t0 + apart * s, add, table, counts)


@njit(**PART)
def _pop_groups(sides: Any, number: int, frame: Frame, g: int, apart: int, add: bool, table: Any, counts: Any) -> None:
    """Decode the rows of a group of each of `number` blocks, together as far as they have equally many."""
    t0, rows = GROUP_ROWS * g, GROUP_ROWS * apart
    if number == 4:
        _pop_abreast(sides, i64(4), frame, t0, rows, add, table, counts)
    for s in range(0, number - 1, 2):
        _pop_abreast(sides + u64(SIDE * s), i64(2), frame, t0 + rows * s, rows, add, table, counts)
    for s in range(number):
        one = sides + u64(SIDE * s)
        while get64(one + u64(DONE)) < get64(one + u64(ROWS)):
            _pop_one(one, _plain_end(one, 1), frame, t0 + rows * s, add, table)
            if get64(one + u64(DONE)) < get64(one + u64(ROWS)):
                _pop_next(one, frame, t0 + rows * s, add, table, counts)
        _count_rows(one, counts)


@njit(**PART)
def _pop_next(side: Any, frame: Frame, t0: int, add: bool, table: Any, counts: Any) -> None:
    """Decode the next row of a group, of any class."""
    i, step = get64(side + u64(DONE)), get64(side + u64(STEP))
    j = get_byte(side + u64(ORDER + i))
    if (get64(side + u64(WIDE)) >> i) & 1:
        counted = step if j & (step - 1) == 0 else i64(0)
        at = _pop_any_row(u64(get64(side + u64(AT))), side, frame, t0 + j, add, table, counts, counted)
        put64(side + u64(AT), i64(at))
        put64(side + u64(DONE), i + 1)
    else:
        _pop_one(side, i + 1, frame, t0, add, table)


@njit(**PART)
def _count_rows(side: Any, counts: Any) -> None:
    """Count the symbols of a group's plain rows, which stand in their cells."""
    step = get64(side + u64(STEP))
    for j in range(0, GROUP_ROWS, step):
        c = get_byte(side + u64(CLASSES + j))
        if c and c <= NARROW_CLASS and not (get64(side + u64(MASK)) >> j) & 1:
            cells = side + u64(CELLS + 4 * LANES * j)
            bump_rows(counts, cells, cells + u64(4 * LANES), step)


@njit(**PART)
def _pop_slowly(side: Any, frame: Frame, g: int, add: bool, table: Any, counts: Any) -> None:
    """Decode the rows of a group with a short row, or with low bits that go round the tables."""
    at, step, begin = u64(get64(side + u64(AT))), get64(side + u64(STEP)), u64(get64(side + u64(BEGIN)))
    for i in range(get64(side + u64(ROWS))):
        j = get_byte(side + u64(ORDER + i))
        if at >= begin:
            t = GROUP_ROWS * g + j
            at = _pop_any_row(at, side, frame, t, add, table, counts, step if j & (step - 1) == 0 else i64(0))
    put64(side + u64(AT), i64(at))


@njit(**KERNEL)
def decode_blocks(
    begin: Any, end: Any, frame: Frame, add: bool, log2: int, first_block: int, last_block: int, blocks: Any,
    table: Any, counts: Any, copies: Any, copy: int, scratch: Any,
) -> int:  # fmt: skip
    """Decode the blocks `first_block` to `last_block` - 1 of a payload; return 0, or why one is refused.

    copies: room for SIDES blocks, `copy` bytes each; scratch: SCRATCH bytes.
    """
    groups, per_block = (frame.count + GROUP - 1) // GROUP, i64((1 << log2) // GROUP)
    for b in range(first_block, last_block, SIDES):
        number = min(i64(SIDES), last_block - b)
        for s in range(number):
            block, side, g0 = get_block(block_at(blocks, b + s)), scratch + u64(SIDE * s), (b + s) * per_block
            room, spare, g1 = copies + u64(copy * s), scratch + u64(SIDES * SIDE), min(groups, g0 + per_block)
            status = _enter(block, g0, g1, frame, begin, end, room, side, add, counts, spare)
            if status:
                return status
        for k in range(per_block - 1, -1, -1):
            together = i64(0)
            for s in range(number):
                side, g = scratch + u64(SIDE * s), (b + s) * per_block + k
                if not get64(side + u64(FIRST)) <= g <= get64(side + u64(LAST)):
                    continue
                first = g == get64(side + u64(FIRST))
                seeds = get_block(block_at(blocks, b + s)).seeds if first else i64(0)
                _pop_classes(side, frame, g, add, seeds, table, counts)
                if frame.shift or GROUP * (g + 1) > frame.count:
                    _pop_slowly(side, frame, g, add, table, counts)
                elif together == s:
                    together += 1
                else:
                    _pop_groups(side, 1, frame, g, per_block, add, table, counts)
            _pop_groups(scratch, together, frame, b * per_block + k, per_block, add, table, counts)
            for s in range(number):
                side, g = scratch + u64(SIDE * s), (b + s) * per_block + k
                if get64(side + u64(FIRST)) <= g <= get64(side + u64(LAST)):
                    status = _check(block_at(blocks, b + s), side, g, frame, add, counts)
                    if status:
                        return status
    return 0
