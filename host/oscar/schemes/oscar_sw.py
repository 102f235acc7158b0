"""OSCAR-SW (HPCA 2026): split probable zeros from probable non-zeros, in buffers that plain AllReduce sums.

The running mean of the aggregated gradient says which values are probably not zero. Every node has it, so no
index is sent. `oscar-sw` is the paper's method: non-zeros are sent densely, zeros in a count sketch; both are
linear. Damped estimates and error feedback are additions; the option `paper` switches them off.
`oscar-sw-best` replaces the sketch by a sweep: each probable zero is sent exactly once in `period`
iterations, and error feedback keeps the others. See docs/reference/schemes.md, "OSCAR-SW".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.numerics.sketch.count_sketch import CountSketch, columns_for
from oscar.schemes.base import RIDE_BITS, Message, Messages, Scheme, Worker
from oscar.schemes.count_sketch import MEDIAN_OF, noise_caution
from oscar.schemes.fields import field_bits, field_limit
from oscar.schemes.grid import Attempt, Grid, GridSteps, rises
from oscar.schemes.selection import ProbableNonZeros
from oscar.schemes.sparse.partitions import mixed
from oscar.state import PART, Saved

CODED_BITS = 8  # bits of a worker's integer when ASC codes the sums
CODED_LIMIT = (1 << (CODED_BITS - 1)) - 1
CLASS_LIMIT = 15  # the largest position class
SPIKE_OVER = 4  # octaves by which a step falls after a spike; ordinary gradients fall by less in a call
MOST_SHIFT = 16  # octaves between the steps of zeros and of non-zeros, at most


@dataclass(frozen=True)
class SplitOptions:
    """Options that `oscar-sw` and `oscar-sw-best` share.

    share: values that count as probably not zero / all values. Raise it if training lags behind uncompressed;
        lower it for fewer bytes.
    lane_bits: bits of the field of a dense sum. Raise it with more workers, or if a saturation warning
        appears.
    coded: code dense sums with ASC instead of fixed fields. Switch it on where ASC hardware or spare CPU
        time is at hand.
    coarseness: step size / root mean square of a tensor. Lower it for finer gradients, which saturate sooner.
    weight: weight of a new magnitude in the running mean. Raise it if gradients change quickly.
    hysteresis: a chosen value counts as (1 + hysteresis) times as large. Raise it to change the choice less
        often.
    every: iterations between two choices. Raise it to save time in choosing.
    relative: compare magnitudes in steps of their tensor. Switch it on if some tensors have much smaller
        gradients than others and are never chosen.
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
    """Raise ValueError unless the steps of zeros lie within MOST_SHIFT octaves of the others."""
    if not -MOST_SHIFT <= zero_shift <= MOST_SHIFT:
        raise ValueError(f"zero_shift is {-MOST_SHIFT} to {MOST_SHIFT} octaves, got {zero_shift}")


class _Split(Scheme):
    """The dense half of both schemes, and the first iteration, in which all values are dense."""

    STATE = Scheme.STATE | {"grid": PART, "chosen": PART}
    patient = True

    def _setup(self) -> None:
        options, nodes = self.options, self.nodes
        # Riders have fields of RIDE_BITS in packed words. In ASC frames they are 8-bit integers.
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
        """Return the sum message of integers at `positions` (None: all), with `ride` appended."""
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
        """Return the position classes 0 .. 15 of dense values, by log2 of the sums' running magnitude."""
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
        """Update the choice of values by the mean gradient. Values that were not sent count as 0.

        Where a tensor's step changed within the iteration, its running magnitudes change with it, so that a
        spike does not make the choice for many iterations.
        """
        shifts = rises(self.grid.exponents, grid.exponents)
        if any(shifts) and not self.options.relative:
            self.chosen.rescale(np.repeat(shifts, self.sizes))
        if self.options.relative:
            inverse = np.array([0.0 if e is None else 2.0**-e for e in grid.exponents], np.float32)
            mean = mean * np.repeat(inverse, self.sizes)
        self.chosen.observe(mean)

    def coded_channels(self) -> dict[str, int]:
        return dict.fromkeys(("first", "dense", "due"), CODED_BITS) if self.options.coded else {}


