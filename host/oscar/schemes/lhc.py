"""Sum sparse integers without loss: LHC, and the lossless form of OSCAR-SW, which splits before it indexes.

LHC (lossless homomorphic compression, arXiv 2402.07529) first sends an index of the non-zeros, combined by
or. Then it sends a sketch of their values, sized from the index, which is summed and peeled. If most values
are not zero, it sends packed fields without an index.

The split form puts positions that are probably not zero into dense fields; the running mean of aggregated
magnitudes chooses them. A field is as wide as most values of its class need. Only values beyond their field
use the index and the table.

The sums always equal those of a plain AllReduce of the same integers. The keys alone decide which values will
not peel, so all nodes know these values beforehand and send them unsketched.
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
from oscar.schemes.grid import Attempt, Grid, GridSteps, rises
from oscar.schemes.peeling import Peeling, PeelingTable
from oscar.schemes.widths import COUNTER_BITS, GRAINS, FieldLayout, Ladder, Rules, choose
from oscar.state import PART

CELLS = "sketch", "values"
CLASSES = 16  # position classes of the split form
DRAWS = 4  # tables to try before some values travel unsketched
SEED_MASK = (1 << 64) - 1
NO_BITS, NO_RIDE = np.zeros(0, bool), np.zeros(0, np.int32)


@dataclass(frozen=True)
class LhcOptions:
    """Options of the scheme `lhc`.

    coarseness: step size / root mean square of a worker's tensor. Raise it for fewer bytes; lower it for
        finer gradients.
    bits: bits of a worker's integer, 2 to 16. Raise it if a saturation warning appears.
    error_feedback: a worker keeps its quantisation errors. Leave it on for training.
    cells: "sketch" sends a table of cells, as published. "values" sends the non-zeros one after the other;
        it needs only the combined index and fewer bytes.
    ratio: cells per non-zero of the table, 1 to 16. Raise it if many values do not peel.
    spare: cells on top of `ratio`. They help small tables.
    message_bits: cost of one message in bits, when the scheme weighs messages against bytes. Raise it on
        networks with high latency.
    hashes: sub-tables of the table, 2 to 8. 3 needs the fewest cells.
    lanes: values that share their hash, one to a slot (docs/reference/schemes.md, "Peeling"). Raise it for
    fewer hashes to compute.
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
    """Options of the scheme `oscar-sw-lossless`: LhcOptions and two more.

    widths: how many widths dense fields may have in a stage, 0 to 4. Each width is one message. Raise it for
        fewer bytes; lower it on networks with high latency.
    stages: how often values are split into fields and exceptions, 1 to 4. With 1, one field width holds all
        exceptions. Raise it for fewer bytes; lower it for fewer messages.
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


class Lhc(Scheme):
    """Send an index and a peeled sketch of all non-zeros, or fields of all values if they are cheaper."""

    name: ClassVar[str] = "lhc"
    lossless: ClassVar[bool] = True
    Options: ClassVar[type[Any]] = LhcOptions
    classes: ClassVar[int] = 1
    grains: ClassVar[Sequence[int]] = (1,)
    narrow: ClassVar[bool] = False  # False: a field is wide enough for every value of its class
    STATE = Scheme.STATE | {
        "steps": PART,
        "spread": lambda scheme, saved: [one.number(0.0, math.inf) for one in saved.items(scheme.classes)],
    }

    def _setup(self) -> None:
        self.top = (1 << (self.options.bits - 1)) - 1
        self.ladder = Ladder.of(self.nodes, self.top)
        self.steps = GridSteps(self.sizes, self.nodes, self.options.coarseness, COUNTER_BITS)
        self.spread = [0.0] * self.classes  # see widths.choose; 0 favours the index until it was tried once
        self.sums: Array | None = None
        self.unpeeled = 0  # values of the last iteration that did not peel

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

        def attempt(grid: Grid) -> Attempt:
            mine, worker.saturation = grid.quantise(corrected, self.top)
            worker.integers = mine
            if self.options.error_feedback:
                worker.pending = corrected - grid.dequantise(mine, 1)
            classes = self.once("classes", self.classify)
            ride = grid.ride(corrected, worker.saturation)
            return (yield from self._stage(0, mine, classes, self.classes, ride))

        yield from self.steps.settle(corrected, self.top, attempt, self.again)

    def _stage(self, depth: int, values: Array, classes: Array, count: int, ride: Array) -> Attempt:
        """Send the integers of `count` classes: fields, and the values beyond their field by index."""
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
        riders: Array = counters[: ride.size]
        return riders

    def _exceptions(self, depth: int, rest: Array, keys: Array, layout: FieldLayout) -> Messages:
        """Send the values at `keys`: as a table and unpeeled values, by a further stage, or one by one."""
        if self.options.cells == "sketch":
            peeling = self.once("peeling", lambda: self._peeling(keys))
            cells = peeling.table.encode(keys, rest[keys])
            data = np.concatenate([cells, rest[keys[peeling.stuck]]])
            # A cell adds several values of a worker, so only a max over workers gives the field's width.
            worst = np.array([np.abs(data).max(initial=0)], np.float32)
            largest = yield Message("largest", worst, "max")
            yield Message("cells", data, bits=field_bits(max(1, int(largest[0])), self.nodes))
        elif layout.plan.staged:
            yield from self._stage(depth + 1, rest[keys], np.zeros(keys.size, np.uint8), 1, NO_RIDE)
        else:
            yield Message(f"values{depth}", rest[keys], bits=self.ladder.bits[layout.plan.spare])

    def _peeling(self, keys: Array) -> Peeling:
        """Return the first of DRAWS tables that peels completely, else the one with the fewest unpeeled keys.

        All nodes know the keys, so all find the same table. Hashes are new in every iteration.
        """
        o, plans = self.options, []
        for draw in range(DRAWS):
            seed = (self.seed * DRAWS + draw << 32) + self.iteration & SEED_MASK
            table = PeelingTable.sized(
                keys.size, ratio=o.ratio, spare=o.spare, hashes=o.hashes, slots=o.lanes, seed=seed
            )
            plans.append(table.plan(keys))
            if not plans[-1].stuck.size:
                break
        return min(plans, key=lambda peeling: peeling.stuck.size)

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
        ride = rest[0][: self.steps.riders]
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
        """Return the sums, int32, of the integers that `_stage` sent. The first stage updates `spread`."""
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
        """Return the sums of the values that `_exceptions` sent."""
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
        """Advance the state of `classify`. Plain LHC has none."""

    def reference_sums(self) -> Array | None:
        """Return the last iteration's integer sums, int32."""
        return self.sums


class SplitLhc(Lhc):
    """Send probable non-zeros in dense fields by class of running magnitude, and the others by index."""

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
        """Update the running magnitudes, and rescale them to the steps of the next iteration."""
        self.position.rescale(self.offsets, rises(self.steps.before, grid.exponents))
        self.position.observe(sums)
        self.position.rescale(self.offsets, rises(grid.exponents, self.steps.exponents))
