"""The compiled twin of the split and its inverse: rows of 32 floats at once.

Addresses are plain uint64 integers and nothing checks a bound, as in the coder's kernels. Mantissas of 7 bits
pass through a buffer of scratch memory, from which 256 at a time are packed, or into which they are unpacked.
"""

from __future__ import annotations

from typing import Any

from oscar.coding.asc.compiled.byte_stream import pull_bytes, push_bytes
from oscar.coding.asc.compiled.row_kernels import INLINE, KERNEL, PART, i64, u64
from oscar.coding.asc.compiled.vectors import (
    bits_of,
    get16,
    get_byte,
    greater,
    highest,
    load8,
    load16,
    load32,
    move,
    popcount,
    put16,
    put_byte,
    reaches,
    store8,
    store16,
    store32,
    to8,
    to16,
    where,
    widen,
    widen_unsigned,
)  # fmt: skip
from oscar.coding.asc.params import LANES
from oscar.coding.floats.layout import FIELD, PACKED
from oscar.kernels import njit

RUN = PACKED // 8
SHORT = 512  # offset, in scratch memory, of a short row's floats; before it is the buffer of mantissas
LOWS = 704  # offset of the lower halves of the last rows, which may be read beyond their end
SCRATCH = 1024
BAD_FIELD, BAD_FILL = -1, -2
ALL = u64(0xFFFFFFFF)


@njit(**INLINE)
def _pack_run(buffer: Any, target: Any) -> None:
    """Pack 256 mantissas at `buffer` into 224 bytes."""
    last = load8(buffer + u64(7 * RUN))
    for r in range(7):
        store8(target + u64(RUN * r), load8(buffer + u64(RUN * r)) | ((last << (7 - r)) & -128))


@njit(**INLINE)
def _unpack_run(source: Any, buffer: Any) -> None:
    """Undo `_pack_run`."""
    last = load8(source) & 0
    for r in range(7):
        packed = load8(source + u64(RUN * r))
        store8(buffer + u64(RUN * r), packed & 127)
        last = last | (((packed >> 7) & 1) << r)
    store8(buffer + u64(7 * RUN), last)


