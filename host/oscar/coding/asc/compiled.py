"""The compiled twin: whole payloads through the kernels, one call for each direction, without the GIL."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oscar.coding.asc import decode_kernels as dk
from oscar.coding.asc import encode_kernels as ek
from oscar.coding.asc import kernels as bk
from oscar.coding.asc import table_kernels as tk
from oscar.coding.asc.params import (
    BLOCK_HEADER_BYTES,
    CODED,
    CONSTANT,
    FLUSH_BYTES,
    RAW,
    AscParams,
    initial_cell,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.errors import FrameError

u64, i64 = np.uint64, np.int64
PAD = 16  # spare entries behind buffers that are read or written several at a time

TRUNCATED, BAD_TYPE, BAD_STATE, BAD_WORDS = -1, -2, -3, -4
BAD_RAW, BAD_VALUE, TRAILING, TOO_MANY_WORDS = -5, -6, -7, -8
REASONS = {
    TRUNCATED: "payload ends inside a block",
    BAD_TYPE: "block type is none of coded, constant, raw",
    BAD_STATE: "a coder state is out of its bounds",
    BAD_WORDS: "coded words do not end where the block does",
    BAD_RAW: "raw bits do not end where the block does",
    BAD_VALUE: "a value does not fit the width of the frame",
    TRAILING: "bytes follow the last block",
    TOO_MANY_WORDS: "a coded block has more words than one that is sent raw",
}


class Link(NamedTuple):
    """What a frame is coded with, and changes: parameters, the arrays of a TableState, and statistics."""

    block: int
    interval: int  # rows
    lag: int  # rows
    neighbour: bool
    learning: bool
    hist: np.ndarray
    map: np.ndarray  # 16 times the context of each cell
    shift: np.ndarray
    sums: np.ndarray
    counts: np.ndarray
    statistics: np.ndarray  # of the counted symbols, see table_kernels.tally


class Scratch(NamedTuple):
    """Memory of a coder. info, pairs (the same), cells and merged hold an epoch; the rest holds a block."""

    info: np.ndarray
    pairs: np.ndarray
    cells: np.ndarray
    merged: np.ndarray
    table: np.ndarray
    banks: np.ndarray  # of counts, see encode_kernels.look_up
    entries: np.ndarray
    rows: np.ndarray
    words: np.ndarray
    raw: np.ndarray
    tables: np.ndarray  # of the decoder


def _scratch(block: int, interval: int) -> Scratch:
    """Allocate for blocks of up to `block` values; the last epoch has up to half an interval more."""
    epoch = 12 * min(block // 12 + 2, interval + interval // 2 + 2)
    info = np.zeros(epoch + PAD, np.uint32)
    return Scratch(
        info=info,
        pairs=info.view(np.uint64),
        cells=np.zeros(epoch + PAD, np.uint16),
        merged=np.zeros(epoch // 4 + PAD, np.uint64),
        table=np.zeros(256, np.uint32),
        banks=np.zeros(1024, np.uint16),
        entries=np.zeros(block + PAD, np.uint32),
        rows=np.zeros(block + PAD, np.uint8),
        words=np.zeros(block + PAD, np.uint16),
        raw=np.zeros(6 * block + PAD, np.uint8),
        tables=np.zeros(1, dk.TABLES),
    )


@njit(cache=True, nogil=True)
def _epoch_count(rows: int, interval: int) -> int:
    return max(1, (rows + interval // 2) // interval)


@njit(cache=True, nogil=True)
def _after_constant(link: Any, count: Any, e: Any) -> None:
    """A constant block separates those around it: symbols counted since the last cut are dropped."""
    tk.tally(count, link.statistics)
    count[:] = 0
    e[:] = 0


@njit(cache=True, nogil=True)
def _after_raw(link: Any, count: Any, e: Any, largest: int) -> None:
    """A raw block restarts the tables, with a shift under which its largest magnitude has a symbol."""
    count[:] = 0
    e[:] = 0
    link.statistics[:] = 0
    tk.reset(link.hist)
    link.shift[0] = min(15, max(0, bk.bit_length(largest) - 8))


@njit(cache=True, nogil=True)
def _look_up(link: Any, scratch: Any, first: int, end: int, at: int) -> None:
    s = scratch
    ek.look_up(s.cells, first, end, link.map, s.table, s.banks, s.entries, at)


@njit(cache=True, nogil=True)
def _code_block(link: Any, scratch: Any, x: Any, pos: Any, e: Any, small: bool, escape: int) -> Any:
    """Fill scratch.entries and scratch.raw for a block; return the number of raw bits."""
    n, bits, shift = len(x), i64(0), link.shift[0]
    fl, count = n // 12, _epoch_count(n // 12, link.interval)
    for i in range(count):
        last = i == count - 1
        t0, t1, partial = i * link.interval, fl if last else (i + 1) * link.interval, n % 12 if last else 0
        values = 12 * (t1 - t0) + partial
        tk.encoder_table(link.hist, scratch.table)
        if small:
            ek.describe_small(x, pos, n, t0, t1, partial, scratch.info)
        else:
            ek.describe(x, pos, n, t0, t1, partial, shift, scratch.info)
        ek.find_cells(scratch.info, t1 - t0, partial, e, scratch.cells)
        cut = 12 * (max(t0, t1 - link.lag) - t0)
        _look_up(link, scratch, 0, cut, 12 * t0)
        tk.update(link.hist, scratch.banks, link.statistics)
        _look_up(link, scratch, cut, values, 12 * t0)
        ek.merge_fields(scratch.pairs, (values + 3) // 4, scratch.merged)
        bits = ek.pack_fields(scratch.merged, values, x, t0, shift, escape, scratch.raw, bits)
        if link.learning:
            ek.keep_symbols(scratch.cells, values, scratch.rows, 12 * t0)
    return bits


@njit(cache=True, nogil=True)
def _encode_block(link: Any, scratch: Any, x: Any, pos: Any, width: int, e: Any, out: Any, at: int) -> int:
    """Write one block at out[at:]; return where it ends. `link` and `e` move on with it."""
    n = len(x)
    lowest, highest = x[0], x[0]
    for i in range(n):  # in this form it is vectorised
        v = x[u64(i)]
        if v < lowest:
            lowest = v
        if v > highest:
            highest = v
    if lowest == highest:
        _after_constant(link, scratch.banks, e)
        bk.put_bytes(out, at, CONSTANT | (i64(lowest) & 0xFFFFFFFF) << 16, BLOCK_HEADER_BYTES)
        return at + BLOCK_HEADER_BYTES
    largest = max(i64(highest), -i64(lowest))
    raw_size = 2 * ((n * width + 15) // 16)
    small = link.shift[0] == 0 and largest <= ek.SMALL
    bits = _code_block(link, scratch, x, pos, e, small, 16 if width <= 16 else 32)
    raw_words = (bits + 15) // 16
    states = np.full(12, 4096, np.int32)
    scratch.entries[n : n + 12] = ek.IDLE
    end = n + 8
    scratch.words[end : end + 4] = 0
    first = ek.push_rows(scratch.entries, (n + 11) // 12, states, scratch.words, end)
    used = end - first
    word_bytes = 2 * ((12 * used + 15) // 16)
    if 8 * used > 3 * n or FLUSH_BYTES + word_bytes + 2 * raw_words >= raw_size:
        bk.put_bytes(out, at, RAW, BLOCK_HEADER_BYTES)
        at += BLOCK_HEADER_BYTES
        out[bk.write_raw(x, n, width, out, at) : at + raw_size] = 0
        _after_raw(link, scratch.banks, e, largest)
        return at + raw_size
    bk.put_bytes(out, at, CODED | used << 2 | raw_words << 24, BLOCK_HEADER_BYTES)
    at += BLOCK_HEADER_BYTES
    for lane in range(12):
        bk.put_bytes(out, at + 3 * lane, states[lane], 3)
    at += FLUSH_BYTES
    bk.pack_words(scratch.words, first, used, out, at)
    at += word_bytes
    out[at : at + 2 * raw_words] = scratch.raw[: 2 * raw_words]
    return at + 2 * raw_words


@njit(cache=True, nogil=True)
def _decode_block(
    link: Any, scratch: Any, data: Any, at: int, end: int, pos: Any, width: int, e: Any, out: Any
) -> int:
    """Read one block at data[at:end] into `out`; return where it ends, or a negative reason."""
    n = len(out)
    if end - at < BLOCK_HEADER_BYTES:
        return TRUNCATED
    tables = scratch.tables[0]
    head = bk.get_bytes(data, at, BLOCK_HEADER_BYTES)
    at += BLOCK_HEADER_BYTES
    if head & 3 == CONSTANT:
        value = (head >> 16) & 0xFFFFFFFF
        value -= (value >> 31) << 32
        if value < -(i64(1) << (width - 1)) or value >= i64(1) << (width - 1):
            return BAD_VALUE
        out[:] = value
        _after_constant(link, tables.count, e)
        return at
    if head & 3 == RAW:
        size = 2 * ((n * width + 15) // 16)
        if end - at < size:
            return TRUNCATED
        _after_raw(link, tables.count, e, bk.read_raw(data, at, n, width, out))
        return at + size
    if head & 3 != CODED:
        return BAD_TYPE
    used, raw_words = (head >> 2) & 0x3FFFFF, head >> 24
    word_bytes = 2 * ((12 * used + 15) // 16)
    if 8 * used > 3 * n:
        return TOO_MANY_WORDS
    if end - at < FLUSH_BYTES + word_bytes + 2 * raw_words:
        return TRUNCATED
    for lane in range(12):
        tables.state[lane] = bk.get_bytes(data, at + 3 * lane, 3)
        tables.neighbour[lane] = e[lane]
        tables.at[lane] = bk.lane_start(n, lane)
        if tables.state[lane] < 4096:
            return BAD_STATE
    at += FLUSH_BYTES
    bk.unpack_words(data, at, used, scratch.words)
    scratch.words[used : n + 1] = 0
    at += word_bytes
    shift, escape = link.shift[0], 16 if width <= 16 else 32
    if _read_symbols(link, scratch, tables, pos, n) != used:
        return BAD_WORDS
    for lane in range(12):
        if tables.state[lane] != 4096:
            return BAD_STATE
        e[lane] = tables.neighbour[lane]
    if (dk.raw_bits(scratch.rows, n, shift, escape) + 15) // 16 != raw_words:
        return BAD_RAW
    dk.rebuild(scratch.rows, n, data[at:], shift, escape, out)
    return at + 2 * raw_words


@njit(cache=True, nogil=True)
def _read_symbols(link: Any, scratch: Any, tables: Any, pos: Any, n: int) -> int:
    """Decode a block's symbols into scratch.rows; return how many words that took."""
    fl, partial, p = n // 12, n % 12, 0
    count = _epoch_count(fl, link.interval)
    for i in range(count):
        last = i == count - 1
        t0, t1 = i * link.interval, fl if last else (i + 1) * link.interval
        cut = max(t0, t1 - link.lag)
        tk.decoder_table(link.hist, tables)
        p = dk.decode_rows(tables, pos, t0, cut, 0, scratch.rows, scratch.words, p)
        tk.update(link.hist, tables.count, link.statistics)
        p = dk.decode_rows(tables, pos, cut, t1, partial if last else 0, scratch.rows, scratch.words, p)
    return p


