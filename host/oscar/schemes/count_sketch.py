"""The plain count sketch: all values are quantised, sketched and summed; every node estimates the sums.

This scheme is the baseline for the split schemes. Its options cover the known improvements: the mean over the
rows instead of the median (less variance where values are dense), a threshold that drops estimates below the
noise, error feedback for dropped values, and new hashes in every iteration (so no two values always collide).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.integers import sum_of_squares
from oscar.numerics.sketch.count_sketch import Combine, CountSketch, columns_for
from oscar.schemes.base import RIDE_BITS, Message, Messages, Scheme, Worker
from oscar.schemes.fields import field_limit
from oscar.schemes.grid import Attempt, Grid, GridSteps
from oscar.state import PART

COMBINE: dict[str, Combine] = {"median": "median", "mean": "sum"}
MEDIAN_OF = {1: 1.0, 2: 0.5, 3: 0.449, 4: 0.298, 5: 0.287}  # rows: variance of their median, for unit normals
LOUD = 1.0  # noise energy over signal energy, from which on `caution` warns


@dataclass(frozen=True)
class CountSketchOptions:
    """Options of the scheme `count-sketch`.

    rows: rows of the sketch, 1 to 5. Raise it where a few large values disturb many small ones.
    ratio: cells of all rows / values. Raise it for less noise; lower it for fewer bytes.
    cell_bits: bits of a cell's field, 4 to 28. Raise it if a saturation warning appears.
    coarseness: step size / root mean square of a tensor. Lower it for finer integers, which saturate sooner.
    bits: bits of the integers that are sketched, 2 to 16. Raise it if values are clipped.
    estimate: "median" or "mean" over the rows. Choose "mean" for dense values, "median" for sparse ones.
    threshold: estimates up to this multiple of one row's noise become 0. 0 keeps all. Raise it where noise
        hurts convergence, together with error_feedback.
    fresh_hash: draw new hashes every iteration. Switch it off only for reproduction of a fixed sketch.
    error_feedback: a worker keeps its rounding errors and the values that the threshold dropped. Switch it on
        with a threshold.
    """

    rows: int = 3
    ratio: float = 0.2
    cell_bits: int = 16
    coarseness: float = 1 / 8
    bits: int = 8
    estimate: str = "median"
    threshold: float = 0.0
    fresh_hash: bool = True
    error_feedback: bool = False

    def __post_init__(self) -> None:
        columns_for(self.ratio, 1, self.rows)
        if self.estimate not in COMBINE:
            raise ValueError(f"estimate must be one of {', '.join(COMBINE)}, got {self.estimate!r}")
        check_bits(self.bits, self.cell_bits)
        check_threshold(self.threshold)


def check_bits(bits: int, cell_bits: int) -> None:
    """Raise ValueError unless kernels can add integers of `bits` in cells of `cell_bits` within int32."""
    if not 2 <= bits <= 16:
        raise ValueError(f"integers that are sketched have 2 to 16 bits, got {bits}")
    if not 4 <= cell_bits <= 28:
        raise ValueError(f"cells have 4 to 28 bits on the wire, got {cell_bits}")


def check_threshold(threshold: float) -> None:
    """Raise ValueError for a threshold that is negative, infinite or not a number."""
    if not 0 <= threshold < math.inf:
        raise ValueError(f"threshold is in units of the noise, 0 or more, got {threshold}")


class CountSketchScheme(Scheme):
    """Send a count sketch of all values; apply the estimates of their sums."""

    name: ClassVar[str] = "count-sketch"
    Options = CountSketchOptions

    STATE = Scheme.STATE | {"steps": PART}

    def _setup(self) -> None:
        self.patient = self.options.threshold > 0  # else only rounding leaves something
        self.steps = GridSteps(self.sizes, self.nodes, self.options.coarseness, RIDE_BITS)
        self.columns = columns_for(self.options.ratio, self.values, self.options.rows)

    def messages(self, worker: Worker, values: Array) -> Messages:
        o = self.options
        corrected = worker.corrected(values) if o.error_feedback else values
        most, limit = (1 << (o.bits - 1)) - 1, field_limit(o.cell_bits, self.nodes)

        def attempt(grid: Grid) -> Attempt:
            integers, lost = grid.quantise(corrected, most)
            cells = self.once("sketch", self._sketch).encode(integers).ravel()
            cells, cut = grid.clip_cells(cells, limit, rows=o.rows, values=corrected)
            worker.saturation = lost + cut
            ride = grid.ride(corrected, worker.saturation)
            total = yield Message("cells", cells, bits=o.cell_bits, ride=ride)
            if o.error_feedback:
                chosen = self.once("estimates", lambda: self._estimates(total)) != 0
                sent = grid.dequantise(np.where(chosen, integers, 0).astype(np.int32), 1)
                worker.pending = corrected - sent
            return total[cells.size :]

        yield from self.steps.settle(corrected, most, attempt, self.again)

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, totals = self.steps.split(totals)
        estimates = self.once("estimates", lambda: self._estimates(totals[0]))
        share = self.options.rows if self.options.estimate == "mean" else 1
        mean = grid.dequantise(estimates, self.nodes * share)
        self.steps.observe(grid, totals[0][totals[0].size - self.steps.riders :])
        self.iteration += 1
        return mean

    def caution(self) -> str | None:
        rows, mean = self.options.rows, self.options.estimate == "mean"
        return noise_caution(self.values, self.columns, 1 / rows if mean else MEDIAN_OF[rows])

    def _sketch(self) -> CountSketch:
        draw = self.iteration if self.options.fresh_hash else 0
        return CountSketch(self.options.rows, self.columns, self.values, self.seed, draw=draw)

    def _estimates(self, total: Array) -> Array:
        """Return the estimates of the sums, int32. Dropped ones are 0. "mean" gives `rows` times the sums."""
        o = self.options
        sketch = self.once("sketch", self._sketch)
        cells = total[: total.size - self.steps.riders].reshape(o.rows, -1)
        estimates = sketch.estimate(cells, combine=COMBINE[o.estimate])
        if o.threshold:
            share = o.rows if o.estimate == "mean" else 1
            cut = noise_cut(cells, o.threshold * share)
            estimates[np.abs(estimates) <= cut] = 0
        return estimates


def noise_caution(values: int, columns: int, share: float) -> str | None:
    """Return a warning if the noise of uncorrected estimates is large, or None.

    share: variance of an estimate / variance of the estimate from one row.
    """
    noise = share * values / columns
    if noise < LOUD:
        return None
    return (
        f"estimates carry about {noise:.1f} times the energy of what is sketched as noise, and nothing takes "
        "it out again: training may diverge, or end worse than uncompressed"
    )


def noise_cut(cells: Array, threshold: float) -> int:
    """Return `threshold` times the noise of one row (root mean square of its cells), rounded down."""
    return math.floor(threshold * math.sqrt(sum_of_squares(cells.ravel()) / cells.size))
