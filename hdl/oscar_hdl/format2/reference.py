"""Format 2 in plain integers, written to be read beside docs/format2.md; the RTL must equal it.

All arithmetic is of Python ints, so nothing overflows and nothing rounds. With block and interval equal, as
lanes have them, a block is one epoch: it has one set of tables, and is cut once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from oscar.errors import FrameError
from oscar_hdl.format2.bits import Bits, Reader, packed, signed, unpacked
from oscar_hdl.format2.params import (
    BASE,
    BLOCK_HEADER_BYTES,
    CODED,
    CONSTANT,
    CONTEXT_MAP,
    CONTEXTS,
    COUNT_STEP,
    EXTRA,
    FLUSH_BYTES,
    HIST_BITS,
    LANES,
    MAX_WIDTH,
    NEIGHBOUR_SHIFT,
    PRIOR,
    PROB_BITS,
    RAW,
    STATE_BITS,
    STATE_LOW,
    SYMBOLS,
    WEIGHT,
    WORD_BITS,
    AscParams,
    cut_row,
    is_counted,
    max_words,
    raw_bytes,
)  # fmt: skip
from oscar_hdl.format2.state import TableState

TOTAL = 1 << PROB_BITS
_SYMBOL = bytes(max(s for s in range(SYMBOLS) if BASE[s] <= u) for u in range(BASE[-1]))


def symbol(u: int) -> int:
    """Return the symbol whose interval holds the (shifted) magnitude `u`."""
    return _SYMBOL[u] if u < BASE[-1] else SYMBOLS - 1


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


@lru_cache(maxsize=64)
def order(n: int) -> list[tuple[int, int, int]]:
    """(row, lane, position) of every value of a block in decoding order: rows, lanes within a row."""
    full, rest = divmod(n, LANES)
    starts = [lane * full + min(lane, rest) for lane in range(LANES)]
    rows = [(t, lane, starts[lane] + t) for t in range(full) for lane in range(LANES)]
    return rows + [(full, lane, starts[lane] + full) for lane in range(rest)]


@lru_cache(maxsize=64)
def _places(n: int) -> list[tuple[int, int, bool]]:
    """(lane, position, whether tables learn from it) of every value of a block in decoding order."""
    return [(lane, j, is_counted(row, lane)) for row, lane, j in order(n)]


class Session:
    """The state of one frame while it is coded. neighbour: by lane; fresh: counted since the cut."""

    def __init__(self, state: TableState) -> None:
        self.hist: list[list[int]] = state.hist.tolist()
        self.shift = int(state.shift[0])
        self.nonzero = self.weight = 0
        self.forget()

    def forget(self) -> None:
        """Drop counts and neighbour states, as after a block that is not coded."""
        self.neighbour = [0] * LANES
        self.fresh = [[0] * SYMBOLS for _ in range(CONTEXTS)]

    def tables(self) -> tuple[list[list[int]], list[list[int]]]:
        """Frequencies and cumulative frequencies of all contexts."""
        freq = [frequencies(row) for row in self.hist]
        return freq, [list(accumulate(row[:-1], initial=0)) for row in freq]

    def cut(self) -> None:
        """Make the histograms of the next block from what was counted so far."""
        update(self.hist, self.fresh)
        self.fresh = [[0] * SYMBOLS for _ in range(CONTEXTS)]

    def context(self, lane: int, position: int) -> int:
        """Return the context of the next symbol of `lane`."""
        return CONTEXT_MAP[position << 4 | self.neighbour[lane].bit_length()]

    def note(self, q: int, s: int, lane: int, counted: bool) -> None:
        """Account for one symbol: its lane's neighbour state; tables and shift if counted."""
        weight, neighbour = WEIGHT[s], self.neighbour
        neighbour[lane] += (weight - neighbour[lane]) >> NEIGHBOUR_SHIFT
        if counted:
            self.fresh[q][s] += COUNT_STEP
            self.nonzero += s > 0
            self.weight += weight

    def after_raw(self, block: Sequence[int]) -> None:
        """A raw block restarts the tables, with a shift under which u is at most 256."""
        self.forget()
        self.nonzero = self.weight = 0
        self.hist = [list(PRIOR) for _ in range(CONTEXTS)]
        self.shift = min(15, max(0, max(abs(v) for v in block).bit_length() - 8))

    def save(self, state: TableState) -> None:
        """Write everything back and do what is due at the end of a frame."""
        self.cut()
        state.hist[:] = self.hist
        state.shift[0] = self.shift
        state.adapt_shift(self.nonzero, self.weight)
        state.advance()


