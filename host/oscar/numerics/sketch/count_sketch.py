"""The count sketch of a vector of integers: linear to the bit, and an estimate of every value from it.

Charikar, Chen, Farach-Colton: Finding frequent items in data streams (2002), with places drawn for runs of 16
indices instead of single ones. docs/reference/schemes.md, "Count sketch", has the hashes and what they
guarantee.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from oscar.array import Array
from oscar.numerics.sketch import kernels
from oscar.numerics.sketch.hashing import PRIME, RUN, SketchHashes

Combine = Literal["median", "sum"]
MANY = 8  # a share of all values above 1 / MANY goes through whole runs


def columns_for(ratio: float, values: int, rows: int) -> int:
    """Return the cells of a row, so that all rows have `ratio` cells for each of `values`; at least RUN.

    Raises ValueError for a ratio, or a number of rows, that no sketch has.
    """
    _check_rows(rows)
    if not 0 < ratio <= 16:
        raise ValueError(f"ratio is cells (of all rows) / values, above 0 and at most 16, got {ratio}")
    return max(RUN, int(ratio * values / rows))


class CountSketch:
    """The sketch of vectors of `size` values in `rows` rows of `columns` cells, by the hashes of a seed.

    rows: 1 to 5. columns: at least 1; a row has no fewer than RUN cells, whatever is asked for. size: below
    2^31 - 1, the prime of the hashes. draw: each number gives other hashes, e.g. every iteration its own.
    Two sketches of equal arguments are the same function; there is no other state.
    """

    def __init__(self, rows: int, columns: int, size: int, seed: int, *, draw: int = 0) -> None:
        _check_rows(rows)
        if columns < 1:
            raise ValueError(f"a row has 1 cell at least, got {columns}")
        if not 0 <= size < PRIME:
            raise ValueError(f"hashes tell up to {PRIME - 1} values apart, got {size}")
        self.rows, self.columns, self.size = rows, max(RUN, columns), size
        self.hashes = SketchHashes.draw(rows, seed, draw)

    def encode(self, values: Array, *, indices: Array | None = None, base: int = 0) -> Array:
        """Return the cells of `values`, int32 [rows, columns].

        values: int32, of the indices base, base + 1, .. or of `indices` (int64, any order); all others count
        as 0. Raises ValueError for indices outside, and where a cell could overflow int32: where all
        magnitudes add up to 2^31, and as many values as may share a cell may, too.
        """
        _check_int32(values, "values")
        cells = np.zeros((self.rows, self.columns), np.int32)
        flat = cells.reshape(-1)
        if indices is not None:
            self._check_indices(indices, values.size)
            if indices.size * MANY <= self.size:
                seen = kernels.encode_at(values, indices, *self._hashes, self.columns, flat)
                _check_bound(int(seen), values.size, values)
                return cells
            whole = np.zeros(self.size, np.int32)
            np.add.at(whole, indices, values)
            values = whole
        self._check_range(base, values.size)
        seen = 0
        for first, last in _parts(base, base + values.size):
            part = values[first - base : last - base]
            if part.size % RUN:
                part = np.zeros(RUN, np.int32)
                part[first % RUN :][: last - first] = values[first - base : last - base]
            seen |= int(kernels.encode_runs(part, first // RUN, *self._hashes, self.columns, flat))
        _check_bound(seen, self.size // RUN + 1, values)
        return cells

    def estimate(
        self,
        cells: Array,
        *,
        indices: Array | None = None,
        base: int = 0,
        count: int | None = None,
        combine: Combine = "median",
    ) -> Array:
        """Return the estimates of all values, int32; of `count` from `base` on; or of those at `indices`.

        combine: the median over the rows (of 2 and 4 rows the mean of the middle ones, rounded down), or the
        sum over the rows, which is `rows` times their mean and wraps beyond int32.
        """
        _check_int32(cells, "cells")
        if cells.size != self.rows * self.columns:
            raise ValueError(f"expected {self.rows} x {self.columns} cells, got shape {cells.shape}")
        if combine not in ("median", "sum"):
            raise ValueError(f"combine must be 'median' or 'sum', got {combine!r}")
        flat, summed = np.ascontiguousarray(cells).reshape(-1), combine == "sum"
        if indices is not None:
            self._check_indices(indices, indices.size)
            if indices.size * MANY > self.size:
                return self.estimate(cells, combine=combine)[indices]
            out = np.empty(indices.size, np.int32)
            kernels.estimate_at(flat, indices, *self._hashes, self.columns, summed, out)
            return out
        end = self.size if count is None else base + count
        self._check_range(base, end - base)
        out = np.empty(end - base, np.int32)
        for first, last in _parts(base, end):
            part = out[first - base : last - base]
            run = part if part.size % RUN == 0 else np.empty(RUN, np.int32)
            kernels.estimate_runs(flat, first // RUN, *self._hashes, self.columns, summed, run)
            if run is not part:
                part[:] = run[first % RUN :][: last - first]
        return out

    @property
    def _hashes(self) -> tuple[Array, Array]:
        return self.hashes.signs, self.hashes.places

    def _check_range(self, base: int, count: int) -> None:
        if base < 0 or count < 0 or base + count > self.size:
            raise ValueError(f"indices lie in 0 to {self.size - 1}, got {count} of them from {base} on")

    def _check_indices(self, indices: Array, count: int) -> None:
        if indices.dtype != np.int64 or indices.ndim != 1:
            raise TypeError(f"indices are flat int64, got {indices.dtype} of shape {indices.shape}")
        if indices.size != count:
            raise ValueError(f"expected as many indices as values, got {indices.size} and {count}")
        if count and (indices.min() < 0 or indices.max() >= self.size):
            raise ValueError(f"indices lie in 0 to {self.size - 1}, got {indices.min()} to {indices.max()}")


def _check_rows(rows: int) -> None:
    if not 1 <= rows <= kernels.MOST_ROWS:
        raise ValueError(f"a sketch has 1 to {kernels.MOST_ROWS} rows, got {rows}")


def _check_bound(seen: int, sharing: int, values: Array) -> None:
    """Refuse values whose sums in a cell could leave int32, as could partial sums of any order.

    seen: the or of their magnitudes. sharing: how many may share a cell. The exact sum takes a pass of its
    own, and is computed only where these two do not settle it.
    """
    most = np.iinfo(np.int32).max
    if sharing << seen.bit_length() <= most:
        return
    total = int(np.abs(values.astype(np.int64)).sum())
    if total > most:
        raise ValueError(
            f"up to {sharing} values of {seen.bit_length()} bits and a sign may share a cell, and magnitudes "
            f"add up to {total}, beyond int32: quantise to fewer bits"
        )


def _check_int32(array: Array, what: str) -> None:
    if array.dtype != np.int32:
        raise TypeError(f"{what} of a sketch are int32, got {array.dtype}; quantise first")


def _parts(base: int, end: int) -> list[tuple[int, int]]:
    """Cut indices base .. end - 1 into a part of the first run, whole runs, and a part of the last."""
    inner, outer = min(-(-base // RUN) * RUN, end), end // RUN * RUN
    cuts = sorted({base, inner, max(inner, outer), end})
    return list(pairwise(cuts))
