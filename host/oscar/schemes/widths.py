"""Choose field widths for lossless sums. Every node makes the same choice.

Positions are grouped in classes of similar magnitude. A few summed counters tell all nodes how many values of
each class exceed the limit of each field width. All values of a class go into dense fields of one width,
which may be 0 bits. A value that does not fit is an exception; an index and a list carry it. The choice
affects the cost only: no plan loses a value. Floats use plain operators only, no library functions, so all
machines compute the same bits.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from oscar.array import Array
from oscar.schemes.fields import WORD_BITS, field_limit, fields_per_word

COUNTER_BITS = 32
GRAINS = 1, 4, 8, 16, 32, 64  # values per bit of the first index
FOREVER = math.inf


@dataclass(frozen=True)
class Ladder:
    """The useful field widths for sums of `nodes` workers' magnitudes up to `top`, and their limits.

    Level 0 has no field. Every other level is the widest field for its number of fields per word. The last
    level holds `top`.
    """

    nodes: int
    bits: tuple[int, ...]
    limits: tuple[int, ...]

    @classmethod
    def of(cls, nodes: int, top: int) -> Ladder:
        """Return the ladder. Raises ValueError if no field holds `top`."""
        bits, limits = [0], [0]
        for width in sorted({WORD_BITS // count for count in range(2, WORD_BITS // 2 + 1)}):
            limit = ((1 << width) - 1) // (2 * nodes)
            if limit >= 1:
                bits.append(width)
                limits.append(min(limit, top))
                if limit >= top:
                    return cls(nodes, tuple(bits), tuple(limits))
        raise ValueError(f"no field holds sums of {nodes} workers up to {top} each; use fewer bits")

    def level(self, magnitude: int) -> int:
        """Return the lowest level that holds sums of `magnitude` from each worker."""
        return next(level for level, limit in enumerate(self.limits) if limit >= magnitude)

    def price(self, level: int) -> float:
        """Return the bits per value on the wire at `level`."""
        return WORD_BITS / fields_per_word(self.bits[level]) if level else 0.0

    def counters(self, magnitudes: Array, classes: Array, count: int) -> Array:
        """Return one worker's counters, int32, flat [class, level]: values beyond each level except the last.

        Counters are shifted right so that their sums fit a field. They are rounded up: 0 means no value.
        """
        table = np.array([self.level(m) for m in range(self.limits[-1] + 1)], np.int64)
        levels = len(self.limits)
        joint = classes.astype(np.int64) * levels + table[magnitudes]
        held = np.bincount(joint, minlength=count * levels).reshape(count, levels)
        beyond = np.cumsum(held[:, :0:-1], axis=1)[:, ::-1]
        return (-(-beyond >> self.shift(magnitudes.size))).astype(np.int32).reshape(-1)

    def shift(self, values: int) -> int:
        """Return the right shift that makes a count of up to `values` fit its field."""
        return max(0, values.bit_length() - field_limit(COUNTER_BITS, self.nodes).bit_length() + 1)


@dataclass(frozen=True)
class WidthPlan:
    """The plan of one stage.

    levels: of each class, the level of its dense fields.
    grains: of each class, the grain of its index; 0: no index is needed.
    spare: the level of the fields in which exceptions are sent: wide enough for what an exception has beyond
        the limit of its class.
    """

    levels: tuple[int, ...]
    grains: tuple[int, ...]
    spare: int
    expected: tuple[float, ...]  # exceptions of each class, if workers were independent
    staged: bool  # whether exceptions are split again


def power(base: float, exponent: int) -> float:
    """Return base^exponent by squaring. Unlike pow, it gives the same bits on every machine."""
    out = 1.0
    while exponent:
        if exponent & 1:
            out *= base
        base *= base
        exponent >>= 1
    return out


@dataclass(frozen=True)
class Rules:
    """The means that a plan may use, and their prices.

    grains: values per bit of the first index; empty: no index, fields hold all values.
    widths: how many different widths dense fields may have.
    narrow: whether a dense field may be too narrow for some values of its class.
    cells, swell: cells per exception, each `swell` levels wider than the exception needs.
    staged: whether exceptions may be split again into fields and exceptions.
    message: the price of one message, in bits.
    """

    grains: Sequence[int]
    widths: int
    narrow: bool
    cells: float
    swell: int
    staged: bool
    message: float

    def variants(self) -> list[Rules]:
        """Return restricted rules, from few messages to many. More messages may save bits."""
        result = [replace(self, grains=(), staged=False)]
        for staged in sorted({False, self.staged}):
            for count in sorted({1, len(self.grains)}):
                result.append(replace(self, grains=self.grains[:count], staged=staged))
        return result

    @property
    def fixed(self) -> float:
        """Return the price of the messages for exceptions: index, blocks, values or table, next stage."""
        if not self.grains:
            return 0.0
        return self.message * (1 + (len(self.grains) > 1) + (2 if self.swell else 1) + 3 * self.staged)


def choose(
    ladder: Ladder, sizes: Sequence[int], beyond: Array, *, spread: Sequence[float], rules: Rules
) -> WidthPlan:
    """Return the cheapest plan.

    sizes: number of positions of each class. beyond: summed counters [class, level except the last].
    spread: of each class, exceptions in past iterations / exceptions expected of independent workers.
    """
    totals = [[int(x) for x in row] for row in beyond.reshape(len(sizes), -1)]
    tops = [[*row, 0].index(0) if size else 0 for size, row in zip(sizes, totals, strict=True)]
    none = (0,) * len(sizes)
    best, chosen = FOREVER, WidthPlan(none, none, spare=0, expected=(0.0,) * len(sizes), staged=False)
    for variant in rules.variants():
        classes = [_Class(ladder, variant, *each) for each in zip(sizes, totals, tops, spread, strict=True)]
        options = [[each.option(level) for level in range(max(tops, default=0) + 1)] for each in classes]
        bits, levels = _cheapest(options, rules.message, rules.widths)
        if bits + variant.fixed < best:
            best = bits + variant.fixed
            picked = [options[k][level] for k, level in enumerate(levels)]
            rests = [ladder.limits[t] - ladder.limits[j] for t, j in zip(tops, levels, strict=True) if t > j]
            chosen = WidthPlan(
                tuple(levels),
                tuple(grain for _, grain, _ in picked),
                ladder.level(max(rests, default=0)),
                tuple(expected for _, _, expected in picked),
                variant.staged,
            )
    return chosen


class _Class:
    """The costs of one class. row: how many values lie beyond each level. top: the level that holds all."""

    def __init__(
        self, ladder: Ladder, rules: Rules, size: int, row: Sequence[int], top: int, spread: float
    ) -> None:
        self.ladder, self.rules, self.size, self.row, self.top = ladder, rules, size, row, top
        self.spread = spread

    def option(self, level: int) -> tuple[float, int, float]:
        """Return bits, grain and expected exceptions for fields of one level."""
        ladder, size = self.ladder, self.size
        if level >= self.top:
            return ladder.price(level) * size, 0, 0.0
        if (level and not self.rules.narrow) or not self.rules.grains:
            return FOREVER, 0, 0.0
        local = min(1.0, self.row[level] / (size * ladder.nodes))
        independent = 1.0 - power(1.0 - local, ladder.nodes)
        share = min(1.0, max(local, self.spread * independent))
        index, grain = _index(share, self.rules.grains)
        each = ladder.price(level) + index + share * self.rules.cells * self._rest(level, share)
        return each * size, grain, independent * size

    def _rest(self, level: int, share: float) -> float:
        """Return the bits of the remainder of an exception beyond `level`."""
        ladder = self.ladder
        most = ladder.limits[self.top] - ladder.limits[level]
        need = ladder.level(most)
        whole = ladder.price(min(need + self.rules.swell, len(ladder.bits) - 1))
        if not self.rules.staged:
            return whole
        best = whole
        for lower in range(need):
            reach = ladder.limits[level] + ladder.limits[lower]
            covered = bisect.bisect_right(ladder.limits, reach) - 1
            again = min(1.0, self.row[covered] / (share * self.size)) if covered < self.top else 0.0
            best = min(best, ladder.price(lower) + _index(again, self.rules.grains)[0] + again * whole)
        return best


def _index(share: float, grains: Sequence[int]) -> tuple[float, int]:
    """Return the bits per position of the cheapest index, and its grain. share: indexed / all positions."""
    return min((1.0 if g == 1 else 1.0 / g + 1.0 - power(1.0 - share, g), g) for g in grains)


def _cheapest(
    options: Sequence[Sequence[tuple[float, int, float]]], message: float, widths: int
) -> tuple[float, list[int]]:
    """Return the least bits and each class's level, with at most `widths` different levels besides 0."""
    best, chosen = FOREVER, [0] * len(options)
    count_of_levels = len(options[0]) if options else 1
    for count in range(widths + 1):
        for used in itertools.combinations(range(1, count_of_levels), count):
            mine = [min((of[level][0], level) for level in (0, *used)) for of in options]
            bits = message * count
            for price, _ in mine:
                bits += price
            if bits < best:
                best, chosen = bits, [level for _, level in mine]
    return best, chosen


