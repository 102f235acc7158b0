"""Triton kernels that look at a frame before it is coded: find_magnitude, classify, count, tables.

`classify` needs the frame's shift, `count` the classes, `tables` all counts: so these are launches of their
own on one stream, and nothing returns to the host between them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from oscar.coding.asc import params
from oscar_gpu.values import (
    BINS,
    COPIES,
    GROUP_FIELDS,
    HIGH,
    LAST,
    LOG2,
    LOW,
    MAGNITUDE,
    SENT,
    SHIFT,
    bit_length,
    count_step,
    count_tile,
    counted,
    frequencies,
    raw_bits,
    row_classes,
    short_length,
    symbol_of,
)

GROUPS = 4  # for each program
SENT_GAIN, SENT_SYMBOL_GAIN = tl.constexpr(params.SENT_GAIN), tl.constexpr(params.SENT_SYMBOL_GAIN)
COST_BITS = tl.constexpr(params.COST_BITS)
AUTO_LOG2 = tl.constexpr(params.AUTO_BLOCK_LOG2)
AUTO_STEPS = tl.constexpr(params.MAX_BLOCK_LOG2 - params.AUTO_BLOCK_LOG2)
BYTES_LOG2 = tl.constexpr(params.BLOCK_BYTES_LOG2)


@triton.jit
def find_magnitude(values, count, meta, SIZE: tl.constexpr):
    """Put the largest magnitude of a frame into `meta`; only int32 values can need a shift."""
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(values + at, mask=at < count, other=0).to(tl.int32)
    tl.atomic_max(meta + MAGNITUDE, tl.max(v ^ (v >> 31), 0), sem="relaxed")


@triton.jit
def classify(
    values,
    classes,
    count,
    meta,
    info,
    groups,
    LEAST: tl.constexpr,
    POSITIONS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Write `info`, int32 for each row: class in bits 0..3, mean position class above.

    Writes `groups`, GROUP_FIELDS for each group, and the frame's extremes to `meta`.
    """
    shift = tl.maximum(bit_length(tl.load(meta + MAGNITUDE)) - 15, 0)
    row, lane = tl.arange(0, 32), tl.arange(0, 32)[None, :]
    lowest, highest = 0x7FFFFFFF, -0x7FFFFFFF - 1
    for i in range(GROUPS):
        group = tl.program_id(0) * GROUPS + i
        if group * 1024 < count:
            at = (group * 32 + row[:, None]) * 32 + lane
            inside = at < count
            v = tl.load(values + at, mask=inside, other=0).to(tl.int32)
            c = tl.maximum(row_classes(v >> shift), LEAST)
            c = tl.where(group * 1024 + row * 32 < count, c, 0)
            mean = tl.zeros((32,), tl.int32)
            if POSITIONS:
                p = tl.load(classes + at, mask=inside, other=0).to(tl.int32)
                mean = (tl.sum(p, 1) + 16) >> 5
            tl.store(info + group * 32 + row, c | (mean << 4))
            low = tl.min(tl.min(tl.where(inside, v, 0x7FFFFFFF), 1), 0)
            high = tl.max(tl.max(tl.where(inside, v, -0x7FFFFFFF - 1), 1), 0)
            tl.store(groups + group * GROUP_FIELDS, low)
            tl.store(groups + group * GROUP_FIELDS + 1, high)
            tl.store(groups + group * GROUP_FIELDS + 2, tl.sum((c > 0).to(tl.int32), 0))
            lowest, highest = tl.minimum(lowest, low), tl.maximum(highest, high)
    tl.atomic_min(meta + LOW, lowest, sem="relaxed")
    tl.atomic_max(meta + HIGH, highest, sem="relaxed")


