"""The reference coder of ASC in plain integers; read it beside docs/reference/asc.md.

The compiled coder and the GPU's must equal it bit for bit. Everything is a Python int or a list of ints, so
nothing overflows and nothing rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oscar.coding.asc.lanes import Lanes, Step, raw_steps
from oscar.coding.asc.model import (
    Row,
    Rows,
    class_context,
    class_of,
    cost,
    count_group,
    frequencies,
    from_octaves,
    learn,
    live,
    low_bits,
    octaves,
    seed_rows,
    symbol_of,
)  # fmt: skip
from oscar.coding.asc.params import (
    BASE,
    CODED,
    CONSTANT,
    COST_BITS,
    DIRECTORY_BYTES,
    FLUSH_BYTES,
    GROUP,
    GROUP_ROWS,
    LANES,
    LIMIT,
    MASK_BYTES,
    MAX_BLOCK_LOG2,
    MIN_BLOCK_LOG2,
    MOST_SEED_ROWS,
    PREFIX_BYTES,
    RAW,
    RAW_BITS,
    RAW_STEP,
    SENT_GAIN,
    SENT_ROW_BYTES,
    SENT_SYMBOL_GAIN,
    STATE_LOW,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    AscParams,
    auto_block_log2,
    group_cycle,
    raw_limit,
    seed_bits,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.coding.asc.turns import cells_of, raw_rows
from oscar.coding.codec import check_range
from oscar.errors import FrameError


class ReferenceCoder:
    """Codes payloads one integer at a time; same interface as the compiled coder."""

    def __init__(self, params: AscParams) -> None:
        self.params = params
        self._classes: list[int] = []  # classes of the rows of the last encoded frame
        self._values, self._raw = 0, np.zeros(0, bool)
        self.taken: list[list[int]] = []  # bytes of each step of the coded blocks that were decoded last

    # --- encoding

    def encode(self, values: np.ndarray, classes: np.ndarray | None, width: int, state: TableState) -> bytes:
        """Return the payload of integers; raises ValueError if they do not fit `width` bits."""
        self._classes, self._values = [], values.size
        if not values.size:
            return b""
        numbers = [int(v) for v in values]
        check_range(min(numbers), max(numbers), width)
        shift = max(0, max(v ^ (v >> 31) for v in numbers).bit_length() - 15)
        groups = self._groups(numbers, self._positions(classes, len(numbers)), shift)
        counts = _counted(groups, group_cycle(self.params.block_log2), len(numbers), shift)
        self._classes = [row.row_class for group in groups for row in group]
        last = symbol_of(min(LIMIT - 1, max(max(numbers), -min(numbers))), 0)[0]
        freq, sent = self._tables(state, counts, last)
        log2 = self.params.block_log2 or auto_block_log2(len(numbers), _estimate(counts, freq))
        size = (1 << log2) // (LANES * GROUP_ROWS)
        blocks = [groups[at : at + size] for at in range(0, len(groups), size)]
        coded = [_encode_block(block, freq, shift, width, len(blocks) == 1) for block in blocks]
        state.hist[:] = [learn(h, c) for h, c in zip(state.hist.tolist(), counts, strict=True)]
        out = bytearray((log2 | shift << 5 | bool(sent) << 10 | last << 11).to_bytes(PREFIX_BYTES, "little"))
        if sent:
            out += sum(1 << q for q in sent).to_bytes(MASK_BYTES, "little")
            for levels in sent.values():
                out += sum(level << (4 * s) for s, level in enumerate(levels)).to_bytes(
                    SENT_ROW_BYTES, "little"
                )
        head = len(out)
        out += b"".join(entry.to_bytes(DIRECTORY_BYTES, "little") for entry, _ in coded)
        self._raw = raw_rows(np.frombuffer(bytes(out), np.uint8), head, len(numbers))
        return bytes(out) + b"".join(data for _, data in coded)

    def _groups(self, values: Sequence[int], positions: Sequence[int], shift: int) -> list[list[Row]]:
        """Cut values into rows, and rows into groups."""
        rows = []
        for at in range(0, len(values), LANES):
            row = list(values[at : at + LANES])
            row_class = class_of(row, shift, self.params.least_class)
            rows.append(Row(row, list(positions[at : at + LANES]), row_class))
        return [rows[at : at + GROUP_ROWS] for at in range(0, len(rows), GROUP_ROWS)]

    def _positions(self, classes: np.ndarray | None, count: int) -> list[int]:
        if classes is None or not self.params.uses_position:
            return [0] * count
        return [int(c) for c in classes]

    def _tables(self, state: TableState, counts: Rows, last: int) -> tuple[Rows, dict[int, list[int]]]:
        """Return the frequencies that code a frame, and the levels of the rows that are sent."""
        freq = [frequencies(row, q, last) for q, row in enumerate(state.hist.tolist())]
        sent = {}
        for q in range(TABLE_ROWS) if self.params.sent_rows else ():
            levels = octaves(counts[q])
            distribution = from_octaves(levels, q, last)
            least = SENT_GAIN + SENT_SYMBOL_GAIN * sum(map(bool, levels))
            if 10 * (cost(counts[q], freq[q]) - cost(counts[q], distribution)) > least:
                freq[q], sent[q] = distribution, levels
        return freq, sent

    def work(self, _: object = None) -> np.ndarray | None:
        """See Coder.work."""
        if not self._classes:
            return None
        return cells_of(np.array(self._classes, np.uint8), self._values, self._raw)

    # --- decoding

    def decode(
        self,
        payload: memoryview,
        count: int,
        classes: np.ndarray | None,
        width: int,
        state: TableState,
        out: np.ndarray,
        plus: np.ndarray | None,
    ) -> None:
        """See Coder.decode; nothing has changed if it raises."""
        values = np.array(self._decode(payload, count, classes, width, state), np.int32)
        out[:] = (values if plus is None else plus + values).astype(out.dtype)

    def _decode(
        self, payload: memoryview, count: int, classes: np.ndarray | None, width: int, state: TableState
    ) -> list[int]:
        data = _Reader(bytes(payload))
        if not count:
            data.end()
            return []
        prefix = data.take(PREFIX_BYTES)
        log2, shift, last = prefix & 31, prefix >> 5 & 31, prefix >> 11 & 15
        if prefix >> 15 or not MIN_BLOCK_LOG2 <= log2 <= MAX_BLOCK_LOG2 or shift > max(0, width - 16):
            raise FrameError(f"payload starts with 0x{prefix:04x}, which no sender writes")
        freq = [frequencies(row, q, last) for q, row in enumerate(state.hist.tolist())]
        if prefix >> 10 & 1:
            mask = data.take(MASK_BYTES)
            for q in range(TABLE_ROWS):
                if mask >> q & 1:
                    row = data.take(SENT_ROW_BYTES)
                    freq[q] = from_octaves([row >> (4 * s) & 15 for s in range(SYMBOLS)], q, last)
        entries = [data.take(DIRECTORY_BYTES) for _ in range(0, count, 1 << log2)]
        positions = self._positions(classes, count)
        values: list[int] = []
        groups: list[list[Row]] = []
        self.taken = []
        for entry in entries:
            part = positions[len(values) : len(values) + (1 << log2)]
            block = _plain_block(entry, data, len(part), min(width, 16 + shift))
            if block is None:
                if not FLUSH_BYTES <= entry >> 24 < (len(part) * width + 7) // 8:
                    raise FrameError(
                        f"a coded block of {entry >> 24} bytes: shorter than its states, or than raw"
                    )
                groups_here, taken = _decode_block(entry, data, part, freq, shift)
                groups += groups_here
                self.taken.append(taken)
            else:
                groups += self._groups(block, part, shift)
            values += [v for group in groups[len(values) // GROUP :] for row in group for v in row.values]
        data.end()
        for line in (line for group in groups for line in group):  # forged values may need more than 32 bits
            line.values = [_signed(v & 0xFFFFFFFF, 32) for v in line.values]
        counts = _counted(groups, group_cycle(log2), count, shift)
        state.hist[:] = [learn(h, c) for h, c in zip(state.hist.tolist(), counts, strict=True)]
        size = 16 if width <= 16 else 32
        return [_signed(v & ((1 << size) - 1), size) for group in groups for row in group for v in row.values]


def _nothing() -> Rows:
    return [[0] * SYMBOLS for _ in range(TABLE_ROWS)]


def _counted(groups: Sequence[Sequence[Row]], cycle: int, values: int, shift: int) -> Rows:
    counts = _nothing()
    for number, group in enumerate(groups):
        count_group(group, number % cycle, values, shift, counts)
    return counts


def _estimate(counts: Rows, freq: Rows) -> int:
    """Return the expected bytes of a frame: costs of the symbols and their raw bits."""
    total = sum(cost(c, f) for c, f in zip(counts, freq, strict=True))
    raw = sum(c * bits for row in counts[:VALUE_ROWS] for c, bits in zip(row, RAW_BITS, strict=True))
    return ((total >> COST_BITS) + raw) >> 3


def _encode_block(
    groups: Sequence[Sequence[Row]], freq: Rows, shift: int, width: int, alone: bool
) -> tuple[int, bytes]:
    """Return the directory entry and the bytes of a block; alone: the frame's only one."""
    values = [v for group in groups for row in group for v in row.values]
    if min(values) == max(values):
        return CONSTANT | (values[0] & 0xFFFFFFFF) << 16, b""
    bits = max((v ^ (v >> 31)).bit_length() for v in values) + 1
    raw_size = (len(values) * bits + 7) // 8
    used = [i for i, group in enumerate(groups) if shift or live(group)]
    first, last = used[0], used[-1]
    seeds = _most_seeds(groups[first])
    data = _push_groups(groups[first : last + 1], freq, shift, seeds)
    if len(data) >= raw_limit(len(values), bits, width, alone):
        packed = sum((v & ((1 << bits) - 1)) << (bits * i) for i, v in enumerate(values))
        return RAW | bits << 2 | raw_size << 24, packed.to_bytes(raw_size, "little")
    return CODED | seeds << 2 | first << 5 | last << 12 | len(data) << 24, data