class FieldLayout:
    """A plan applied to positions: the members of each dense field, and the order of the index.

    The first index message has a bit for each position of classes with grain 1, then a bit for each block of
    the other classes. The second one has a bit for each position of the blocks that hold an exception.
    """

    def __init__(self, plan: WidthPlan, ladder: Ladder, classes: Array) -> None:
        self.plan, self.classes = plan, classes
        levels, grains = np.array(plan.levels), np.array(plan.grains)
        self.limits = np.array(ladder.limits, np.int32)[levels][classes]
        self.dense = [
            (level, np.flatnonzero((levels == level)[classes]))
            for level in sorted(set(plan.levels) - {0})
            if (levels == level)[classes].any()
        ]
        self.indexed = any(plan.grains)
        self.fine = np.flatnonzero((grains == 1)[classes])
        members, blocks, start = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for k, grain in enumerate(plan.grains):
            if grain > 1:
                mine = np.flatnonzero(classes == k)
                members.append(mine)
                blocks.append(start + np.arange(mine.size) // grain)
                start += -(-mine.size // grain)
        self.coarse, self.block, self.blocks = np.concatenate(members), np.concatenate(blocks), start

    def first(self, rest: Array) -> Array:
        """Return one worker's bits of the first index message: positions of grain 1, then blocks."""
        held = np.zeros(self.blocks, bool)
        held[self.block[rest[self.coarse] != 0]] = True
        return np.concatenate([rest[self.fine] != 0, held])

    def opened(self, first: Array) -> Array:
        """Return the positions of all blocks in which some worker has an exception."""
        return self.coarse[first[self.fine.size :][self.block]]

    def keys(self, first: Array, opened: Array, second: Array) -> Array:
        """Return the positions, int64, at which some worker has an exception."""
        return np.concatenate([self.fine[first[: self.fine.size]], opened[second]])

    def spread(self, keys: Array, before: Sequence[float]) -> list[float]:
        """Return exceptions / expected exceptions of each class with an index; `before` for other classes."""
        result = np.bincount(self.classes[keys], minlength=len(before)).tolist()
        return [
            count / expected if expected > 0 else old
            for count, expected, old in zip(result, self.plan.expected, before, strict=True)
        ]
