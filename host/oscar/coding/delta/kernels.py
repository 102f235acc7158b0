"""Compiled passes over the words of a piece: its XXH64, its changes, and the way back.

Addresses are plain uint64 integers, and nothing checks a bound: callers do. A word has 1, 2 or 4 bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.compiled.row_kernels import INLINE, KERNEL, PART, i64, u64
from oscar.coding.asc.compiled.vectors import (
    bits_of,
    get16,
    get32,
    get64,
    get_byte,
    load8,
    load16,
    load32,
    move,
    popcount,
    put16,
    put32,
    put64,
    put_byte,
    reaches,
    store8,
)  # fmt: skip
from oscar.coding.asc.params import LANES
from oscar.kernels import njit

PRIMES = (
    u64(0x9E3779B185EBCA87),
    u64(0xC2B2AE3D27D4EB4F),
    u64(0x165667B19E3779F9),
    u64(0x85EBCA77C2B2AE63),
    u64(0x27D4EB2F165667C5),
)
P1, P2, P3, P4, P5 = PRIMES
BLOCK = 1 << 15  # bytes that are compared before their changes are listed, while they are in a cache
ROWS = BLOCK // LANES + 1  # most rows of a block, of words of one byte, and room for one more
SCRATCH = 16 * ROWS
BAD_POSITION, BAD_CHANGE = -1, -2


@njit(**INLINE)
def _turned(x: Any, count: int) -> Any:
    return (x << u64(count)) | (x >> u64(64 - count))


@njit(**INLINE)
def _round(lane: Any, word: Any) -> Any:
    return _turned(lane + word * P2, 31) * P1


@njit(**INLINE)
def _hash_stripes(at: Any, stripes: int, lanes: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Take `stripes` times 32 bytes into the four lanes of XXH64."""
    a, b, c, d = lanes
    for _ in range(stripes):
        a = _round(a, u64(get64(at)))
        b = _round(b, u64(get64(at + u64(8))))
        c = _round(c, u64(get64(at + u64(16))))
        d = _round(d, u64(get64(at + u64(24))))
        at += u64(32)
    return a, b, c, d


@njit(**PART)
def _finish_hash(at: Any, count: int, lanes: tuple[Any, Any, Any, Any]) -> Any:
    """Return XXH64, seed 0, of `count` bytes; the last, incomplete stripe is at `at`."""
    value = P5
    if count >= 32:
        a, b, c, d = lanes
        value = _turned(a, 1) + _turned(b, 7) + _turned(c, 12) + _turned(d, 18)
        for lane in (a, b, c, d):
            value = (value ^ _round(u64(0), lane)) * P1 + P4
    value += u64(count)
    left = count & 31
    while left >= 8:
        value = _turned(value ^ _round(u64(0), u64(get64(at))), 27) * P1 + P4
        at, left = at + u64(8), left - 8
    if left >= 4:
        value = _turned(value ^ u64(get32(at) & 0xFFFFFFFF) * P1, 23) * P2 + P3
        at, left = at + u64(4), left - 4
    while left > 0:
        value = _turned(value ^ u64(get_byte(at)) * P5, 11) * P1
        at, left = at + u64(1), left - 1
    value = (value ^ (value >> u64(33))) * P2
    value = (value ^ (value >> u64(29))) * P3
    return value ^ (value >> u64(32))


@njit(**KERNEL)
def xxh64(source: Any, count: int) -> Any:
    """Return XXH64, seed 0, of `count` bytes at `source`, uint64."""
    stripes = count // 32
    lanes = _hash_stripes(source, stripes, (P1 + P2, P2, u64(0), u64(0) - P1))
    return _finish_hash(source + u64(32 * stripes), count, lanes)


@njit(**KERNEL)
def copy_and_hash(source: Any, target: Any, count: int) -> Any:
    """Copy `count` bytes, and return their XXH64, seed 0; copying hides behind the hash's latency."""
    lanes, whole = (P1 + P2, P2, u64(0), u64(0) - P1), count // 32 * 32
    for low in range(0, whole, 32):
        store8(target + u64(low), load8(source + u64(low)))
        lanes = _hash_stripes(source + u64(low), 1, lanes)
    move(source + u64(whole), target + u64(whole), count - whole)
    return _finish_hash(source + u64(whole), count, lanes)


@njit(**INLINE)
def _get(at: Any, size: int) -> int:
    if size == 1:
        return get_byte(at)
    return get16(at) if size == 2 else get32(at)


@njit(**INLINE)
def _masks(new: Any, base: Any, size: int) -> tuple[Any, Any]:
    """Return which of 32 words changed, and which new ones are not zero."""
    if size == 1:
        eight = load8(new)
        return bits_of(reaches(eight ^ load8(base), 1)), bits_of(reaches(eight, 1))
    if size == 2:
        half = load16(new)
        return bits_of(reaches(half ^ load16(base), 1)), bits_of(reaches(half, 1))
    whole = load32(new)
    return bits_of(reaches(whole ^ load32(base), 1)), bits_of(reaches(whole, 1))


