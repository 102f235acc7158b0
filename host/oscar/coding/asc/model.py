"""ASC's model in plain integers: tables, and rows of values with their classes, contexts and symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oscar.coding.asc.params import (
    BASE,
    COST,
    COUNT_BITS,
    FADE_ABOVE,
    LANES,
    LIMIT,
    NARROW_CLASS,
    POSSIBLE,
    RAW_BITS,
    SAMPLE,
    SYMBOLS,
    TOTAL,
    VALUE_ROWS,
    WIDE_SHIFT,
    context_of,
    count_step,
    counted_lane,
)  # fmt: skip

Rows = list[list[int]]  # sixteen integers for each table row, or the values of each row


def possible(q: int, last: int) -> set[int]:
    """Return the symbols that are possible in table row `q`; last: last symbol of the frame."""
    count = POSSIBLE[q] if q >= VALUE_ROWS else min(POSSIBLE[q], last + 1)
    return {*range(count), SYMBOLS - 1}


def frequencies(hist: Sequence[int], q: int, last: int) -> list[int]:
    """Return the frequencies of table row `q` with histogram row `hist`; they sum to 1024."""
    places = possible(q, last)
    frequent = [h if s in places else 0 for s, h in enumerate(hist)]
    ratio = ((TOTAL - len(places)) << 16) // (sum(frequent) + 1)
    freq = [1 + (h * ratio >> 16) if s in places else 0 for s, h in enumerate(frequent)]
    freq[frequent.index(max(frequent))] += TOTAL - sum(freq)
    return freq


def learn(hist: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return a histogram row after a frame with these counts."""
    scale = max(0, sum(counts).bit_length() - COUNT_BITS)
    fade = sum(hist) > FADE_ABOVE
    return [(h >> fade) + (c >> scale) for h, c in zip(hist, counts, strict=True)]


def octaves(counts: Sequence[int]) -> list[int]:
    """Return the levels of a sent row: 0 for a count of 0, else 15 less the octaves below the largest."""
    largest = max(counts)
    levels = []
    for count in counts:
        down = 0
        while count and 2 * (count << down) ** 2 < largest**2:
            down += 1
        levels.append(max(1, 15 - down) if count else 0)
    return levels


def from_octaves(levels: Sequence[int], q: int, last: int) -> list[int]:
    """Return the frequencies of a sent row."""
    return frequencies([1 << (level - 1) if level else 0 for level in levels], q, last)


def cost(counts: Sequence[int], freq: Sequence[int]) -> int:
    """Return the cost of the counted symbols, in 1/256 bit."""
    return sum(c * COST[f] for c, f in zip(counts, freq, strict=True))


@dataclass
class Row:
    """Up to 32 values, their position classes, and their class."""

    values: list[int]
    positions: list[int]
    row_class: int

    @property
    def mean(self) -> int:
        """The mean position class of the row; missing lanes count as 0."""
        return (sum(self.positions) + LANES // 2) // LANES

    def context(self, lane: int) -> int:
        """Return the table row of the value in `lane`."""
        return context_of(self.row_class, self.positions[lane], self.mean)


def low_bits(row_class: int, shift: int) -> int:
    """Return how many low bits of a row's values go round the tables (k of docs/reference/asc.md)."""
    return shift + (WIDE_SHIFT[row_class - NARROW_CLASS - 1] if row_class > NARROW_CLASS else 0)


def class_of(values: Sequence[int], shift: int, least: int) -> int:
    """Return the class of a row of values; least: the lowest that it may have."""
    high = [v >> shift for v in values]
    if max(map(abs, high)) < LIMIT:
        return max(least, min(NARROW_CLASS, sum(map(abs, high)).bit_length()))
    fits = (c for c, k in enumerate(WIDE_SHIFT, NARROW_CLASS + 1) if max(abs(v >> k) for v in high) < LIMIT)
    return next(fits, NARROW_CLASS + len(WIDE_SHIFT))


def class_context(mean: int) -> int:
    """Return the table row of a row's class."""
    return VALUE_ROWS + min(7, mean)


def symbol_of(value: int, bits: int) -> tuple[int, int]:
    """Return symbol and raw bits of the high part of a value; bits: its low bits that go round the tables."""
    high = value >> bits
    s = max(s for s in range(SYMBOLS) if BASE[s] <= abs(high))
    raw = abs(high) - BASE[s]
    return s, raw | (high < 0) << (RAW_BITS[s] - 1) if s else 0


def live(group: Sequence[Row]) -> int:
    """Return the number of rows whose class is not 0."""
    return sum(row.row_class > 0 for row in group)


def count_group(group: Sequence[Row], number: int, values: int, shift: int, counts: Rows) -> None:
    """Add the sample of a group's classes and symbols to `counts`.

    number: of the group in its block; values: of the frame.
    """
    if not live(group):
        return
    step = count_step(values, live(group))
    for j, row in enumerate(group):
        if (j - number) % SAMPLE == 0:
            counts[class_context(row.mean)][row.row_class] += SAMPLE
        if row.row_class and ((j >> 2) + number) % step == 0:
            for lane in range(counted_lane(j, number), len(row.values), SAMPLE):
                s, _ = symbol_of(row.values[lane], low_bits(row.row_class, shift))
                counts[row.context(lane)][s] += SAMPLE * step


def seed_rows(group: Sequence[Row], count: int) -> list[int]:
    """Return the numbers of the seed rows of a block's first coded group: the first `count` live rows."""
    return [j for j, row in enumerate(group) if row.row_class][:count]
