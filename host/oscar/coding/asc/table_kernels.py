"""Tables of the compiled twin: histograms to frequencies, coder tables, and the learnt context map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.kernels import PRIORS, WEIGHTS, bit_length, lane_start
from oscar.coding.asc.params import CELL_MIN, COUNT_STEP, HIST_BITS, LEARN_MIN

u32, u64, i32, i64 = np.uint32, np.uint64, np.int32, np.int64

# ceil(2^(16 + i/8)): a mantissa of 17 bits is at least i eighths of an octave when it reaches entry i
OCTAVE_EIGHTHS = np.array([65536, 71468, 77936, 84990, 92682, 101071, 110218, 120194], np.int64)


@njit(cache=True, nogil=True)
def frequencies(hist: Any, freq: Any) -> None:
    """Normalise a histogram row to frequencies of at least 1 that sum to 4096 (docs/asc.md, "Tables")."""
    total, largest = i64(0), i64(0)
    for s in range(16):
        total += hist[s]
        largest = max(largest, hist[s] << 4 | (15 - s))  # the first of equal ones
    scale, left = u32((4080 << 12) // (total + 1)), i64(4096)
    for s in range(16):
        freq[s] = 1 + i64((u32(hist[s]) * scale) >> u64(12))
        left -= freq[s]
    freq[15 - (largest & 15)] += left


@njit(cache=True, nogil=True)
def encoder_table(hist: Any, table: Any) -> None:
    """Fill the entries f | c << 16 of all symbols [context][symbol]."""
    freq = np.empty(16, np.int64)
    for q in range(16):
        frequencies(hist[q], freq)
        c = i64(0)
        for s in range(16):
            table[16 * q + s] = freq[s] | c << 16
            c += freq[s]


@njit(cache=True, nogil=True)
def decoder_table(hist: Any, tables: Any) -> None:
    """Fill `below`, `freq` and `start` of the decoder's tables, see decode_kernels."""
    freq = np.empty(16, np.int64)
    for q in range(16):
        frequencies(hist[q], freq)
        c = i64(0)
        for s in range(16):
            tables.freq[16 * q + s] = freq[s]
            tables.start[16 * q + s] = c
            c += freq[s]
            tables.below[16 * q + s] = c - 1


@njit(cache=True, nogil=True)
def update(hist: Any, cnt: Any, statistics: Any) -> None:
    """Add the counts, four banks, to the histograms; halve rows to 10 bits; tally and clear the counts."""
    tally(cnt, statistics)
    for q in range(16):
        total = i64(0)
        for s in range(16):
            k = u64(16 * q + s)
            hist[q, s] += COUNT_STEP * i64(cnt[k])
            total += hist[q, s]
        halvings = bit_length(total) - HIST_BITS
        if halvings > 0:
            for s in range(16):
                hist[q, s] >>= halvings
    cnt[:] = 0


@njit(cache=True, nogil=True)
def tally(cnt: Any, statistics: Any) -> None:
    """Join the four banks of counts in the first; add symbols not 0, and their weights, to `statistics`."""
    for k in range(256):
        cnt[k] += cnt[256 + k] + cnt[512 + k] + cnt[768 + k]
    nonzero = weight = i64(0)
    for s in range(1, 16):
        n = i64(0)
        for q in range(16):
            n += i64(cnt[16 * q + s])
        nonzero += n
        weight += n * i64(WEIGHTS[s])
    statistics[0] += nonzero
    statistics[1] += weight


@njit(cache=True, nogil=True)
def reset(hist: Any) -> None:
    """Set every histogram to the prior."""
    for q in range(16):
        hist[q, :] = PRIORS


@njit(cache=True, nogil=True)
def log_eighths(x: int) -> int:
    """floor(8 * log2(x)) for x >= 1, by comparison with integer thresholds."""
    octave = bit_length(x) - 1
    mantissa = x >> (octave - 16) if octave >= 16 else x << (16 - octave)
    eighths = 7
    while mantissa < OCTAVE_EIGHTHS[eighths]:
        eighths -= 1
    return 8 * octave + eighths


@njit(cache=True, nogil=True)
def observe(pos: Any, rows: Any, e: Any, neighbour: bool, sums: Any, counts: Any) -> None:
    """Add a block's symbol weights to the cells of the context map; `e` is the state at its start.

    rows: symbols in bits 0..3, in decoding order.
    """
    for lane in range(12):
        o, state = u64(lane), e[lane]
        for j in range(lane_start(len(pos), lane), lane_start(len(pos), lane + 1)):
            weight = WEIGHTS[rows[o] & 15]
            cell = i64(pos[j]) + (bit_length(state) if neighbour else 0)
            sums[cell] += weight
            counts[cell] += 1
            state = i32(state + ((weight - state) >> 3))
            o += u64(12)


@njit(cache=True, nogil=True)
def learn_map(sums: Any, counts: Any, defaults: Any, cmap: Any) -> None:
    """Divide the cells into 16 classes of equal ratio in mean weight; then halve what was observed.

    The outer 1/256 of the counts on each side does not stretch the range, which is nine octaves at most.
    """
    level = np.empty(256, np.int64)
    total = counts.sum()
    if total < LEARN_MIN:
        return
    for cell in range(256):
        if counts[cell] >= CELL_MIN:
            level[cell] = log_eighths(sums[cell] + 1) - log_eighths(counts[cell])
        else:
            level[cell] = defaults[cell]
    order = np.argsort(level, kind="mergesort")
    below, low, high = i64(0), level[order[0]], level[order[255]]
    for cell in order:
        before = below
        below += counts[cell]
        if before * 256 < total <= below * 256:
            low = level[cell]
        if before * 256 < total * 255 <= below * 256:
            high = level[cell]
    low = max(low, high - 72)
    for cell in range(256):
        cmap[cell] = min(15, max(0, 16 * (level[cell] - low) // (high - low + 1)))
        sums[cell] >>= 1
        counts[cell] >>= 1
