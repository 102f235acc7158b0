"""Decode the blocks of a payload, each from its last byte to its first; forged bytes stay in bounds.

Two or four blocks go together (pop_kernels has the reason). For each group, the last one first:

1. `_pop_classes` undoes the step of the classes, counts them, and lists the rows to decode.
2. `pop_groups` or `pop_slowly` decodes these rows, the last one first, and counts their symbols.
3. `_check` refuses a block that has read before its first byte, and finishes it after its first group.

Bounds: after a block's bytes are exhausted, one group reads at most 6,208 bytes more, and BEFORE bytes in
front are readable. Table rows and slots are masked, so any state finds an entry. asc.md, "What is
proven".
"""

from __future__ import annotations

from typing import Any

from oscar.coding.asc.compiled.directory_kernels import BAD_END, BAD_STATE, LEFT_OVER, SHORT
from oscar.coding.asc.compiled.pop_kernels import (
    AT,
    BEGIN,
    CELLS,
    CLASSES,
    FIRST,
    LAST,
    MASK,
    MEANS,
    NUMBER,
    ORDER,
    ROWS,
    SIDE,
    SIDES,
    STEP,
    WIDE,
    find_symbols,
    leave,
    pop_groups,
    pop_slowly,
    put_row,
)  # fmt: skip
from oscar.coding.asc.compiled.row_kernels import (
    INLINE,
    PART,
    SEARCHED,
    Block,
    Frame,
    block_at,
    get_block,
    i64,
    lanes_of,
    low_bits,
    positions_at,
    pull,
    rows_of,
    u64,
    values_at,
)  # fmt: skip
from oscar.coding.asc.compiled.survey_kernels import (
    SURVEY_BYTES,
    Facts,
    copy_bytes,
    count_classes,
    count_row,
    count_step,
    mean_position,
    survey,
)
from oscar.coding.asc.compiled.vectors import (
    bit_length,
    bits_of,
    clear,
    get64,
    get_byte,
    lane_numbers,
    lesser,
    load8,
    load16,
    load32,
    move,
    popcount,
    put32,
    put64,
    put_byte,
    store8,
    store32,
    to8,
    upper_byte,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip
from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    FLUSH_BYTES,
    GROUP,
    GROUP_ROWS,
    LANES,
    NARROW_CLASS,
    RAW,
    STATE_LOW,
    VALUE_ROWS,
)  # fmt: skip
from oscar.kernels import njit

# Bytes in front of a block and behind it that decoding may read. In a frame without a shift a row has at most
# 3 steps of 64 bytes, so 32 rows read at most 6144 bytes. A load reads 64 bytes.
BEFORE, BEHIND = 8192, 64
DENSE = 24  # live rows of a group from which on rows of class 0 are decoded, too (as in encode_kernels)
# Offset in the scratch of a raw or constant block: behind a survey's scratch and a group of int32
FOUND = SURVEY_BYTES + 4 * GROUP
SCRATCH = SIDES * SIDE + FOUND + 256


@njit(**INLINE)
def _pop_classes(side: Any, frame: Frame, g: int, seeds: int, table: Any, counts: Any) -> None:
    """Decode and count the classes of group `g`, and list the rows to decode, the last one first.

    seeds: number of seed rows that the directory gives if this is the block's first coded group, else 0.
    """
    rows, at, x = rows_of(frame, g), u64(get64(side + u64(AT))), load32(side)
    _find_means(frame, GROUP_ROWS * g, rows, side)
    on = lane_numbers() < rows
    entries, y = find_symbols(x, lesser(widen_unsigned(load8(side + u64(MEANS))), 7) + VALUE_ROWS, table)
    classes = where(on, upper_byte(entries), 0)
    store8(side + u64(CLASSES), to8(classes))
    dead = i64(bits_of(classes == 0))
    live = GROUP_ROWS - i64(popcount(dead))
    at, x = pull(at, where(on, y, x))
    leave(side, at, x, i64(0))
    put64(side + u64(STEP), count_step(frame.length, live))
    put64(side + u64(NUMBER), g & (frame.cycle - 1))
    put64(side + u64(MASK), _riding(side, rows, seeds) if seeds else i64(0))
    if live:
        count_classes(side + u64(CLASSES), side + u64(MEANS), rows, g & (frame.cycle - 1), counts)
    if live < GROUP_ROWS:
        _zeros(frame, GROUP * g, min(frame.length, GROUP * (g + 1)))
    if frame.shift or (SEARCHED and live >= DENSE):
        dead = i64(0)  # rows of class 0 change nothing, and blocks stay in lockstep
    left = ((i64(1) << rows) - 1) & ~(get64(side + u64(MASK)) | dead)
    put64(side + u64(ROWS), popcount(left))
    _list_rows(side, left, i64(bits_of(classes < NARROW_CLASS + 1)))