@njit(cache=True, nogil=True)
def _encode(link: Any, scratch: Any, x: Any, pos: Any, width: int, out: Any) -> int:
    e, at = np.zeros(12, np.int32), i64(0)
    scratch.banks[:] = 0
    for start in range(0, len(x), link.block):
        stop, block, before = min(start + link.block, len(x)), at, e.copy()
        at = _encode_block(link, scratch, x[start:stop], pos[start:stop], width, e, out, at)
        if link.learning and out[block] & 3 == CODED:
            tk.observe(pos[start:stop], scratch.rows, before, link.neighbour, link.sums, link.counts)
    tk.update(link.hist, scratch.banks, link.statistics)
    return at


@njit(cache=True, nogil=True)
def _decode(link: Any, scratch: Any, data: Any, end: int, pos: Any, width: int, out: Any) -> int:
    e, at = np.zeros(12, np.int32), i64(0)
    scratch.tables[0].map[:] = link.map
    scratch.tables[0].count[:] = 0  # an earlier frame may have failed half way
    for k in range(256):
        scratch.tables[0].weight[k] = bk.WEIGHTS[k & 15]
    for start in range(0, len(out), link.block):
        stop, block, before = min(start + link.block, len(out)), at, e.copy()
        at = _decode_block(link, scratch, data, at, end, pos[start:stop], width, e, out[start:stop])
        if at < 0:
            return at
        if link.learning and data[block] & 3 == CODED:
            tk.observe(pos[start:stop], scratch.rows, before, link.neighbour, link.sums, link.counts)
    tk.update(link.hist, scratch.tables[0].count, link.statistics)
    return at if at == end else TRAILING