def _most_seeds(group: Sequence[Row]) -> int:
    """Return the largest number n of seed rows whose values fit the start states, 0 if none does."""
    for count in range(MOST_SEED_ROWS, 0, -1):
        half = 1 << (seed_bits(count) - 1)
        rows = seed_rows(group, count)
        if rows and all(-half <= v < half for j in rows for v in group[j].values):
            return count
    return 0


def _push_groups(groups: Sequence[Sequence[Row]], freq: Rows, shift: int, seeds: int) -> bytes:
    states = [STATE_LOW] * LANES
    riding = seed_rows(groups[0], seeds)
    for i, j in enumerate(riding):
        bits = seed_bits(seeds)
        for lane, value in enumerate(groups[0][j].values):
            states[lane] |= (value & ((1 << bits) - 1)) << (bits * i)
    coder = Lanes(states)
    for group in groups:
        for j, row in enumerate(group):
            if group is groups[0] and j in riding:
                continue
            if row.row_class:
                coder.push([_value_step(row, lane, freq, shift) for lane in range(len(row.values))])
            low = [raw_steps(v, low_bits(row.row_class, shift)) for v in row.values]
            for steps in zip(*low, strict=True):
                coder.push(steps)
        coder.push([_class_step(row, freq) for row in group])
    return coder.flush()


