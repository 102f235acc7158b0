"""OSCAR-SW: probable zeros and non-zeros split apart, in buffers that plain AllReduce sums (HPCA 2026).

The running mean of the aggregated gradient says which values are probably not zero. Every node has it, so no
index is ever sent. `oscar-sw` is the paper's method: non-zeros dense, zeros count-sketched, everything
linear. Damped estimates and error feedback are ours; the option `paper` leaves them out. `oscar-sw-best`
replaces the sketch by a sweep: each zero is sent exactly once in `period` iterations, and error feedback
keeps what waits. docs/schemes.md, "OSCAR-SW".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit

from oscar.array import Array
from oscar.numerics.sketch.count_sketch import CountSketch, columns_for
from oscar.schemes.base import RIDE_BITS, Message, Messages, Scheme, Worker
from oscar.schemes.count_sketch import MEDIAN_OF, noise_caution
from oscar.schemes.fields import field_bits, field_limit
from oscar.schemes.grid import Grid, GridSteps
from oscar.schemes.selection import ProbableNonZeros
from oscar.state import PART, Saved

CODED_BITS = 8  # of a worker's integer where ASC codes the sums
CODED_LIMIT = (1 << (CODED_BITS - 1)) - 1
CLASS_LIMIT = 15
MOST_SHIFT = 16  # of the steps of zeros over those of non-zeros


@dataclass(frozen=True)
class SplitOptions:
    """Options of both forms.

    share: of all values that count as probably not zero. lane_bits: of the packed field of a dense sum;
    coded: ASC instead of fields. coarseness: step / root mean square of a tensor. weight, hysteresis, every:
    of the choice (ProbableNonZeros). relative: choose by magnitude in steps of the tensor instead of in
    absolute size.
    """

    share: float = 0.5
    lane_bits: int = 8
    coded: bool = False
    coarseness: float = 0.5
    weight: float = 0.1
    hysteresis: float = 0.0
    every: int = 1
    relative: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is a part of all values, 0 to 1, got {self.share}")


def check_shift(zero_shift: int) -> None:
    """Refuse steps of zeros that are out of all proportion to those of non-zeros."""
    if not -MOST_SHIFT <= zero_shift <= MOST_SHIFT:
        raise ValueError(f"zero_shift is {-MOST_SHIFT} to {MOST_SHIFT} octaves, got {zero_shift}")


class _Split(Scheme):
    """The dense half of both forms, and the first iteration, in which everything is dense."""

    STATE = Scheme.STATE | {"grid": PART, "chosen": PART}

    def _setup(self) -> None:
        options, nodes = self.options, self.nodes
        # Sizes ride in fields of their own, or, as 8-bit integers like the rest, in ASC frames.
        ride_bits = field_bits(CODED_LIMIT, nodes) if options.coded else RIDE_BITS
        self.grid = GridSteps(self.sizes, nodes, options.coarseness, ride_bits)
        self.limit = CODED_LIMIT if options.coded else field_limit(options.lane_bits, nodes)
        self.chosen = ProbableNonZeros(
            self.values,
            share=options.share,
            weight=options.weight,
            hysteresis=options.hysteresis,
            every=options.every,
        )

    def _dense(self, channel: str, integers: Array, positions: Array | None, ride: Array | None) -> Message:
        """Return the sum message of integers at `positions` (None: all), with what rides along."""
        if not self.options.coded:
            return Message(channel, integers, bits=self.options.lane_bits, ride=ride)
        data = integers if ride is None else np.concatenate([integers, np.minimum(ride, CODED_LIMIT)])
        return Message(
            channel,
            data,
            bits=CODED_BITS,
            coded=True,
            context=self.once(f"classes of {channel}", lambda: self._classes(data.size, positions)),
        )

    def _classes(self, count: int, positions: Array | None) -> Array:
        """Position classes 0 .. 15 of dense values: the logarithm of their running magnitude in steps."""
        classes = np.full(count, CLASS_LIMIT, np.uint8)
        magnitude = self.chosen.magnitude if positions is None else self.chosen.magnitude[positions]
        offsets = self.offsets
        where = np.arange(self.values) if positions is None else positions
        steps = self.grid.grid(None).steps if not self.grid.unset else np.ones(len(self.sizes))
        owner = np.searchsorted(offsets, where, side="right") - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            units = magnitude if self.options.relative else magnitude / steps[owner]
        sixteenths = np.nan_to_num(units * (16 * self.nodes), posinf=65535.0).clip(0, 65535).astype(np.int64)
        classes[: magnitude.size] = np.minimum(CLASS_LIMIT, np.frexp(sixteenths.astype(np.float64))[1])
        return classes

    def _see(self, mean: Array, grid: Grid) -> None:
        """Let the choice see the mean gradient as it was sent: what was not sent counts as 0."""
        if self.options.relative:
            inverse = np.array([0.0 if e is None else 2.0**-e for e in grid.exponents], np.float32)
            mean = mean * np.repeat(inverse, self.sizes)
        self.chosen.observe(mean)

    def coded_channels(self) -> dict[str, int]:
        return dict.fromkeys(("first", "dense", "due"), CODED_BITS) if self.options.coded else {}


@dataclass(frozen=True)
class OscarSwOptions(SplitOptions):
    """ratio: cells / all values, all rows together; 0 sends no zeros at all. cell_bits: of a cell's field.

    zero_shift: zeros are quantised 2^zero_shift times coarser (finer, below 0) than non-zeros: a cell adds
    many small values, a narrow field holds one large value. paper: the published form, which applies medians
    as they are and keeps nothing; it needs three rows. Its noise makes SGD with momentum diverge.
    """

    rows: int = 1
    ratio: float = 0.5
    cell_bits: int = 8
    zero_shift: int = 0
    paper: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratio:
            columns_for(self.ratio, 1, self.rows)
        check_shift(self.zero_shift)


class OscarSw(_Split):
    """Probable non-zeros dense, probable zeros count-sketched; all of it linear."""

    name: ClassVar[str] = "oscar-sw"
    Options = OscarSwOptions

    def _setup(self) -> None:
        super()._setup()
        if self.options.ratio:
            self.columns = columns_for(self.options.ratio, self.values, self.options.rows)

    def caution(self) -> str | None:
        if not self.options.paper or not self.options.ratio:
            return None
        zeros = self.values - self.chosen.count
        said = noise_caution(zeros, self.columns, MEDIAN_OF[self.options.rows])
        return said and f"{said}; without the option paper it converges"

    def _sketch(self) -> CountSketch:
        """Return this iteration's sketch: other hashes each time, so that no two values collide for ever."""
        return CountSketch(self.options.rows, self.columns, self.values, self.seed, draw=self.iteration)

    def _zeros(self, cells: Array, grid: Grid, nodes: int) -> Array:
        """Return the mean of the probable zeros that the summed cells of `nodes` workers give, float32.

        Damped by 1 + noise it is linear, but for the last rounding: what each worker decodes of its own cells
        adds up, so that each can keep what is missing (docs/schemes.md, "Noise, and what waits").
        """
        others, sketch = self.once("others", lambda: self.chosen.others), self.once("sketch", self._sketch)
        paper, rows = self.options.paper, self.options.rows
        estimates = sketch.estimate(cells, indices=others, combine="median" if paper else "sum")
        damping = 1.0 if paper else rows + others.size / sketch.columns
        coarse = grid.coarser(self.options.zero_shift)
        return coarse.dequantise(estimates, nodes * damping, indices=others)

    def messages(self, worker: Worker, values: Array) -> Messages:
        o = self.options
        own = worker.corrected(values)
        grid = yield from self.grid.agree(own)
        ride = grid.ride(own)
        positions = self.chosen.positions
        dense, worker.saturation = grid.quantise(own, self.limit, indices=positions)
        where = np.arange(self.values) if positions is None else positions
        pending = None if o.paper else own.copy()
        if pending is not None:
            pending[where] -= grid.dequantise(dense, 1, indices=where)
        yield self._dense("dense" if positions is not None else "first", dense, positions, ride)
        if positions is not None:
            others = self.once("others", lambda: self.chosen.others)
            if o.ratio:
                coarse, limit = grid.coarser(o.zero_shift), field_limit(o.cell_bits, self.nodes)
                zeros, lost = coarse.quantise(own, self.limit, indices=others)
                cells = self.once("sketch", self._sketch).encode(zeros, indices=others).ravel()
                cells, cut = coarse.clip_cells(cells, limit, rows=o.rows, values=own)
                worker.saturation += lost + cut
                if pending is not None:
                    pending[others] -= self._zeros(cells, grid, 1)
                yield Message("cells", cells, bits=o.cell_bits)
            elif pending is not None:
                pending[others] = 0  # what is never sent does not wait either
        worker.pending = pending

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.grid.split(totals)
        tensors, positions = len(self.sizes), self.chosen.positions
        dense, ride = totals[0][: totals[0].size - tensors], totals[0][totals[0].size - tensors :]
        mean = np.zeros(self.values, np.float32)
        where = np.arange(self.values) if positions is None else positions
        mean[where] = grid.dequantise(dense, self.nodes, indices=where)
        if len(totals) > 1:
            mean[self.once("others", lambda: self.chosen.others)] = self._zeros(totals[1], grid, self.nodes)
        self.grid.observe(grid, ride)
        self._see(mean, grid)
        self.iteration += 1
        return mean


