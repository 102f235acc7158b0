"""Blocks for decoders: what they are given of each, and what must come out."""

from __future__ import annotations

import random

from oscar.coding.asc.model import Row, Rows, count_group, frequencies, live, symbol_of
from oscar.coding.asc.params import LIMIT, PRIOR, SYMBOLS, TABLE_ROWS, AscParams
from oscar.coding.asc.reference import ReferenceCoder, _decode_block, _most_seeds, _push_groups, _Reader
from oscar.errors import FrameError

SIZES = (3, 4, 5, 8, 16)  # bits


class DecodedBlock:
    """A block, what a decoder is given of it, and what must come out."""

    raw = False

    def __init__(self, values: list[int], positions: list[int], freq: Rows, *, seeds: int = -1) -> None:
        self.values, self.positions, self.freq = values, positions, freq
        self.bank = 0
        self.groups = ReferenceCoder(AscParams())._groups(values, positions, 0)
        used = [i for i, group in enumerate(self.groups) if live(group)] or [0]
        self.first, self.last = used[0], used[-1]
        self.seeds = _most_seeds(self.groups[self.first]) if seeds < 0 else seeds
        self.data = _push_groups(self.groups[self.first : self.last + 1], freq, 0, self.seeds)

    def damaged(self, data: bytes) -> bool:
        """Let the reference decode other bytes; return whether it refuses them."""
        entry = self.seeds << 2 | self.first << 5 | self.last << 12 | len(data) << 24
        try:
            self.groups, _ = _decode_block(entry, _Reader(data), self.positions, self.freq, 0)
        except FrameError:
            return True
        return False

    def row(self, number: int) -> Row:
        """Return a row of the block."""
        return self.groups[number >> 5][number & 31]

    def position(self, header: bool, row: int, lane: int) -> int:
        """Return what memory says of a lane: the mean of row `row + lane`, or the distance of a value."""
        if header:
            at = row + lane
            group = self.groups[at >> 5]
            return group[at & 31].mean if at & 31 < len(group) else 0
        line = self.row(row)
        p = line.positions[lane] if lane < len(line.positions) else 0
        return max(-3, min(4, p - line.mean)) + 3

    def order(self) -> list[int]:
        """Rows in the order in which they are decoded; seed rows at last, the first of them first."""
        rows = []
        for g in range(self.last, self.first - 1, -1):
            used = [j for j, row in enumerate(self.groups[g]) if row.row_class]
            riding = self.seeds if g == self.first else 0
            rows += [g * 32 + j for j in (*used[riding:][::-1], *used[:riding])]
        return rows

    def counts(self) -> dict[tuple[int, int], int]:
        counts = [[0] * SYMBOLS for _ in range(TABLE_ROWS)]
        for number in range(self.first, self.last + 1):
            count_group(self.groups[number], number, len(self.values), 0, counts)
        return {(q, s): n for q, row in enumerate(counts) for s, n in enumerate(row) if n}


def raw_data(values: list[int]) -> bytes:
    """Return what a decoder takes of a raw block, which it takes from its end on: the last row first."""
    padded = values + [0] * (-len(values) % 32)
    rows = [padded[at : at + 32] for at in range(0, len(padded), 32)]
    return b"".join((v & 0xFFFF).to_bytes(2, "little") for row in rows[::-1] for v in row)


class RawBlock(DecodedBlock):
    """A block whose values come as they are: rows in their order, of each the last lane first."""

    raw = True

    def __init__(self, values: list[int], positions: list[int], freq: Rows) -> None:
        self.values, self.positions, self.freq = values, positions, freq
        self.bank = self.seeds = self.first = 0
        self.groups = ReferenceCoder(AscParams())._groups(values, positions, 0)
        self.last = len(self.groups) - 1
        self.data = raw_data(values)

    def order(self) -> list[int]:
        """Rows in their order."""
        return [
            g * 32 + j for g, group in enumerate(self.groups) for j, row in enumerate(group) if row.row_class
        ]

    def counts(self) -> dict[tuple[int, int], int]:
        counts = [[0] * SYMBOLS for _ in range(TABLE_ROWS)]
        for number, group in enumerate(self.groups):
            count_group(group, number, len(self.values), 0, counts)
        return {(q, s): n for q, row in enumerate(counts) for s, n in enumerate(row) if n}


def random_freq(rng: random.Random, last: int) -> Rows:
    """Return tables from flat to steep."""
    rows = []
    for q in range(TABLE_ROWS):
        hist = [*PRIOR[q], *[0] * (SYMBOLS - len(PRIOR[q]))]
        kind = rng.randrange(3)
        if kind == 1:
            hist = [rng.randrange(1, 60) for _ in hist]
        elif kind == 2:
            hist = [rng.randrange(2000) if rng.randrange(4) == 0 else 0 for _ in hist]
        rows.append(frequencies(hist, q, last))
    return rows


LARGEST = (1, 1, 2, 3, 4, 7, 8, 15, 40, 127, 128, 191, 192, 300, 382, 383, 1535, 1536, 9000, 32767)


def random_block(rng: random.Random, count: int, *, zero: float = -1.0, seeds: int = -1) -> DecodedBlock:
    """Return rows of all sizes, some of them 0, with positions near and far from their mean."""
    zero = rng.choice([0, 0.3, 0.9, 0.98]) if zero < 0 else zero
    values, positions = [], []
    most = rng.randrange(1, len(LARGEST) + 1)
    for _ in range(0, count, 32):
        k = 0 if rng.random() < zero else rng.choice(LARGEST[:most])
        row = [rng.randint(-k, k) if rng.random() < 0.8 else 0 for _ in range(32)]
        row[rng.randrange(32)] = rng.choice([0, -k, k, -32768 if k == 32767 else 0])
        mean, spread = rng.randrange(16), rng.choice([0, 2, 5, 15])
        values += row
        positions += [max(0, min(15, mean + rng.randint(-spread, spread))) for _ in range(32)]
    values[rng.randrange(count)] = rng.choice([1, -1, 5, -300])
    del values[count:], positions[count:]
    last = max(symbol_of(min(LIMIT - 1, abs(v)), 0)[0] for v in values)
    block = DecodedBlock(values, positions, random_freq(rng, last), seeds=seeds)
    block.bank = rng.randrange(2)
    return block


def random_local(rng: random.Random, block: DecodedBlock) -> dict[tuple[int, int], int]:
    """Return values to add, some of which make sums small or large."""
    local = {}
    for i, v in enumerate(block.values):
        add = rng.choice([0, 0, -v, rng.randint(-3, 3), rng.randint(-40, 40), rng.randrange(1 << 16)])
        local[i >> 5, i & 31] = add & 0xFFFF
    return local
