"""Decode rows: pop symbols and raw bits from the coder states, up to four blocks at a time.

A row depends on the state that the row before it left, through a table look-up, a multiplication and a load
of bytes. One block alone would wait for each of these. Blocks of a frame are independent, so the rows of two
or four blocks alternate in one loop and their latencies overlap. Each block's states stay in local vectors
for the whole run of rows.

A row is *plain* if it has 32 values, its class is at most 12 and no low bits go round the tables. Plain rows
take the fast path, `_pop_row`. Every other row takes `_pop_any_row`. docs/reference/asc.md, "The coder", has
the steps.
"""

from __future__ import annotations

from typing import Any

from oscar.coding.asc.compiled.look_ups import narrow, permute, weigh
from oscar.coding.asc.compiled.row_kernels import (
    BITS_AT,
    BITS_MASK,
    CUMULATIVE_AT,
    CUMULATIVE_MASK,
    FREQUENCY_MASK,
    INLINE,
    PART,
    SEARCH_AT,
    SEARCH_BYTES,
    SEARCHED,
    SYMBOLS_AT,
    Frame,
    contexts,
    i64,
    lanes_of,
    low_bits,
    positions_at,
    pull,
    put_values,
    relative,
    scaled_class,
    store_values,
    u64,
    values_at,
)  # fmt: skip
from oscar.coding.asc.compiled.survey_kernels import FOURS, copy_bytes, count_plain, count_row, plain_rows
from oscar.coding.asc.compiled.vectors import (
    bit_length,
    gather,
    get16,
    get32,
    get64,
    get_byte,
    lane_numbers,
    load8,
    load32,
    put16,
    put32,
    put64,
    spread,
    store16,
    store32,
    to16,
    upper_byte,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip
from oscar.coding.asc.params import (
    GROUP_ROWS,
    LANES,
    PROB_BITS,
    RAW_STEP,
    TOTAL,
)  # fmt: skip
from oscar.kernels import njit

SIDES = 4 if SEARCHED else 2  # blocks decoded at once; with gathers, two keep a machine busy
# Memory of one block, its *side*, by byte offset:
#   0         int32 [32]      states of the lanes
#   CLASSES   uint8 [32]      classes of the group's rows
#   MEANS     uint8 [32]      mean position classes of the group's rows
#   ORDER     uint8 [32]      numbers of the rows to decode, the last row first
#   AT        int64           address after the last byte not yet read; bytes are read backwards
#   BEGIN     int64           address of the block's first byte
#   FIRST, LAST  int64        first and last group that is coded
#   STEP      int64           count step of the group
#   NUMBER    int64           the group's number in its block, mod SAMPLE
#   ROWS      int64           how many entries of ORDER are valid
#   DONE      int64           how many of these rows are decoded
#   MASK      int64           bit j: row j is a seed row
#   WIDE      int64           bit i: the row ORDER[i] is not plain
#   CELLS     int32 [8][32]   scratch: numbers of counters
#   VALUES    int16 [32][32]  values of the plain rows, to be counted
CLASSES, MEANS, ORDER = 128, 192, 256
AT, BEGIN, FIRST, LAST, STEP, NUMBER, ROWS, DONE, MASK, WIDE = range(320, 400, 8)
CELLS = 448
VALUES = CELLS + 4 * LANES * FOURS
SIDE = VALUES + 2 * LANES * GROUP_ROWS


@njit(**INLINE)
def find_symbols(x: Any, q: Any, table: Any) -> Any:
    """Return the table entries of the states' symbols, and the states without these symbols.

    x: states, int32 [32]; q: table row of each lane; table: address of the decoder's table (row_kernels). The
    entry holds frequency f and slot - c, so the state is f·(x >> 10) + (slot - c): one gather, no search.
    """
    entries = gather(table, (q << PROB_BITS) + (x & (TOTAL - 1)))
    f, place = entries & FREQUENCY_MASK, (entries >> CUMULATIVE_AT) & CUMULATIVE_MASK
    return entries, (x >> PROB_BITS) * f + place


@njit(**INLINE)
def _take_by_gather(x: Any, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Pop the symbols and raw bits of a row with one gather; return the states and the values, int16 [32]."""
    entries, y = find_symbols(x, contexts(positions, mean, c), table)
    bits = (entries >> BITS_AT) & BITS_MASK
    z = y >> bits
    raw, half = y - (z << bits), (spread(1) << bits) >> 1
    magnitude = upper_byte(entries) + (raw & (half - 1))
    return z, to16(where((raw & half) == 0, magnitude, 0 - magnitude))


@njit(**INLINE)
def _climb(slot: Any, i: Any, step: int, low: Any, one: Any, two: Any, three: Any, high: Any) -> Any:
    """Add `step` to `i` for each threshold that a slot reaches.

    one <= two <= three: thresholds between `low` and `high`. Returns i, and the two neighbouring bounds that
    enclose the slot.
    """
    first, second, third = slot >= one, slot >= two, slot >= three
    i = where(first, i + step, i)
    i = where(second, i + step, i)
    i = where(third, i + step, i)
    low, high = where(first, one, low), where(third, high, three)
    return i, where(third, three, where(second, two, low)), where(first, where(second, high, two), one)


@njit(**INLINE)
def _take_by_search(x: Any, positions: Any, mean: int, c: int, table: Any) -> Any:
    """Pop the symbols and raw bits of a row without a gather; see `_take_by_gather`.

    A 4-ary search in two rounds: the first compares the slot with the thresholds of symbols 4, 8 and 12, the
    second with the three thresholds between. The 32 thresholds of a round for a class's eight contexts fit
    one register, so each look-up is one permutation (look_ups). `i` is context + 8·(s >> 2) + 32·(s & 3) at
    the end. The bounds found are c and c + f of the symbol.
    """
    at = table + u64(SEARCH_AT) + u64(SEARCH_BYTES) * u64(c)
    i, slot = relative(positions, mean), narrow(x) & (TOTAL - 1)
    i, low, high = _climb(slot, i, 8, 0, permute(at, i), permute(at, i + 8), permute(at, i + 16), TOTAL)
    at += u64(64)
    i, low, high = _climb(
        slot, i, 32, low, permute(at, i), permute(at + u64(64), i), permute(at + u64(128), i), high
    )
    i = i >> 3
    y = weigh(x, high - low, slot - low)
    symbols, raw = table + u64(SYMBOLS_AT), narrow(y)
    magnitude = permute(symbols, i) + (raw & permute(symbols + u64(64), i))
    minus = (raw & permute(symbols + u64(128), i)) == 0
    return y >> widen_unsigned(permute(symbols + u64(192), i)), where(minus, magnitude, 0 - magnitude)


_take = _take_by_search if SEARCHED else _take_by_gather


@njit(**PART)
def _pop_any_row(at: Any, side: Any, frame: Frame, t: int, table: Any, counts: Any) -> Any:
    """Decode row `t`, of any class and length, from the states at `side`.

    at: address after the bytes not yet read; counts: address of the counters. Returns the new `at`. Raw
    steps come first, highest bits first: the encoder pushed them last.
    """
    j, cells = t % GROUP_ROWS, side + u64(CELLS)
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
        z, high = _take(x, load8(cells), mean, scaled_class(c, mean), table)
        values = values | (widen(high) << low)
        at, x = pull(at, where(on, z, x))
        number, step = get64(side + u64(NUMBER)), get64(side + u64(STEP))
        count_row(values, cells, mean, c, low, lanes, j, number, step, counts, cells)
    store32(side, x)
    put_row(values, lanes, frame, values_at(frame, t), cells)
    return at


@njit(**PART)
def put_row(values: Any, lanes: int, frame: Frame, out: Any, cells: Any) -> None:
    """Store the first `lanes` values of a row at `out`, or add them.

    Values of frames of up to 16 bits wrap to 16 bits.
    """
    if frame.width <= 16:
        values = widen(to16(values))
    if lanes == LANES:
        store_values(out, frame, values)
        return
    store32(cells, values)
    for i in range(lanes):
        value, at = get32(cells + u64(4 * i)), out + u64(frame.size * i)
        if frame.size == 2:
            put16(at, get16(at + frame.plus) + value if frame.add else value)
        else:
            put32(at, get32(at + frame.plus) + value if frame.add else value)


@njit(**INLINE)
def _pop_row(at: Any, x: Any, side: Any, i: int, frame: Frame, t0: int, table: Any) -> Any:
    """Decode row number `i` of ORDER, which is plain.

    at: address after the bytes not yet read; x: states; t0: first row of the group. Returns the new at and
    x. Values are kept for `_count_rows`: those in `frame` may be sums.
    """
    j = get_byte(side + u64(ORDER) + u64(i))
    c, mean = get_byte(side + u64(CLASSES) + u64(j)), get_byte(side + u64(MEANS) + u64(j))
    positions = load8(positions_at(frame, t0 + j))
    x, values = _take(x, positions, mean, c, table)
    put_values(values_at(frame, t0 + j), frame, values)
    store16(side + u64(VALUES) + u64(2 * LANES) * u64(j), values)
    return pull(at, x)


@njit(**PART)
def _pop_one(a: Any, last: int, frame: Frame, t0: int, table: Any) -> None:
    """Decode rows DONE to last - 1 of one block; all are plain. t0: first row of its group."""
    at, x = u64(get64(a + u64(AT))), load32(a)
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, table)
    leave(a, at, x, last)


@njit(**INLINE)
def leave(side: Any, at: Any, x: Any, done: int) -> None:
    """Save the address, the states and the number of decoded rows of a side."""
    store32(side, x)
    put64(side + u64(AT), i64(at))
    put64(side + u64(DONE), done)


@njit(**PART)
def _pop_two(a: Any, last: int, frame: Frame, t0: int, apart: int, table: Any) -> None:
    """Decode rows DONE to last - 1 of two blocks, in turn; all are plain.

    Their sides are adjacent in memory, their groups `apart` rows apart. DONE is equal for both.
    """
    b, u0 = a + u64(SIDE), t0 + apart
    at, x, bt, y = u64(get64(a + u64(AT))), load32(a), u64(get64(b + u64(AT))), load32(b)
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, table)
        bt, y = _pop_row(bt, y, b, i, frame, u0, table)
    leave(a, at, x, last)
    leave(b, bt, y, last)


@njit(**PART)
def _pop_four(a: Any, last: int, frame: Frame, t0: int, apart: int, table: Any) -> None:
    """Decode rows DONE to last - 1 of four blocks; see `_pop_two`."""
    b, c, d = a + u64(SIDE), a + u64(2 * SIDE), a + u64(3 * SIDE)
    at, x, bt, y = u64(get64(a + u64(AT))), load32(a), u64(get64(b + u64(AT))), load32(b)
    ct, z, dt, w = u64(get64(c + u64(AT))), load32(c), u64(get64(d + u64(AT))), load32(d)
    for i in range(get64(a + u64(DONE)), last):
        at, x = _pop_row(at, x, a, i, frame, t0, table)
        bt, y = _pop_row(bt, y, b, i, frame, t0 + apart, table)
        ct, z = _pop_row(ct, z, c, i, frame, t0 + 2 * apart, table)
        dt, w = _pop_row(dt, w, d, i, frame, t0 + 3 * apart, table)
    leave(a, at, x, last)
    leave(b, bt, y, last)
    leave(c, ct, z, last)
    leave(d, dt, w, last)


@njit(**INLINE)
def _plain_end(sides: Any, number: int) -> int:
    """Return how many rows every side can decode until one is exhausted or its next row is not plain."""
    least = i64(GROUP_ROWS)
    for s in range(number):
        side = sides + u64(SIDE * s)
        wide = get64(side + u64(WIDE)) >> get64(side + u64(DONE))
        if wide:
            least = min(least, get64(side + u64(DONE)) + bit_length(wide & -wide) - 1)
        least = min(least, get64(side + u64(ROWS)))
    return least


@njit(**PART)
def _pop_abreast(sides: Any, number: int, frame: Frame, t0: int, apart: int, table: Any, counts: Any) -> None:
    """Decode rows of the groups of two or four blocks until one block has none left.

    Runs of plain rows go in lockstep. A row that is not plain in any of the blocks is decoded by itself.
    """
    going = True
    while going:
        if number == 4:
            _pop_four(sides, _plain_end(sides, 4), frame, t0, apart, table)
        else:
            _pop_two(sides, _plain_end(sides, 2), frame, t0, apart, table)
        for s in range(number):
            one = sides + u64(SIDE * s)
            going &= get64(one + u64(DONE)) < get64(one + u64(ROWS))
        for s in range(number if going else 0):
            _pop_next(sides + u64(SIDE * s), frame, t0 + apart * s, table, counts)


@njit(**PART)
def pop_groups(sides: Any, number: int, frame: Frame, g: int, apart: int, table: Any, counts: Any) -> None:
    """Decode and count the rows of one group of each of `number` blocks.

    g: group in the first block; apart: groups between one block and the next. Four blocks go together, then
    pairs, then each block alone decodes the rows that it has more than the others.
    """
    t0, rows = GROUP_ROWS * g, GROUP_ROWS * apart
    if number == 4:
        _pop_abreast(sides, i64(4), frame, t0, rows, table, counts)
    for s in range(0, number - 1, 2):
        _pop_abreast(sides + u64(SIDE * s), i64(2), frame, t0 + rows * s, rows, table, counts)
    for s in range(number):
        one = sides + u64(SIDE * s)
        while get64(one + u64(DONE)) < get64(one + u64(ROWS)):
            _pop_one(one, _plain_end(one, 1), frame, t0 + rows * s, table)
            if get64(one + u64(DONE)) < get64(one + u64(ROWS)):
                _pop_next(one, frame, t0 + rows * s, table, counts)
        _count_rows(one, frame, t0 + rows * s, counts)


@njit(**PART)
def _pop_next(side: Any, frame: Frame, t0: int, table: Any, counts: Any) -> None:
    """Decode the next row of a group, plain or not."""
    i = get64(side + u64(DONE))
    j = get_byte(side + u64(ORDER + i))
    if (get64(side + u64(WIDE)) >> i) & 1:
        at = _pop_any_row(u64(get64(side + u64(AT))), side, frame, t0 + j, table, counts)
        put64(side + u64(AT), i64(at))
        put64(side + u64(DONE), i + 1)
    else:
        _pop_one(side, i + 1, frame, t0, table)


@njit(**PART)
def _count_rows(side: Any, frame: Frame, t0: int, counts: Any) -> None:
    """Count the sample of a group's plain rows, whose values are in `side`; t0: the group's first row.

    Other rows were counted when they were decoded. Seed rows are counted by decode_kernels._finish.
    """
    plain, _ = plain_rows(side + u64(CLASSES), i64(GROUP_ROWS))
    count_plain(
        plain & ~get64(side + u64(MASK)), side + u64(VALUES), i64(2), positions_at(frame, t0), frame.stride,
        side + u64(CLASSES), side + u64(MEANS), get64(side + u64(NUMBER)), get64(side + u64(STEP)), counts,
        side + u64(CELLS),
    )  # fmt: skip


@njit(**PART)
def pop_slowly(side: Any, frame: Frame, g: int, table: Any, counts: Any) -> None:
    """Decode the rows of a group that has a short row, or of a frame with a shift.

    The check `at >= begin` holds for every row: a row reads at most 5 steps of 64 bytes, and
    decode_kernels.BEFORE bytes in front of the block are readable.
    """
    at, begin = u64(get64(side + u64(AT))), u64(get64(side + u64(BEGIN)))
    for i in range(get64(side + u64(ROWS))):
        j = get_byte(side + u64(ORDER + i))
        if at >= begin:
            t = GROUP_ROWS * g + j
            at = _pop_any_row(at, side, frame, t, table, counts)
    put64(side + u64(AT), i64(at))
