"""Tables of the compiled twin: frequencies, sent rows, block size, and what coder and decoder look up.

asc.md, "Frequencies" and "What the sender decides". row_kernels has the layouts of the two look-up
tables. Each runs once a frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.compiled.row_kernels import (
    BITS_AT,
    CLASS_TABLE,
    COUNTS,
    CUMULATIVE_AT,
    KERNEL,
    KINDS_AT,
    NEAREST,
    PART,
    SEARCH_AT,
    SEARCH_BYTES,
    STEP_BYTES,
    STEPS_AT,
    STRIDE_LOG2,
    SYMBOL_AT,
    SYMBOLS_AT,
)  # fmt: skip
from oscar.coding.asc.compiled.vectors import bit_length
from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    BASE,
    BLOCK_BYTES_LOG2,
    COST,
    COST_BITS,
    COUNT_BITS,
    FADE_ABOVE,
    LIMIT,
    MAX_BLOCK_LOG2,
    POSSIBLE,
    PROB_BITS,
    RAW_BITS,
    SENT_GAIN,
    SENT_SYMBOL_GAIN,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    context_of,
)  # fmt: skip
from oscar.kernels import njit

i64 = np.int64
COSTS = np.array(COST, np.int64)
BASES = np.array((*BASE, LIMIT), np.int64)
SIZES = np.array(RAW_BITS, np.int64)
CONTEXTS = np.array([[context_of(max(1, c), near, 3) for near in range(NEAREST)] for c in range(SYMBOLS)])
NEVER = np.full(SYMBOLS, TOTAL, np.uint16)
PLACES = np.array(POSSIBLE, np.int64)


@njit(**PART)
def frequencies(hist: Any, q: int, last: int, freq: Any) -> None:
    """Fill `freq` with the frequencies of table row `q`; they sum to 1024.

    hist: 16 counts; last: the last symbol of the frame (docs/reference/asc.md, "Frequencies").
    """
    possible = PLACES[q] if q >= VALUE_ROWS else min(PLACES[q], i64(last) + 1)
    places = min(i64(SYMBOLS), possible + 1)
    total, best, most = i64(0), i64(0), i64(-1)
    for s in range(SYMBOLS):
        if s < possible or s == SYMBOLS - 1:
            total += hist[s]
            if hist[s] > most:
                best, most = i64(s), hist[s]
    ratio = ((TOTAL - places) << 16) // (total + 1)
    rest = i64(TOTAL)
    for s in range(SYMBOLS):
        freq[s] = 0
        if s < possible or s == SYMBOLS - 1:
            freq[s] = 1 + ((hist[s] * ratio) >> 16)
            rest -= freq[s]
    freq[best] += rest


@njit(**KERNEL)
def from_octaves(levels: Any, q: int, last: int, freq: Any) -> None:
    """Fill `freq` with the frequencies of a sent row of 16 levels."""
    weights = np.zeros(SYMBOLS, np.int64)
    for s in range(SYMBOLS):
        weights[s] = i64(1) << (levels[s] - 1) if levels[s] else 0
    frequencies(weights, q, last, freq)


@njit(**PART)
def octaves(counts: Any, levels: Any) -> None:
    """Fill `levels` with a sent row: 0 for a count of 0, else 15 less the octaves below the largest."""
    largest = counts.max()
    for s in range(SYMBOLS):
        down = 0
        if counts[s]:
            while 2 * (counts[s] << down) * (counts[s] << down) < largest * largest:
                down += 1
        levels[s] = max(1, 15 - down) if counts[s] else 0


@njit(**PART)
def cost(counts: Any, freq: Any) -> int:
    """Return the cost of the counted symbols, in 1/256 bit."""
    total = i64(0)
    for s in range(SYMBOLS):
        total += counts[s] * COSTS[freq[s]]
    return total


@njit(**KERNEL)
def gather_counts(banks: Any, counts: Any) -> None:
    """Sum the banks of all threads, uint32 [threads·BANKS·COUNTS], into `counts` [32][16]."""
    counts[:] = 0
    for bank in range(len(banks) // COUNTS):
        for i in range(TABLE_ROWS * SYMBOLS):
            counts[i // SYMBOLS, i % SYMBOLS] += banks[bank * COUNTS + i]


@njit(**KERNEL)
def choose_tables(hist: Any, last: int, counts: Any, may_send: bool, freq: Any, levels: Any) -> int:
    """Fill `freq` of all rows and `levels` of the rows worth sending; return the mask of these rows.

    A row whose whole cost is below the gain that sending needs is skipped early.
    """
    sendable = np.zeros(SYMBOLS, np.int64)
    sent = i64(0)
    for q in range(TABLE_ROWS):
        frequencies(hist[q], q, last, freq[q])
        now = cost(counts[q], freq[q]) if may_send else 0
        if 10 * now > SENT_GAIN:
            octaves(counts[q], levels[q])
            from_octaves(levels[q], q, last, sendable)
            least = SENT_GAIN + SENT_SYMBOL_GAIN * np.count_nonzero(counts[q])
            if 10 * (now - cost(counts[q], sendable)) > least:
                freq[q] = sendable
                sent |= i64(1) << q
    return sent


@njit(**KERNEL)
def choose_block(count: int, counts: Any, freq: Any) -> int:
    """Return the log2 of the block size for a frame of `count` values with these symbol counts."""
    total, raw = i64(0), i64(0)
    for q in range(TABLE_ROWS):
        total += cost(counts[q], freq[q])
        if q < VALUE_ROWS:
            for s in range(SYMBOLS):
                raw += counts[q, s] * SIZES[s]
    blocks = max(i64(1), (((total >> COST_BITS) + raw) >> 3) >> BLOCK_BYTES_LOG2)
    log2 = i64(AUTO_BLOCK_LOG2)
    while log2 < MAX_BLOCK_LOG2 and blocks << log2 < count:
        log2 += 1
    return log2


@njit(**KERNEL)
def learn(hist: Any, counts: Any) -> None:
    """Add a frame's counts to the histograms (docs/reference/asc.md, "After a frame")."""
    for q in range(TABLE_ROWS):
        scale = max(i64(0), bit_length(counts[q].sum()) - COUNT_BITS)
        fade = i64(1) if hist[q].sum() > FADE_ABOVE else i64(0)
        for s in range(SYMBOLS):
            hist[q, s] = (hist[q, s] >> fade) + (counts[q, s] >> scale)