@triton.jit
def count(
    values,
    classes,
    total,
    meta,
    info,
    counts,
    CYCLE: tl.constexpr,
    POSITIONS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Add the symbol counts of `total` values to `counts`, int32 [COPIES][32][16].

    CYCLE: params.group_cycle.
    """
    shift = tl.maximum(bit_length(tl.load(meta + MAGNITUDE)) - 15, 0)
    row, lane = tl.arange(0, 32), tl.arange(0, 32)[None, :]
    counters = counts + (tl.program_id(0) % COPIES) * BINS
    for i in range(GROUPS):
        group = tl.program_id(0) * GROUPS + i
        if group * 1024 < total:
            at = (group * 32 + row[:, None]) * 32 + lane
            known = tl.load(info + group * 32 + row)
            c, mean = known & 15, known >> 4
            live = tl.sum((c > 0).to(tl.int32), 0)
            step = count_step(total, live)
            number = group & (CYCLE - 1)
            used = (at < total) & (c > 0)[:, None] & counted(row[:, None], lane, number, step)
            v = tl.load(values + at, mask=used, other=0).to(tl.int32)
            p = tl.zeros((32, 32), tl.int32)
            if POSITIONS:
                p = tl.load(classes + at, mask=used, other=0).to(tl.int32)
            known_rows = (group * 1024 + row * 32 < total) & ((row - number) & 3 == 0)
            exists = tl.where(known_rows, live, 0) > 0
            count_tile(counters, v, p, c, mean, used, exists, step, shift)


@triton.jit
def tables(
    count,
    hist,
    counts,
    possible,
    costs,
    meta,
    levels,
    coding,
    BLOCK_LOG2: tl.constexpr,
    SENDS: tl.constexpr,
):
    """Choose the rows to send and the block size, and write the coding table; one program.

    coding: int32 [512][2], for each table row and symbol: frequency, cumulative frequency (from bit 11) and
    octave of the frequency (from bit 21); then the multiplier m = ceil(2^(31 + octave) / f) < 2^32
    (encode.push).
    """
    q, s = tl.arange(0, 32), tl.arange(0, 16)[None, :]
    at = q[:, None] * 16 + s
    may = tl.load(possible + q)
    largest = tl.maximum(tl.minimum(tl.load(meta + HIGH), 191), -tl.maximum(tl.load(meta + LOW), -191))
    last = symbol_of(largest)
    freq = frequencies(tl.load(hist + at).to(tl.int64), may, last)
    c = tl.load(counts + at).to(tl.int64)
    sent = tl.zeros((32,), tl.int1)
    if SENDS:
        level = _octaves(c)
        own = frequencies(tl.where(level > 0, 1 << tl.maximum(level - 1, 0), 0).to(tl.int64), may, last)
        gain = tl.sum(c * (tl.load(costs + freq) - tl.load(costs + own)), 1)
        seen = tl.sum((c > 0).to(tl.int64), 1)
        sent = 10 * gain > seen * SENT_SYMBOL_GAIN + SENT_GAIN
        freq = tl.where(sent[:, None], own, freq)
        tl.store(levels + at, level)
    log2 = tl.full((), BLOCK_LOG2, tl.int32)
    if BLOCK_LOG2 == 0:
        bits = tl.sum(tl.sum(c * tl.load(costs + freq), 1), 0) >> COST_BITS
        raw = tl.where((q < 24)[:, None], c * raw_bits(s), 0)
        blocks = tl.maximum(((bits + tl.sum(tl.sum(raw, 1), 0)) >> 3) >> BYTES_LOG2, 1)
        log2 = tl.full((), AUTO_LOG2, tl.int32)
        for _ in range(AUTO_STEPS):
            log2 += ((blocks << log2.to(tl.int64)) < count).to(tl.int32)  # once false, always false
    tl.store(meta + LOG2, log2)
    tl.store(meta + LAST, last)
    tl.store(meta + SHIFT, tl.maximum(bit_length(tl.load(meta + MAGNITUDE)) - 15, 0))
    tl.store(meta + SENT, tl.sum(sent.to(tl.int32) << q, 0))
    f = tl.maximum(freq, 1)  # avoids a division by 0; a symbol of frequency 0 is never coded
    octave = short_length(f) - 1
    power = tl.full((32, 16), 1, tl.int64) << (31 + octave).to(tl.int64)
    magic = (power + f - 1) // f
    tl.store(coding + 2 * at, freq | ((tl.cumsum(freq, 1) - freq) << 11) | (octave << 21))
    tl.store(coding + 2 * at + 1, magic.to(tl.int32))


@triton.jit
def _octaves(counts):
    """Return the levels of sent rows, int32 [32][16], from counts, int64 [32][16] below 2^30."""
    largest = tl.max(counts, 1)[:, None]
    down = tl.zeros((32, 16), tl.int32)
    scaled = counts
    for _ in range(14):  # levels end at 1, 14 octaves below the largest count
        below = 2 * scaled * scaled < largest * largest
        down += below.to(tl.int32)
        scaled = tl.where(below, scaled << 1, scaled)
    return tl.where(counts > 0, 15 - down, 0)