@dataclass(frozen=True)
class OscarSwBestOptions(SplitOptions):
    """period: iterations in which every probable zero is sent once (1 / period of them each time).

    zero_shift: zeros are quantised 2^zero_shift times coarser, since what waited is larger. feedback: what is
    not sent waits on its worker. Without it each zero that is sent counts `period` times: unbiased and never
    late, but noisy, which suits Adam. spread: apply what a zero brought in `period` equal parts instead of at
    once, which suits momentum.
    """

    share: float = 0.3
    period: int = 2
    zero_shift: int = 1
    spread: bool = False
    feedback: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period < 1:
            raise ValueError(f"period is 1 or more iterations, got {self.period}")
        check_shift(self.zero_shift)


def _read_held(scheme: Any, saved: Saved) -> Array | None:
    if saved.missing != (scheme.held is None):
        raise saved.refuse("an array" if saved.missing else "None without spread")
    return None if saved.missing else saved.array(np.float32, (scheme.values,))


class OscarSwBest(_Split):
    """Probable non-zeros dense, a share of the probable zeros in turn; the rest waits or is estimated."""

    name: ClassVar[str] = "oscar-sw-best"
    Options = OscarSwBestOptions

    STATE = _Split.STATE | {"held": _read_held}

    def _setup(self) -> None:
        super()._setup()
        self.held = np.zeros(self.values, np.float32) if self.options.spread else None

    def _due(self) -> Array:
        """Positions of the probable zeros whose turn it is, sorted: from the seed and the iteration alone."""
        out = np.empty(self.values, np.int64)
        mask = np.zeros(self.values, np.bool_)
        mask[self.chosen.positions] = True
        period = self.options.period
        return out[: _due(mask, self.iteration % period, period, np.uint64(self.seed), out)]

    def messages(self, worker: Worker, values: Array) -> Messages:
        waiting = worker.corrected(values)
        grid = yield from self.grid.agree(waiting)
        ride, positions = grid.ride(waiting), self.chosen.positions
        dense, worker.saturation = grid.quantise(waiting, self.limit, indices=positions)
        pending = waiting.copy() if self.options.feedback else None
        if pending is not None:
            where = np.arange(self.values) if positions is None else positions
            pending[where] -= grid.dequantise(dense, 1, indices=where)
        if positions is None:
            yield self._dense("first", dense, None, ride)
        else:
            due, coarse = self.once("due", self._due), grid.coarser(self.options.zero_shift)
            zeros, lost = coarse.quantise(waiting, self.limit, indices=due)
            worker.saturation += lost
            if pending is not None:
                pending[due] -= coarse.dequantise(zeros, 1, indices=due)
            yield self._dense("dense", dense, positions, None)
            yield self._dense("due", zeros, due, ride)
        worker.pending = pending

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.grid.split(totals)
        positions, tensors = self.chosen.positions, len(self.sizes)
        last, ride = totals[-1][: totals[-1].size - tensors], totals[-1][totals[-1].size - tensors :]
        mean = np.zeros(self.values, np.float32)
        if positions is None:
            mean = grid.dequantise(last, self.nodes)
            self._see(mean, grid)
        else:
            due, coarse = self.once("due", self._due), grid.coarser(self.options.zero_shift)
            mean[positions] = grid.dequantise(totals[0], self.nodes, indices=positions)
            mean[due] = coarse.dequantise(last, self.nodes, indices=due)
            self._see(mean, grid)
            if not self.options.feedback:
                mean[due] *= np.float32(self.options.period)
            mean = self._spread(mean, due)
        self.grid.observe(grid, ride)
        self.iteration += 1
        return mean

    def _spread(self, mean: Array, due: Array) -> Array:
        """Return the mean with what the sweep brought: now, or in equal parts until its next turn."""
        if self.held is None:
            return mean
        period = self.options.period
        self.held = self.held.copy()
        _clear_turn(self.held, self.iteration % period, period, np.uint64(self.seed))
        self.held[due] = mean[due] / np.float32(period)
        mean[due] = 0
        return mean + self.held


@njit(cache=True, nogil=True)
def _turn(index: Any, period: int, seed: Any) -> int:
    """When in a period a value's turn is: a mixed counter (the finaliser of splitmix64), no table."""
    z = np.uint64(index) + seed * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(period)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def _due(chosen: Any, turn: int, period: int, seed: Any, out: Any) -> int:
    count = 0
    for j in range(len(chosen)):
        if not chosen[j] and _turn(j, period, seed) == turn:
            out[count] = j
            count += 1
    return count


@njit(cache=True, nogil=True)
def _clear_turn(held: Any, turn: int, period: int, seed: Any) -> None:
    for j in range(len(held)):
        if _turn(j, period, seed) == turn:
            held[j] = 0
