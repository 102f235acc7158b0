"""The compiled twin: whole payloads through the kernels, one call for each direction."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.asc import decode_kernels as dk
from oscar.asc import kernels as ek
from oscar.asc import table_kernels as tk
from oscar.asc.params import BLOCK_HEADER_BYTES, CODED, CONSTANT, FLUSH_BYTES, RAW, AscParams, initial_cell
from oscar.asc.state import TableState
from oscar.errors import FrameError

u8, u64, i64 = np.uint8, np.uint64, np.int64
PAD = 16  # spare bytes behind buffers that are read or written eight at a time

TRUNCATED, BAD_TYPE, BAD_STATE, BAD_WORDS, BAD_RAW, BAD_VALUE, TRAILING = -1, -2, -3, -4, -5, -6, -7
REASONS = {
    TRUNCATED: "payload ends inside a block",
    BAD_TYPE: "block type is none of coded, constant, raw",
    BAD_STATE: "a coder state is out of its bounds",
    BAD_WORDS: "coded words do not end where the block does",
    BAD_RAW: "raw bits do not end where the block does",
    BAD_VALUE: "a value does not fit the width of the frame",
    TRAILING: "bytes follow the last block",
}


@njit(cache=True, nogil=True)
def _epoch_count(rows: int, interval: int) -> int:
    return max(1, (rows + interval // 2) // interval)


@njit(cache=True, nogil=True)
def _put_bytes(out: Any, at: int, value: int, count: int) -> None:
    for i in range(count):
        out[at + i] = u8((u64(value) >> u64(8 * i)) & u64(255))


@njit(cache=True, nogil=True)
def _get_bytes(data: Any, at: int, count: int) -> int:
    value = u64(0)
    for i in range(count):
        value |= u64(data[at + i]) << u64(8 * i)
    return i64(value)


@njit(cache=True, nogil=True)
def _write_raw(x: Any, n: int, width: int, out: Any, at: int) -> int:
    acc, used = u64(0), 0
    mask = (u64(1) << u64(width)) - u64(1)
    for i in range(n):
        acc |= (u64(i64(x[i])) & mask) << u64(used)
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
def _read_raw(data: Any, at: int, n: int, width: int, out: Any) -> int:
    bit = u64(at) * u64(8)
    largest = i64(0)
    for i in range(n):
        value = i64((ek.load64(data, bit >> u64(3)) >> (bit & u64(7))) & ((u64(1) << u64(width)) - u64(1)))
        value -= (value >> (width - 1)) << width
        out[i] = value
        largest |= abs(value)
        bit += u64(width)
    return largest


@njit(cache=True, nogil=True)
def _after_raw(hist: Any, shift: Any, largest: int) -> None:
    """A raw block restarts the tables, with a shift under which its largest magnitude has a symbol."""
    tk.reset(hist)
    shift[0] = min(15, max(0, ek.bit_length(largest) - 8))


@njit(cache=True, nogil=True)
def _encode_block(
    x: Any, pos: Any, width: int, interval: int, hist: Any, cmap: Any, shift: Any, e: Any, tally: Any,
    rows: Any, fields: Any, words: Any, tables: Any, raw: Any, out: Any, at: int,
) -> int:  # fmt: skip
    """Write one block at out[at:]; return where it ends. `hist`, `e` and `tally` move on with it."""
    n = len(x)
    lowest, highest = i64(x[0]), i64(x[0])
    for i in range(n):
        lowest, highest = min(lowest, i64(x[i])), max(highest, i64(x[i]))
    if lowest == highest:
        _put_bytes(out, at, CONSTANT | (lowest & 0xFFFFFFFF) << 16, BLOCK_HEADER_BYTES)
        return at + BLOCK_HEADER_BYTES
    raw_size = BLOCK_HEADER_BYTES + 2 * ((n * width + 15) // 16)
    fl, partial = n // 12, n % 12
    fast = shift[0] == 0 and max(highest, -lowest) <= ek.FAST_LIMIT
    escape = 16 if width <= 16 else 32
    count = _epoch_count(fl, interval)
    cnt, changed = np.zeros(512, np.uint32), np.ones(16, np.bool_)
    e_before, tally_before = e.copy(), tally.copy()
    for i in range(count):
        tk.encoder_table(hist, changed, tables[i], tables[max(0, i - 1)])
        last = i == count - 1
        t0, t1 = i * interval, fl if last else (i + 1) * interval
        if fast:
            ek.model_rows(x, pos, n, t0, t1, cmap, e, rows, fields, cnt)
            if last and partial:
                ek.model_general(x, pos, n, fl, fl + 1, cmap, e, rows, cnt, 0)
        else:
            ek.model_general(x, pos, n, t0, t1 + 1 if last else t1, cmap, e, rows, cnt, shift[0])
        tk.update(hist, cnt, changed, tally)
    states = np.full(12, 4096, np.uint64)
    p = n + 4
    for i in range(count - 1, -1, -1):
        last = i == count - 1
        t0, t1 = i * interval, fl if last else (i + 1) * interval
        p = ek.encode_rows(t0, t1, partial if last else 0, rows, tables[i], words, p, states)
    used = n + 4 - p
    raw_bits = ek.pack_fields(x, n, fields, fast, shift[0], escape, raw)
    raw_words = (raw_bits + 15) // 16
    size = BLOCK_HEADER_BYTES + FLUSH_BYTES + 2 * ((12 * used + 15) // 16) + 2 * raw_words
    if size >= raw_size:
        e[:] = e_before
        tally[:] = tally_before
        _put_bytes(out, at, RAW, BLOCK_HEADER_BYTES)
        end = _write_raw(x, n, width, out, at + BLOCK_HEADER_BYTES)
        while end < at + raw_size:
            out[end] = 0
            end += 1
        _after_raw(hist, shift, max(highest, -lowest))
        return end
    _put_bytes(out, at, CODED | used << 2 | raw_words << 24, BLOCK_HEADER_BYTES)
    at += BLOCK_HEADER_BYTES
    for lane in range(12):
        _put_bytes(out, at + 3 * lane, states[lane], 3)
    at += FLUSH_BYTES
    words[n + 4 : n + 8] = 0
    ek.pack_words(words, p, used, out, at)
    at += 2 * ((12 * used + 15) // 16)
    out[at : at + 2 * raw_words] = raw[: 2 * raw_words]
    return at + 2 * raw_words


@njit(cache=True, nogil=True)
def _decode_block(
    data: Any, at: int, end: int, out: Any, pos: Any, width: int, interval: int, hist: Any, cmap: Any,
    shift: Any, e: Any, tally: Any, rows: Any, words: Any, table: Any, slots: Any, fresh: Any,
) -> int:  # fmt: skip
    """Read one block at data[at:end] into `out`; return where it ends, or a negative reason."""
    n = len(out)
    if end - at < BLOCK_HEADER_BYTES:
        return TRUNCATED
    head = _get_bytes(data, at, BLOCK_HEADER_BYTES)
    at += BLOCK_HEADER_BYTES
    kind = head & 3
    fl, partial = n // 12, n % 12
    if kind == CONSTANT:
        value = (head >> 16) & 0xFFFFFFFF
        value -= (value >> 31) << 32
        if value < -(i64(1) << (width - 1)) or value >= i64(1) << (width - 1):
            return BAD_VALUE
        out[:] = value
        return at
    if kind == RAW:
        size = 2 * ((n * width + 15) // 16)
        if end - at < size:
            return TRUNCATED
        _after_raw(hist, shift, _read_raw(data, at, n, width, out))
        fresh[:] = True
        return at + size
    if kind != CODED:
        return BAD_TYPE
    used, raw_words = (head >> 2) & 0x3FFFFF, head >> 24
    word_bytes = 2 * ((12 * used + 15) // 16)
    if used > n or end - at < FLUSH_BYTES + word_bytes + 2 * raw_words:
        return TRUNCATED
    states = np.empty(12, np.uint64)
    for lane in range(12):
        states[lane] = _get_bytes(data, at + 3 * lane, 3)
        if states[lane] < 4096:
            return BAD_STATE
    at += FLUSH_BYTES
    ek.unpack_words(data, at, used, words)
    words[used : n + 1] = 0
    at += word_bytes
    escape = 16 if width <= 16 else 32
    cnt = np.zeros(512, np.uint32)
    count, p, raw_bits = _epoch_count(fl, interval), 0, i64(0)
    for i in range(count):
        tk.decoder_table(hist, fresh, table, slots)
        last = i == count - 1
        t0, t1 = i * interval, fl if last else (i + 1) * interval
        p = dk.decode_rows(
            pos, n, t0, t1, partial if last else 0, cmap, e, rows, cnt, slots, table, words, p, states
        )
        for k in range(512):
            s = k & 15
            if s:
                raw_bits += i64(cnt[k]) * (1 + shift[0] + (escape if s == 15 else ek.EXTRAS[s]))
        tk.update(hist, cnt, fresh, tally)
    if p != used:
        return BAD_WORDS
    for lane in range(12):
        if states[lane] != 4096:
            return BAD_STATE
    if (raw_bits + 15) // 16 != raw_words:
        return BAD_RAW
    if shift[0] == 0 and escape == 16:
        dk.rebuild(rows, n, data[at:], out)
    else:
        dk.rebuild_general(rows, n, data[at:], shift[0], escape, out)
    return at + 2 * raw_words


@njit(cache=True, nogil=True)
def _encode(
    x: Any, pos: Any, width: int, block: int, interval: int, neighbour: bool, learning: bool, hist: Any,
    cmap: Any, shift: Any, tally: Any, sums: Any, counts: Any, rows: Any, fields: Any, words: Any,
    tables: Any, raw: Any, out: Any,
) -> int:  # fmt: skip
    e, at = np.zeros(12, np.int32), 0
    for start in range(0, len(x), block):
        n = min(block, len(x) - start)
        e_before, seen = e.copy(), tally[0]
        at = _encode_block(
            x[start : start + n], pos[start : start + n], width, interval, hist, cmap, shift, e, tally,
            rows, fields, words, tables, raw, out, at,
        )  # fmt: skip
        if learning and tally[0] != seen:
            tk.observe(pos[start : start + n], rows, n, e_before, neighbour, sums, counts)
    return at


@njit(cache=True, nogil=True)
def _decode(
    data: Any, end: int, out: Any, pos: Any, width: int, block: int, interval: int, neighbour: bool,
    learning: bool, hist: Any, cmap: Any, shift: Any, tally: Any, sums: Any, counts: Any, rows: Any,
    words: Any, table: Any, slots: Any,
) -> int:  # fmt: skip
    e, at = np.zeros(12, np.int32), 0
    fresh = np.ones(16, np.bool_)
    for start in range(0, len(out), block):
        n = min(block, len(out) - start)
        e_before, seen = e.copy(), tally[0]
        at = _decode_block(
            data, at, end, out[start : start + n], pos[start : start + n], width, interval, hist, cmap,
            shift, e, tally, rows, words, table, slots, fresh,
        )  # fmt: skip
        if at < 0:
            return at
        if learning and tally[0] != seen:
            tk.observe(pos[start : start + n], rows, n, e_before, neighbour, sums, counts)
    return at if at == end else TRAILING


class CompiledCoder:
    """Codes payloads with the kernels; holds scratch memory only, so one serves one thread at a time."""

    def __init__(self, params: AscParams) -> None:
        self.params = params
        self._size = -1
        self._defaults = np.array([4 * initial_cell(c, params) - 36 for c in range(256)], np.int64)

    def _reserve(self, count: int) -> None:
        need = min(count, self.params.block)
        if need <= self._size:
            return
        self._size = need
        self._rows = np.zeros(need + PAD, np.uint8)
        self._fields = np.zeros(need + PAD, np.uint16)
        self._words = np.zeros(need + PAD, np.uint16)
        self._raw = np.zeros(need * 6 + PAD, np.uint8)
        self._tables = np.zeros((need // 12 // self.params.interval_rows + 2, 256), np.uint64)
        self._table = np.zeros(256, np.uint32)
        self._slots = np.zeros(16 * 4096, np.uint8)

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of int32 `values`; `state` moves on. `classes`: uint8, 16 times the class."""
        p = self.params
        self._reserve(values.size)
        out = np.empty(p.max_payload(values.size, width) + PAD + 8, np.uint8)
        tally = np.zeros(2, np.int64)
        learning = state.learning(p, values.size)
        size = _encode(
            values, classes, width, p.block, p.interval_rows, p.uses_neighbour, learning, state.hist,
            self._row_map(state), state.shift, tally, state.sums, state.counts, self._rows, self._fields,
            self._words, self._tables, self._raw, out,
        )  # fmt: skip
        self._finish(state, values.size, learning, tally)
        return out[:size].tobytes()

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray:
        """Return the int32 values of `payload`; raises FrameError, leaving `state` in pieces."""
        p = self.params
        self._reserve(count)
        out = np.empty(count, np.int32)
        data = np.zeros(len(payload) + PAD, np.uint8)
        data[: len(payload)] = np.frombuffer(payload, np.uint8)
        tally = np.zeros(2, np.int64)
        learning = state.learning(p, count)
        end = _decode(
            data, len(payload), out, classes, width, p.block, p.interval_rows, p.uses_neighbour, learning,
            state.hist, self._row_map(state), state.shift, tally, state.sums, state.counts, self._rows,
            self._words, self._table, self._slots,
        )  # fmt: skip
        if end < 0:
            raise FrameError(f"{REASONS[end]}: frame damaged, or coded with other tables")
        self._finish(state, count, learning, tally)
        return out

    def _row_map(self, state: TableState) -> np.ndarray:
        """The context map in units of table rows, addressed by class and 32 minus leading zeros."""
        cmap = state.cmap if self.params.uses_neighbour else np.repeat(state.cmap[::16], 16)
        return np.concatenate([cmap, cmap[-1:]]) << 4

    def _finish(self, state: TableState, count: int, learning: bool, tally: np.ndarray) -> None:
        state.adapt_shift(int(tally[0]), int(tally[1]))
        if state.advance(self.params, count, learning):
            tk.learn_map(state.sums, state.counts, self._defaults, state.cmap)
