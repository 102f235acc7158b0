"""Ride-along steps: all nodes agree on one power-of-two step per tensor, by integers that travel with a sum.

Every worker appends one small integer per tensor to a sum: the root mean square of its values. The summed
integers give every node the same next step and need no message of their own. A tensor has no step in the
first iteration, and after an iteration in which all workers had only zeros. Its step then comes from a max
message of float32. See docs/schemes.md, "Ride-along steps".
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.numerics.integers import floor_log2
from oscar.numerics.quantiser_kernels import energies_beyond
from oscar.numerics.saturation import Saturation
from oscar.numerics.tensors import cut, offsets_of
from oscar.schemes.base import Message
from oscar.schemes.fields import field_limit
from oscar.state import Reader, Stateful, optional_integers

CHANNEL = "steps"
EXPONENTS = -126, 126  # so that 2^e and 2^-e are normal float32
LARGEST = 1 << 24  # integers up to here are exact in float32


# The kernels loop over slices. LLVM then knows that indices count from 0, and vectorises only such loops.


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _energies(values: Any, offsets: Any, out: Any) -> None:
    for t in range(len(out)):
        here, total = values[offsets[t] : offsets[t + 1]], 0.0
        for j in range(len(here)):
            total += np.float64(here[j]) * np.float64(here[j])
        out[t] = total


@njit(cache=True, nogil=True)
def _quantise(values: Any, offsets: Any, factors: Any, limit: Any, out: Any) -> int:
    clipped, low = 0, -limit
    for t in range(len(factors)):
        here, rounded = values[offsets[t] : offsets[t + 1]], out[offsets[t] : offsets[t + 1]]
        factor, beyond = factors[t], np.int32(0)
        for j in range(len(here)):
            x = np.rint(here[j] * factor)
            y = limit if x > limit else x
            y = low if y < low else y
            beyond += np.int32(y != x)
            rounded[j] = np.int32(y)
        clipped += beyond
    return clipped


@njit(cache=True, nogil=True)
def _owner(index: Any, offsets: Any, t: int) -> int:
    """Return the tensor that holds value `index`. The guess `t`, the last value's tensor, mostly fits."""
    if offsets[t] <= index < offsets[t + 1]:
        return t
    return np.searchsorted(offsets, index, side="right") - 1


@njit(cache=True, nogil=True)
def _quantise_at(values: Any, indices: Any, offsets: Any, factors: Any, limit: Any, out: Any) -> int:
    clipped, low, t = 0, -limit, 0
    for i in range(len(indices)):
        j = indices[i]
        t = _owner(j, offsets, t)
        x = np.rint(values[j] * factors[t])
        clipped += (x > limit) | (x < low)
        out[i] = np.int32(min(max(x, low), limit))
    return clipped


@njit(cache=True, nogil=True)
def _beyond_at(values: Any, indices: Any, offsets: Any, edges: Any, out: Any) -> None:
    t = 0
    for i in range(len(indices)):
        t = _owner(indices[i], offsets, t)
        beyond = abs(np.float64(values[indices[i]])) - edges[t]
        if beyond > 0.0:
            out[t] += beyond * beyond


@njit(cache=True, nogil=True)
def _scale(sums: Any, offsets: Any, steps: Any, nodes: float, out: Any) -> None:
    for t in range(len(steps)):
        here, means = sums[offsets[t] : offsets[t + 1]], out[offsets[t] : offsets[t + 1]]
        step = steps[t]
        for j in range(len(here)):
            means[j] = np.float32(here[j] / nodes * step)


@njit(cache=True, nogil=True)
def _scale_at(sums: Any, indices: Any, offsets: Any, steps: Any, nodes: float, out: Any) -> None:
    t = 0
    for i in range(len(indices)):
        t = _owner(indices[i], offsets, t)
        out[i] = np.float32(sums[i] / nodes * steps[t])