@njit(**PART)
def _pack_rest(buffer: Any, count: int, target: Any) -> None:
    """Pack fewer than 256 mantissas; the last run is filled up with zeros."""
    run = (count + 7) // 8
    for i in range(count, 8 * run):
        put_byte(buffer + u64(i), 0)
    for i in range(7 * run):
        top = get_byte(buffer + u64(7 * run + i % run)) >> (i // run)
        put_byte(target + u64(i), get_byte(buffer + u64(i)) | (top & 1) << 7)


@njit(**PART)
def _unpack_rest(source: Any, count: int, buffer: Any) -> int:
    """Undo `_pack_rest`; return 0, or BAD_FILL."""
    run = (count + 7) // 8
    for i in range(7 * run, 8 * run):
        put_byte(buffer + u64(i), 0)
    for i in range(7 * run):
        packed = get_byte(source + u64(i))
        put_byte(buffer + u64(i), packed & 127)
        last = buffer + u64(7 * run + i % run)
        put_byte(last, get_byte(last) | (packed >> 7) << (i // run))
    for i in range(count, 8 * run):
        if get_byte(buffer + u64(i)):
            return BAD_FILL
    return 0


@njit(**INLINE)
def _refill(buffer: Any, packed: Any, left: int) -> int:
    """Unpack the next of `left` mantissas to `buffer`; return how many, or BAD_FILL."""
    if left >= PACKED:
        _unpack_run(packed, buffer)
        return i64(PACKED)
    if _unpack_rest(packed, left, buffer):
        return i64(BAD_FILL)
    return i64(left)


@njit(**PART)
def _copy(source: Any, target: Any, used: int, room: int) -> None:
    """Copy `used` bytes to `target` and fill up to `room` bytes with zeros."""
    for i in range(room):
        put_byte(target + u64(i), get_byte(source + u64(i)) if i < used else 0)


@njit(**KERNEL)
def split(
    bits: Any, size: int, count: int, exponents: Any, references: Any, packed: Any, low: Any, scratch: Any
) -> Any:
    """Split `count` floats of `size` bytes at `bits`; return the non-zero ones.

    exponents: int16, whole rows.
    references: int16, one for each row.
    packed: room for mantissas.
    low: room for the lower halves and 64 bytes, of float32 alone.
    scratch: SCRATCH bytes.
    """
    fill, top, reference = scratch, scratch + u64(PACKED), i64(0)
    kept = i64(0)
    for t in range((count + LANES - 1) // LANES):
        source, left = bits + u64(size * LANES * t), count - LANES * t
        if left < LANES:
            _copy(source, scratch + u64(SHORT), size * left, size * LANES)
            source = scratch + u64(SHORT)
        if size == 2:
            half = load16(source)
            there = reaches(half, 1)
        else:
            whole = load32(source)
            half, there = to16(whole >> 16), reaches(whole, 1)
        live = bits_of(there)
        magnitude = half & 0x7FFF
        if live:
            reference = highest(widen(magnitude)) >> 7
        put16(references + u64(2 * t), reference)
        depth, sign = (reference + 1) - (magnitude >> 7), half >> 15
        store16(exponents + u64(2 * LANES * t), where(there, (depth ^ sign) - sign, 0))
        if live == ALL:
            store8(fill, to8(half & 127))
            fill += u64(LANES)
            if size == 4:
                store16(low, to16(whole))
                low += u64(2 * LANES)
        elif live:
            fill = push_bytes(fill, widen(half & 127), there, half < half)
            if size == 4:
                low = push_bytes(low, whole, there, there)
        if fill >= top:
            _pack_run(scratch, packed)
            packed += u64(7 * RUN)
            kept += PACKED
            store8(scratch, load8(top))
            fill -= u64(PACKED)
    rest = i64(fill - scratch)
    _pack_rest(scratch, rest, packed)
    return kept + rest


@njit(**KERNEL)
def join(
    exponents: Any,
    references: Any,
    packed: Any,
    low: Any,
    kept: int,
    bits: Any,
    size: int,
    count: int,
    scratch: Any,
) -> int:
    """Undo `split` of `kept` floats, not read past the ends of packed and low. Return 0 or what is wrong."""
    at = end = scratch
    wrong, left, ready = u64(0), i64(kept), False  # left: mantissas that are not unpacked yet
    lows = low + u64(2 * kept)
    for t in range((count + LANES - 1) // LANES):
        if left and end - at < u64(LANES):
            held = i64(end - at)
            store8(scratch, load8(at))
            more = _refill(scratch + u64(held), packed, left)
            if more < 0:
                return BAD_FILL
            at, end = scratch, scratch + u64(held + more)
            packed += u64(7 * RUN)
            left -= more
        depth = load16(exponents + u64(2 * LANES * t))
        there = reaches(depth, 1)
        live, reference = bits_of(there), get16(references + u64(2 * t))
        field = where(there, (reference + 1) - greater(depth, 0 - depth), 0)
        wrong |= bits_of(reaches(field, FIELD + 1))
        number = popcount(i64(live))
        if live == ALL:
            half = ((depth >> 15) & -32768) | (field << 7) | to16(widen(load8(at)))
        else:
            _, data = pull_bytes(at + u64(number), there, depth < depth)
            half = where(there, ((depth >> 15) & -32768) | (field << 7) | to16(data), 0)
        at += u64(number)
        target, room = bits + u64(size * LANES * t), count - LANES * t
        if room < LANES:
            target = scratch + u64(SHORT)
        if size == 2:
            store16(target, half)
        else:
            if not ready and lows - low < u64(4 * LANES):
                _copy(low, scratch + u64(LOWS), i64(lows - low), 6 * LANES)
                low, ready = scratch + u64(LOWS), True
            if live == ALL:
                lower = widen_unsigned(load16(low))
            else:
                _, lower = pull_bytes(low + u64(2 * number), there, there)
            low += u64(2 * number)
            store32(target, where(there, (widen(half) << 16) | lower, 0))
        if room < LANES:
            move(target, bits + u64(size * LANES * t), size * room)
    return BAD_FIELD if wrong else 0