@njit(**INLINE)
def _list_rows(side: Any, left: int, plain: int) -> None:
    """List the rows of the mask `left` in ORDER, the last one first, and note in WIDE which are not plain.

    plain: mask of the rows of class 12 or below. The usual group, all rows live and plain, takes no loop.
    """
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
    """Store the mean position classes of a group's rows from row `t` on."""
    for j in range(rows):
        positions, lanes = positions_at(frame, t + j), lanes_of(frame, t + j)
        if lanes < LANES:
            copy_bytes(positions, side + u64(CELLS), lanes, LANES)
            positions = side + u64(CELLS)
        put_byte(side + u64(MEANS + j), mean_position(positions))


@njit(**PART)
def _riding(side: Any, rows: int, seeds: int) -> int:
    """Return the mask of the first `seeds` rows whose class is not 0."""
    mask = i64(0)
    for j in range(rows):
        if seeds and get_byte(side + u64(CLASSES + j)):
            mask |= i64(1) << j
            seeds -= 1
    return mask


@njit(**PART)
def _zeros(frame: Frame, first: int, last: int) -> None:
    """Set the values `first` to `last` - 1 to 0, or to those to which decoded values are added."""
    at, size = frame.values + u64(first * frame.size), (last - first) * frame.size
    if not frame.add and size > 0:
        clear(at, size)
    elif frame.plus and size > 0:
        move(at + frame.plus, at, size)


@njit(**PART)
def _open(block: Block, g1: int, frame: Frame, begin: Any, end: Any, copy: Any, side: Any) -> Any:
    """Prepare a coded block: zeros behind its last coded group, up to group `g1`, final states to `side`.

    begin, end: first address of the payload, and the one behind it. A block closer to them than BEFORE or
    BEHIND bytes is copied to `copy`, which has that much room around it. Returns the address of the block's
    bytes, the
    address of its flush, and its status: BAD_STATE where a state is below 2^16, else 0.
    """
    _zeros(frame, GROUP * (block.last + 1), min(frame.length, GROUP * g1))
    at = block.at
    if at < begin + u64(BEFORE) or at + u64(block.used + BEHIND) > end:
        move(at, copy + u64(BEFORE), block.used)
        at = copy + u64(BEFORE)
    stop = at + u64(block.used - FLUSH_BYTES)
    x = widen_unsigned(load8(stop)) | ((widen(load16(stop + u64(LANES))) & 0xFFFF) << 8)
    store32(side, x)
    return at, stop, i64(BAD_STATE) if bits_of(x < STATE_LOW) else i64(0)


@njit(**PART)
def _finish(block: Block, left: int, frame: Frame, side: Any, counts: Any) -> int:
    """Store and count a block's seed rows; return its status.

    left: bytes not read. The states hold 2^16 plus the seed rows and nothing else, or the block is refused.
    """
    if left:
        return i64(LEFT_OVER)
    bits, done, rest = 16 // block.seeds if block.seeds else i64(1), i64(0), load32(side) - STATE_LOW
    cells, mask = side + u64(CELLS), get64(side + u64(MASK))
    step, number = get64(side + u64(STEP)), get64(side + u64(NUMBER))
    for j in range(GROUP_ROWS):
        if (mask >> j) & 1:
            t = GROUP_ROWS * block.first + j
            lanes = lanes_of(frame, t)
            field = where(lane_numbers() < lanes, (rest >> done) & ((1 << bits) - 1), 0)
            rest, done = rest - (field << done), done + bits
            values = (field << (32 - bits)) >> (32 - bits)
            copy_bytes(positions_at(frame, t), cells, lanes, LANES)
            c, mean = get_byte(side + u64(CLASSES + j)), get_byte(side + u64(MEANS + j))
            low = low_bits(c, frame.shift)
            count_row(values, cells, mean, c, low, lanes, j, number, step, counts, cells)
            put_row(values, lanes, frame, values_at(frame, t), cells)
    return i64(0) if bits_of(rest == 0) == 0xFFFFFFFF else i64(BAD_END)


