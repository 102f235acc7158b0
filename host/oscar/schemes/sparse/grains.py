"""Grains: a position in a sparse exchange stands for a grain, which is one value or a whole row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit


@njit(cache=True, nogil=True)
def _hit(values: Any, starts: Any, widths: Any, out: Any) -> int:
    count = 0
    for g in range(len(starts)):
        for x in values[starts[g] : starts[g] + widths[g]]:
            if x != 0:
                out[count] = g
                count += 1
                break
    return count


@njit(cache=True, nogil=True)
def _hit_values(values: Any, starts: Any, out: Any) -> int:
    count = 0
    for g in range(len(starts)):
        out[count] = g
        count += values[starts[g]] != 0
    return count


@njit(cache=True, nogil=True)
def _values_of(positions: Any, starts: Any, widths: Any, out: Any) -> None:
    at = 0
    for g in positions:
        for j in range(widths[g]):
            out[at] = starts[g] + j
            at += 1


@njit(cache=True, nogil=True)
def _add_rows(into: Any, places: Any, positions: Any, widths: Any, items: Any) -> None:
    """Add the items of `positions` to `into`. places: the first index of each grain in `into`."""
    at = 0
    for g in positions:
        first = places[g]
        for j in range(widths[g]):
            into[first + j] += items[at]
            at += 1


@dataclass(frozen=True, eq=False)
class Grains:
    """The grains of a gradient. starts: first value of each, int64, rising. widths: their values, int64."""

    starts: Array = field(repr=False)
    widths: Array = field(repr=False)

    @classmethod
    def of(cls, offsets: Array, widths: Sequence[int | None]) -> Grains:
        """Return the grains of the tensors that begin at `offsets`.

        widths: values of a grain, for each tensor; None: this tensor has no grains. A tensor's last grain may
        be narrower.
        """
        starts, each = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, last, width in zip(offsets[:-1], offsets[1:], widths, strict=True):
            if width is not None:
                begin = np.arange(first, last, width)
                starts.append(begin)
                each.append(np.minimum(width, last - begin))
        return cls(np.concatenate(starts), np.concatenate(each))

    @property
    def size(self) -> int:
        """Number of grains. Positions lie below it."""
        return int(self.starts.size)

    @cached_property
    def width(self) -> int | None:
        """The common width of all grains, or None if widths differ."""
        return int(self.widths[0]) if self.size and (self.widths == self.widths[0]).all() else None

    def hit(self, values: Array) -> Array:
        """Return the sorted positions, int64, of the grains that contain a non-zero value."""
        out = np.empty(self.size + 1, np.int64)
        if self.width == 1:
            return out[: _hit_values(values, self.starts, out)].copy()
        return out[: _hit(values, self.starts, self.widths, out)].copy()

    def values_of(self, positions: Array) -> Array:
        """Return the indices of the grains' values in the flat gradient, int64, grain by grain."""
        if self.width == 1:
            return self.starts[positions]
        out = np.empty(self.count(positions), np.int64)
        _values_of(positions, self.starts, self.widths, out)
        return out

    def count(self, positions: Array) -> int:
        """Return the number of values of the grains at `positions`."""
        return len(positions) * self.width if self.width else int(self.widths[positions].sum())

    def summed(self, every: Sequence[tuple[Array, Array]], union: Array) -> Array:
        """Return the float32 sums at `union` of sets (positions, items), added in the order given."""
        places = np.zeros(self.size, np.int64)
        widths = self.widths[union]
        places[union] = np.cumsum(widths) - widths
        out = np.zeros(int(widths.sum()), np.float32)
        for positions, items in every:
            _add_rows(out, places, positions, self.widths, items)
        return out