@dataclass(frozen=True)
class OscarSwOptions(SplitOptions):
    """Options of the scheme `oscar-sw`: SplitOptions and the sketch of probable zeros.

    rows: rows of the sketch. 1 suits the damped estimate; `paper` needs 3.
    ratio: cells of all rows / all values; 0 sends no zeros at all. Raise it for less noise.
    cell_bits: bits of a cell's field. Raise it with more workers, or if a saturation warning appears.
    zero_shift: quantise zeros 2^zero_shift times coarser than non-zeros (finer below 0). A cell adds many
        small values, while a dense field holds one large value. Raise it if cells saturate.
    paper: the published form: medians without damping, and no error feedback. Its noise makes SGD with
        momentum diverge, so use it for comparison only.
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
    """Send probable non-zeros densely and probable zeros in a count sketch. Both are linear."""

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
        caution = noise_caution(zeros, self.columns, MEDIAN_OF[self.options.rows])
        return caution and f"{caution}; without the option paper it converges"

    def _sketch(self) -> CountSketch:
        """Return this iteration's sketch. Its hashes are new, so no two values collide in every iteration."""
        return CountSketch(self.options.rows, self.columns, self.values, self.seed, draw=self.iteration)

    def _zeros(self, cells: Array, grid: Grid, nodes: int) -> Array:
        """Return the mean of the probable zeros from the summed cells of `nodes` workers, float32.

        The estimate is divided by 1 + noise. It is linear except for the last rounding: the estimates from
        single workers' cells add up to the estimate from the sum. So each worker can keep its own part that
        is missing (docs/reference/schemes.md, "Noise, and what waits").
        """
        others, sketch = self.once("others", lambda: self.chosen.others), self.once("sketch", self._sketch)
        paper, rows = self.options.paper, self.options.rows
        estimates = sketch.estimate(cells, indices=others, combine="median" if paper else "sum")
        damping = 1.0 if paper else rows + others.size / sketch.columns
        coarse = grid.coarser(self.options.zero_shift)
        return coarse.dequantise(estimates, nodes * damping, indices=others)

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected = worker.corrected(values)
        yield from self.grid.settle(
            corrected, self.limit, partial(self._attempt, worker, corrected), self.again
        )

    def _attempt(self, worker: Worker, corrected: Array, grid: Grid) -> Attempt:
        """Yield the iteration's messages of `own`, quantised by `grid`."""
        o, positions, cells = self.options, self.chosen.positions, None
        dense, worker.saturation = grid.quantise(corrected, self.limit, indices=positions)
        where = np.arange(self.values) if positions is None else positions
        pending = None if o.paper else corrected.copy()
        if pending is not None:
            pending[where] -= grid.dequantise(dense, 1, indices=where)
        if positions is not None:
            others = self.once("others", lambda: self.chosen.others)
            if o.ratio:
                coarse, limit = grid.coarser(o.zero_shift), field_limit(o.cell_bits, self.nodes)
                zeros, lost = coarse.quantise(corrected, self.limit, indices=others)
                cells = self.once("sketch", self._sketch).encode(zeros, indices=others).ravel()
                cells, cut = coarse.clip_cells(cells, limit, rows=o.rows, values=corrected)
                worker.saturation += lost + cut
                if pending is not None:
                    pending[others] -= self._zeros(cells, grid, 1)
            elif pending is not None:
                pending[others] = 0  # zeros are never sent here, so a residual of them would only grow
        worker.pending, ride = pending, grid.ride(corrected, worker.saturation)
        total = yield self._dense("dense" if positions is not None else "first", dense, positions, ride)
        if cells is not None:
            yield Message("cells", cells, bits=o.cell_bits)
        return total[dense.size :]

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.grid.split(totals)
        positions = self.chosen.positions
        dense, ride = np.split(totals[0], [totals[0].size - self.grid.riders])
        mean = np.zeros(self.values, np.float32)
        where = np.arange(self.values) if positions is None else positions
        mean[where] = grid.dequantise(dense, self.nodes, indices=where)
        if len(totals) > 1:
            mean[self.once("others", lambda: self.chosen.others)] = self._zeros(totals[1], grid, self.nodes)
        self._see(mean, grid)
        self.grid.observe(grid, ride)
        self.iteration += 1
        return mean


