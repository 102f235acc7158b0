"""Triton kernels that decode a frame: expand, average, then decode (coded blocks) and fill (other blocks).

`decode` takes one warp for each block, from its last byte to its first. Any bytes may come: loops run over
rows, never until a state says so. A table row is one of 32 and a slot one of 1024, whatever was decoded.
Bytes are read only between the first and the last of the block. So forged input ends in bounded time and
within its memory. A damaged block is reported in `status`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from oscar_gpu.values import (
    BINS,
    COPIES,
    class_context,
    context_of,
    count_step,
    count_tile,
    counted,
    frequencies,
    low_bits,
    raw_bits,
    row_classes,
    symbol_of,
    value_of,
)

FIELDS = tl.constexpr(6)  # int32 of a block's description, see payload._fields


@triton.jit
def expand(hist, possible, last, table):
    """Write the decoder's table, int32 [32][1024]; program q writes row q.

    An entry has the frequency of the slot's symbol, the slot within its interval (from bit 11), and the
    symbol (from bit 21). The slots of a row are filled in parallel, one symbol after the other.
    """
    row = tl.program_id(0)
    q, column = tl.arange(0, 32), tl.arange(0, 16)
    at = q[:, None] * 16 + column[None, :]
    every = frequencies(tl.load(hist + at).to(tl.int64), tl.load(possible + q), last)
    freq = tl.sum(tl.where(q[:, None] == row, every, 0), 0)
    slot = tl.arange(0, 1024)
    entry, c = tl.zeros((1024,), tl.int32), 0
    for s in tl.static_range(16):
        f = tl.sum(tl.where(column == s, freq, 0), 0)
        entry = tl.where((slot >= c) & (slot < c + f), f | ((slot - c) << 11) | (s << 21), entry)
        c += f
    tl.store(table + row * 1024 + slot, entry)


@triton.jit
def average(classes, count, means):
    """Write the mean position class of each row, int32, 0 to 15; program g writes those of group g.

    It is a kernel of its own, because a tile would take half of the registers of `decode`.
    """
    row, lane = tl.arange(0, 32), tl.arange(0, 32)[None, :]
    at = (tl.program_id(0) * 32 + row[:, None]) * 32 + lane
    mean = (tl.sum(tl.load(classes + at, mask=at < count, other=0).to(tl.int32), 1) + 16) >> 5
    tl.store(means + tl.program_id(0) * 32 + row, tl.minimum(mean, 15))


@triton.jit
def decode(
    out, classes, means, count, log2, shift, blocks, offsets, payload, table, counts, status,
    POSITIONS: tl.constexpr, NARROW: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    """Decode one coded block into `out`, or add it (ADD). NARROW: values are taken modulo 2^16.

    blocks: int32 [blocks][FIELDS]; offsets: int64 [blocks], where their bytes begin; table: from `expand`;
    counts: int32 [COPIES][32][16]; status: int32, gets the number of damaged blocks.
    left: bytes not yet read, below 0 once the block has run out; then the loop ends.
    known: class of each row in bits 0..3, mean position class in 4..7, bit 8 for seed rows.
    """
    at = blocks + tl.program_id(0) * FIELDS
    start = tl.load(at) << log2
    size, seeds = tl.load(at + 1), tl.load(at + 2)
    first, last = (start >> 10) + tl.load(at + 3), (start >> 10) + tl.load(at + 4)
    end = tl.minimum(count, start + (1 << log2))
    body = payload + tl.load(offsets + tl.program_id(0))
    counters = counts + (tl.program_id(0) % COPIES) * BINS
    if not ADD:
        _clear(out, start, first << 10, end)
        _clear(out, (last + 1) << 10, end, end)
    lane = tl.arange(0, 32)
    left = size - 96
    x = _states(body + left)
    bad = tl.min(x, 0) < 65536
    group = last
    while (group >= first) & (left >= 0):
        number = group - (start >> 10)
        x, left, known, live = _pop_classes(
            x, left, means, count, group, number, body, table, counters, POSITIONS
        )
        step = count_step(count, live)
        some = ((known & 15) > 0).to(tl.int32)
        rank = tl.cumsum(some, 0) - some
        known |= tl.where(rank < tl.where(group == first, seeds, 0), some << 8, 0)
        rows = tl.minimum(32, ((end + 31) >> 5) - group * 32)
        for i in range(rows):
            j = rows - 1 - i
            one = tl.sum(tl.where(lane == j, known, 0), 0)
            if one < 256:
                v, x, left = _pop_row(
                    x, left, classes, (group * 32 + j) * 32, end, one & 15, one >> 4, shift, body, table,
                    counters, j, number, step, POSITIONS, ADD,
                )  # fmt: skip
                _put(out, (group * 32 + j) * 32 + lane, v, end, (one & 15) + shift, NARROW, ADD)
        if group == first:
            bad |= _finish(
                out, classes, group, end, x, known, rank, live, seeds, shift, number, step, counters,
                POSITIONS, NARROW, ADD,
            )  # fmt: skip
        group -= 1
    bad = (bad | (left != 0)).to(tl.int32)
    tl.atomic_add(status, bad, mask=bad > 0, sem="relaxed")


@triton.jit
def _states(at):
    """Return the final states: the low byte of each lane, then the upper two bytes of each."""
    lane = tl.arange(0, 32)
    x = tl.load(at + lane).to(tl.int32) | (tl.load(at + 32 + 2 * lane).to(tl.int32) << 8)
    return x | (tl.load(at + 33 + 2 * lane).to(tl.int32) << 16)


@triton.jit
def _clear(out, begin, stop, end):
    """Set the values from `begin` to `stop` to 0, as far as they are before `end`."""
    lane = tl.arange(0, 1024)
    for at in range(begin, stop, 1024):
        tl.store(out + at + lane, tl.zeros((1024,), tl.int32).to(out.dtype.element_ty), mask=at + lane < end)


@triton.jit
def _put(out, at, v, end, some, NARROW: tl.constexpr, ADD: tl.constexpr):
    """Store values, reduced to 16 bits where NARROW, or add them; some: 0 if all of them are 0."""
    inside = at < end
    if NARROW:
        v = (v << 16) >> 16
    if ADD:
        inside = tl.where(inside, some, 0) > 0
        v += tl.load(out + at, mask=inside, other=0).to(tl.int32)
    tl.store(out + at, v.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _refill(x, left, used, body):
    """Refill the states in `used` from the bytes before `left`; return them and the new `left`.

    `left` falls below 0 where the block has run out. Nothing is read there.
    """
    n = (used & (x < 65536)).to(tl.int32) + (used & (x < 256)).to(tl.int32)
    left -= tl.sum(n, 0)
    at = left + tl.cumsum(n, 0) - n
    low = tl.load(body + at, mask=(n > 0) & (at >= 0), other=0).to(tl.int32)
    high = tl.load(body + at + 1, mask=(n > 1) & (at >= 0), other=0).to(tl.int32)
    return tl.where(n > 1, (x << 16) | (high << 8) | low, tl.where(n > 0, (x << 8) | low, x)), left


@triton.jit
def _pop(x, q, used, table):
    """Pop a symbol of each lane in `used`; return the states without it, and the symbols. q: table rows."""
    entry = tl.load(table + (q << 10) + (x & 1023), mask=used, other=0)
    return tl.where(used, (entry & 2047) * (x >> 10) + ((entry >> 11) & 1023), x), entry >> 21


@triton.jit
def _pop_classes(
    x,
    left,
    means,
    count,
    group,
    number,
    body,
    table,
    counters,
    POSITIONS: tl.constexpr,
):
    """Undo the step of a group's classes and count them.

    Returns the states, `left`, class | mean position class << 4 of each row, and the number of live rows.
    """
    row = tl.arange(0, 32)
    exists = group * 1024 + row * 32 < count
    mean = tl.zeros((32,), tl.int32)
    if POSITIONS:
        mean = tl.load(means + group * 32 + row)
    x, c = _pop(x, class_context(mean), exists, table)
    x, left = _refill(x, left, exists, body)
    live = tl.sum((c > 0).to(tl.int32), 0)
    tl.atomic_add(
        counters + class_context(mean) * 16 + c, 4,
        mask=tl.where(exists & ((row - number) & 3 == 0), live, 0) > 0, sem="relaxed",
    )  # fmt: skip
    return x, left, c | (mean << 4), live


@triton.jit
def _pop_row(
    x,
    left,
    classes,
    start,
    end,
    c,
    mean,
    shift,
    body,
    table,
    counters,
    row,
    number,
    step,
    POSITIONS: tl.constexpr,
    ADD: tl.constexpr,
):
    """Undo the steps of one row, low bits first; return its values, the states, `left`.

    row: of its group; number: of the group in its block; step: its count step.
    """
    at = start + tl.arange(0, 32)
    inside = at < end
    v = tl.zeros((32,), tl.int32)
    bits = low_bits(c, shift)
    steps = (bits + 5) // 6
    for i in range(steps):
        at_bit = 6 * (steps - 1 - i)
        size = tl.minimum(6, bits - at_bit)
        v |= tl.where(inside, x & ((1 << size) - 1), 0) << at_bit
        x, left = _refill(tl.where(inside, x >> size, x), left, inside, body)
    if c > 0:
        p = tl.zeros((32,), tl.int32)
        if POSITIONS:
            p = tl.load(classes + at, mask=inside, other=0).to(tl.int32)
        q = context_of(c, p, mean)
        x, s = _pop(x, q, inside, table)
        size = raw_bits(s)
        v |= value_of(s, x & ((1 << size) - 1)) << bits
        x, left = _refill(tl.where(inside, x >> size, x), left, inside, body)
        if bits >= 24:  # a forged value may not fit 32 bits: count the symbol of what is left of it
            s = symbol_of(v >> bits)
        used = inside & counted(row, tl.arange(0, 32), number, step)
        tl.atomic_add(counters + q * 16 + s, 4 * step, mask=used, sem="relaxed")
    return v, x, left


@triton.jit
def _finish(
    out,
    classes,
    group,
    end,
    x,
    known,
    rank,
    live,
    seeds,
    shift,
    number,
    step,
    counters,
    POSITIONS: tl.constexpr,
    NARROW: tl.constexpr,
    ADD: tl.constexpr,
):
    """Store and count the seed rows; return whether the states hold anything else."""
    row = tl.arange(0, 32)
    bits = 16 // tl.maximum(seeds, 1)
    rest = x - 65536
    for i in range(tl.minimum(seeds, live)):
        j = tl.sum(tl.where((rank == i) & ((known & 15) > 0), row, 0), 0)
        one = tl.sum(tl.where(row == j, known, 0), 0)
        at = (group * 32 + j) * 32 + row
        held = at < end
        part = (rest >> (bits * i)) & ((1 << bits) - 1)
        rest -= tl.where(held, part << (bits * i), 0)
        v = (part << (32 - bits)) >> (32 - bits)
        p = tl.zeros((32,), tl.int32)
        if POSITIONS:
            p = tl.load(classes + at, mask=held, other=0).to(tl.int32)
        s = symbol_of(v >> low_bits(one & 15, shift))
        q = context_of(one & 15, p, (one >> 4) & 15)
        used = held & counted(j, row, number, step)
        tl.atomic_add(counters + q * 16 + s, 4 * step, mask=used, sem="relaxed")
        _put(out, at, v, end, 1, NARROW, ADD)
    return tl.max(tl.abs(rest), 0) > 0


@triton.jit
def fill(
    out,
    classes,
    count,
    log2,
    shift,
    blocks,
    offsets,
    payload,
    counts,
    LEAST: tl.constexpr,
    POSITIONS: tl.constexpr,
    NARROW: tl.constexpr,
    ADD: tl.constexpr,
):
    """Decode one group of a raw or constant block into `out`, or add it (ADD), and count it.

    Program (block, group of the block). A raw value is cut from the five bytes that it may touch.
    """
    block = blocks + tl.program_id(0) * FIELDS
    size, bits, value = tl.load(block + 1), tl.load(block + 3), tl.load(block + 4)
    start = tl.load(block) << log2
    end = tl.minimum(count, start + (1 << log2))
    row, lane = tl.arange(0, 32), tl.arange(0, 32)[None, :]
    place = tl.program_id(1) * 1024 + row[:, None] * 32 + lane
    at = start + place
    inside = at < end
    v = tl.zeros((32, 32), tl.int32) + value
    if bits > 0:
        byte = payload + tl.load(offsets + tl.program_id(0))
        word = tl.zeros((32, 32), tl.int64)
        for i in tl.static_range(5):
            to = ((place * bits) >> 3) + i  # below 2^22
            word |= tl.load(byte + to, mask=inside & (to < size), other=0).to(tl.int64) << (8 * i)
        word >>= ((place * bits) & 7).to(tl.int64)
        unused = (64 - bits).to(tl.int64)
        v = ((word << unused) >> unused).to(tl.int32)
    _put(out, at, v, end, 1, NARROW, ADD)
    if (bits > 0) | (value != 0) | (LEAST > 0):
        v = tl.where(inside, v, 0)
        exists = start + tl.program_id(1) * 1024 + row * 32 < end
        c = tl.where(exists, tl.maximum(row_classes(v >> shift), LEAST), 0)
        p, mean = tl.zeros((32, 32), tl.int32), tl.zeros((32,), tl.int32)
        if POSITIONS:
            p = tl.load(classes + at, mask=inside, other=0).to(tl.int32)
            mean = tl.minimum((tl.sum(p, 1) + 16) >> 5, 15)
        live = tl.sum((c > 0).to(tl.int32), 0)
        step = count_step(count, live)
        number = tl.program_id(1)
        used = inside & (c > 0)[:, None] & counted(row[:, None], lane, number, step)
        exists = tl.where(exists & ((row - number) & 3 == 0), live, 0) > 0
        counters = counts + (tl.program_id(0) % COPIES) * BINS
        count_tile(counters, v, p, c, mean, used, exists, step, shift)
