"""S2 Reducer (arXiv 2110.02140): a bitmap of non-zeros and a count sketch of their values.

Values are quantised first; non-zeros are the integers other than 0. The bitmap tells every node where the
non-zeros are. Its count sizes the sketch, and medians are read only at these positions. LHC peels its table;
this sketch is not peeled, so values that share cells come back inexact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.sketch.count_sketch import CountSketch, columns_for
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.schemes.count_sketch import MEDIAN_OF, noise_caution
from oscar.schemes.fields import field_limit
from oscar.schemes.grid import Attempt, Grid, GridSteps
from oscar.state import PART

INDICES = "or", "gather"


@dataclass(frozen=True)
class S2Options:
    """Options of the scheme `s2-reducer`.

    coarseness: step size / root mean square of a tensor. Raise it for fewer non-zeros and fewer bytes.
    bits: bits of a worker's integer, 2 to 16. Raise it if a saturation warning appears.
    rows: rows of the sketch, 1 to 5. Raise it where a few large values disturb many small ones.
    ratio: cells of all rows / non-zeros. Raise it for less noise; lower it for fewer bytes.
    cell_bits: bits of a cell's field. Raise it if cells saturate.
    index: "or" combines bitmaps on the way. "gather" brings every worker's bitmap to all, for networks
        without an or-reduction.
    error_feedback: a worker keeps its losses by rounding and clipping. The error of the median stays unknown
        to every worker and is not corrected.
    """

    coarseness: float = 1.0
    bits: int = 8
    rows: int = 3
    ratio: float = 1.0
    cell_bits: int = 12
    index: str = "or"
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 16:
            raise ValueError(f"integers have 2 to 16 bits, got bits={self.bits}")
        if self.index not in INDICES:
            raise ValueError(f"index is one of {', '.join(INDICES)}, got {self.index!r}")
        columns_for(self.ratio, 0, self.rows)


class S2Reducer(Scheme):
    """Send a bitmap and a count sketch of the non-zeros; apply the medians at the non-zeros."""

    name: ClassVar[str] = "s2-reducer"
    Options: ClassVar[type[Any]] = S2Options
    STATE = Scheme.STATE | {"steps": PART}

    def _setup(self) -> None:
        o = self.options
        self.steps = GridSteps(self.sizes, self.nodes, o.coarseness, o.cell_bits)

    def caution(self) -> str | None:
        columns = columns_for(self.options.ratio, self.values, self.options.rows)
        return noise_caution(self.values, columns, MEDIAN_OF[self.options.rows])

    def messages(self, worker: Worker, values: Array) -> Messages:
        o = self.options
        corrected = worker.corrected(values)
        most, limit = (1 << (o.bits - 1)) - 1, field_limit(o.cell_bits, self.nodes)

        def attempt(grid: Grid) -> Attempt:
            mine, worker.saturation = grid.quantise(corrected, most)
            if o.error_feedback:
                worker.pending = corrected - grid.dequantise(mine, 1)
            if o.index == "or":
                index = yield Message("index", mine != 0, "or", bits=1)
            else:
                index = yield Message("index", np.packbits(mine != 0), "gather", bits=8)
            keys = self.once("keys", lambda: self._keys(index))
            cells = np.zeros(0, np.int32)
            if keys.size:
                sketch = self.once("sketch", lambda: self._sketch(keys))
                cells = sketch.encode(mine[keys], indices=keys).reshape(-1)
                cells, cut = grid.clip_cells(cells, limit, rows=o.rows, values=corrected)
                worker.saturation += cut
            data = np.concatenate([grid.ride(corrected, worker.saturation), cells])
            total = yield Message("cells", data, bits=o.cell_bits)
            return total[: self.steps.riders]

        yield from self.steps.settle(corrected, most, attempt, self.again)

    def _keys(self, index: Any) -> Array:
        """Return the positions, int64, at which some worker has a non-zero."""
        if self.options.index == "or":
            return np.flatnonzero(index)
        maps = np.unpackbits(np.stack(index), axis=1, count=self.values)
        return np.flatnonzero(maps.any(axis=0))

    def _sketch(self, keys: Array) -> CountSketch:
        """Return this iteration's sketch. Its hashes are new, so no two values collide in every iteration."""
        o = self.options
        columns = columns_for(o.ratio, keys.size, o.rows)
        return CountSketch(o.rows, columns, self.values, self.seed, draw=self.iteration)

    def finish(self, totals: Sequence[Array]) -> Array:
        grid, (index, data) = self.steps.split(totals)
        ride, cells = data[: self.steps.riders], data[self.steps.riders :]
        keys = self.once("keys", lambda: self._keys(index))
        mean = np.zeros(self.values, np.float32)
        if keys.size:
            sketch = self.once("sketch", lambda: self._sketch(keys))
            mean[keys] = grid.dequantise(sketch.estimate(cells, indices=keys), self.nodes, indices=keys)
        self.steps.observe(grid, ride)
        self.iteration += 1
        return mean