@dataclass(frozen=True)
class OscarSwBestOptions(SplitOptions):
    """Options of the scheme `oscar-sw-best`: SplitOptions and the sweep over probable zeros.

    period: iterations in which every probable zero is sent once. Raise it for fewer bytes; lower it if
        training lags behind uncompressed.
    zero_shift: quantise zeros 2^zero_shift times coarser than non-zeros. Raise it with a longer period,
        because values that waited are larger.
    spread: apply a zero's value in `period` equal parts, not at once. Switch it on for SGD with momentum.
    feedback: a worker keeps the values that were not sent. Without it, each zero that is sent counts
        `period` times: unbiased and never late, but noisy. Switch it off for Adam.
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
    """Send probable non-zeros densely, and 1 / period of the probable zeros in each iteration."""

    name: ClassVar[str] = "oscar-sw-best"
    Options = OscarSwBestOptions

    STATE = _Split.STATE | {"held": _read_held}

    def _setup(self) -> None:
        super()._setup()
        self.held = np.zeros(self.values, np.float32) if self.options.spread else None

    def _due(self) -> Array:
        """Return the sorted positions of the probable zeros whose turn it is, by seed and iteration alone."""
        out = np.empty(self.values, np.int64)
        mask = np.zeros(self.values, np.bool_)
        mask[self.chosen.positions] = True
        period = self.options.period
        return out[: _due(mask, self.iteration % period, period, np.uint64(self.seed), out)]

    def messages(self, worker: Worker, values: Array) -> Messages:
        waiting = worker.corrected(values)
        yield from self.grid.settle(waiting, self.limit, partial(self._attempt, worker, waiting), self.again)

    def _attempt(self, worker: Worker, waiting: Array, grid: Grid) -> Attempt:
        """Yield the iteration's messages of `waiting`, quantised by `grid`."""
        positions = self.chosen.positions
        dense, worker.saturation = grid.quantise(waiting, self.limit, indices=positions)
        pending = waiting.copy() if self.options.feedback else None
        if pending is not None:
            where = np.arange(self.values) if positions is None else positions
            pending[where] -= grid.dequantise(dense, 1, indices=where)
        if positions is None:
            last, ride = dense, grid.ride(waiting, worker.saturation)
            total = yield self._dense("first", dense, None, ride)
        else:
            due, coarse = self.once("due", self._due), grid.coarser(self.options.zero_shift)
            zeros, lost = coarse.quantise(waiting, self.limit, indices=due)
            worker.saturation += lost
            if pending is not None:
                pending[due] -= coarse.dequantise(zeros, 1, indices=due)
            last, ride = zeros, grid.ride(waiting, worker.saturation)
            yield self._dense("dense", dense, positions, None)
            total = yield self._dense("due", zeros, due, ride)
        worker.pending = pending
        return total[last.size :]

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.grid.split(totals)
        positions = self.chosen.positions
        last, ride = np.split(totals[-1], [totals[-1].size - self.grid.riders])
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
            mean = self._spread(mean, due, grid)
        self.grid.observe(grid, ride)
        self.iteration += 1
        return mean

    def _spread(self, mean: Array, due: Array, grid: Grid) -> Array:
        """Return the mean, with the values at `due` spread over the iterations until their next turn.

        Where a tensor's step rose within the iteration they are applied at once, and where it fell far, what
        is left of earlier values is dropped, so that nothing of a spike comes later.
        """
        if self.held is None:
            return mean
        period = self.options.period
        self.held = self.held.copy()
        _clear_turn(self.held, self.iteration % period, period, np.uint64(self.seed))
        moved = np.repeat(rises(self.grid.exponents, grid.exponents), self.sizes)
        self.held[moved <= -SPIKE_OVER] = 0
        due = due[moved[due] <= 0]
        self.held[due] = mean[due] / np.float32(period)
        mean[due] = 0
        return mean + self.held


@njit(cache=True, nogil=True)
def _turn(index: Any, period: int, seed: Any) -> int:
    """Return a value's turn within the period. A hash saves a table."""
    return np.int64(((mixed(index, seed) >> np.uint64(32)) * np.uint64(period)) >> np.uint64(32))


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
