"""Triton kernels that code a frame after the survey (gpu/survey.py): encode, pack, gather, in this order.

`encode` codes each block with one warp: 32 lanes are 32 threads, so the prefix sum that places the lanes'
bytes is a shuffle, and the states stay in registers. Blocks run in parallel; rows of a block depend on each
other. Each block has a region of scratch memory, since its place in the payload depends on the sizes of those
before it. `pack` writes blocks that turned out raw, a program for every few groups. `gather` moves all blocks
together.
"""

from __future__ import annotations

import triton
import triton.language as tl

from oscar.coding.asc import params
from oscar_gpu.values import (
    GROUP_FIELDS,
    LAST,
    LOG2,
    SENT,
    SHIFT,
    bit_length,
    class_context,
    context_of,
    low_bits,
    raw_bits,
    raw_of,
    symbol_of,
)

RAW, CONSTANT = tl.constexpr(params.RAW), tl.constexpr(params.CONSTANT)
RAW_SAVES = tl.constexpr(params.RAW_SAVES)


@triton.jit
def encode(
    values, classes, count, width, meta, info, groups, coding, scratch, entries, sizes,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """Code one block into its region of `scratch`; write its directory entry and its size, both int64.

    values, classes: of the frame; meta, info, groups: from the survey; coding: from `tables`; entries, sizes:
    [blocks]. A region has the block's values at `width` bits. Coding stops where the block is sent raw, so no
    byte leaves the region. More programs may run than there are blocks (the device chooses their
    size); the rest write 0.
    """
    block = tl.program_id(0)
    log2, shift = tl.load(meta + LOG2), tl.load(meta + SHIFT)
    entry, size = tl.full((), 0, tl.int64), tl.full((), 0, tl.int32)
    if block <= (count - 1) >> log2:
        start = block << log2
        n = tl.minimum(count - start, 1 << log2)
        region = scratch + ((start.to(tl.int64) * width) >> 3)
        many = tl.arange(0, 128)
        inside = many < (n + 1023) >> 10
        at = groups + ((start >> 10) + many) * GROUP_FIELDS
        low = tl.min(tl.load(at, mask=inside, other=0x7FFFFFFF), 0)
        high = tl.max(tl.load(at + 1, mask=inside, other=-0x7FFFFFFF - 1), 0)
        if low == high:
            entry = ((low.to(tl.int64) & 0xFFFFFFFF) << 16) | CONSTANT
        else:
            bits = bit_length(tl.maximum(low ^ (low >> 31), high ^ (high >> 31))) + 1
            raw_size = (n * bits + 7) >> 3
            more = tl.where(n < count, RAW_SAVES, 0)
            room = tl.minimum(raw_size + more, (n * width + 7) >> 3)
            used = inside & ((tl.load(at + 2, mask=inside, other=0) > 0) | (shift > 0))
            first = tl.min(tl.where(used, many, 127), 0)
            last = tl.max(tl.where(used, many, 0), 0)
            x, seeds = _start(values, count, info, (start >> 10) + first)
            size, x = _push_groups(
                values, classes, count, info, coding, region, room, shift, x, seeds,
                (start >> 10) + first, (start >> 10) + last, POSITIONS,
            )  # fmt: skip
            size += 96
            if size < room:
                lane = tl.arange(0, 32)
                tail = region + size - 96
                tl.store(tail + lane, (x & 255).to(tl.uint8))
                tl.store(tail + 32 + 2 * lane, ((x >> 8) & 255).to(tl.uint8))
                tl.store(tail + 33 + 2 * lane, (x >> 16).to(tl.uint8))
                entry = (seeds | (first << 3) | (last << 10)).to(tl.int64) << 2
            else:
                size = raw_size
                entry = (bits.to(tl.int64) << 2) | RAW
            entry |= size.to(tl.int64) << 24
    tl.store(entries + block, entry)
    tl.store(sizes + block, size.to(tl.int64))


@triton.jit
def _start(values, count, info, group):
    """Return the start states, int32 [32], and n, how many rows of group `group` may ride in them."""
    row = tl.arange(0, 32)
    live = ((tl.load(info + group * 32 + row, mask=group * 1024 + row * 32 < count, other=0) & 15) > 0).to(
        tl.int32
    )
    rank = tl.cumsum(live, 0) - live
    rows = tl.minimum(tl.sum(live, 0), 5)
    seeds, widest = 0 * rows, 0 * rows
    for i in range(rows):
        widest = tl.maximum(widest, _bits(_row(values, count, group, live, rank, i)))
        seeds = tl.where(widest <= 16 // (i + 1), i + 1, seeds)
    for more in tl.static_range(2, 6):  # with fewer live rows than n, a larger n leaves fewer bits to each
        seeds = tl.where((more > rows) & (rows > 0) & (widest <= 16 // more), more, seeds)
    bits = 16 // tl.maximum(seeds, 1)
    x = tl.full((32,), 65536, tl.int32)
    for i in range(tl.minimum(seeds, rows)):
        x |= (_row(values, count, group, live, rank, i) & ((1 << bits) - 1)) << (bits * i)
    return x, seeds


@triton.jit
def _row(values, count, group, live, rank, i):
    """Return the values of live row number `i` of a group. rank: number of live rows before each row."""
    lane = tl.arange(0, 32)
    at = (group * 32 + tl.sum(tl.where((rank == i) & (live > 0), lane, 0), 0)) * 32 + lane
    return tl.load(values + at, mask=at < count, other=0).to(tl.int32)


@triton.jit
def _bits(v):
    """Return the bits that hold each value of a row in two's complement."""
    return bit_length(tl.max(v ^ (v >> 31), 0)) + 1


@triton.jit
def _push_groups(
    values,
    classes,
    count,
    info,
    coding,
    region,
    room,
    shift,
    x,
    riding,
    group,
    last,
    POSITIONS: tl.constexpr,
):
    """Code groups `group` to `last` without the first `riding` live rows; return bytes emitted, states.

    known, from info: class in bits 0..3, mean position class above. Stops where `room` bytes are full.
    """
    lane = tl.arange(0, 32)
    at = 0 * group
    while (group <= last) & (at < room):
        rows = tl.minimum(32, ((count + 31) >> 5) - group * 32)
        for j in range(rows):
            known = tl.load(info + group * 32 + j)
            rides = tl.where((known & 15) > 0, tl.minimum(riding, 1), 0)
            if rides == 0:
                x, at = _push_row(
                    x, at, values, classes, (group * 32 + j) * 32, count, known & 15, known >> 4, shift,
                    coding, region, room, POSITIONS,
                )  # fmt: skip
            riding -= rides
        riding *= 0
        exists = lane < rows
        every = tl.load(info + group * 32 + lane, mask=exists, other=0)
        zero = tl.zeros((32,), tl.int32)
        symbols = class_context(every >> 4) * 16 + (every & 15)
        x, at = push(x, coding, symbols, zero, zero, exists, region, at, room)
        group += 1
    return at, x


@triton.jit
def _push_row(
    x,
    at,
    values,
    classes,
    start,
    count,
    c,
    mean,
    shift,
    coding,
    region,
    room,
    POSITIONS: tl.constexpr,
):
    """Code one row of class `c`: its symbols unless c is 0, then the low bits, 6 at a time.

    start: index of its first value; mean: its mean position class. Returns states and bytes emitted so far.
    """
    here = start + tl.arange(0, 32)
    bits = low_bits(c, shift)
    if c + bits > 0:
        inside = here < count
        v = tl.load(values + here, mask=inside, other=0).to(tl.int32)
        if c > 0:
            p = tl.zeros((32,), tl.int32)
            if POSITIONS:
                p = tl.load(classes + here, mask=inside, other=0).to(tl.int32)
            high = v >> bits
            s = symbol_of(high)
            symbol = context_of(c, p, mean) * 16 + s
            x, at = push(x, coding, symbol, raw_of(high, s), raw_bits(s), inside, region, at, room)
        for step in range((bits + 5) // 6):
            size = tl.minimum(6, bits - 6 * step)
            raw = (v >> (6 * step)) & ((1 << size) - 1)
            x, at = _push_raw(x, raw, size, inside, region, at, room)
    return x, at


@triton.jit
def push(x, coding, symbol, raw, size, used, region, at, room):
    """Code one symbol and its raw bits in the lanes of `used`; return the states and the new write offset.

    symbol: row of `coding`, 16·table row + symbol; raw, size: raw bits and their number; at: offset in
    `region`. A state is below 2^24 and its frequency f at least 1, so a lane emits at most two bytes, and
    then y < 2^14·f. The quotient y / f is exact: m of the table is (2^(31 + octave) + e) / f with e < f, so
    y·m / 2^(31 + octave) exceeds y / f by less than y / 2^(31 + octave) < 2^-16, and y / f lies at least 1 /
    f >= 2^-10 below the next integer. One high multiplication replaces a division.
    """
    packed = tl.load(coding + 2 * symbol, mask=used, other=1)
    magic = tl.load(coding + 2 * symbol + 1, mask=used, other=0).to(tl.uint32, bitcast=True)
    f, c, octave = packed & 2047, (packed >> 11) & 1023, packed >> 21
    limit = f << (14 - size)
    one, two = used & (x >= limit), used & ((x >> 8) >= limit)
    n = one.to(tl.int32) + two.to(tl.int32)
    to = at + tl.cumsum(n, 0) - n
    tl.store(region + to, (x & 255).to(tl.uint8), mask=one & (to < room))
    tl.store(region + to + 1, ((x >> 8) & 255).to(tl.uint8), mask=two & (to + 1 < room))
    y = ((x >> (8 * n)) << size) | raw
    quotient = (tl.umulhi((2 * y).to(tl.uint32, bitcast=True), magic)).to(tl.int32, bitcast=True) >> octave
    y += quotient * (1024 - f) + c
    return tl.where(used, y, x), at + tl.sum(n, 0)


@triton.jit
def _push_raw(x, raw, size, used, region, at, room):
    """Code a raw step: frequency 1024, at most 6 bits, and at most one byte emitted a lane."""
    emits = used & (x >= (1 << (24 - size)))
    n = emits.to(tl.int32)
    to = at + tl.cumsum(n, 0) - n
    tl.store(region + to, (x & 255).to(tl.uint8), mask=emits & (to < room))
    return tl.where(used, ((x >> (8 * n)) << size) | raw, x), at + tl.sum(n, 0)


@triton.jit
def pack(values, count, width, meta, entries, scratch, GROUPS: tl.constexpr):
    """Write raw blocks into their regions; each program does GROUPS groups.

    A row of 32 values of `bits` bits is exactly `bits` words of 32 bits, so rows do not share words. Each
    word is the sum of the shifted values that touch it.
    """
    log2 = tl.load(meta + LOG2)
    word, lane = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
    for i in range(GROUPS):
        start = (tl.program_id(0) * GROUPS + i) * 1024
        block = start >> log2
        entry = tl.load(entries + block, mask=start < count, other=0)
        if (entry & 3) == RAW:
            bits = (entry >> 2).to(tl.int32) & 63
            region = scratch + (((block << log2).to(tl.int64) * width) >> 3)
            room = ((count - (block << log2)).to(tl.int64) * width + 7) >> 3
            room = tl.minimum(room, entry >> 24)
            keep = tl.full((), 0xFFFFFFFF, tl.uint32) >> (32 - bits).to(tl.uint32)
            # Bits from the begin of the word to that of the value; negative where the value begins in an
            # earlier word.
            move = lane * bits - 32 * word
            touches = (move > -32) & (move < 32)
            left = tl.where(touches, tl.maximum(move, 0), 0).to(tl.uint32)
            right = tl.where(touches, tl.maximum(-move, 0), 0).to(tl.uint32)
            for row in range(32):
                at = start + row * 32 + lane
                v = tl.load(values + at, mask=at < count, other=0).to(tl.int32).to(tl.uint32, bitcast=True)
                words = tl.sum(tl.where(touches, ((v & keep) << left) >> right, 0).to(tl.uint32), 1)
                first = (start - (block << log2)) // 8 * bits + row * 4 * bits
                _put_words(region + first, words, bits, room - first)


@triton.jit
def _put_words(to, words, bits, room):
    """Store `bits` words of 32 bits at `to`, byte by byte, at most `room` bytes."""
    byte = 4 * tl.arange(0, 32)
    for i in tl.static_range(4):
        mask = (byte < 4 * bits) & (byte + i < room)
        tl.store(to + byte + i, ((words >> (8 * i)) & 255).to(tl.uint8), mask=mask)


@triton.jit
def gather(
    count,
    width,
    meta,
    levels,
    entries,
    ends,
    scratch,
    payload,
    filled,
    SIZE: tl.constexpr,
):
    """Write prefix, sent rows and directory, and move each block to its place; one program for each block.

    levels: int32 [32][16] of sent rows; ends: int64, inclusive sums of the blocks' sizes; payload: room for
    max_payload bytes; filled: int64, receives the size of the payload.
    """
    block = tl.program_id(0)
    log2, sent = tl.load(meta + LOG2), tl.load(meta + SENT).to(tl.int64) & 0xFFFFFFFF
    blocks = ((count - 1) >> log2) + 1
    if block < blocks:
        prefix = log2.to(tl.int64) | (tl.load(meta + SHIFT).to(tl.int64) << 5)
        prefix |= ((sent != 0).to(tl.int64) << 10) | (tl.load(meta + LAST).to(tl.int64) << 11)
        q = tl.arange(0, 32)
        chosen = ((sent >> q.to(tl.int64)) & 1).to(tl.int32)
        rows = tl.sum(chosen, 0)
        directory = payload + 2 + tl.where(sent != 0, 4 + 8 * rows, 0)
        byte = tl.arange(0, 8)
        if block == 0:
            head = prefix | (sent << 16)
            tl.store(
                payload + byte,
                ((head >> (8 * byte).to(tl.int64)) & 255).to(tl.uint8),
                mask=byte < tl.where(sent != 0, 6, 2),
            )
            two = q[:, None] * 16 + 2 * byte[None, :]
            pair = tl.load(levels + two) | (tl.load(levels + two + 1) << 4)
            to = payload + 6 + (tl.cumsum(chosen, 0) - chosen)[:, None] * 8 + byte[None, :]
            tl.store(to, pair.to(tl.uint8), mask=(chosen > 0)[:, None])
            end = tl.load(ends + blocks - 1) + 2 + tl.where(sent != 0, 4 + 8 * rows, 0) + blocks * 6
            tl.store(filled, end)
        entry = tl.load(entries + block)
        size = entry >> 24
        code = ((entry >> (8 * byte).to(tl.int64)) & 255).to(tl.uint8)
        tl.store(directory + block * 6 + byte, code, mask=byte < 6)
        if (entry & 3) != CONSTANT:
            region = scratch + (((block << log2).to(tl.int64) * width) >> 3)
            to = directory + blocks * 6 + (tl.load(ends + block) - size)
            for at in range(0, size.to(tl.int32), SIZE):
                here = at + tl.arange(0, SIZE)
                tl.store(to + here, tl.load(region + here, mask=here < size), mask=here < size)