@dataclass(frozen=True)
class Grid:
    """The step of every tensor in one iteration.

    exponents: the step of each tensor is 2^exponent. None: no step, so all its values quantise to 0.
    offsets: int64 [tensors + 1], where tensors begin in the flat gradient.
    coarseness, limit, nominal: see GridSteps and `ride`.
    """

    exponents: tuple[int | None, ...]
    offsets: Array = field(repr=False)
    coarseness: float
    limit: int
    nominal: int

    @property
    def steps(self) -> Array:
        """The steps of all tensors, float64; 0 for a tensor without a step."""
        return np.array([0.0 if e is None else math.ldexp(1.0, e) for e in self.exponents])

    def coarser(self, shift: int) -> Grid:
        """Return a grid whose steps are 2^shift times as large. Call `ride` on the original grid only."""
        moved = (
            None if e is None else max(EXPONENTS[0], min(EXPONENTS[1], e + shift)) for e in self.exponents
        )
        return replace(self, exponents=tuple(moved)) if shift else self

    def quantise(
        self, values: Array, limit: int | None = None, *, indices: Array | None = None
    ) -> tuple[Array, Saturation]:
        """Return `clip(rint(x / 2^e))`, int32, and the loss by clipping.

        values: the whole flat gradient, float32, finite.
        limit: the largest magnitude; by default `self.limit`.
        indices: int64, any order. If given, only these values are read and returned.
        """
        bound = self.limit if limit is None else limit
        if not 1 <= bound <= LARGEST:
            raise ValueError(f"quantised values are clipped to 1 to {LARGEST}, got a limit of {bound}")
        self._check(values, self.offsets[-1], "values")
        factors = np.array([0.0 if e is None else math.ldexp(1.0, -e) for e in self.exponents], np.float32)
        most = np.float32(bound)
        if indices is None:
            out = np.empty(values.size, np.int32)
            clipped = int(_quantise(values, self.offsets, factors, most, out))
        else:
            self._check_indices(indices)
            out = np.empty(indices.size, np.int32)
            clipped = int(_quantise_at(values, indices, self.offsets, factors, most, out))
        return out, self._lost(clipped, values, indices, bound) if clipped else Saturation()

    def _lost(self, clipped: int, values: Array, indices: Array | None, bound: int) -> Saturation:
        """Return the loss by clipping magnitudes to `bound` steps."""
        steps, tensors = self.steps, cut(values, self.offsets)
        edges = np.where(steps > 0, bound * steps, np.inf)
        if indices is None:
            lost = energies_beyond(tensors, edges.tolist())
        else:
            out = np.zeros(edges.size)
            _beyond_at(values, indices, self.offsets, edges, out)
            lost = out.tolist()
        return Saturation.of(clipped, dict(enumerate(lost)), tensors)

    def clip_cells(self, cells: Array, limit: int, *, rows: int, values: Array) -> tuple[Array, Saturation]:
        """Return the cells of a sketch of this grid's integers, clipped to +-limit, and the loss by clipping.

        cells: flat, all `rows`; each row holds the full energy of the sketched values. values: the gradient.
        """
        kept = np.clip(cells, -limit, limit)
        excess = (cells - kept).astype(np.float64)
        clipped = int(np.count_nonzero(excess))
        if not clipped:
            return cells, Saturation()
        units = [0.0 if e is None else math.ldexp(1.0, -2 * e) for e in self.exponents]
        energies = energies_beyond(cut(values, self.offsets), [0.0] * len(units))
        whole = sum(energy * unit for energy, unit in zip(energies, units, strict=True))
        share = min(1.0, float(np.vdot(excess, excess)) / rows / whole)
        return kept, Saturation(clipped, share, -1, share)

    def dequantise(self, sums: Array, nodes: float, *, indices: Array | None = None) -> Array:
        """Return `float32(sum / nodes * 2^e)`, the mean, of all values or of those at `indices`."""
        out = np.empty(sums.size, np.float32)
        if indices is None:
            self._check(sums, self.offsets[-1], "sums")
            _scale(sums, self.offsets, self.steps, float(nodes), out)
        else:
            self._check(sums, indices.size, "sums")
            self._check_indices(indices)
            _scale_at(sums, indices, self.offsets, self.steps, float(nodes), out)
        return out

    def ride(self, values: Array) -> Array:
        """Return the integers that ride along: each tensor's root mean square, int32, 1 to `limit`.

        The unit is chosen so that `nominal` confirms the present step. A tensor of zeros or without a step
        gets 0.
        """
        self._check(values, self.offsets[-1], "values")
        sizes, steps = root_mean_squares(values, self.offsets), self.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.rint(sizes * (self.coarseness * self.nominal) / steps)
        there = (sizes > 0) & (steps > 0)
        return np.where(there, np.clip(units, 1, self.limit), 0).astype(np.int32)

    def _check(self, array: Array, size: int, what: str) -> None:
        if array.shape != (size,):
            raise ValueError(f"expected {size} {what} in a flat array, got shape {array.shape}")

    def _check_indices(self, indices: Array) -> None:
        end = int(self.offsets[-1])
        if indices.size and not (indices.min() >= 0 and indices.max() < end):
            raise ValueError(f"indices lie in 0 to {end - 1}, got {indices.min()} to {indices.max()}")


