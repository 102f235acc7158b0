"""ASC in plain integers, written to be read beside docs/asc.md; the compiled twin must equal it.

Everything here is a Python int or a list of them, so nothing overflows and nothing rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oscar.coding.asc.params import (
    BASE,
    BLOCK_HEADER_BYTES,
    CELL_MIN,
    CODED,
    CONSTANT,
    COUNT_STEP,
    EXTRA,
    FLUSH_BYTES,
    HIST_BITS,
    LANES,
    LEARN_MIN,
    NEIGHBOUR_SHIFT,
    PRIOR,
    PROB_BITS,
    RAW,
    STATE_BITS,
    STATE_LOW,
    WEIGHT,
    WORD_BITS,
    AscParams,
    cut_row,
    epochs,
    initial_cell,
    is_counted,
    max_words,
    raw_bytes,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.errors import FrameError

TOTAL = 1 << PROB_BITS
OCTAVE_EIGHTHS = (65536, 71468, 77936, 84990, 92682, 101071, 110218, 120194)  # ceil(2^(16 + i/8))


def symbol(u: int) -> int:
    """Return the symbol whose interval holds the (shifted) magnitude `u`."""
    return max(s for s in range(16) if BASE[s] <= u)


def frequencies(hist: Sequence[int]) -> list[int]:
    """Normalise one histogram row to frequencies of at least 1 that sum to 4096."""
    scale = ((TOTAL - 16) * TOTAL) // (sum(hist) + 1)
    freq = [1 + ((h * scale) >> PROB_BITS) for h in hist]
    freq[hist.index(max(hist))] += TOTAL - sum(freq)
    return freq


def update(hist: list[list[int]], counts: list[list[int]]) -> None:
    """Add what was counted since the last cut, then halve each row until it sums to less than 2^10."""
    for row, fresh in zip(hist, counts, strict=True):
        row[:] = [h + n for h, n in zip(row, fresh, strict=True)]
        halvings = max(0, sum(row).bit_length() - HIST_BITS)
        row[:] = [h >> halvings for h in row]


def lane_starts(n: int) -> list[int]:
    """Where each lane's contiguous run begins in a block of `n` values."""
    full, rest = divmod(n, LANES)
    return [lane * full + min(lane, rest) for lane in range(LANES)]


def order(n: int) -> list[tuple[int, int, int]]:
    """(row, lane, position) of every value of a block in decoding order: rows, lanes within a row."""
    full, rest = divmod(n, LANES)
    starts = lane_starts(n)
    rows = [(t, lane, starts[lane] + t) for t in range(full) for lane in range(LANES)]
    return rows + [(full, lane, starts[lane] + full) for lane in range(rest)]


def log_eighths(x: int) -> int:
    """floor(8 log2 x) for 1 <= x < 2^16; above, at most one less (docs/asc.md, "After a frame")."""
    octave = x.bit_length() - 1
    mantissa = (x << 16) >> octave
    return 8 * octave + max(i for i in range(8) if OCTAVE_EIGHTHS[i] <= mantissa)


class _Session:
    """The state of one frame while it is coded, as lists."""

    def __init__(self, params: AscParams, state: TableState, learning: bool) -> None:
        self.params, self.learning = params, learning
        self.hist: list[list[int]] = state.hist.tolist()
        self.cmap: list[int] = state.cmap.tolist()
        self.shift = int(state.shift[0])
        self.sums: list[int] = state.sums.tolist()
        self.counts: list[int] = state.counts.tolist()
        self.nonzero = self.weight = 0
        self.forget()

    def forget(self) -> None:
        """Drop counts and neighbour states, as after a block that is not coded."""
        self.neighbour = [0] * LANES
        self.fresh = [[0] * 16 for _ in range(16)]  # counted since the last cut

    def context(self, position: int, neighbour: int) -> tuple[int, int]:
        """Cell of the context map and the context it stands for."""
        cell = position << 4 if self.params.uses_position else 0
        if self.params.uses_neighbour:
            cell |= neighbour.bit_length()
        return cell, self.cmap[cell]

    def tables(self) -> tuple[list[list[int]], list[list[int]]]:
        """Frequencies and cumulative frequencies of all contexts."""
        freq = [frequencies(row) for row in self.hist]
        return freq, [[sum(row[:s]) for s in range(16)] for row in freq]

    def cut(self) -> None:
        """Make the histograms of the next epoch from what was counted so far."""
        update(self.hist, self.fresh)
        self.fresh = [[0] * 16 for _ in range(16)]

    def note(self, cell: int, q: int, s: int, row: int, lane: int) -> None:
        """Account for one symbol: neighbour state, cell of the map; tables and shift if counted."""
        self.neighbour[lane] += (WEIGHT[s] - self.neighbour[lane]) >> NEIGHBOUR_SHIFT
        if is_counted(row, lane):
            self.fresh[q][s] += COUNT_STEP
            self.nonzero += s > 0
            self.weight += WEIGHT[s]
        if self.learning:
            self.sums[cell] += WEIGHT[s]
            self.counts[cell] += 1

    def after_raw(self, block: Sequence[int]) -> None:
        """A raw block restarts the tables, with a shift under which u is at most 256."""
        self.forget()
        self.nonzero = self.weight = 0
        self.hist = [list(PRIOR) for _ in range(16)]
        self.shift = min(15, max(0, max(abs(v) for v in block).bit_length() - 8))

    def save(self, state: TableState, count: int) -> None:
        """Write everything back and do what is due at the end of a frame."""
        self.cut()
        state.hist[:] = self.hist
        state.shift[0] = self.shift
        state.sums[:] = self.sums
        state.counts[:] = self.counts
        state.adapt_shift(self.nonzero, self.weight)
        if state.advance(self.params, count, self.learning):
            learn_map(state, self.params)


