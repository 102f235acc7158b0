"""Sketched-SGD (Ivkin et al., 2019): apply the largest values of the sum, found in a sketch; keep the others.

There are two forms of keeping. With `exact`, as first published, every worker keeps its own values that were
not applied; a second message sends the candidates exactly. Without `exact`, every node keeps the sum of all
sketches, minus the sketches of the applied values, optionally with momentum (Rothchild et al., FetchSGD,
2020); one message is enough.

All values are integers on one grid for the whole gradient, so the largest integers are the largest floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.quantiser import sum_width
from oscar.numerics.sketch.count_sketch import CountSketch, columns_for
from oscar.schemes.base import RIDE_BITS, SPIKE, Message, Messages, Scheme, Worker
from oscar.schemes.count_sketch import check_bits, check_threshold, noise_cut
from oscar.schemes.fields import field_limit
from oscar.schemes.grid import EXPONENTS, Attempt, Grid, GridSteps
from oscar.schemes.selection import largest
from oscar.state import PART, Saved, optional

MOST = 1 << 24  # largest magnitude of a kept cell, in steps
HALF = 12  # estimates are sketched in two parts; the low part has so many bits


@dataclass(frozen=True)
class SketchedSgdOptions:
    """Options of the scheme `sketched-sgd`.

    share: values applied in an iteration / all values (k / values). Raise it if training lags behind
        uncompressed; lower it for fewer bytes with `exact`.
    rows, ratio, cell_bits: the sketch, see CountSketchOptions.
    coarseness, bits: the integers. One step serves all tensors, so they need more bits than in other schemes.
    exact: a second message sends `candidates` * k values exactly; the k largest are applied, and workers keep
        the others. Without it, the sketch keeps them, and there is one message only.
    candidates: see `exact`. Raise it if the sketch is so small that large values are missed.
    momentum: momentum of the values that wait in the sketch. Only without `exact`; the optimiser's own
        momentum should be 0 then.
    threshold: without `exact`, estimates up to this multiple of one row's noise wait as well. An applied
        estimate that is only noise adds values to the sketch that nobody sent, and the sketch would grow
        without end. Raise it if training diverges.
    """

    share: float = 0.3
    rows: int = 3
    ratio: float = 0.3
    cell_bits: int = 12
    coarseness: float = 1 / 4
    bits: int = 10
    exact: bool = True
    candidates: int = 2
    momentum: float = 0.0
    threshold: float = 2.0

    def __post_init__(self) -> None:
        columns_for(self.ratio, 1, self.rows)
        if not 0 < self.share <= 1:
            raise ValueError(f"share is a part of all values, above 0 and at most 1, got {self.share}")
        check_bits(self.bits, self.cell_bits)
        check_threshold(self.threshold)
        if self.candidates < 1 or not 0 <= self.momentum < 1:
            raise ValueError(
                f"expected candidates >= 1 and 0 <= momentum < 1, got {self.candidates} and {self.momentum}"
            )
        if self.exact and self.momentum:
            raise ValueError(
                "momentum needs values that wait in the sketch: set exact to false, or momentum to 0"
            )


def _read_cells(scheme: Any, saved: Saved) -> Array:
    return saved.array(np.int32, scheme.waiting.shape, -MOST, MOST)


class SketchedSgd(Scheme):
    """Apply the k largest values of a summed sketch, and keep the others for later iterations.

    waiting, velocity: int32 [rows * columns] in steps of 2^exponent, replicated. Not used with `exact`.
    """

    name: ClassVar[str] = "sketched-sgd"
    Options = SketchedSgdOptions
    patient = True

    STATE = Scheme.STATE | {
        "steps": PART,
        "exponent": optional(lambda scheme, saved: saved.integer(*EXPONENTS)),
        "waiting": _read_cells,
        "velocity": _read_cells,
    }

    def _setup(self) -> None:
        options = self.options
        self.steps = GridSteps([self.values], self.nodes, options.coarseness, RIDE_BITS)
        columns = columns_for(options.ratio, self.values, options.rows)
        # The hashes never change, because values may wait in the sketch.
        self.sketch = CountSketch(options.rows, columns, self.values, self.seed)
        self.count = max(1, int(options.share * self.values + 0.5))
        self.limit = (1 << (options.bits - 1)) - 1
        self.exponent: int | None = None
        self.waiting = np.zeros(options.rows * self.sketch.columns, np.int32)
        self.velocity = self.waiting.copy()

    def messages(self, worker: Worker, values: Array) -> Messages:
        o = self.options
        own, limit = worker.corrected(values), field_limit(o.cell_bits, self.nodes)

        def attempt(grid: Grid) -> Attempt:
            integers, lost = grid.quantise(own, self.limit)
            cells = self.sketch.encode(integers).ravel()
            cells, cut = grid.clip_cells(cells, limit, rows=o.rows, values=own)
            worker.saturation = lost + cut
            ride = grid.ride(own, worker.saturation)
            total = yield Message("cells", cells, bits=o.cell_bits, ride=ride)
            riders = total[cells.size :]
            if not o.exact:
                worker.pending = own - grid.dequantise(integers, 1)  # losses by rounding and clipping
                return riders
            candidates = self.once("candidates", lambda: self._candidates(total))
            sums = yield Message("exact", integers[candidates], bits=sum_width(o.bits, self.nodes))
            chosen = candidates[self.once("chosen", lambda: self._chosen(sums))]
            worker.pending = own.copy()
            worker.pending[chosen] -= grid.dequantise(integers[chosen], 1, indices=chosen)
            return riders

        yield from self.steps.settle(own, self.limit, attempt, self.again)

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.steps.split(totals)
        cells, riders = np.split(totals[0], [totals[0].size - self.steps.riders])
        mean = self._exact(grid, totals) if self.options.exact else self._carried(grid, cells)
        self.steps.observe(grid, riders)
        self.iteration += 1
        return mean

    def _candidates(self, total: Array) -> Array:
        estimates = self.sketch.estimate(total[: total.size - self.steps.riders])
        return _largest(estimates, min(self.values, self.options.candidates * self.count))

    def _chosen(self, sums: Array, cut: int = 0) -> Array:
        """Return the places of the sums to apply: the k largest magnitudes that exceed `cut`."""
        chosen = _largest(sums, self.count)
        return chosen[np.abs(sums[chosen]) > cut]

    def _exact(self, grid: Grid, totals: Sequence[Array]) -> Array:
        candidates = self.once("candidates", lambda: self._candidates(totals[0]))
        chosen = self.once("chosen", lambda: self._chosen(totals[1]))
        mean = np.zeros(self.values, np.float32)
        where = candidates[chosen]
        mean[where] = grid.dequantise(totals[1][chosen], self.nodes, indices=where)
        return mean

    def _carried(self, grid: Grid, fresh: Array) -> Array:
        """Add the fresh cells to the kept cells, subtract the largest estimates and return their mean."""
        exponent = grid.exponents[0] if grid.exponents[0] is not None else self.exponent
        mean = np.zeros(self.values, np.float32)
        if exponent is None:
            return mean
        rise = 0 if self.exponent is None else exponent - self.exponent
        spike = rise > math.log2(SPIKE)
        velocity = _rescaled(self.velocity, rise, self.options.momentum) + fresh
        waiting = _bounded(_rescaled(self.waiting, rise) + velocity)
        estimates = self.sketch.estimate(waiting)
        chosen = self._chosen(estimates, noise_cut(waiting, self.options.threshold))
        mean[chosen] = replace(grid, exponents=(exponent,)).dequantise(
            estimates[chosen], self.nodes, indices=chosen
        )
        if spike and self.exponent is not None:  # what it leaves over would come back for many iterations
            self.waiting, self.velocity = (
                _bounded(_rescaled(cells, 1)) for cells in (self.waiting, self.velocity)
            )
            self.exponent += 1
            return mean
        self.waiting = _bounded(waiting - self._cells(chosen, estimates[chosen]))
        if self.options.momentum:  # applied values start again without momentum
            self.velocity = _bounded(velocity)
            passed = self.sketch.estimate(self.velocity, indices=chosen)
            self.velocity = _bounded(self.velocity - self._cells(chosen, passed))
        self.exponent = exponent
        return mean

    def _cells(self, indices: Array, values: Array) -> Array:
        """Return the cells of int32 `values`, int64, flat.

        High and low parts are sketched apart, so that a cell can add half a million of them within int32.
        """
        parts = values >> HALF, values & ((1 << HALF) - 1)
        high, low = (self.sketch.encode(part, indices=indices).ravel().astype(np.int64) for part in parts)
        return (high << HALF) + low


def _largest(values: Array, count: int) -> Array:
    """Return the positions of the largest int32 magnitudes. `largest` compares bits: a float view works."""
    return largest(np.abs(values).view(np.float32), count)


def _rescaled(cells: Array, rise: int, factor: float = 1.0) -> Array:
    """Return factor * cells in steps that are 2^rise times as large, rounded to nearest; int64."""
    scaled = np.ldexp(cells.astype(np.float64) * factor, -rise)
    return np.rint(np.clip(scaled, -2.0 * MOST, 2.0 * MOST)).astype(np.int64)


def _bounded(cells: Array) -> Array:
    return np.clip(cells, -MOST, MOST).astype(np.int32)