@njit(**INLINE)
def _folded(gap: int) -> int:
    """Return 0, -1, 1, -2 for 0, 1, 2, 3: in ASC a sign takes a bit (docs/reference/pseudo.md)."""
    return (gap >> 1) ^ -(gap & 1)


@njit(**INLINE)
def _write(new: Any, base: Any, size: int, target: Any) -> None:
    """Write what a word changed by, as int32: modulo 2^8, 2^16 or 2^32, nearest to zero."""
    half = i64(1) << (8 * size - 1)
    change = _get(new, size) - _get(base, size)
    put32(target, ((change + half) & (2 * half - 1)) - half)


@njit(**PART)
def _survey(
    new: Any, base: Any, size: int, low: int, high: int, scratch: Any, lanes: tuple[Any, Any, Any, Any]
) -> tuple[Any, Any, Any, tuple[Any, Any, Any, Any]]:
    """Note rows of 32 words that changed; return their number, that of their changes, of words not zero.

    scratch: ROWS first words of rows, then ROWS masks, int64 each. lanes: of XXH64, returned with the base's
    words; to compare them hides behind the hash's latency.
    """
    rows, changes, filled = i64(0), i64(0), i64(0)
    for first in range(low, high, LANES):
        offset = u64(size * first)
        changed, there = _masks(new + offset, base + offset, size)
        lanes = _hash_stripes(base + offset, size, lanes)
        put64(scratch + u64(8 * rows), first)
        put64(scratch + u64(8 * (ROWS + rows)), i64(changed))
        rows += changed != u64(0)
        changes += popcount(i64(changed))
        filled += popcount(i64(there))
    return rows, changes, filled, lanes


@njit(**PART)
def _list(
    new: Any, base: Any, size: int, before: int, number: int, gaps: Any, changes: Any, scratch: Any
) -> int:
    """Write the gaps and changes of `number` words that `_survey` noted; return the last one's position."""
    row = scratch
    mask = get64(row + u64(8 * ROWS))
    for k in range(number):
        here = get64(row) + popcount((mask & -mask) - 1)
        put32(gaps + u64(4 * k), _folded(here - before - 1))
        _write(new + u64(size * here), base + u64(size * here), size, changes + u64(4 * k))
        before = here
        rest = mask & (mask - 1)
        done = i64(rest == 0)  # the next row without a branch, which no processor could foresee
        row += u64(8 * done)
        mask = rest | (get64(row + u64(8 * ROWS)) & -done)
    return before


@njit(**KERNEL)
def scan(
    new: Any, base: Any, size: int, count: int, most: int, gaps: Any, changes: Any, scratch: Any
) -> tuple[Any, Any, Any]:
    """Return XXH64 of the base, the number of words that changed, and of new ones that are not zero.

    size: bytes of a word; count: words of each. gaps, changes: int32, room for `most`: folded gaps
    before changed words, and by how much they changed; complete if no more than `most` changed.
    scratch: SCRATCH bytes.
    """
    lanes = (P1 + P2, P2, u64(0), u64(0) - P1)
    listed, filled, before = i64(0), i64(0), i64(-1)
    whole = count - count % LANES
    for low in range(0, whole, BLOCK // size):
        high = min(low + BLOCK // size, whole)
        rows, number, there, lanes = _survey(new, base, size, low, high, scratch, lanes)
        filled += there
        put64(scratch + u64(8 * (ROWS + rows)), 0)
        if number > 0 and listed + number <= most:
            target = u64(4 * listed)
            before = _list(new, base, size, before, number, gaps + target, changes + target, scratch)
        listed += number
    lanes = _hash_stripes(base + u64(size * whole), size * (count - whole) // 32, lanes)
    for here in range(whole, count):
        value, offset = _get(new + u64(size * here), size), u64(size * here)
        filled += value != 0
        if value == _get(base + offset, size):
            continue
        if listed < most:
            put32(gaps + u64(4 * listed), _folded(here - before - 1))
            _write(new + offset, base + offset, size, changes + u64(4 * listed))
        before = here
        listed += 1
    digest = _finish_hash(base + u64(size * count // 32 * 32), size * count, lanes)
    return digest, listed, filled


@njit(**KERNEL)
def change(words: Any, size: int, count: int, gaps: Any, changes: Any, number: int) -> int:
    """Change `number` of `count` words in place; return 0, BAD_POSITION or BAD_CHANGE.

    gaps, changes: int32, `number` of each, which may have any values.
    """
    half, here = i64(1) << (8 * size - 1), i64(-1)
    for k in range(number):
        gap, change = get32(gaps + u64(4 * k)), get32(changes + u64(4 * k))
        here += ((gap << 1) ^ (gap >> 63)) + 1
        if here >= count:
            return BAD_POSITION
        if change == 0 or change < -half or change >= half:
            return BAD_CHANGE
        at = words + u64(size * here)
        if size == 1:
            put_byte(at, get_byte(at) + change)
        elif size == 2:
            put16(at, get16(at) + change)
        else:
            put32(at, get32(at) + change)
    return 0


def hash_of(data: np.ndarray) -> int:
    """Return XXH64, seed 0, of an array's bytes."""
    from oscar.coding.asc.compiled.coder import address

    return int(xxh64(address(data), data.nbytes))
