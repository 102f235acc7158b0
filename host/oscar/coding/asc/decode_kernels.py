"""The decoding passes of the compiled twin (see encode_kernels.py for the encoding ones)."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from oscar.coding.asc.kernels import BASES, EXTRAS, bit_length, lane_start, load64
from oscar.coding.asc.params import BASE, EXTRA

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i32, i64 = np.int32, np.int64

# All that the inner loop touches besides its streams, behind a single pointer: registers are short.
TABLES = np.dtype(
    [
        ("map", "u1", 256),  # cell to 16 times the context
        ("below", "i2", 256),  # [context][symbol]: last slot of the symbol
        ("freq", "u4", 256),
        ("start", "u4", 256),
        ("weight", "i4", 256),  # of the symbol, whatever the context
        ("count", "u2", 1024),  # four banks, or equal symbols would wait for each other
        ("state", "u4", 12),
        ("neighbour", "i4", 12),
        ("at", "u8", 12),  # where each lane begins
    ]
)
GENERAL = 40  # "length" of a raw field that is not in the table of small ones


def _small_values() -> np.ndarray:
    """Entry symbol << 8 | eight raw bits: the value, for symbols below 15."""
    table = np.zeros(4096, np.int16)
    for s in range(1, 15):
        for bits in range(256):
            m = BASE[s] + ((bits >> 1) & ((1 << EXTRA[s]) - 1))
            table[s << 8 | bits] = -m if bits & 1 else m
    return table


SMALL_VALUES = _small_values()
LENGTHS = np.array([0] + [EXTRA[s] + 1 for s in range(1, 15)] + [GENERAL], np.uint8)


@intrinsic
def count_below(typing: Any, array: Any, offset: Any, slot: Any) -> Any:
    """How many of the sixteen int16 at array[offset:] are below `slot`: a comparison, its mask, its bits."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i8, i16, i32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
        words, octets = ir.VectorType(i16, 16), ir.VectorType(i8, 32)
        data = context.make_array(sig.args[0])(context, builder, args[0]).data
        row = builder.load(builder.bitcast(builder.gep(data, [args[1]]), words.as_pointer()))
        row.align = 2
        slot = builder.insert_element(
            ir.Constant(words, ir.Undefined), builder.trunc(args[2], i16), ir.Constant(i32, 0)
        )
        slots = builder.shuffle_vector(slot, slot, ir.Constant(ir.VectorType(i32, 16), [0] * 16))
        below = builder.sext(builder.icmp_signed(">", slots, row), words)
        # As bytes, two for each comparison: a mask of 32 is one instruction on AVX2, one of 16 is three.
        signs = builder.icmp_signed("<", builder.bitcast(below, octets), ir.Constant(octets, [0] * 32))
        twice = builder.ctpop(builder.bitcast(signs, i32))
        return builder.zext(builder.lshr(twice, ir.Constant(i32, 1)), ir.IntType(64))

    return types.uint64(array, types.uint64, types.uint32), codegen


@njit(cache=True, nogil=True)
def decode_rows(tables: Any, pos: Any, t0: int, t1: int, partial: int, rows: Any, words: Any, p: int) -> int:
    """Decode rows t0..t1 and `partial` lanes of row t1 into table rows; return the word pointer.

    Two loops over the lanes: the symbols of a row depend on the row before only, so they come first, and
    the processor is not stuck on one lane's chain. Reads one word a symbol at most: `words` holds as many
    entries as the block has values, plus one.
    """
    o, p = u64(12 * t0), u64(p)
    for t in range(t0, t1):
        for lane in range(12):
            rows[o + u64(lane)] = _find(tables, pos, u64(t), lane)
        odd = t & 1
        p = _advance_row(tables, rows, o, 1, words, p) if odd else _advance_row(tables, rows, o, 0, words, p)
        o += u64(12)
    for lane in range(partial):
        rows[o + u64(lane)] = _find(tables, pos, u64(t1), lane)
        k = u64(rows[o + u64(lane)])
        tables.count[k] += u16((t1 + lane + 1) & 1)
        p = _advance(tables, k, lane, words, p)
    return i64(p)


@njit(cache=True, nogil=True, inline="always")
def _advance_row(tables: Any, rows: Any, o: int, odd: int, words: Any, p: int) -> int:
    """Advance all lanes of a row and count as params.is_counted says; `odd`: of the row, a constant."""
    for lane in range(12):
        k = u64(rows[o + u64(lane)])
        if lane & 1 == odd and lane != 11:
            tables.count[u64(128 * (lane & 6)) + k] += u16(1)
        p = _advance(tables, k, lane, words, p)
    return p


@njit(cache=True, nogil=True)
def _find(tables: Any, pos: Any, t: int, lane: int) -> int:
    """Find the lane's next symbol by the slot its state points at; return its table row."""
    cell = u64(pos[tables.at[lane] + t]) + u64(bit_length(tables.neighbour[lane]))
    row = u64(tables.map[cell])
    return row + count_below(tables.below, row, tables.state[lane] & u32(4095))


