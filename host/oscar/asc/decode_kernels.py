"""The decoding passes of the compiled twin (see kernels.py for the encoding ones)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.asc.kernels import BASES, EXTRAS, REBUILD, WEIGHTS, _row, load64

u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
i32, i64 = np.int32, np.int64


@njit(cache=True, nogil=True)
def _pop(x: int, position: int, e: int, cmap: Any, slots: Any, table: Any, words: Any, p: int) -> Any:
    """Decode one symbol: find it by its slot, x' = f * (x >> 12) + slot - c, refill below 4096."""
    q = _row(position, e, cmap)
    slot = x & u64(4095)
    k = q + u64(slots[(q << u64(8)) + slot])
    d = u64(table[k])
    x = (d & u64(0xFFFF)) * (x >> u64(12)) + slot - (d >> u64(16))
    word = u64(words[p])
    z = u64(x < u64(4096))
    x = (x << u64(12)) | word if z else x
    e += (WEIGHTS[k & u64(15)] - e) >> i32(3)
    return x, e, k, p + z


@njit(cache=True, nogil=True)
def decode_rows(
    pos: Any, n: int, t0: int, t1: int, partial: int, cmap: Any, e: Any, rows: Any, cnt: Any,
    slots: Any, table: Any, words: Any, p_: int, states: Any,
) -> int:  # fmt: skip
    """Decode rows t0..t1 and `partial` lanes of row t1 into table rows; return the word pointer.

    Reads one word a symbol at most: `words` holds as many entries as the block has values, plus one.
    """
    fl, r = n // 12, n % 12
    p = u64(p_)
    x0, x1, x2, x3, x4, x5 = states[0], states[1], states[2], states[3], states[4], states[5]
    x6, x7, x8, x9, x10, x11 = states[6], states[7], states[8], states[9], states[10], states[11]
    e0, e1, e2, e3, e4, e5 = i32(e[0]), i32(e[1]), i32(e[2]), i32(e[3]), i32(e[4]), i32(e[5])
    e6, e7, e8, e9, e10, e11 = i32(e[6]), i32(e[7]), i32(e[8]), i32(e[9]), i32(e[10]), i32(e[11])
    a0, a1, a2, a3 = u64(0), u64(fl + min(1, r)), u64(2 * fl + min(2, r)), u64(3 * fl + min(3, r))
    a4, a5, a6 = u64(4 * fl + min(4, r)), u64(5 * fl + min(5, r)), u64(6 * fl + min(6, r))
    a7, a8, a9 = u64(7 * fl + min(7, r)), u64(8 * fl + min(8, r)), u64(9 * fl + min(9, r))
    a10, a11 = u64(10 * fl + min(10, r)), u64(11 * fl + min(11, r))
    for t_ in range(t0, t1):
        t = u64(t_)
        o = t * u64(12)
        x0, e0, k0, p = _pop(x0, pos[a0 + t], e0, cmap, slots, table, words, p)
        x1, e1, k1, p = _pop(x1, pos[a1 + t], e1, cmap, slots, table, words, p)
        x2, e2, k2, p = _pop(x2, pos[a2 + t], e2, cmap, slots, table, words, p)
        x3, e3, k3, p = _pop(x3, pos[a3 + t], e3, cmap, slots, table, words, p)
        rows[o], rows[o + u64(1)], rows[o + u64(2)], rows[o + u64(3)] = k0, k1, k2, k3
        cnt[k0] += u32(1)
        cnt[u64(256) + k1] += u32(1)
        cnt[k2] += u32(1)
        cnt[u64(256) + k3] += u32(1)
        x4, e4, k0, p = _pop(x4, pos[a4 + t], e4, cmap, slots, table, words, p)
        x5, e5, k1, p = _pop(x5, pos[a5 + t], e5, cmap, slots, table, words, p)
        x6, e6, k2, p = _pop(x6, pos[a6 + t], e6, cmap, slots, table, words, p)
        x7, e7, k3, p = _pop(x7, pos[a7 + t], e7, cmap, slots, table, words, p)
        rows[o + u64(4)], rows[o + u64(5)], rows[o + u64(6)], rows[o + u64(7)] = k0, k1, k2, k3
        cnt[k0] += u32(1)
        cnt[u64(256) + k1] += u32(1)
        cnt[k2] += u32(1)
        cnt[u64(256) + k3] += u32(1)
        x8, e8, k0, p = _pop(x8, pos[a8 + t], e8, cmap, slots, table, words, p)
        x9, e9, k1, p = _pop(x9, pos[a9 + t], e9, cmap, slots, table, words, p)
        x10, e10, k2, p = _pop(x10, pos[a10 + t], e10, cmap, slots, table, words, p)
        x11, e11, k3, p = _pop(x11, pos[a11 + t], e11, cmap, slots, table, words, p)
        rows[o + u64(8)], rows[o + u64(9)], rows[o + u64(10)], rows[o + u64(11)] = k0, k1, k2, k3
        cnt[k0] += u32(1)
        cnt[u64(256) + k1] += u32(1)
        cnt[k2] += u32(1)
        cnt[u64(256) + k3] += u32(1)
    states[0], states[1], states[2], states[3], states[4], states[5] = x0, x1, x2, x3, x4, x5
    states[6], states[7], states[8], states[9], states[10], states[11] = x6, x7, x8, x9, x10, x11
    e[0], e[1], e[2], e[3], e[4], e[5] = e0, e1, e2, e3, e4, e5
    e[6], e[7], e[8], e[9], e[10], e[11] = e6, e7, e8, e9, e10, e11
    for lane in range(partial):
        at = lane * fl + min(lane, r) + t1
        x, en, k, p = _pop(states[lane], pos[at], i32(e[lane]), cmap, slots, table, words, p)
        states[lane], e[lane] = x, en
        rows[t1 * 12 + lane] = k
        cnt[k] += u32(1)
    return i64(p)


@njit(cache=True, nogil=True)
def rebuild(rows: Any, n: int, raw: Any, out: Any) -> None:
    """Turn symbols and raw bits back into values for shift 0 and 16-bit escapes; `raw` is padded by 8."""
    fl, r = n // 12, n % 12
    at = u64(0)
    for t in range(fl + (1 if r else 0)):
        for lane in range(12 if t < fl else r):
            w = REBUILD[u64(rows[u64(t * 12 + lane)]) & u64(15)]
            bits = load64(raw, at >> u64(3)) >> (at & u64(7))
            length = (w >> u64(24)) & u64(255)
            m = i64((w & u64(0xFFFF)) + ((bits >> u64(1)) & (w >> u64(32))))
            negative = -i64(bits & u64(1))
            out[u64(lane * fl + min(lane, r) + t)] = i32((m ^ negative) - negative)
            at += length


@njit(cache=True, nogil=True)
def rebuild_general(rows: Any, n: int, raw: Any, shift: int, escape: int, out: Any) -> None:
    """As rebuild, for any shift and escape width."""
    fl, r = n // 12, n % 12
    at = u64(0)
    for t in range(fl + (1 if r else 0)):
        for lane in range(12 if t < fl else r):
            s = i64(rows[t * 12 + lane] & 15)
            to = lane * fl + min(lane, r) + t
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
