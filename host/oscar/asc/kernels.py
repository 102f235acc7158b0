"""The passes of the compiled twin: numba kernels over one block, equal to reference.py word for word.

A lane's state stays in a register only when it has a name of its own, so lanes are spelled out. Runs of
a 65,536-value block are not a power of two apart (twelve lanes), so they never fight for one L1 set.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from oscar.asc.params import BASE, EXTRA, PRIOR, RCP_SHIFT, WEIGHT

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i32, i64 = np.int32, np.int64

FAST_LIMIT = 2047  # magnitudes that the field table covers
ESCAPE_MARK = 40  # length that tells the quad packer to leave a quad to the general path


def _field_table() -> np.ndarray:
    """Entry v + 2048: raw field (8 bits) | its length << 8 | symbol << 16 | weight << 20."""
    table = np.zeros(4096, np.uint32)
    for v in range(-2048, 2048):
        m = abs(v)
        s = max(i for i in range(16) if BASE[i] <= m)
        field, length = (int(v < 0) | (m - BASE[s]) << 1, EXTRA[s] + 1) if m else (0, 0)
        if s == 15:
            field, length = 0, ESCAPE_MARK
        table[v + 2048] = field | length << 8 | s << 16 | WEIGHT[s] << 20
    return table


FIELDS = _field_table()
WEIGHTS = np.array(WEIGHT, np.int32)
BASES = np.array(BASE, np.int64)
EXTRAS = np.array(EXTRA, np.int64)
PRIORS = np.array(PRIOR, np.int64)
RECIPROCALS = np.array([0] + [-(-(1 << RCP_SHIFT) // f) for f in range(1, 4097)], np.uint64)
# base | extra bits << 16 | bits in the raw stream, sign included << 24 | mask of the extra bits << 32
REBUILD = np.array(
    [BASE[s] | EXTRA[s] << 16 | (EXTRA[s] + (s > 0)) << 24 | ((1 << EXTRA[s]) - 1) << 32 for s in range(16)],
    np.uint64,
)


@intrinsic
def _clz(typing: Any, x: Any) -> Any:
    """Leading zeros of a uint32; 32 for 0."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint32(types.uint32), codegen


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
def bit_length(x: int) -> int:
    """Bits of a non-negative integer; 0 for 0."""
    n = 0
    while x > 0:
        x >>= 1
        n += 1
    return n


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
def _row(position: int, e: int, cmap: Any) -> int:
    """Sixteen times the context of a value: its row in the table set."""
    return u64(cmap[u64(position) + u64(u32(32) - _clz(u32(e)))])


@njit(cache=True, nogil=True)
def _model(v: int, position: int, e: int, cmap: Any) -> tuple[int, int, int]:
    w = u64(FIELDS[u64(i64(v) + 2048)])
    k = _row(position, e, cmap) + ((w >> u64(16)) & u64(15))
    return w, k, e + ((i32(w >> u64(20)) - e) >> i32(3))


@njit(cache=True, nogil=True)
def model_rows(
    x: Any, pos: Any, n: int, t0: int, t1: int, cmap: Any, e: Any, rows: Any, fields: Any, cnt: Any
) -> None:
    """Turn rows t0..t1 of block `x` into table rows, raw fields and counts; four lanes at a time."""
    fl, r = n // 12, n % 12
    for g in range(0, 12, 4):
        a0 = u64(g * fl + min(g, r))
        a1 = u64((g + 1) * fl + min(g + 1, r))
        a2 = u64((g + 2) * fl + min(g + 2, r))
        a3 = u64((g + 3) * fl + min(g + 3, r))
        e0, e1, e2, e3 = i32(e[g]), i32(e[g + 1]), i32(e[g + 2]), i32(e[g + 3])
        o = u64(t0 * 12 + g)
        for t_ in range(t0, t1):
            t = u64(t_)
            w0, k0, e0 = _model(x[a0 + t], pos[a0 + t], e0, cmap)
            w1, k1, e1 = _model(x[a1 + t], pos[a1 + t], e1, cmap)
            w2, k2, e2 = _model(x[a2 + t], pos[a2 + t], e2, cmap)
            w3, k3, e3 = _model(x[a3 + t], pos[a3 + t], e3, cmap)
            rows[o], rows[o + u64(1)], rows[o + u64(2)], rows[o + u64(3)] = k0, k1, k2, k3
            fields[o], fields[o + u64(1)] = u16(w0), u16(w1)
            fields[o + u64(2)], fields[o + u64(3)] = u16(w2), u16(w3)
            cnt[k0] += u32(1)
            cnt[u64(256) + k1] += u32(1)
            cnt[k2] += u32(1)
            cnt[u64(256) + k3] += u32(1)
            o += u64(12)
        e[g], e[g + 1], e[g + 2], e[g + 3] = e0, e1, e2, e3


@njit(cache=True, nogil=True)
def model_general(
    x: Any, pos: Any, n: int, t0: int, t1: int, cmap: Any, e: Any, rows: Any, cnt: Any, shift: int
) -> None:
    """As model_rows for any magnitude and shift, one lane at a time; row n//12 is the partial one."""
    fl, r = n // 12, n % 12
    for lane in range(12):
        start = lane * fl + min(lane, r)
        state = i32(e[lane])
        for t in range(t0, min(t1, fl + (1 if lane < r else 0))):
            s, _, _ = raw_field(x[start + t], shift, 16)
            k = _row(pos[start + t], state, cmap) + u64(s)
            rows[t * 12 + lane] = k
            cnt[k] += u32(1)
            state += (WEIGHTS[s] - state) >> i32(3)
        e[lane] = state