@njit(cache=True, nogil=True)
def _advance(tables: Any, k: int, lane: int, words: Any, p: int) -> int:
    """x' = f * (x >> 12) + slot - c, refilled below 4096; then the neighbour state."""
    x = tables.state[lane]
    x = u32(u32(tables.freq[k] * u32(x >> u32(12))) + u32((x & u32(4095)) - tables.start[k]))
    word, refill = u32(words[p]), x < u32(4096)
    tables.state[lane] = u32(x << u32(12)) | word if refill else x
    tables.neighbour[lane] += i32(tables.weight[k] - tables.neighbour[lane]) >> i32(3)
    return p + u64(refill)


@njit(cache=True, nogil=True)
def raw_bits(rows: Any, n: int, shift: int, escape: int) -> int:
    """Bits that the values of a block have in the raw stream: from its symbols, before any bit is read.

    Eight symbols at a time, a byte each: EXTRA is max(0, (s >> 1) - 1), and one more for 14 (and 15).
    """
    ones = u64(0x0101010101010101)
    eights, full, bits = rows[: n & ~7].view(np.uint64), n >> 3, i64(0)
    for start in range(0, full, 16):  # a byte holds the sums of 16
        nonzero = extra = escapes = u64(0)
        for i in range(start, min(start + 16, full)):
            s = eights[u64(i)] & u64(0x0F0F0F0F0F0F0F0F)
            half = (s >> u64(1)) & u64(0x0707070707070707)
            top = ((half + ones) >> u64(3)) & ones  # 14 and 15
            nonzero += ((s + u64(0x7F7F7F7F7F7F7F7F)) >> u64(7)) & ones
            extra += half + top - (((half + u64(0x7F7F7F7F7F7F7F7F)) >> u64(7)) & ones)
            escapes += top & s
        bits += _sum_bytes(extra) + (1 + shift) * _sum_bytes(nonzero) + (escape - 7) * _sum_bytes(escapes)
    for o in range(8 * full, n):
        s = i64(rows[o] & 15)
        if s:
            bits += 1 + shift + (escape if s == 15 else EXTRAS[s])
    return bits


@njit(cache=True, nogil=True)
def _sum_bytes(x: int) -> int:
    pairs = u64(0x00FF00FF00FF00FF)
    return i64((((x & pairs) + ((x >> u64(8)) & pairs)) * u64(0x0001000100010001)) >> u64(48))


@njit(cache=True, nogil=True)
def rebuild(rows: Any, n: int, raw: Any, shift: int, escape: int, out: Any) -> None:
    """Turn a block's symbols and raw bits back into values; `raw` is padded by 8 bytes."""
    at = u64(0)
    for t in range(n // 12):
        for g in range(0, 12, 4):
            if shift == 0:
                size = _rebuild_small(rows, n, t, g, load64(raw, at >> u64(3)) >> (at & u64(7)), out)
                if size <= u64(32):
                    at += size
                    continue
            at = _rebuild(rows, n, t, g, g + 4, raw, at, shift, escape, out)
    _rebuild(rows, n, n // 12, 0, n % 12, raw, at, shift, escape, out)


@njit(cache=True, nogil=True)
def _rebuild_small(rows: Any, n: int, t: int, lane0: int, bits: int, out: Any) -> int:
    """Rebuild four lanes of row `t` for shift 0; return the bits they take, above 32 if one is not small."""
    size = u64(0)
    for lane in range(lane0, lane0 + 4):
        s = u64(rows[u64(12 * t + lane)]) & u64(15)
        out[u64(lane_start(n, lane) + t)] = SMALL_VALUES[(s << u64(8)) | (bits & u64(255))]
        bits >>= u64(LENGTHS[s])
        size += u64(LENGTHS[s])
    return size


@njit(cache=True, nogil=True)
def _rebuild(
    rows: Any, n: int, t: int, lane0: int, lane1: int, raw: Any, at: int, shift: int, escape: int, out: Any
) -> int:
    """Rebuild lanes lane0..lane1 of row `t` for any shift and escape width; return the bit after them."""
    for lane in range(lane0, lane1):
        s = i64(rows[12 * t + lane] & 15)
        to = lane_start(n, lane) + t
        if s == 0:
            out[to] = 0
            continue
        extra = u64(escape if s == 15 else EXTRAS[s])
        bits = load64(raw, at >> u64(3)) >> (at & u64(7))
        low = (bits >> u64(1)) & ((u64(1) << u64(shift)) - u64(1))
        high = (bits >> u64(1 + shift)) & ((u64(1) << extra) - u64(1))
        m = i64(((u64(BASES[s]) + high - u64(1)) << u64(shift)) + low) + 1
        out[to] = i32(-m) if bits & u64(1) else i32(m)
        at += extra + u64(1 + shift)
    return at
