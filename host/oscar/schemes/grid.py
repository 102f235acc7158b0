"""Ride-along steps: all nodes agree on one power-of-two step per tensor, by integers that travel with a sum.

Every worker appends one small integer per tensor to a sum: the root mean square of its values. The summed
integers give every node the same next step and need no message of their own. A tensor without a step gets one
from a max message of float32. One more integer says whether the worker's values saturate because they grew.
Then, and where values have become too small for their step, the workers agree on new steps by a second max
message and send the messages of the iteration again. See docs/reference/schemes.md, "Ride-along steps".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.integers import floor_log2
from oscar.numerics.quantiser_kernels import energies_beyond
from oscar.numerics.saturation import Saturation
from oscar.numerics.tensors import MATTERS, cut, offsets_of, root_mean_squares
from oscar.schemes.base import Message
from oscar.schemes.fields import field_limit
from oscar.schemes.grid_kernels import beyond_at, quantise_all, quantise_at, scale_all, scale_at
from oscar.state import Reader, Stateful, optional_integers

CHANNEL = "steps"
EXPONENTS = -126, 126  # so that 2^e and 2^-e are normal float32
LARGEST = 1 << 24  # integers up to here are exact in float32
FAR = 2  # octaves between a step and the wanted step from which the iteration's messages are sent again
LOST = 1e-3  # share of a tensor's energy; grown values that lose more of it by clipping are sent again
NO_STEP = -1000.0  # in the message RENEWED: this worker's tensor has only zeros
RENEWED = "steps again"
Attempt = Generator[Message, Any, Array]  # yields an iteration's messages, returns the sums of its riders


@dataclass(frozen=True)
class Grid:
    """The step of every tensor in one iteration.

    Attributes:
        exponents: The step of each tensor is 2^exponent. None: no step, so all its values quantise to 0.
        offsets: int64 [tensors + 1], where tensors begin in the flat gradient.
        coarseness: Wanted step / root mean square of one worker's tensor.
        limit: Largest magnitude of an integer that rides along.
        nominal: What a tensor rides along as if its step is the wanted one, see `ride`.
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
            clipped = int(quantise_all(values, self.offsets, factors, most, out))
        else:
            self._check_indices(indices)
            out = np.empty(indices.size, np.int32)
            clipped = int(quantise_at(values, indices, self.offsets, factors, most, out))
        return out, self._lost(clipped, values, indices, bound) if clipped else Saturation()

    def _lost(self, clipped: int, values: Array, indices: Array | None, bound: int) -> Saturation:
        """Return the loss by clipping magnitudes to `bound` steps."""
        steps, tensors = self.steps, cut(values, self.offsets)
        edges = np.where(steps > 0, bound * steps, np.inf)
        if indices is None:
            lost = energies_beyond(tensors, edges.tolist())
        else:
            out = np.zeros(edges.size)
            beyond_at(values, indices, self.offsets, edges, out)
            lost = out.tolist()
        return Saturation.of(clipped, dict(enumerate(lost)), tensors)

    def clip_cells(self, cells: Array, limit: int, *, rows: int, values: Array) -> tuple[Array, Saturation]:
        """Return the cells of a sketch of this grid's integers, clipped to +-limit, and the loss by clipping.

        cells: flat, all `rows`; each row holds the full energy of the sketched values. values: the gradient.
        """
        bounded = np.clip(cells, -limit, limit)
        excess = (cells - bounded).astype(np.float64)
        clipped = int(np.count_nonzero(excess))
        if not clipped:
            return cells, Saturation()
        units = [0.0 if e is None else math.ldexp(1.0, -2 * e) for e in self.exponents]
        energies = energies_beyond(cut(values, self.offsets), [0.0] * len(units))
        whole = sum(energy * unit for energy, unit in zip(energies, units, strict=True))
        share = min(1.0, float(np.vdot(excess, excess)) / rows / whole)
        return bounded, Saturation(clipped, share, -1, share)

    def dequantise(self, sums: Array, nodes: float, *, indices: Array | None = None) -> Array:
        """Return `float32(sum / nodes * 2^e)`, the mean, of all values or of those at `indices`.

        Rounding to a step may exceed the largest float32, which is the result then.
        """
        out = np.empty(sums.size, np.float32)
        if indices is None:
            self._check(sums, self.offsets[-1], "sums")
            scale_all(sums, self.offsets, self.steps, float(nodes), out)
        else:
            self._check(sums, indices.size, "sums")
            self._check_indices(indices)
            scale_at(sums, indices, self.offsets, self.steps, float(nodes), out)
        return out

    def ride(self, values: Array, lost: Saturation) -> Array:
        """Return the integers that ride along, int32 [tensors + 1].

        First each tensor's root mean square, 1 to `limit`. The unit is chosen so that `nominal` confirms the
        present step. A tensor of zeros or without a step gets 0. The last integer is 1 if a tensor with
        more than MATTERS of the energy wants a step FAR octaves larger, and clipping took more than LOST of a
        tensor's energy; else 0.

        lost: the loss by clipping the values to this grid, and by clipping the cells of their sketch.
        """
        self._check(values, self.offsets[-1], "values")
        sizes, steps = root_mean_squares(values, self.offsets), self.steps
        with np.errstate(divide="ignore", invalid="ignore"):
            units = np.rint(sizes * (self.coarseness * self.nominal) / steps)
        there = (sizes > 0) & (steps > 0)
        grown = sizes * self.coarseness >= steps * 2.0 ** (FAR - 0.5)
        energy = sizes**2 * np.diff(self.offsets)
        flag = lost.worst > LOST and bool((there & grown & (energy > MATTERS * energy.sum())).any())
        return np.append(np.where(there, np.clip(units, 1, self.limit), 0), flag).astype(np.int32)

    def wanted(self, values: Array, limit: int) -> Array:
        """Return the exponent of the step that suits each of one worker's tensors, float32.

        The step that follows from the root mean square, or the next larger one for which rounding and
        clipping to `limit` lose less energy. NO_STEP for a tensor of zeros.
        """
        sizes, c = root_mean_squares(values, self.offsets), Fraction(self.coarseness)
        out = np.full(sizes.size, NO_STEP, np.float32)
        for t, (part, size) in enumerate(zip(cut(values, self.offsets), sizes.tolist(), strict=True)):
            if size > 0:
                exponent = _nearest((c * Fraction(size)) ** 2, 0)
                loss, coarser = _loss(part, exponent, limit), _loss(part, exponent + 1, limit)
                while exponent < EXPONENTS[1] and coarser < loss:
                    exponent += 1
                    loss, coarser = coarser, _loss(part, exponent + 1, limit)
                out[t] = exponent
        return out

    def renewed(self, wanted: Array) -> Grid:
        """Return a grid with the `wanted` steps of the tensors whose steps lie FAR from them.

        wanted: the largest `wanted` of all workers, float32 [tensors]. Returns this grid if no step moves.
        """
        pairs = zip(self.exponents, wanted.tolist(), strict=True)
        exponents = tuple(e if e is None or w == NO_STEP or abs(w - e) < FAR else int(w) for e, w in pairs)
        return self if exponents == self.exponents else replace(self, exponents=exponents)

    def _check(self, array: Array, size: int, what: str) -> None:
        if array.shape != (size,):
            raise ValueError(f"expected {size} {what} in a flat array, got shape {array.shape}")

    def _check_indices(self, indices: Array) -> None:
        end = int(self.offsets[-1])
        if indices.size and not (indices.min() >= 0 and indices.max() < end):
            raise ValueError(f"indices lie in 0 to {end - 1}, got {indices.min()} to {indices.max()}")


