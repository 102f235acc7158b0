"""What the passes of the compiled twin share: constants as arrays, unaligned access, bits in and out.

Indices are unsigned throughout: for signed ones, numba adds two instructions each to handle negative values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from oscar.coding.asc.params import BASE, EXTRA, PRIOR, WEIGHT

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i32, i64 = np.int32, np.int64

WEIGHTS = np.array(WEIGHT, np.int32)
BASES = np.array(BASE, np.int64)
EXTRAS = np.array(EXTRA, np.int64)
PRIORS = np.array(PRIOR, np.int64)


@intrinsic
def bit_length(typing: Any, x: Any) -> Any:
    """Bits of a non-negative integer; 0 for 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        zeros = builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))
        length = builder.sub(ir.Constant(args[0].type, sig.args[0].bitwidth), zeros)
        return context.cast(builder, length, sig.args[0], types.int64)

    return types.int64(x), codegen


def _at(context: Any, builder: Any, kind: Any, args: Any) -> Any:
    data = context.make_array(kind)(context, builder, args[0]).data
    byte = builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [args[1]])
    return builder.bitcast(byte, ir.IntType(64).as_pointer())


@intrinsic
def load64(typing: Any, array: Any, offset: Any) -> Any:
    """Unaligned uint64 at byte `offset` of a uint8 array; the caller keeps it in bounds."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_at(context, builder, sig.args[0], args))
        value.align = 1
        return value

    return types.uint64(array, types.uint64), codegen


@intrinsic
def store64(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Store a uint64 unaligned at byte `offset` of a uint8 array; the caller keeps it in bounds."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        store = builder.store(args[2], _at(context, builder, sig.args[0], args))
        store.align = 1
        return context.get_dummy_value()

    return types.none(array, types.uint64, types.uint64), codegen


@njit(cache=True, nogil=True)
def lane_start(n: int, lane: int) -> int:
    """Where the contiguous run of a lane begins in a block of `n` values."""
    return lane * (n // 12) + min(lane, n % 12)


@njit(cache=True, nogil=True)
def pack_words(words: Any, first: int, count: int, out: Any, at: int) -> None:
    """Pack 12 bits of each word, four in six bytes; three zeros follow in `words`, 8 spare bytes in `out`."""
    o, i, end = u64(at), u64(first), u64(first + count)
    m = u64(0xFFF)
    while i < end:
        a = u64(words[i]) & m
        b = (u64(words[i + u64(1)]) & m) << u64(12)
        c = (u64(words[i + u64(2)]) & m) << u64(24)
        d = (u64(words[i + u64(3)]) & m) << u64(36)
        store64(out, o, a | b | c | d)
        o += u64(6)
        i += u64(4)


@njit(cache=True, nogil=True)
def unpack_words(data: Any, at: int, count: int, words: Any) -> None:
    """The inverse of pack_words; `data` has 8 spare bytes at its end, `words` three spare entries."""
    o, i = u64(at), u64(0)
    m = u64(0xFFF)
    while i < u64(count):
        v = load64(data, o)
        words[i] = v & m
        words[i + u64(1)] = (v >> u64(12)) & m
        words[i + u64(2)] = (v >> u64(24)) & m
        words[i + u64(3)] = (v >> u64(36)) & m
        o += u64(6)
        i += u64(4)


@njit(cache=True, nogil=True)
def put_bytes(out: Any, at: int, value: int, count: int) -> None:
    """Store the low `count` bytes of a value, little-endian."""
    for i in range(count):
        out[at + i] = u8((u64(value) >> u64(8 * i)) & u64(255))


@njit(cache=True, nogil=True)
def get_bytes(data: Any, at: int, count: int) -> int:
    """Return `count` bytes as an integer, little-endian."""
    value = u64(0)
    for i in range(count):
        value |= u64(data[at + i]) << u64(8 * i)
    return i64(value)


@njit(cache=True, nogil=True)
def write_raw(x: Any, n: int, width: int, out: Any, at: int) -> int:
    """Write values of `width` bits each in decoding order; return where they end."""
    acc, used, rows = u64(0), 0, n // 12
    mask = (u64(1) << u64(width)) - u64(1)
    for t in range(rows + 1):
        for lane in range(12 if t < rows else n % 12):
            acc |= (u64(i64(x[u64(lane_start(n, lane) + t)])) & mask) << u64(used)
            used += width
            while used >= 8:
                out[at] = u8(acc & u64(255))
                acc >>= u64(8)
                used -= 8
                at += 1
    if used:
        out[at] = u8(acc & u64(255))
        at += 1
    return at


@njit(cache=True, nogil=True)
def read_raw(data: Any, at: int, n: int, width: int, out: Any) -> int:
    """The inverse of write_raw; returns all magnitudes or-ed together, as long as the largest."""
    bit = u64(at) * u64(8)
    largest, rows = i64(0), n // 12
    for t in range(rows + 1):
        for lane in range(12 if t < rows else n % 12):
            value = i64((load64(data, bit >> u64(3)) >> (bit & u64(7))) & ((u64(1) << u64(width)) - u64(1)))
            value -= (value >> (width - 1)) << width
            out[u64(lane_start(n, lane) + t)] = value
            largest |= abs(value)
            bit += u64(width)
    return largest