def learn_map(state: TableState, params: AscParams) -> None:
    """Divide the cells into 16 classes by their mean weight; halve what was observed."""
    sums, counts = state.sums.tolist(), state.counts.tolist()
    total = sum(counts)
    if total < LEARN_MIN:
        return
    level = [
        log_eighths(sums[c] + 1) - log_eighths(counts[c])
        if counts[c] >= CELL_MIN
        else 4 * initial_cell(c, params) - 36
        for c in range(256)
    ]
    ranked = sorted(range(256), key=lambda c: level[c])
    reached, running = [], 0
    for c in ranked:
        running += counts[c]
        reached.append(running)
    low = level[next(c for c, r in zip(ranked, reached, strict=True) if r * 256 >= total)]
    high = level[next(c for c, r in zip(ranked, reached, strict=True) if r * 256 >= total * 255)]
    low = max(low, high - 72)
    state.cmap[:] = [min(15, max(0, 16 * (v - low) // (high - low + 1))) for v in level]
    state.sums[:] = [v >> 1 for v in sums]
    state.counts[:] = [v >> 1 for v in counts]


class ReferenceCoder:
    """Codes payloads one integer at a time; the same interface as CompiledCoder."""

    def __init__(self, params: AscParams) -> None:
        self.params = params

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of `values`; `state` moves on. `classes`: 16 times the position class."""
        run = _Session(self.params, state, state.learning(self.params, values.size))
        out = bytearray()
        for start in range(0, values.size, self.params.block):
            block = [int(v) for v in values[start : start + self.params.block]]
            position = [int(c) >> 4 for c in classes[start : start + self.params.block]]
            out += self._encode_block(run, block, position, width)
        run.save(state, values.size)
        return bytes(out)

    def _encode_block(self, run: _Session, block: list[int], position: list[int], width: int) -> bytes:
        n = len(block)
        if min(block) == max(block):
            run.forget()
            return (CONSTANT | (block[0] & 0xFFFFFFFF) << 16).to_bytes(BLOCK_HEADER_BYTES, "little")
        before = (list(run.sums), list(run.counts))
        escape = 16 if width <= 16 else 32
        coded, raw, raw_bits = [], 0, 0  # coded: (lane, frequency, cumulative frequency)
        places = order(n)
        for first, last in epochs(n // LANES, self.params):
            stop = n if last == n // LANES else last * LANES
            cut = cut_row(first, last, self.params)
            freq, cumulative = run.tables()
            for row, lane, j in places[first * LANES : stop]:
                if (row, lane) == (cut, 0):
                    run.cut()
                cell, q = run.context(position[j], run.neighbour[lane])
                m = abs(block[j])
                u = ((m - 1) >> run.shift) + 1 if m else 0
                s = symbol(u)
                if m:
                    raw |= (block[j] < 0) << raw_bits
                    raw |= ((m - 1) & ((1 << run.shift) - 1)) << (raw_bits + 1)
                    raw |= (u - BASE[s]) << (raw_bits + 1 + run.shift)
                    raw_bits += 1 + run.shift + (escape if s == 15 else EXTRA[s])
                coded.append((lane, freq[q][s], cumulative[q][s]))
                run.note(cell, q, s, row, lane)
        words, states = push_all(coded)
        word_bytes, raw_words = 2 * ((WORD_BITS * len(words) + 15) // 16), (raw_bits + 15) // 16
        size = FLUSH_BYTES + word_bytes + 2 * raw_words
        if len(words) > max_words(n) or size >= raw_bytes(n, width):
            run.sums, run.counts = before
            run.after_raw(block)
            mask = (1 << width) - 1
            bits = sum((block[j] & mask) << (i * width) for i, (_, _, j) in enumerate(places))
            return RAW.to_bytes(BLOCK_HEADER_BYTES, "little") + bits.to_bytes(raw_bytes(n, width), "little")
        head = CODED | len(words) << 2 | raw_words << 24
        packed = sum(w << (WORD_BITS * i) for i, w in enumerate(words))
        flush = sum(x << (STATE_BITS * lane) for lane, x in enumerate(states))
        return (
            head.to_bytes(BLOCK_HEADER_BYTES, "little")
            + flush.to_bytes(FLUSH_BYTES, "little")
            + packed.to_bytes(word_bytes, "little")
            + raw.to_bytes(2 * raw_words, "little")
        )

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray:
        """Return the int32 values of `payload`; raises FrameError, leaving `state` in pieces."""
        run = _Session(self.params, state, state.learning(self.params, count))
        data, out = _Reader(bytes(payload)), []
        for start in range(0, count, self.params.block):
            n = min(self.params.block, count - start)
            position = [int(c) >> 4 for c in classes[start : start + n]]
            out += self._decode_block(run, data, n, position, width)
        if data.left:
            raise FrameError(f"{data.left} bytes follow the last block: frame damaged")
        run.save(state, count)
        return np.array(out, np.int32)

    def _decode_block(
        self, run: _Session, data: _Reader, n: int, position: list[int], width: int
    ) -> list[int]:
        head = data.take(BLOCK_HEADER_BYTES)
        limit = 1 << (width - 1)
        if head & 3 == CONSTANT:
            value = _signed((head >> 16) & 0xFFFFFFFF, 32)
            if not -limit <= value < limit:
                raise FrameError("a value does not fit the width of the frame")
            run.forget()
            return [value] * n
        if head & 3 == RAW:
            bits = data.take(raw_bytes(n, width))
            block = [0] * n
            for i, (_, _, j) in enumerate(order(n)):
                block[j] = _signed((bits >> (i * width)) & (2 * limit - 1), width)
            run.after_raw(block)
            return block
        if head & 3 != CODED:
            raise FrameError("block type is none of coded, constant, raw")
        used, raw_words = (head >> 2) & 0x3FFFFF, head >> 24
        if used > max_words(n):
            raise FrameError("a coded block has more words than one that is sent raw")
        flush = data.take(FLUSH_BYTES)
        states = [(flush >> (STATE_BITS * lane)) & ((1 << STATE_BITS) - 1) for lane in range(LANES)]
        packed = data.take(2 * ((WORD_BITS * used + 15) // 16))
        words = [(packed >> (WORD_BITS * i)) & (TOTAL - 1) for i in range(used)] + [0] * (n - used)
        raw = data.take(2 * raw_words)
        if min(states) < STATE_LOW:
            raise FrameError("a coder state is out of its bounds")
        symbols = self._pop_all(run, states, words, used, n, position)
        return _rebuild(symbols, raw, raw_words, n, run.shift, 16 if width <= 16 else 32)

    def _pop_all(
        self, run: _Session, states: list[int], words: list[int], used: int, n: int, position: list[int]
    ) -> list[int]:
        symbols, p = [], 0
        places = order(n)
        for first, last in epochs(n // LANES, self.params):
            stop = n if last == n // LANES else last * LANES
            cut = cut_row(first, last, self.params)
            freq, cumulative = run.tables()
            for row, lane, j in places[first * LANES : stop]:
                if (row, lane) == (cut, 0):
                    run.cut()
                cell, q = run.context(position[j], run.neighbour[lane])
                slot = states[lane] & (TOTAL - 1)
                s = max(i for i in range(16) if cumulative[q][i] <= slot)
                states[lane] = freq[q][s] * (states[lane] >> PROB_BITS) + slot - cumulative[q][s]
                if states[lane] < STATE_LOW:
                    states[lane] = states[lane] << WORD_BITS | words[p]
                    p += 1
                symbols.append(s)
                run.note(cell, q, s, row, lane)
        if p != used:
            raise FrameError("coded words do not end where the block does")
        if any(x != STATE_LOW for x in states):
            raise FrameError("a coder state is out of its bounds")
        return symbols


def push_all(coded: Sequence[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """Encode (lane, frequency, cumulative frequency) backwards; return words in reading order and states."""
    states, words = [STATE_LOW] * LANES, []
    for lane, f, c in reversed(coded):
        x = states[lane]
        if x >= f << WORD_BITS:
            words.append(x & ((1 << WORD_BITS) - 1))
            x >>= WORD_BITS
        states[lane] = ((x // f) << PROB_BITS) + c + x % f
    return words[::-1], states


def _rebuild(symbols: list[int], raw: int, raw_words: int, n: int, shift: int, escape: int) -> list[int]:
    lengths = [0, *(1 + shift + (escape if s == 15 else EXTRA[s]) for s in range(1, 16))]
    if (sum(lengths[s] for s in symbols) + 15) // 16 != raw_words:
        raise FrameError("raw bits do not end where the block does")
    block, used = [0] * n, 0
    for (_, _, j), s in zip(order(n), symbols, strict=True):
        if s:
            field = (raw >> used) & ((1 << lengths[s]) - 1)
            used += lengths[s]
            low, high = (field >> 1) & ((1 << shift) - 1), field >> (1 + shift)
            m = ((BASE[s] + high - 1) << shift) + low + 1
            block[j] = -m if field & 1 else m
    return [_signed(v & 0xFFFFFFFF, 32) for v in block]


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


class _Reader:
    """Little-endian integers off the front of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> int:
        if size > self.left:
            raise FrameError("payload ends inside a block: frame damaged")
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")
