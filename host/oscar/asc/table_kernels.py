"""Tables of the compiled twin: histograms to frequencies, coder tables, and the learnt context map."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.asc.kernels import PRIORS, RECIPROCALS, WEIGHTS, bit_length
from oscar.asc.params import CELL_MIN, HIST_BITS, LEARN_MIN

u32, u64, i32, i64 = np.uint32, np.uint64, np.int32, np.int64

# ceil(2^(16 + i/8)): a mantissa of 17 bits is at least i eighths of an octave when it reaches entry i
OCTAVE_EIGHTHS = np.array([65536, 71468, 77936, 84990, 92682, 101071, 110218, 120194], np.int64)


@njit(cache=True, nogil=True)
def frequencies(hist: Any, freq: Any) -> None:
    """Normalise a histogram row to frequencies of at least 1 that sum to 4096 (docs/asc.md, "Tables")."""
    total, best = i64(0), 0
    for s in range(16):
        total += hist[s]
        if hist[s] > hist[best]:
            best = s
    scale = i64(4080 << 12) // (total + 1)
    left = i64(4096)
    for s in range(16):
        freq[s] = 1 + ((hist[s] * scale) >> 12)
        left -= freq[s]
    freq[best] += left


@njit(cache=True, nogil=True)
def encoder_table(hist: Any, changed: Any, table: Any, previous: Any) -> None:
    """Fill 256 entries: c | (4096 - f) << 12 | reciprocal << 27; rows without new counts are copied."""
    freq = np.empty(16, np.int64)
    for q in range(16):
        if not changed[q]:
            for s in range(16):
                table[q * 16 + s] = previous[q * 16 + s]
            continue
        frequencies(hist[q], freq)
        c = u64(0)
        for s in range(16):
            f = u64(freq[s])
            table[q * 16 + s] = c | ((u64(4096) - f) << u64(12)) | (RECIPROCALS[f] << u64(27))
            c += f


@njit(cache=True, nogil=True)
def decoder_table(hist: Any, changed: Any, table: Any, slots: Any) -> None:
    """Fill 256 entries f | c << 16 and the slot table [context][4096], where a row changed."""
    freq = np.empty(16, np.int64)
    for q in range(16):
        if not changed[q]:
            continue
        frequencies(hist[q], freq)
        c = i64(0)
        for s in range(16):
            f = freq[s]
            table[q * 16 + s] = u32(f) | (u32(c) << u32(16))
            slots[q * 4096 + c : q * 4096 + c + f] = s
            c += f


@njit(cache=True, nogil=True)
def update(hist: Any, cnt: Any, changed: Any, tally: Any) -> None:
    """Add the counts of an epoch to the histograms, halve rows down to 10 bits, and clear the counts.

    `tally` gains the number of non-zero values and the sum of their weights.
    """
    for q in range(16):
        total, fresh = i64(0), False
        for s in range(16):
            k = q * 16 + s
            n = i64(cnt[k]) + i64(cnt[256 + k])
            cnt[k] = cnt[256 + k] = 0
            if n:
                fresh = True
                if s:
                    tally[0] += n
                    tally[1] += n * WEIGHTS[s]
            hist[q, s] += n
            total += hist[q, s]
        changed[q] = fresh
        halvings = bit_length(total) - HIST_BITS
        if halvings > 0:
            for s in range(16):
                hist[q, s] >>= halvings


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
def observe(pos: Any, rows: Any, n: int, e: Any, neighbour: bool, sums: Any, counts: Any) -> None:
    """Add a block's symbol weights to the cells of the context map; `e` is the state at its start."""
    fl, r = n // 12, n % 12
    for lane in range(12):
        start = lane * fl + min(lane, r)
        state = i32(e[lane])
        for t in range(fl + (1 if lane < r else 0)):
            weight = WEIGHTS[rows[t * 12 + lane] & 15]
            cell = i64(pos[start + t]) + (bit_length(state) if neighbour else 0)
            sums[cell] += weight
            counts[cell] += 1
            state += (weight - state) >> i32(3)


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