@dataclass(frozen=True)
class Coded:
    """A block as the coder's core leaves it: (context, symbol) in decoding order; words, states; raw bits.

    freq: the block's table.
    """

    freq: list[list[int]]
    symbols: list[tuple[int, int]]
    words: list[int]
    states: list[int]
    raw: bytes


class ReferenceCoder:
    """Codes payloads one integer at a time, as a lane must."""

    def __init__(self, params: AscParams) -> None:
        self.params = params

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of `values`; `state` moves on. `classes`: 16 times the position class.

        Raises ValueError for a width above 16.
        """
        if width > MAX_WIDTH:
            raise ValueError(f"format 2 of a lane has values of up to {MAX_WIDTH} bits, got {width}")
        run, numbers, positions = Session(state), values.tolist(), (classes >> 4).tolist()
        out = bytearray()
        for start in range(0, values.size, self.params.block):
            end = start + self.params.block
            out += self.encode_block(run, numbers[start:end], positions[start:end], width)
        run.save(state)
        return bytes(out)

    def encode_block(self, run: Session, block: list[int], position: list[int], width: int) -> bytes:
        """Return one block of a payload; `run` moves on."""
        n = len(block)
        if min(block) == max(block):
            run.forget()
            return (CONSTANT | (block[0] & 0xFFFFFFFF) << 16).to_bytes(BLOCK_HEADER_BYTES, "little")
        coded = self.code(run, block, position)
        words = packed(coded.words, WORD_BITS)
        if len(coded.words) > max_words(n) or FLUSH_BYTES + len(words) + len(coded.raw) >= raw_bytes(
            n, width
        ):
            run.after_raw(block)
            mask = (1 << width) - 1
            raw = packed([block[j] & mask for _, _, j in order(n)], width)
            return RAW.to_bytes(BLOCK_HEADER_BYTES, "little") + raw
        head = CODED | len(coded.words) << 2 | len(coded.raw) // 2 << 24
        flush = packed(coded.states, STATE_BITS)
        return head.to_bytes(BLOCK_HEADER_BYTES, "little") + flush + words + coded.raw

    def code(self, run: Session, block: list[int], position: list[int]) -> Coded:
        """Code a block's symbols, whether it is sent so or not."""
        n, shift, raw = len(block), run.shift, Bits()
        freq, cumulative = run.tables()
        symbols, pushes, below = [], [], (1 << shift) - 1
        cut = LANES * cut_row(n // LANES, self.params)
        for i, (lane, j, counted) in enumerate(_places(n)):
            if i == cut:
                run.cut()
            value, s = block[j], 0
            if value:
                m = abs(value) - 1
                u = (m >> shift) + 1
                s = symbol(u)
                raw.put((value < 0) | (m & below) << 1 | (u - BASE[s]) << (1 + shift), 1 + shift + EXTRA[s])
            q = run.context(lane, position[j])
            run.note(q, s, lane, counted)
            symbols.append((q, s))
            pushes.append((lane, freq[q][s], cumulative[q][s]))
        return Coded(freq, symbols, *push_all(pushes), raw.to_bytes())

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray:
        """Return the int32 values of `payload`; raises FrameError, leaving `state` as it was."""
        if width > MAX_WIDTH:
            raise FrameError(f"frame has values of {width} bits, a lane's have {MAX_WIDTH} at most")
        run, positions = Session(state), (classes >> 4).tolist()
        data, out = Reader(bytes(payload)), []
        for start in range(0, count, self.params.block):
            end = min(count, start + self.params.block)
            out += self._decode_block(run, data, positions[start:end], width)
        if data.left:
            raise FrameError(f"{data.left} bytes follow the last block: frame damaged")
        run.save(state)
        return np.array(out, np.int32)

    def _decode_block(self, run: Session, data: Reader, position: list[int], width: int) -> list[int]:
        n, limit = len(position), 1 << (width - 1)
        head = int.from_bytes(data.take(BLOCK_HEADER_BYTES), "little")
        if head & 3 == CONSTANT:
            value = signed((head >> 16) & 0xFFFFFFFF, 32)
            if not -limit <= value < limit:
                raise FrameError("a value does not fit the width of the frame")
            run.forget()
            return [value] * n
        if head & 3 == RAW:
            block = [0] * n
            bits = unpacked(data.take(raw_bytes(n, width)), n, width)
            for (_, _, j), number in zip(order(n), bits, strict=True):
                block[j] = signed(number, width)
            run.after_raw(block)
            return block
        if head & 3 != CODED:
            raise FrameError("block type is none of coded, constant, raw")
        used, raw_words = (head >> 2) & 0x3FFFFF, head >> 24
        if used > max_words(n):
            raise FrameError("a coded block has more words than one that is sent raw")
        states = unpacked(data.take(FLUSH_BYTES), LANES, STATE_BITS)
        words = unpacked(data.take(2 * ((WORD_BITS * used + 15) // 16)), used, WORD_BITS)
        raw = data.take(2 * raw_words)
        if min(states) < STATE_LOW:
            raise FrameError("a coder state is out of its bounds")
        shift = run.shift
        return _rebuild(self._pop_all(run, states, words, position), raw, shift)

    def _pop_all(self, run: Session, states: list[int], words: list[int], position: list[int]) -> list[int]:
        """Return the symbols of a block in decoding order."""
        n, used, symbols, p = len(position), len(words), [], 0
        words = words + [0] * (n - used)  # a forged block may ask for more than it has
        freq, cumulative = run.tables()
        slots = [b"".join(bytes([s]) * f for s, f in enumerate(row)) for row in freq]
        cut = LANES * cut_row(n // LANES, self.params)
        for i, (lane, j, counted) in enumerate(_places(n)):
            if i == cut:
                run.cut()
            q = run.context(lane, position[j])
            x = states[lane]
            slot = x & (TOTAL - 1)
            s = slots[q][slot]
            x = freq[q][s] * (x >> PROB_BITS) + slot - cumulative[q][s]
            if x < STATE_LOW:
                x = x << WORD_BITS | words[p]
                p += 1
            states[lane] = x
            run.note(q, s, lane, counted)
            symbols.append(s)
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


def _rebuild(symbols: list[int], raw: bytes, shift: int) -> list[int]:
    """Return the values, in order, of a block of `symbols` and their raw bits; raises FrameError."""
    lengths = [0, *(1 + shift + extra for extra in EXTRA[1:])]
    if 2 * ((sum(lengths[s] for s in symbols) + 15) // 16) != len(raw):
        raise FrameError("raw bits do not end where the block does")
    block, at, raw = [0] * len(symbols), 0, raw + bytes(8)
    for (_, j, _), s in zip(_places(len(symbols)), symbols, strict=True):
        if s:
            field = int.from_bytes(raw[at >> 3 : (at >> 3) + 8], "little") >> (at & 7)
            field &= (1 << lengths[s]) - 1
            at += lengths[s]
            low, high = (field >> 1) & ((1 << shift) - 1), field >> (1 + shift)
            m = ((BASE[s] + high - 1) << shift) + low + 1
            block[j] = signed((-m if field & 1 else m) & 0xFFFFFFFF, 32)
    return block
