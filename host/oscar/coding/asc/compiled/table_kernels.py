"""Tables of the compiled twin: frequencies, sent rows, block size, and what coder and decoder look up.

docs/reference/asc.md, "Frequencies" and "What the sender decides". row_kernels has the layouts of the two
look-up tables. Each runs once a frame.
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
    u64,
)  # fmt: skip
from oscar.coding.asc.compiled.vectors import bit_length, lane_numbers, spread, store32
from oscar.coding.asc.params import (
    AUTO_BLOCK_LOG2,
    BASE,
    BLOCK_BYTES_LOG2,
    COST,
    COST_BITS,
    COUNT_BITS,
    FADE_ABOVE,
    LANES,
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
    total, best = i64(0), i64(-1)
    for s in range(SYMBOLS):  # the largest count, and of equal ones the first
        on = s < possible or s == SYMBOLS - 1
        total += hist[s] if on else 0
        best = max(best, hist[s] * SYMBOLS + SYMBOLS - 1 - s if on else i64(-1))
    ratio, rest = ((TOTAL - places) << 16) // (total + 1), i64(TOTAL)
    for s in range(SYMBOLS):
        freq[s] = 1 + ((hist[s] * ratio) >> 16) if s < possible or s == SYMBOLS - 1 else 0
        rest -= freq[s]
    freq[SYMBOLS - 1 - best % SYMBOLS] += rest


@njit(**PART)
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


@njit(**PART)
def gather_counts(banks: Any, counts: Any) -> None:
    """Sum the banks of all threads, uint32 [threads·BANKS·COUNTS], into `counts` [32][16]."""
    counts[:] = 0
    for bank in range(len(banks) // COUNTS):
        for q in range(TABLE_ROWS):
            at = bank * COUNTS + SYMBOLS * q
            for s in range(SYMBOLS):
                counts[q, s] += banks[at + s]


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


@njit(**PART)
def choose_block(count: int, counts: Any, freq: Any) -> int:
    """Return the log2 of the block size for a frame of `count` values with these symbol counts."""
    if count <= 1 << AUTO_BLOCK_LOG2:
        return i64(AUTO_BLOCK_LOG2)
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


@njit(**PART)
def encoder_table(freq: Any, table: Any) -> None:
    """Fill the encoder's table: an entry for each context and magnitude, then for each class context."""
    begin = u64(table.ctypes.data)
    for q in range(TABLE_ROWS):
        c, at = i64(0), begin + u64(4 << STRIDE_LOG2) * u64(q)
        for s in range(SYMBOLS):
            entry = freq[q, s] | (c & (TOTAL - 1)) << CUMULATIVE_AT
            if q >= VALUE_ROWS:
                table[CLASS_TABLE + SYMBOLS * (q - VALUE_ROWS) + s] = entry
            else:  # 32 at a time: what reaches beyond is overwritten by what comes next
                entries = spread(entry | SIZES[s] << BITS_AT)
                for m in range(BASES[s], BASES[s + 1], LANES):
                    store32(at + u64(4 * m), entries)
            c += freq[q, s]


@njit(**PART)
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


@njit(**PART)
def decoder_table(freq: Any, searched: bool, table: Any) -> None:
    """Fill the decoder's table: an entry for each table row and slot.

    searched: skip the contexts of values; `search_table` takes their place.

    Entries are stored 32 at a time. What reaches beyond a symbol's last slot is overwritten by the next
    symbol, or lies after the table, where there is room.
    """
    first, begin = VALUE_ROWS if searched else 0, u64(table.ctypes.data)
    for q in range(first, TABLE_ROWS):
        at = begin + u64(4 << PROB_BITS) * u64(q)
        for s in range(SYMBOLS):
            f = freq[q, s]
            same = f | (
                SIZES[s] << BITS_AT | BASES[s] << SYMBOL_AT if q < VALUE_ROWS else i64(s) << SYMBOL_AT
            )
            for i in range(0, f, LANES):
                store32(at + u64(4 * i), ((lane_numbers() + i) << CUMULATIVE_AT) + same)
            at += u64(4 * f)


@njit(**PART)
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


@njit(**PART)
def tables_of_encoder(
    banks: Any, low: int, high: int, count: int, log2: int, may_send: bool, searched: bool,
    hist: Any, counts: Any, freq: Any, levels: Any, table: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Do all that comes between a frame's survey and its blocks, and learn; return what was chosen.

    banks: of the survey; low, high: extreme values of the frame; log2: asked for, or 0. counts to table:
    filled, as the functions above say. Returns the last symbol, the mask of sent rows, and the block size's
    log2.
    """
    largest, last = min(i64(LIMIT - 1), max(high, -low)), i64(SYMBOLS - 1)
    while BASES[last] > largest:
        last -= 1
    gather_counts(banks, counts)
    sent = choose_tables(hist, last, counts, may_send, freq, levels)
    if log2 == 0:
        log2 = choose_block(count, counts, freq)
    encoder_table(freq, table)
    if searched:
        step_table(freq, table.view(np.uint16))
    learn(hist, counts)
    return last, sent, i64(log2)


@njit(**PART)
def tables_of_decoder(freq: Any, searched: bool, table: Any) -> None:
    """Fill the decoder's tables as `decoder_table` and `search_table` say."""
    decoder_table(freq, searched, table)
    if searched:
        search_table(freq, table.view(np.uint16))


@njit(**PART)
def learn_from(banks: Any, counts: Any, hist: Any) -> None:
    """Sum the banks of all threads into `counts`, and add them to the histograms."""
    gather_counts(banks, counts)
    learn(hist, counts)