@njit(**KERNEL)
def encoder_table(freq: Any, table: Any) -> None:
    """Fill the encoder's table: an entry for each context and magnitude, then for each class context."""
    for q in range(TABLE_ROWS):
        c = i64(0)
        for s in range(SYMBOLS):
            entry = freq[q, s] | (c & (TOTAL - 1)) << CUMULATIVE_AT
            if q >= VALUE_ROWS:
                table[CLASS_TABLE + SYMBOLS * (q - VALUE_ROWS) + s] = entry
            else:
                entry |= SIZES[s] << BITS_AT
                at = q << STRIDE_LOG2
                table[at + BASES[s] : at + BASES[s + 1]] = entry
            c += freq[q, s]


@njit(**KERNEL)
def step_table(freq: Any, table: Any) -> None:
    """Fill the part of the encoder's table that is looked up in registers; table: viewed as uint16."""
    for c in range(SYMBOLS):
        for i in range(NEAREST):
            at, below, q = (STEPS_AT + STEP_BYTES * c) // 2 + i, i64(0), CONTEXTS[c, i]
            for s in range(SYMBOLS):
                table[at + NEAREST * s] = freq[q, s] if c else TOTAL
                table[at + NEAREST * (SYMBOLS + s)] = below & (TOTAL - 1) if c else 0
                below += freq[q, s]
    at = KINDS_AT // 2
    for s in range(SYMBOLS):
        half = (1 << SIZES[s]) >> 1
        for m in range(BASES[s], min(BASES[s + 1], 32)):
            table[at + m] = s
        for m in range(BASES[s] >> 4, BASES[s + 1] >> 4):
            table[at + 32 + m] = s
        table[at + 64 + s] = max(i64(0), half - 1)
        table[at + 96 + s] = half
        table[at + 128 + s] = SIZES[s]


