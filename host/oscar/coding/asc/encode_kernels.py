"""The encoding passes of the compiled twin: values to table entries and raw bits, then the coder backwards.

Each pass does one thing over an epoch or a block that fits the first or second level cache, in row order:
entry 12 t + lane. Each pass then works on twelve lanes at once (`Lanes`), or is a loop without dependencies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.kernels import BASES, EXTRAS, WEIGHTS, bit_length, lane_start, store64
from oscar.coding.asc.params import BASE, EXTRA, WEIGHT
from oscar.numerics import simd as lanes

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i64 = np.int64

SMALL = 2047  # magnitudes that the table below covers
GENERAL = 15  # length of a raw field that says: see raw_field
IDLE = 4096  # entry of frequency 4096 and start 0: coding it changes no state and emits nothing


def _small_values() -> np.ndarray:
    """Entry v + 2048: symbol | raw field (8 bits) << 8 | its length << 16 | weight << 20; 4..7 are free."""
    table = np.zeros(4096, np.uint32)
    for v in range(-2048, 2048):
        m = abs(v)
        s = max(i for i in range(16) if BASE[i] <= m)
        field, length = (int(v < 0) | (m - BASE[s]) << 1, EXTRA[s] + 1) if m else (0, 0)
        if s == 15:
            field, length = 0, GENERAL
        table[v + 2048] = s | field << 8 | length << 16 | WEIGHT[s] << 20
    return table


SMALL_VALUES = _small_values()


@njit(cache=True, nogil=True)
def raw_field(v: int, shift: int, escape: int) -> tuple[int, int, int]:
    """Symbol, raw bits (sign lowest) and their number of one value (docs/asc.md, "Symbols")."""
    m = abs(i64(v))
    if m == 0:
        return 0, u64(0), 0
    u = ((m - 1) >> shift) + 1
    s = 15
    while BASES[s] > u:
        s -= 1
    extra = escape if s == 15 else EXTRAS[s]
    field = u64(v < 0) | (u64((m - 1) & ((1 << shift) - 1)) << u64(1))
    return s, field | (u64(u - BASES[s]) << u64(1 + shift)), 1 + shift + extra


@njit(cache=True, nogil=True)
def describe(x: Any, pos: Any, n: int, t0: int, t1: int, partial: int, shift: int, info: Any) -> None:
    """Describe rows t0..t1 and `partial` lanes of row t1: entry of _small_values, position in bits 4..7."""
    o = u64(0)
    for t in range(t0, t1 + (1 if partial else 0)):
        for lane in range(12 if t < t1 else partial):
            j = u64(lane_start(n, lane) + t)
            s, _, _ = raw_field(x[j], shift, 16)
            info[o] = u32(s) | u32(pos[j]) | u32(GENERAL << 16) | u32(WEIGHTS[s] << 20)
            o += u64(1)
    info[o : o + 12] = 0


@njit(cache=True, nogil=True)
def describe_small(x: Any, pos: Any, n: int, t0: int, t1: int, partial: int, info: Any) -> None:
    """As describe, for shift 0 and magnitudes up to SMALL. In row order: twelve streams, all prefetched."""
    o = u64(0)
    for t in range(t0, t1):
        for lane in range(12):
            j = u64(lane_start(n, lane) + t)
            info[o] = SMALL_VALUES[u64(i64(x[j]) + 2048)] | u32(pos[j])
            o += u64(1)
    for lane in range(partial):
        j = u64(lane_start(n, lane) + t1)
        info[o] = SMALL_VALUES[u64(i64(x[j]) + 2048)] | u32(pos[j])
        o += u64(1)
    info[o : o + 12] = 0


@njit(cache=True, nogil=True)
def find_cells(info: Any, rows: int, partial: int, e: Any, cells: Any) -> None:
    """Cell of the context map | symbol << 8 of all values described; the neighbour states `e` move on."""
    state = lanes.load(e, u64(0))
    for t in range(rows):
        o = u64(12 * t)
        word = lanes.load(info, o)
        lanes.store(cells, o, (word & 0xF0) | lanes.bit_lengths(state) | ((word & 0xF) << 8))
        state = state + ((((word >> 20) & 0xFFF) - state) >> 3)
    lanes.store(e, u64(0), state)
    for lane in range(partial):
        word = info[12 * rows + lane]
        cells[12 * rows + lane] = i64(word & u32(0xF0)) | bit_length(e[lane]) | i64(word & u32(0xF)) << 8
        e[lane] += (i64(word >> u32(20)) - e[lane]) >> 3


@njit(cache=True, nogil=True)
def keep_symbols(cells: Any, count: int, rows: Any, at: int) -> None:
    """Copy the symbols of `count` values to rows[at:], for table_kernels.observe."""
    for i in range(count):
        rows[u64(at + i)] = cells[u64(i)] >> u16(8)


@njit(cache=True, nogil=True)
def look_up(cells: Any, first: int, end: int, cmap: Any, table: Any, cnt: Any, entries: Any, at: int) -> None:
    """Table entries of values first..end to entries[at + first:]; count those of params.is_counted.

    first: where a row begins. Counts are in four banks: otherwise equal symbols in a row would wait for each
    other.
    """
    even = first + (12 if (at + first) // 12 & 1 else 0)  # from here two rows at a time, an even one first
    paired = max(even, even + (end - even) // 24 * 24)
    for i in range(even, paired, 24):
        for pair in range(6):
            k = _table_row(cells[u64(i + 2 * pair)], cmap)
            entries[u64(at + i + 2 * pair)] = table[k]
            cnt[u64(256 * (pair & 3)) + k] += u16(1)
            entries[u64(at + i + 2 * pair + 1)] = table[_table_row(cells[u64(i + 2 * pair + 1)], cmap)]
        for pair in range(6, 12):
            entries[u64(at + i + 2 * pair)] = table[_table_row(cells[u64(i + 2 * pair)], cmap)]
            k = _table_row(cells[u64(i + 2 * pair + 1)], cmap)
            entries[u64(at + i + 2 * pair + 1)] = table[k]
            if pair < 11:
                cnt[u64(256 * (pair & 3)) + k] += u16(1)
    _look_up_any(cells, first, min(even, end), cmap, table, cnt, entries, at)
    _look_up_any(cells, paired, end, cmap, table, cnt, entries, at)


@njit(cache=True, nogil=True)
def _look_up_any(
    cells: Any, first: int, end: int, cmap: Any, table: Any, cnt: Any, entries: Any, at: int
) -> None:
    for i in range(first, end):
        k, row, lane = _table_row(cells[u64(i)], cmap), (at + i) // 12, (at + i) % 12
        entries[u64(at + i)] = table[k]
        cnt[k] += u16((row + lane + 1) & 1 & i64(lane != 11))


@njit(cache=True, nogil=True)
def _table_row(cell: int, cmap: Any) -> int:
    return u64(cmap[u64(cell) & u64(0xFF)]) + (u64(cell) >> u64(8))


@njit(cache=True, nogil=True)
def merge_fields(pairs: Any, quads: int, merged: Any) -> None:
    """Join the raw fields of four values each: 32 bits | length << 32, above 32 if one was left to raw_field.

    pairs: the values' descriptions, two in a uint64.
    """
    octet, nibble = u64(0xFF), u64(0xF)
    for i in range(quads):
        a, b = pairs[u64(2 * i)], pairs[u64(2 * i + 1)]
        n0, n1 = (a >> u64(16)) & nibble, (a >> u64(48)) & nibble
        n2, n3 = (b >> u64(16)) & nibble, (b >> u64(48)) & nibble
        low = ((a >> u64(8)) & octet) | (((a >> u64(40)) & octet) << n0)
        high = ((b >> u64(8)) & octet) | (((b >> u64(40)) & octet) << n2)
        general = ((n0 + u64(1)) | (n1 + u64(1)) | (n2 + u64(1)) | (n3 + u64(1))) & u64(16)
        length = n0 + n1 + n2 + n3 + (general << u64(2))
        merged[u64(i)] = low | (high << (n0 + n1)) | (length << u64(32))


@njit(cache=True, nogil=True)
def _put(out: Any, at: int, acc: int, used: int, field: int, length: int) -> tuple[int, int, int]:
    """Append one field of up to 56 bits to a stream whose accumulator holds under 8 bits."""
    acc |= field << used
    used += length
    store64(out, at, acc)
    return at + (used >> u64(3)), acc >> (used & u64(0x38)), used & u64(7)


@njit(cache=True, nogil=True)
def pack_fields(
    merged: Any, count: int, x: Any, t0: int, shift: int, escape: int, out: Any, bits: int
) -> int:
    """Write the raw fields of `count` values from row `t0` on at bit `bits` of `out`; return the end."""
    at, used, i = u64(bits) >> u64(3), u64(bits) & u64(7), 0
    acc = u64(out[at]) & ((u64(1) << used) - u64(1))
    while i < count:
        a, b = merged[u64(i >> 2)], merged[u64((i >> 2) + 1)]
        length, both = a >> u64(32), (a >> u64(32)) + (b >> u64(32))
        if both <= u64(56) and i + 4 < count:
            field = (a & u64(0xFFFFFFFF)) | ((b & u64(0xFFFFFFFF)) << length)
            at, acc, used = _put(out, at, acc, used, field, both)
            i += 8
        elif length <= u64(32):
            at, acc, used = _put(out, at, acc, used, a & u64(0xFFFFFFFF), length)
            i += 4
        else:
            for place in range(i, min(i + 4, count)):
                v = x[lane_start(len(x), place % 12) + t0 + place // 12]
                _, field, size = raw_field(v, shift, escape)
                at, acc, used = _put(out, at, acc, used, field, u64(size))
            i += 4
    store64(out, at, acc)
    return i64(at * u64(8) + used)


@njit(cache=True, nogil=True)
def push_rows(entries: Any, rows: int, states: Any, words: Any, p: int) -> int:
    """Encode all rows of a block backwards, down from words[p]; return where the words begin.

    At most one 12-bit word leaves, then x' = (x // f) * 4096 + c + x mod f; an entry is f | c << 16. The
    division is what takes time: one lane after the other, in its shadow, words leave through `entries`.
    """
    x = lanes.load(states, u64(0))
    o, p = u64(12 * rows), u64(p)
    while o > u64(0):
        o -= u64(12)
        entry = lanes.load(entries, o)
        f = entry & 0x1FFF
        full = x >= (f << 12)
        lanes.store(entries, o, (x & 0xFFF) | (full & 0x1000))
        x = lanes.where(full, x >> 12, x)
        x = x + (entry >> 16) + lanes.quotient(x, f) * (4096 - f)
        for lane in range(11, -1, -1):
            word = entries[o + u64(lane)]
            words[p - u64(1)] = word
            p -= u64(word >> u32(12))
    lanes.store(states, u64(0), x)
    return i64(p)