def _value_step(row: Row, lane: int, freq: Rows, shift: int) -> Step:
    s, raw = symbol_of(row.values[lane], low_bits(row.row_class, shift))
    f = freq[row.context(lane)]
    return f[s], sum(f[:s]), raw, RAW_BITS[s]


def _class_step(row: Row, freq: Rows) -> Step:
    f = freq[class_context(row.mean)]
    return f[row.row_class], sum(f[: row.row_class]), 0, 0


def _plain_block(entry: int, data: _Reader, n: int, width: int) -> list[int] | None:
    """Return the `n` values of a constant or raw block; None for a coded one."""
    if entry & 3 == CONSTANT:
        value = _signed(entry >> 16, 32)
        if entry >> 2 & 0x3FFF or not -(1 << (width - 1)) <= value < 1 << (width - 1):
            raise FrameError(f"a constant block of {value}, which does not fit {width} bits or its entry")
        return [value] * n
    if entry & 3 == RAW:
        bits, size = entry >> 2 & 63, entry >> 24
        if entry >> 8 & 0xFFFF or not 1 <= bits <= width or size != (n * bits + 7) // 8:
            raise FrameError(
                f"a raw block of {size} bytes and {bits} bits a value, for {n} values of {width}"
            )
        packed = data.take(size)
        return [_signed(packed >> (bits * i) & ((1 << bits) - 1), bits) for i in range(n)]
    return None