def root_mean_squares(values: Array, offsets: Array) -> Array:
    """Return every tensor's root mean square, float64; 0 for an empty tensor."""
    energy = np.empty(len(offsets) - 1)
    _energies(values, offsets, energy)
    root: Array = np.sqrt(energy / np.maximum(np.diff(offsets), 1))
    return root


class GridSteps(Stateful):
    """The replicated state behind the grids: one exponent per tensor. Only `observe` changes it.

    sizes: values of each tensor. coarseness: wanted step / root mean square of one worker's tensor.
    bits: bits of the field of each integer that rides along. Raises ValueError if this field is too narrow.

    In `Scheme.messages`: `grid = yield from steps.agree(values)`, then `grid.quantise(values)`, and
    `grid.ride(values)` appended to a sum. In `Scheme.finish`: `grid, totals = steps.split(totals)`, then
    `grid.dequantise(sums, nodes)`, and last `steps.observe(grid, ride_sums)`.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "exponents": lambda steps, saved: optional_integers(saved, len(steps.sizes), *EXPONENTS)
    }

    def __init__(self, sizes: Sequence[int], nodes: int, coarseness: float, bits: int) -> None:
        if not (math.isfinite(coarseness) and 2.0**-20 <= coarseness <= 2.0**20):
            raise ValueError(f"coarseness must lie in 2^-20 to 2^20, got {coarseness}")
        self.limit = min(field_limit(bits, nodes), (1 << 15) - 1)
        if self.limit < 4:
            raise ValueError(
                f"sizes ride in fields that hold magnitudes up to 4 at least; fields of {bits} bits "
                f"hold sums of {nodes} workers up to {self.limit} each; use more bits"
            )
        self.nominal = 1 << ((self.limit // 4).bit_length() - 1)
        self.sizes, self.nodes, self.coarseness = list(sizes), nodes, float(coarseness)
        self.offsets = offsets_of(self.sizes)
        self.exponents: list[int | None] = [None] * len(self.sizes)

    @property
    def unset(self) -> list[int]:
        """The tensors that have values but no step."""
        return [t for t, size in enumerate(self.sizes) if size and self.exponents[t] is None]

    def agree(self, values: Array) -> Generator[Message, Array, Grid]:
        """Return the iteration's grid. Yield a max message first if some tensors have no step."""
        unset = self.unset
        if not unset:
            return self.grid(None)
        sizes = root_mean_squares(values, self.offsets)[unset].astype(np.float32)
        largest = yield Message(CHANNEL, sizes, "max")
        return self.grid(largest)

    def split(self, totals: Sequence[Array]) -> tuple[Grid, Sequence[Array]]:
        """Return the grid of a finished iteration, and its combined messages without that of `agree`."""
        return (self.grid(totals[0]), totals[1:]) if self.unset else (self.grid(None), totals)

    def grid(self, largest: Array | None) -> Grid:
        """Return the grid, given the largest root mean square of every unset tensor. Changes no state."""
        exponents, c = list(self.exponents), Fraction(self.coarseness)
        for t, size in zip(self.unset, [] if largest is None else largest.tolist(), strict=True):
            wanted = (c * Fraction(size)) ** 2
            if wanted > 0:
                exponents[t] = _nearest(wanted, 0)
        return Grid(tuple(exponents), self.offsets, self.coarseness, self.limit, self.nominal)

    def observe(self, grid: Grid, ride_sums: Array) -> None:
        """Set the next steps from the iteration's grid and the sums that rode along, int32 [tensors].

        A step within 0.75 octaves of the wanted step stays. A tensor whose sum is 0 loses its step.
        """
        if ride_sums.shape != (len(self.sizes),):
            raise ValueError(f"expected {len(self.sizes)} summed sizes, got shape {ride_sums.shape}")
        fresh: list[int | None] = []
        for exponent, total in zip(grid.exponents, ride_sums.tolist(), strict=True):
            ratio = Fraction(total, self.nodes * self.nominal) ** 2
            if exponent is None or total <= 0:
                fresh.append(None)
            elif Fraction(1, 8) <= ratio**2 < 8:
                fresh.append(exponent)
            else:
                fresh.append(_nearest(ratio, exponent))
        self.exponents = fresh


def _nearest(square: Fraction, exponent: int) -> int:
    """Return the exponent nearest to that of sqrt(square) * 2^exponent."""
    moved = exponent + (floor_log2(square.numerator, square.denominator) + 1) // 2
    return max(EXPONENTS[0], min(EXPONENTS[1], moved))
