"""Blocks for encoders: what memory gives of each, and what must come out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from oscar.coding.asc.model import Row, class_of, count_group, frequencies, live, low_bits, symbol_of
from oscar.coding.asc.params import CODED, GROUP_ROWS, LANES, LIMIT, RAW, SYMBOLS, TABLE_ROWS
from oscar.coding.asc.reference import _encode_block, _most_seeds, _nothing, _push_groups

Table = list[list[int]]


def size_of(values: list[int]) -> int:
    """Return the size of a descriptor."""
    if not any(values):
        return 0
    fits = (
        s for s, b in enumerate((3, 4, 5, 8), 1) if all(-(1 << b >> 1) <= v < 1 << b >> 1 for v in values)
    )
    return next(fits, 5)


@dataclass
class SentBlock:
    """Values of a block, their position classes, and what they are coded with."""

    values: list[int]
    positions: list[int]
    table: Table
    bank: int = 0
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at in range(0, len(self.values), LANES):
            row = self.values[at : at + LANES]
            self.rows.append(Row(row, self.positions[at : at + LANES], class_of(row, 0, 0)))

    @property
    def groups(self) -> list[list[Row]]:
        return [self.rows[at : at + GROUP_ROWS] for at in range(0, len(self.rows), GROUP_ROWS)]

    def expected(self) -> tuple[int, bytes]:
        """Return entry and bytes, as if no block were raw."""
        entry, data = _encode_block(self.groups, self.table, 0, width=16, alone=False)
        if entry & 3 != RAW:
            return entry, data
        used = [i for i, group in enumerate(self.groups) if live(group)]
        seeds = _most_seeds(self.groups[used[0]])
        data = _push_groups(self.groups[used[0] : used[-1] + 1], self.table, 0, seeds)
        assert len(data) >= entry >> 24
        return CODED | seeds << 2 | used[0] << 5 | used[-1] << 12 | len(data) << 24, data

    def counts(self) -> Table:
        """Return what is counted."""
        counts = _nothing()
        for number, group in enumerate(self.groups):
            count_group(group, number, len(self.values), 0, counts)
        return counts

    def impossible(self, seeds: int) -> bool:
        """Return whether a symbol is asked for that is not there; `seeds` rows are not coded."""
        at = next((i for i, group in enumerate(self.groups) if live(group)), 0) * GROUP_ROWS
        riding = [j for j in range(at, len(self.rows)) if self.rows[j].row_class][:seeds]
        for j, row in enumerate(self.rows):
            for lane, value in enumerate(row.values if row.row_class else ()):
                high = value >> low_bits(row.row_class, 0)
                if abs(high) >= LIMIT:
                    return True
                symbol, _ = symbol_of(high, 0)
                if j not in riding and not self.table[row.context(lane)][symbol]:
                    return True
        return False

    def data(self, header: bool, row: int, lane: int) -> int:
        """Return what memory gives for a lane."""
        if header:
            at = row + lane
            if at >= len(self.rows):
                return 0
            line = self.rows[at]
            return line.row_class | size_of(line.values) << 4 | line.mean << 7
        line = self.rows[row]
        if lane >= len(line.values):
            return lane << 16 & 7 << 16
        distance = min(4, max(-3, line.positions[lane] - line.mean)) + 3
        return (line.values[lane] & 0xFFFF) | distance << 16


def random_table(rng: random.Random, last: int = SYMBOLS - 1) -> Table:
    """Return the frequencies of random histograms."""
    rows = []
    for q in range(TABLE_ROWS):
        top = rng.choice((1, 4, 60, 2000))
        hist = [rng.randrange(top) if rng.random() < 0.7 else 0 for _ in range(SYMBOLS)]
        rows.append(frequencies(hist, q, last))
    return rows