class GridSteps(Stateful):
    """The replicated state from which grids are made: one exponent per tensor. Only `observe` changes it.

    In `Scheme.messages`: `yield from steps.settle(values, limit, attempt)`. `attempt` is a generator that
    quantises by a grid, yields the messages of the iteration, one of them with `grid.ride(values, lost)`, and
    returns the sums of these riders. In `Scheme.finish`: `grid, totals = steps.split(totals)`, then
    `grid.dequantise(sums, nodes)`, and last `steps.observe(grid, ride_sums)`.

    Args:
        sizes: Number of values of each tensor.
        nodes: Number of workers.
        coarseness: Wanted step / root mean square of one worker's tensor.
        bits: Bits of the field of each integer that rides along.

    Raises:
        ValueError: The field is too narrow.
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
        self.before: list[int | None] = [None] * len(self.sizes)  # the exponents before the last `observe`
        self._settled: tuple[Grid, slice] | None = None  # this iteration's grid, and where its messages are

    @property
    def riders(self) -> int:
        """The number of integers that ride along."""
        return len(self.sizes) + 1

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

    def settle(
        self,
        values: Array,
        limit: int,
        attempt: Callable[[Grid], Attempt],
        again: Callable[[], None] = lambda: None,
    ) -> Generator[Message, Any, Grid]:
        """Yield the messages of `attempt`, twice if its steps do not suit. Return the grid that counts.

        Args:
            values: The worker's values to quantise, float32 [values].
            limit: The largest magnitude of an integer.
            attempt: Yields the messages by a grid.
            again: Drops the results of the first attempt that workers share, before the second one.
        """
        before = int(bool(self.unset))
        grid = yield from self.agree(values)
        sums, sent = yield from _counted(attempt(grid))
        first = before
        if not self._suits(grid, sums):
            renewed = grid.renewed((yield Message(RENEWED, grid.wanted(values, limit), "max")))
            if renewed is not grid:
                grid, first = renewed, before + sent + 1
                again()
                _, sent = yield from _counted(attempt(grid))
        self._settled = grid, slice(first, first + sent)
        return grid

    def _suits(self, grid: Grid, ride_sums: Array) -> bool:
        """Return True unless a worker's values saturate by growth, or became FAR too small for their step.

        A step that was agreed on in this iteration suits, and so does the step of a tensor that does not
        matter.
        """
        if ride_sums[-1]:
            return False
        least, totals = self.nodes * self.nominal, ride_sums[:-1].tolist()
        energies = [
            0.0 if e is None else math.ldexp(float(total), e) ** 2 * size
            for total, e, size in zip(totals, grid.exponents, self.sizes, strict=True)
        ]
        whole = math.fsum(energies)
        return not any(
            now == before and total**2 << (2 * FAR - 1) < least**2 and energy > MATTERS * whole
            for now, before, total, energy in zip(
                grid.exponents, self.exponents, totals, energies, strict=True
            )
        )

    def split(self, totals: Sequence[Array]) -> tuple[Grid, Sequence[Array]]:
        """Return the grid of a finished iteration, and the combined messages of its last attempt."""
        assert self._settled is not None
        grid, sums = self._settled
        return grid, totals[sums]

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

        A step within 0.75 octaves of the wanted step stays. A tensor whose sum is 0 keeps its step.
        """
        if ride_sums.shape != (self.riders,):
            raise ValueError(f"expected {self.riders} summed riders, got shape {ride_sums.shape}")
        fresh: list[int | None] = []
        for exponent, total in zip(grid.exponents, ride_sums[:-1].tolist(), strict=True):
            ratio = Fraction(total, self.nodes * self.nominal) ** 2
            if exponent is None or total <= 0 or Fraction(1, 8) <= ratio**2 < 8:
                fresh.append(exponent)
            else:
                fresh.append(_nearest(ratio, exponent))
        self.before, self.exponents = self.exponents, fresh


def rises(old: Sequence[int | None], new: Sequence[int | None]) -> list[int]:
    """Return by how many octaves steps rose from `old` to `new` exponents; 0 where one is missing."""
    return [0 if a is None or b is None else b - a for a, b in zip(old, new, strict=True)]


def _nearest(square: Fraction, exponent: int) -> int:
    """Return the exponent nearest to that of sqrt(square) * 2^exponent."""
    moved = exponent + (floor_log2(square.numerator, square.denominator) + 1) // 2
    return max(EXPONENTS[0], min(EXPONENTS[1], moved))


def _loss(values: Array, exponent: int, limit: int) -> float:
    """Return about the energy that values lose by rounding to steps of 2^exponent and clipping to `limit`."""
    edge = math.ldexp(limit, exponent)
    return energies_beyond([values], [edge])[0] + values.size * math.ldexp(1.0, 2 * exponent) / 12


def _counted(messages: Attempt) -> Generator[Message, Any, tuple[Array, int]]:
    """Run a generator of messages; return its result and the number of its messages."""
    count, answer = 0, None
    while True:
        try:
            message = messages.send(answer)
        except StopIteration as stop:
            return stop.value, count
        count += 1
        answer = yield message