def _decode_block(
    entry: int, data: _Reader, positions: list[int], freq: Rows, shift: int
) -> tuple[list[list[Row]], list[int]]:
    """Decode a coded block; return its groups, and the bytes that each step took."""
    rows = [
        Row([0] * len(p), p, 0) for p in (positions[i : i + LANES] for i in range(0, len(positions), LANES))
    ]
    groups = [rows[at : at + GROUP_ROWS] for at in range(0, len(rows), GROUP_ROWS)]
    seeds, first, last = entry >> 2 & 7, entry >> 5 & 127, entry >> 12 & 127
    if entry & 3 != CODED or entry >> 19 & 31 or seeds > MOST_SEED_ROWS or not first <= last < len(groups):
        raise FrameError(f"a block's entry is 0x{entry:012x}, which no sender writes")
    coder = Lanes.load(data.bytes(entry >> 24))
    for g in range(last, first - 1, -1):
        _pop_group(coder, groups[g], freq, shift, seeds if g == first else 0)
    _finish(coder, groups[first], seeds)
    return groups, coder.taken


def _pop_group(coder: Lanes, group: list[Row], freq: Rows, shift: int, seeds: int) -> None:
    """Undo the steps of a group: its classes, then its rows, the last one first. Seed rows stay 0."""
    tables = [(freq[class_context(row.mean)], [0] * SYMBOLS) for row in group]
    for row, (s, _) in zip(group, coder.pop(tables), strict=True):
        row.row_class = s
    riding = seed_rows(group, seeds)
    for j in reversed(range(len(group))):
        if j in riding:
            continue
        row, bits = group[j], low_bits(group[j].row_class, shift)
        lanes = range(len(row.values))
        for at in reversed(range(0, bits, RAW_STEP)):
            size = min(RAW_STEP, bits - at)
            raw = coder.pop([([TOTAL], [size]) for _ in lanes])
            row.values = [v | r << at for v, (_, r) in zip(row.values, raw, strict=True)]
        if row.row_class:
            popped = coder.pop([(freq[row.context(lane)], RAW_BITS) for lane in lanes])
            row.values = [v | _high(s, raw) << bits for v, (s, raw) in zip(row.values, popped, strict=True)]


def _high(s: int, raw: int) -> int:
    """Return the high part with this symbol and these raw bits; undoes `symbol_of`."""
    if not s:
        return 0
    top = 1 << (RAW_BITS[s] - 1)
    magnitude = BASE[s] + (raw & (top - 1))
    return -magnitude if raw & top else magnitude


def _finish(coder: Lanes, group: Sequence[Row], seeds: int) -> None:
    """Take the seed rows out of the start states; raises FrameError if anything else is left."""
    riding = seed_rows(group, seeds)
    bits = seed_bits(seeds) if seeds else 0
    for lane, x in enumerate(coder.states):
        rest = x - STATE_LOW
        for i, j in enumerate(riding):
            if lane < len(group[j].values):
                group[j].values[lane] = _signed(rest >> (bits * i) & ((1 << bits) - 1), bits)
                rest &= ~(((1 << bits) - 1) << (bits * i))
        if rest:
            raise FrameError("a coder state does not end where it started")
    if coder.data:
        raise FrameError(f"{len(coder.data)} bytes of a block are left over")


def _signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


class _Reader:
    """Reads little-endian integers from the front of `data`; raises FrameError behind its end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise FrameError("payload ends inside a block: frame damaged")
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, size: int) -> int:
        return int.from_bytes(self.bytes(size), "little")

    def end(self) -> None:
        if self.at != len(self.data):
            raise FrameError(f"{len(self.data) - self.at} bytes follow the last block: frame damaged")