@njit(**PART)
def _plain_block(block: Block, g0: int, g1: int, frame: Frame, counts: Any, scratch: Any) -> None:
    """Decode groups g0 to g1 - 1, a raw or constant block, and count their symbols.

    Each group's values are unpacked as int32 into scratch, copied to the output, and surveyed like values to
    encode: both ends learn from blocks that are not coded. The survey's other results are dropped.
    """
    pending, have, at, bits = u64(0), i64(0), block.at, block.extra
    values, dropped = scratch + u64(SURVEY_BYTES), scratch + u64(FOUND)
    for g in range(g0, g1):
        n = min(GROUP, frame.length - GROUP * g)
        for i in range(n):
            value = bits  # of a constant block
            if block.kind == RAW:
                while have < bits:
                    pending |= u64(get_byte(at)) << u64(have)
                    at += u64(1)
                    have += 8
                value = i64(pending & ((u64(1) << u64(bits)) - u64(1)))
                value -= (value >> (bits - 1)) << bits
                pending >>= u64(bits)
                have -= bits
            put32(values + u64(4 * i), value)
        for j in range(0, n, LANES):
            row, out = load32(values + u64(4 * j)), values_at(frame, g * GROUP_ROWS + j // LANES)
            put_row(row, min(LANES, n - j), frame, out, scratch)
        here = values - u64(4 * GROUP * g)
        unpacked = Frame(
            here, i64(4), frame.length, frame.positions, frame.stride,
            frame.shift, frame.cycle, frame.least, frame.width, False, u64(0),
        )  # fmt: skip
        t, group = u64(GROUP_ROWS * g), u64(4 * g)
        live, low = dropped + u64(128) - u64(g), dropped + u64(136) - group
        rows = Facts(dropped - t, dropped + u64(64) - t, live, low, low + u64(8))
        survey(unpacked, g, g + 1, rows, counts, scratch)


@njit(**PART)
def _enter(
    block: Block, g0: int, g1: int, frame: Frame, begin: Any, end: Any, copy: Any, side: Any,
    counts: Any, scratch: Any,
) -> Any:  # fmt: skip
    """Begin the block of groups g0 to g1 - 1; return its status.

    A raw or constant block is decoded here. For a coded one this notes the groups to decode and the addresses
    of its bytes. A side whose FIRST is above its LAST has no group to decode.
    """
    put64(side + u64(FIRST), i64(1))
    put64(side + u64(LAST), i64(0))
    if block.kind == CODED:
        _zeros(frame, GROUP * g0, GROUP * block.first)
        at, stop, status = _open(block, g1, frame, begin, end, copy, side)
        put64(side + u64(FIRST), block.first)
        put64(side + u64(LAST), block.last)
        put64(side + u64(BEGIN), i64(at))
        put64(side + u64(AT), i64(stop))
        return status
    if block.kind == CONSTANT and block.extra == 0 and frame.least == 0:
        _zeros(frame, GROUP * g0, min(frame.length, GROUP * g1))
    else:
        _plain_block(block, g0, g1, frame, counts, scratch)
    return i64(0)


@njit(**INLINE)
def _check(at: Any, side: Any, g: int, frame: Frame, counts: Any) -> int:
    """Return the status of a block after its group `g`; finish the block after its first coded group."""
    left = get64(side + u64(AT)) - get64(side + u64(BEGIN))
    if left < 0:
        return SHORT
    if g == get64(side + u64(FIRST)):
        return _finish(get_block(at), left, frame, side, counts)
    return i64(0)


@njit(**PART)
def decode_blocks(
    begin: Any, end: Any, frame: Frame, log2: int, first_block: int, last_block: int, blocks: Any,
    table: Any, counts: Any, copies: Any, copy: int, scratch: Any,
) -> int:  # fmt: skip
    """Decode the blocks first_block to last_block - 1; return 0 or the reason to refuse one (REASONS).

    begin, end: first address of the payload, and the one behind it.
    blocks: address of descriptions.
    table: address of the decoder's table.
    counts: address of this thread's counters.
    copies: room for SIDES blocks of `copy` bytes each.
    scratch: SCRATCH bytes.
    """
    groups, per_block = (frame.length + GROUP - 1) // GROUP, i64((1 << log2) // GROUP)
    for b in range(first_block, last_block, SIDES):
        number = min(i64(SIDES), last_block - b)
        for s in range(number):
            block, side, g0 = get_block(block_at(blocks, b + s)), scratch + u64(SIDE * s), (b + s) * per_block
            room, spare, g1 = copies + u64(copy * s), scratch + u64(SIDES * SIDE), min(groups, g0 + per_block)
            status = _enter(block, g0, g1, frame, begin, end, room, side, counts, spare)
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
                _pop_classes(side, frame, g, seeds, table, counts)
                if frame.shift or GROUP * (g + 1) > frame.length:
                    pop_slowly(side, frame, g, table, counts)
                elif together == s:
                    together += 1
                else:
                    pop_groups(side, 1, frame, g, per_block, table, counts)
            pop_groups(scratch, together, frame, b * per_block + k, per_block, table, counts)
            for s in range(number):
                side, g = scratch + u64(SIDE * s), (b + s) * per_block + k
                if get64(side + u64(FIRST)) <= g <= get64(side + u64(LAST)):
                    status = _check(block_at(blocks, b + s), side, g, frame, counts)
                    if status:
                        return status
    return 0