@njit(**KERNEL)
def decoder_table(freq: Any, searched: bool, table: Any) -> None:
    """Fill the decoder's table: an entry for each table row and slot.

    searched: skip the contexts of values; `search_table` takes their place.
    """
    for q in range(VALUE_ROWS if searched else 0, TABLE_ROWS):
        at = q << PROB_BITS
        for s in range(SYMBOLS):
            f = freq[q, s]
            same = f | (
                SIZES[s] << BITS_AT | BASES[s] << SYMBOL_AT if q < VALUE_ROWS else i64(s) << SYMBOL_AT
            )
            for i in range(f):
                table[at + i] = same | i << CUMULATIVE_AT
            at += f


@njit(**KERNEL)
def search_table(freq: Any, table: Any) -> None:
    """Fill the part of the decoder's table in which symbols are searched for; table: viewed as uint16.

    For each class, four tables of 4 x 8 thresholds, by context in the lowest index. Table 0 holds c[4], c[8]
    and c[12] at n = 0, 1, 2, the first round of the search. Table m = 1 to 3 holds c[4n + m], the second
    round. Symbol 4n + m is then found at place n + 4m of the tables by symbol (pop_kernels._take_by_search).
    """
    edges = np.zeros((VALUE_ROWS, SYMBOLS), np.uint16)
    for q in range(VALUE_ROWS):
        for s in range(1, SYMBOLS):
            edges[q, s] = edges[q, s - 1] + freq[q, s - 1]
    for c in range(SYMBOLS):
        for i in range(NEAREST):
            at, row = (SEARCH_AT + SEARCH_BYTES * c) // 2 + i, edges[CONTEXTS[c, i]]
            if not c:
                row = NEVER  # all of class 0 is symbol 0, certain
            for n in range(4):
                table[at + 8 * n] = row[(4 * n + 4) % SYMBOLS]
                for m in range(1, 4):
                    table[at + 32 * m + 8 * n] = row[4 * n + m]
    for s in range(SYMBOLS):
        at, half = SYMBOLS_AT // 2 + (s >> 2) + 4 * (s & 3), (1 << SIZES[s]) >> 1
        table[at] = BASES[s]
        table[at + 32] = max(i64(0), half - 1)
        table[at + 64] = half
        table[at + 96] = SIZES[s]


@njit(**KERNEL)
def tables_of_encoder(
    banks: Any, lows: Any, highs: Any, width: int, count: int, log2: int, may_send: bool, searched: bool,
    hist: Any, counts: Any, freq: Any, levels: Any, table: Any, steps: Any,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Do all that comes between a frame's survey and its blocks, and learn; return what was chosen.

    banks: of the survey; lows, highs: extreme values of its groups; log2: asked for, or 0. counts to steps:
    filled, as the functions above say. Returns the least and the largest value, the last symbol, the mask of
    sent rows, and the block size's log2. Does nothing more where these values do not fit `width`.
    """
    low, high = i64(lows.min()), i64(highs.max())
    if low < -(i64(1) << (width - 1)) or high >= i64(1) << (width - 1):
        return low, high, i64(0), i64(0), i64(0)
    largest, last = min(i64(LIMIT - 1), max(high, -low)), i64(SYMBOLS - 1)
    while BASES[last] > largest:
        last -= 1
    gather_counts(banks, counts)
    sent = choose_tables(hist, last, counts, may_send, freq, levels)
    if log2 == 0:
        log2 = choose_block(count, counts, freq)
    encoder_table(freq, table)
    if searched:
        step_table(freq, steps)
    learn(hist, counts)
    return low, high, last, sent, i64(log2)


@njit(**KERNEL)
def tables_of_decoder(freq: Any, searched: bool, table: Any, thresholds: Any) -> None:
    """Fill the decoder's tables as `decoder_table` and `search_table` say."""
    decoder_table(freq, searched, table)
    if searched:
        search_table(freq, thresholds)


@njit(**KERNEL)
def learn_from(banks: Any, counts: Any, hist: Any) -> None:
    """Sum the banks of all threads into `counts`, and add them to the histograms."""
    gather_counts(banks, counts)
    learn(hist, counts)