class CompiledCoder:
    """Codes payloads with the kernels; holds scratch memory only, so one serves one thread at a time."""

    def __init__(self, params: AscParams) -> None:
        self.params = params
        self._size = -1
        self._defaults = np.array([4 * initial_cell(c, params) - 36 for c in range(256)], np.int64)

    def _reserve(self, count: int) -> Scratch:
        need = min(count, self.params.block)
        if need > self._size:
            self._size = need
            self._scratch = _scratch(need, self.params.interval_rows)
        return self._scratch

    def _link(self, state: TableState, count: int) -> Link:
        p = self.params
        cells = state.cmap if p.uses_neighbour else np.repeat(state.cmap[::16], 16)
        return Link(
            block=p.block,
            interval=p.interval_rows,
            lag=p.lag_rows,
            neighbour=p.uses_neighbour,
            learning=state.learning(p, count),
            hist=state.hist,
            map=cells << 4,
            shift=state.shift,
            sums=state.sums,
            counts=state.counts,
            statistics=np.zeros(2, np.int64),
        )

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of int32 `values`; `state` moves on. `classes`: uint8, 16 times the class."""
        scratch, link = self._reserve(values.size), self._link(state, values.size)
        out = np.empty(self.params.max_payload(values.size, width) + PAD, np.uint8)
        size = _encode(link, scratch, values, classes, width, out)
        self._finish(state, values.size, link)
        return out[:size].tobytes()

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray:
        """Return the int32 values of `payload`; raises FrameError, leaving `state` in pieces."""
        scratch, link = self._reserve(count), self._link(state, count)
        out = np.empty(count, np.int32)
        data = np.empty(len(payload) + PAD, np.uint8)
        data[: len(payload)] = np.frombuffer(payload, np.uint8)
        data[len(payload) :] = 0
        end = _decode(link, scratch, data, len(payload), classes, width, out)
        if end < 0:
            raise FrameError(f"{REASONS[end]}: frame damaged, or coded with other tables")
        self._finish(state, count, link)
        return out

    def _finish(self, state: TableState, count: int, link: Link) -> None:
        state.adapt_shift(int(link.statistics[0]), int(link.statistics[1]))
        if state.advance(self.params, count, link.learning):
            tk.learn_map(state.sums, state.counts, self._defaults, state.cmap)
