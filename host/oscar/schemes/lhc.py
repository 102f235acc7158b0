"""Lossless sums of sparse integers: LHC, and OSCAR-SW's lossless form, which splits before it indexes.

LHC (lossless homomorphic compression, arXiv 2402.07529) sends an index of the non-zeros, combined by or; then
a sketch of their values, sized from that index, which is summed and peeled. Where most values are not zero,
it sends packed fields without an index. The split form puts positions that are probably not zero (by the
running mean of aggregated magnitudes) into dense fields, as wide as their class mostly needs, and only what
those do not hold into index and table. Sums are always those of a plain AllReduce of the same integers: all
nodes know before values are sent which of them will not peel, and these go along as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.frame import HEADER_BYTES
from oscar.numerics.position import PositionState
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.schemes.fields import field_bits
from oscar.schemes.grid import Grid, GridSteps
from oscar.schemes.peeling import Peeling, PeelingTable
from oscar.schemes.widths import COUNTER_BITS, GRAINS, FieldLayout, Ladder, Rules, choose
from oscar.state import PART, Saved

CELLS = "sketch", "values"
CLASSES = 16
DRAWS = 4
SEED_MASK = (1 << 64) - 1
NO_BITS, NO_RIDE = np.zeros(0, bool), np.zeros(0, np.int32)


@dataclass(frozen=True)
class LhcOptions:
    """Quantiser (steps in parts of a worker's root mean square, bits of its integers) and table.

    cells: "sketch" sends a table of `ratio` cells per non-zero and `spare` more, over `hashes` hashes and
    blocks of `lanes` values, one to a slot (docs/schemes.md, "Peeling"); "values" sends the non-zeros one
    after the other, which needs no more than the combined index.
    """

    coarseness: float = 0.5
    bits: int = 8
    error_feedback: bool = True
    cells: str = "sketch"
    ratio: float = 1.23
    spare: int = 32
    message_bits: int = 0
    hashes: int = 3
    lanes: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise ValueError(f"integers have 2 to 16 bits, got bits={self.bits}")
        if self.cells not in CELLS:
            raise ValueError(f"cells is one of {', '.join(CELLS)}, got {self.cells!r}")
        if not 1.0 <= self.ratio <= 16.0 or self.spare < 0:
            raise ValueError(f"a table has 1 to 16 cells per key, got ratio={self.ratio}, spare={self.spare}")
        if self.message_bits < 0:
            raise ValueError(f"message_bits is 0 or more, got {self.message_bits}")
        PeelingTable(self.hashes, 1, self.lanes, 0)


@dataclass(frozen=True)
class SplitLhcOptions(LhcOptions):
    """As LhcOptions; more `widths` of fields and more `stages` are fewer bytes, and more messages.

    widths: different widths of dense fields in a stage, a message each. stages: 1 sends exceptions in fields
    that hold all of them; with 2, they are split into fields and exceptions again, and so on.
    """

    cells: str = "values"
    widths: int = 2
    stages: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.widths <= 4:
            raise ValueError(f"dense fields have 0 to 4 widths, got widths={self.widths}")
        if not 1 <= self.stages <= 4:
            raise ValueError(f"values are split in 1 to 4 stages, got stages={self.stages}")


def _read_spread(scheme: Any, saved: Saved) -> list[float]:
    return [item.number(0.0, math.inf) for item in saved.items(scheme.classes)]


class Lhc(Scheme):
    """Index and peeled sketch of all non-zeros, or fields of all values where that is cheaper."""

    name: ClassVar[str] = "lhc"
    lossless: ClassVar[bool] = True
    Options: ClassVar[type[Any]] = LhcOptions
    classes: ClassVar[int] = 1
    grains: ClassVar[Sequence[int]] = (1,)
    narrow: ClassVar[bool] = False  # fields hold whatever their class has
    STATE = Scheme.STATE | {"steps": PART, "spread": _read_spread}

    def _setup(self) -> None:
        self.top = (1 << (self.options.bits - 1)) - 1
        self.ladder = Ladder.of(self.nodes, self.top)
        self.steps = GridSteps(self.sizes, self.nodes, self.options.coarseness, COUNTER_BITS)
        self.spread = [0.0] * self.classes  # see widths.choose; 0: the index is tried before it is judged
        self.sums: Array | None = None
        self.unpeeled = 0  # values of the last iteration that the table did not give up

    @property
    def widths(self) -> int:
        """How many widths dense fields may have."""
        return 1

    @property
    def stages(self) -> int:
        """How often exceptions may be split again."""
        return 1

    def classify(self) -> Array:
        """Return the class of every position, uint8."""
        return np.zeros(self.values, np.uint8)

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected = worker.corrected(values)
        grid = yield from self.steps.agree(corrected)
        mine, worker.saturation = grid.quantise(corrected, self.top)
        worker.integers = mine
        if self.options.error_feedback:
            worker.pending = corrected - grid.dequantise(mine, 1)
        classes = self.once("classes", self.classify)
        yield from self._stage(0, mine, classes, self.classes, grid.ride(corrected))

    def _stage(self, depth: int, values: Array, classes: Array, count: int, ride: Array) -> Messages:
        """Send integers at positions of `count` classes: fields, and what they do not hold by index."""
        counters = self.ladder.counters(np.abs(values), classes, count)
        counters = yield Message(f"counters{depth}", np.concatenate([ride, counters]), bits=COUNTER_BITS)
        layout = self.once(
            f"layout{depth}", lambda: self._layout(depth, counters[ride.size :], classes, count)
        )
        base = np.clip(values, -layout.limits, layout.limits)
        rest = values - base
        if layout.indexed:
            first = yield Message(f"index{depth}", layout.first(rest), "or", bits=1)
            opened = self.once(f"opened{depth}", lambda: layout.opened(first))
            second = NO_BITS
            if opened.size:
                second = yield Message(f"blocks{depth}", rest[opened] != 0, "or", bits=1)
            keys = self.once(f"keys{depth}", lambda: layout.keys(first, opened, second))
            if keys.size:
                yield from self._exceptions(depth, rest, keys, layout)
        for level, members in layout.dense:
            bits = self.ladder.bits[level]
            yield Message(f"fields{depth}.{bits}", base[members], bits=bits)

    def _exceptions(self, depth: int, rest: Array, keys: Array, layout: FieldLayout) -> Messages:
        """Send what is at `keys`: as a table and what it keeps, by a further stage, or one by one."""
        if self.options.cells == "sketch":
            peeling = self.once("peeling", lambda: self._peeling(keys))
            cells = peeling.table.encode(keys, rest[keys])
            data = np.concatenate([cells, rest[keys[peeling.stuck]]])
            # A cell adds up several values of a worker; only workers know how much that comes to.
            worst = np.array([np.abs(data).max(initial=0)], np.float32)
            largest = yield Message("largest", worst, "max")
            yield Message("cells", data, bits=field_bits(max(1, int(largest[0])), self.nodes))
        elif layout.plan.staged:
            yield from self._stage(depth + 1, rest[keys], np.zeros(keys.size, np.uint8), 1, NO_RIDE)
        else:
            yield Message(f"values{depth}", rest[keys], bits=self.ladder.bits[layout.plan.spare])

    def _peeling(self, keys: Array) -> Peeling:
        """Return the first table of a few draws that peels to the end, else the one that keeps least.

        All nodes know the keys, so they try alike; draws are new in every iteration.
        """
        o, found = self.options, []
        for draw in range(DRAWS):
            seed = (self.seed * DRAWS + draw << 32) + self.iteration & SEED_MASK
            table = PeelingTable.sized(
                keys.size, ratio=o.ratio, spare=o.spare, hashes=o.hashes, slots=o.lanes, seed=seed
            )
            found.append(table.plan(keys))
            if not found[-1].stuck.size:
                break
        return min(found, key=lambda peeling: peeling.stuck.size)

    def _layout(self, depth: int, counters: Array, classes: Array, count: int) -> FieldLayout:
        sketch = self.options.cells == "sketch"
        plan = choose(
            self.ladder,
            np.bincount(classes, minlength=count).tolist(),
            counters.astype(np.int64) << self.ladder.shift(classes.size),
            spread=[1.0] if depth else self.spread,
            rules=Rules(
                grains=self.grains,
                widths=self.widths,
                narrow=self.narrow,
                cells=self.options.ratio if sketch else 1.0,
                swell=int(sketch),
                staged=depth + 1 < self.stages and not sketch,
                message=8.0 * HEADER_BYTES * self.nodes + self.options.message_bits,
            ),
        )
        return FieldLayout(plan, self.ladder, classes)

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, rest = self.steps.split(totals)
        ride = rest[0][: len(self.sizes)]
        spread = list(self.spread)
        classes = self.once("classes", self.classify)
        self.unpeeled = 0
        sums = self._collect(0, iter(rest), classes, self.classes, ride.size, spread)
        self.spread, self.sums = spread, sums
        self.steps.observe(grid, ride)
        self.observe(grid, sums)
        self.iteration += 1
        return grid.dequantise(sums, self.nodes)

    def _collect(
        self, depth: int, totals: Iterator[Array], classes: Array, count: int, skip: int, spread: list[float]
    ) -> Array:
        """Return the sums, int32, of what `_stage` sent; `spread` follows the index of the first stage."""
        counters = next(totals)[skip:]
        layout = self.once(f"layout{depth}", lambda: self._layout(depth, counters, classes, count))
        sums = np.zeros(classes.size, np.int32)
        if layout.indexed:
            first = next(totals)
            opened = self.once(f"opened{depth}", lambda: layout.opened(first))
            second = next(totals) if opened.size else NO_BITS
            keys = self.once(f"keys{depth}", lambda: layout.keys(first, opened, second))
            if depth == 0:
                spread[:] = layout.spread(keys, spread)
            if keys.size:
                sums[keys] = self._values(depth, keys, layout, totals)
        for _, members in layout.dense:
            sums[members] += next(totals)
        return sums

    def _values(self, depth: int, keys: Array, layout: FieldLayout, totals: Iterator[Array]) -> Array:
        """Return the sums of what `_exceptions` sent."""
        if self.options.cells == "sketch":
            next(totals)  # the largest cell
            data = next(totals)
            peeling = self.once("peeling", lambda: self._peeling(keys))
            self.unpeeled = peeling.stuck.size
            return peeling.decode(data[: peeling.table.cells], data[peeling.table.cells :])
        if layout.plan.staged:
            return self._collect(depth + 1, totals, np.zeros(keys.size, np.uint8), 1, 0, [])
        return next(totals)

    def observe(self, grid: Grid, sums: Array) -> None:
        """Move on what `classify` uses; nothing here."""

    def reference_sums(self) -> Array | None:
        """Return the last iteration's integer sums, int32."""
        return self.sums


class SplitLhc(Lhc):
    """OSCAR-SW, lossless: probable non-zeros dense by class of running magnitude, the rest by index."""

    name: ClassVar[str] = "oscar-sw-lossless"
    Options: ClassVar[type[Any]] = SplitLhcOptions
    classes: ClassVar[int] = CLASSES
    grains: ClassVar[Sequence[int]] = GRAINS
    narrow: ClassVar[bool] = True
    STATE = Lhc.STATE | {"position": PART}

    def _setup(self) -> None:
        super()._setup()
        self.position = PositionState(self.values)

    @property
    def widths(self) -> int:
        """How many widths dense fields may have."""
        return int(self.options.widths)

    @property
    def stages(self) -> int:
        """How often exceptions may be split again."""
        return int(self.options.stages)

    def classify(self) -> Array:
        """Return the logarithmic class of every position's running magnitude, uint8."""
        return self.position.classes

    def observe(self, grid: Grid, sums: Array) -> None:
        """Follow the aggregated magnitudes, in the steps of the next iteration where they are known."""
        self.position.observe(sums)
        rises = [
            0 if old is None or new is None else new - old
            for old, new in zip(grid.exponents, self.steps.exponents, strict=True)
        ]
        self.position.rescale(self.offsets, rises)