@njit(cache=True, nogil=True)
def _put(out: Any, at: int, acc: int, used: int, field: int, length: int) -> tuple[int, int, int]:
    """Append one field of up to 56 bits to a stream whose accumulator holds under 8 bits."""
    acc |= field << used
    used += length
    store64(out, at, acc)
    at += used >> u64(3)
    return at, acc >> (used & u64(0x38)), used & u64(7)


@njit(cache=True, nogil=True)
def pack_fields(x: Any, n: int, fields: Any, fast: bool, shift: int, escape: int, out: Any) -> int:
    """Write the raw stream of a block in decoding order; return its length in bits."""
    fl, r = n // 12, n % 12
    at, acc, used = u64(0), u64(0), u64(0)
    for t in range(fl):
        for g in range(0, 12, 4):
            if fast:
                o = t * 12 + g
                f0, f1, f2, f3 = u32(fields[o]), u32(fields[o + 1]), u32(fields[o + 2]), u32(fields[o + 3])
                n0, n2 = f0 >> u32(8), f2 >> u32(8)
                n1, n3 = n0 + (f1 >> u32(8)), n2 + (f3 >> u32(8))
                if n1 + n3 <= u32(32):
                    lo = (f0 & u32(255)) | ((f1 & u32(255)) << n0)
                    hi = (f2 & u32(255)) | ((f3 & u32(255)) << n2)
                    acc |= (u64(lo) | (u64(hi) << u64(n1))) << used
                    used += u64(n1 + n3)
                    store64(out, at, acc)
                    at += used >> u64(3)
                    acc >>= used & u64(0x38)
                    used &= u64(7)
                    continue
            for lane in range(g, g + 4):
                _, field, length = raw_field(x[lane * fl + min(lane, r) + t], shift, escape)
                at, acc, used = _put(out, at, acc, used, field, u64(length))
    for lane in range(r):
        _, field, length = raw_field(x[lane * fl + lane + fl], shift, escape)
        at, acc, used = _put(out, at, acc, used, field, u64(length))
    store64(out, at, acc)
    return i64(at * u64(8) + used)


@njit(cache=True, nogil=True)
def _push(x: int, w: int, words: Any, p: int) -> tuple[int, int]:
    """Encode one symbol: at most one 12-bit word leaves, then x' = (x / f) << 12 | c + x mod f."""
    scaled = w & u64(0xFFF000)  # (4096 - f) << 12: the sum carries into bit 24 when x >= f << 12
    z = (x + scaled) >> u64(24)
    words[p - u64(1)] = u16(x)
    x >>= z * u64(12)
    q = (x * (w >> u64(27))) >> u64(36)
    return x + (w & u64(0xFFF)) + ((q * scaled) >> u64(12)), p - z


@njit(cache=True, nogil=True)
def encode_rows(t0: int, t1: int, partial: int, rows: Any, table: Any, words: Any, p_: int, states: Any) -> int:
    """Encode rows t1-1 .. t0 backwards, `partial` lanes of row t1 before them; return the word pointer."""
    p = u64(p_)
    for lane in range(partial - 1, -1, -1):
        states[lane], p = _push(states[lane], table[rows[t1 * 12 + lane]], words, p)
    x0, x1, x2, x3, x4, x5 = states[0], states[1], states[2], states[3], states[4], states[5]
    x6, x7, x8, x9, x10, x11 = states[6], states[7], states[8], states[9], states[10], states[11]
    o = u64(t1 * 12)
    while o > u64(t0 * 12):
        o -= u64(12)
        x11, p = _push(x11, table[rows[o + u64(11)]], words, p)
        x10, p = _push(x10, table[rows[o + u64(10)]], words, p)
        x9, p = _push(x9, table[rows[o + u64(9)]], words, p)
        x8, p = _push(x8, table[rows[o + u64(8)]], words, p)
        x7, p = _push(x7, table[rows[o + u64(7)]], words, p)
        x6, p = _push(x6, table[rows[o + u64(6)]], words, p)
        x5, p = _push(x5, table[rows[o + u64(5)]], words, p)
        x4, p = _push(x4, table[rows[o + u64(4)]], words, p)
        x3, p = _push(x3, table[rows[o + u64(3)]], words, p)
        x2, p = _push(x2, table[rows[o + u64(2)]], words, p)
        x1, p = _push(x1, table[rows[o + u64(1)]], words, p)
        x0, p = _push(x0, table[rows[o]], words, p)
    states[0], states[1], states[2], states[3], states[4], states[5] = x0, x1, x2, x3, x4, x5
    states[6], states[7], states[8], states[9], states[10], states[11] = x6, x7, x8, x9, x10, x11
    return i64(p)


@njit(cache=True, nogil=True)
def pack_words(words: Any, first: int, count: int, out: Any, at: int) -> None:
    """Pack 12-bit words into bytes at `at`, four in six bytes; `out` has 8 spare bytes at its end."""
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
