"""One power-of-two step per tensor. It is never sent: every node derives it from the aggregated sums.

Nodes that saw the same sums hold the same steps. Only a tensor without a step (in the first iteration, or
after an all-zero sum) costs one small exchange of summaries. docs/protocol.md, "Quantiser", has the rules.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.integers import floor_log2, sum_of_squares
from oscar.numerics.quantiser import QuantiserParams
from oscar.numerics.quantiser_kernels import squares_of_changes, to_means, to_shifted_means
from oscar.numerics.tensors import Room, offsets_of
from oscar.state import Reader, Saved, Stateful, optional, optional_integers

MIN_EXPONENT = -149  # of a step: that of the smallest float32, of which all others are multiples
SMOOTHING = 1  # the variance estimate moves by half of the difference
JUMP = 4  # a variance that grew by more than this factor at once is asked for anew, not smoothed
MAX_COUNT = 1 << 28  # values whose squares, of 17 bits, add up within int64
MOST_SUM = 1 << 24  # of 256 workers' integers of 16 bits
MOST_VARIANCE = 1 << 256  # far above what sums of 32 bits and clamped steps come to
LEAST_NORMAL = 2.0**-126  # of float32
MAX_ALIGN = 12  # exponents further apart than this are not compared


def headroom(nodes: int) -> int:
    """Return how many times the largest mean a worker's largest value may be, as quantiser 8g assumes.

    Where noise dominates, a mean shrinks with sqrt(nodes): the least power of two that is no less than that.
    """
    return 1 << ((nodes - 1).bit_length() + 1) // 2


def summarise(tensors: Sequence[np.ndarray], params: QuantiserParams) -> list[tuple[int, int]]:
    """Return what one node tells the others of tensors without a step: (mantissa, exponent) of size.

    The size is the mean square ("sigma") or the largest magnitude ("max"); the mantissa has 24 bits, so
    that adding the nodes' summaries is exact in integers, whatever their order.
    """
    out = []
    for array in tensors:
        if array.size == 0:
            size = 0.0
        elif params.scale == "sigma":
            size = float(np.mean(np.square(array, dtype=np.float64)))
        else:
            size = float(np.abs(array).max())
        mantissa, exponent = math.frexp(size)
        out.append((int(math.ldexp(mantissa, 24)), exponent - 24))
    return out


def _read_exponents(tracker: Any, saved: Saved) -> list[int | None]:
    return optional_integers(saved, len(tracker.sizes), MIN_EXPONENT, tracker.params.max_exponent)


def _read_variances(tracker: Any, saved: Saved) -> list[int]:
    return [item.integer(0, MOST_VARIANCE) for item in saved.items(len(tracker.sizes))]


def _read_sums(tracker: Any, saved: Saved) -> Array:
    dtype, shape = tracker.params.sum_dtype(tracker.nodes), (int(tracker.offsets[-1]),)
    return saved.array(dtype, shape, -MOST_SUM, MOST_SUM)


class StepTracker(Stateful):
    """The steps of all tensors, a pure function of exchanged summaries and aggregated sums.

    `exponents[t]` is log2 of tensor t's step, or None while it has none. Replicated on every node.
    `coarseness` may be changed before `observe`, on all nodes alike: it is that of the next steps, at once
    where `sharp`, else when they are far enough from it.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "exponents": _read_exponents,
        "variances": _read_variances,
        "previous": optional(_read_sums),
        "previous_exponents": _read_exponents,
    }

    def __init__(self, params: QuantiserParams, sizes: Sequence[int], nodes: int) -> None:
        self.params, self.sizes, self.nodes = params, list(sizes), nodes
        self.offsets = offsets_of(self.sizes)
        self.exponents: list[int | None] = [None] * len(self.sizes)
        self.variances: list[int] = [0] * len(self.sizes)  # of one worker, in units of 2^(2*exponent - 32)
        self.previous: np.ndarray | None = None  # the last aggregated sums
        self._spare: np.ndarray | None = None  # those before
        self._means = Room()
        self.coarseness, self.sharp = params.coarseness, False  # of the next steps
        self.previous_exponents: list[int | None] = [None] * len(self.sizes)

    @property
    def unset(self) -> list[int]:
        """Tensors that need the small exchange before they can be quantised."""
        return [t for t, e in enumerate(self.exponents) if e is None and self.sizes[t] > 0]

    def agree(self, summaries: Sequence[Sequence[tuple[int, int]]]) -> None:
        """Set the steps of the unset tensors from every node's summaries, in the order of `unset`."""
        unset = self.unset
        if self.params.scale == "max":
            peak = max(
                (Fraction(m) * Fraction(2) ** e for node in summaries for m, e in node), default=Fraction(0)
            )
            exponent = self._from_peak(peak)
            if exponent is not None:
                self.exponents = [exponent] * len(self.sizes)
            return
        for slot, t in enumerate(unset):
            total = sum(
                (Fraction(node[slot][0]) * Fraction(2) ** node[slot][1] for node in summaries), Fraction(0)
            )
            if total == 0:
                continue
            square = total / len(summaries) * Fraction(self.coarseness) ** 2
            exponent = self._clamp((floor_log2(square.numerator, square.denominator) + 1) // 2)
            self.exponents[t] = exponent
            self.previous_exponents[t] = None  # earlier sums may have another scale
            self.variances[t] = int(total / len(summaries) / Fraction(2) ** (2 * exponent - 32))

    def _clamp(self, exponent: int) -> int:
        return min(self.params.max_exponent, max(MIN_EXPONENT, exponent))

    def _from_peak(self, peak: Fraction) -> int | None:
        """Return the smallest exponent whose step brings `peak` within the integers' limit."""
        if peak == 0:
            return None
        ratio = peak / self.params.limit
        floor = floor_log2(ratio.numerator, ratio.denominator)
        return self._clamp(floor + (ratio > Fraction(2) ** floor))

    def observe(self, sums: np.ndarray) -> list[int]:
        """Derive the next steps from the aggregated integers; return by how much each exponent rose."""
        before = list(self.exponents)
        if self.params.scale == "max":
            self._observe_peak(sums)
        else:
            room = self._room(sums)
            for t in range(len(self.sizes)):
                here = slice(self.offsets[t], self.offsets[t + 1])
                self._observe_tensor(t, sums[here], room[here])
            self._spare, self.previous = self.previous, room
            self.previous_exponents = before
        return [0 if a is None or b is None else b - a for a, b in zip(before, self.exponents, strict=True)]

    def _room(self, sums: np.ndarray) -> np.ndarray:
        """Return an array for a copy of `sums`, which the caller may write to.

        Two take turns, so that pages stay mapped.
        """
        room = self._spare
        if room is None or room is self.previous or room.shape != sums.shape or room.dtype != sums.dtype:
            return np.empty_like(sums)  # a sum that `restore` brought back must not be written to
        return room

    def _observe_peak(self, sums: np.ndarray) -> None:
        exponent = next((e for e in self.exponents if e is not None), None)
        if exponent is None:
            return
        peak = int(np.abs(sums.astype(np.int64)).max(initial=0)) * headroom(self.nodes)
        new = self._from_peak(Fraction(peak, self.nodes) * Fraction(2) ** exponent)
        self.exponents = [new] * len(self.sizes)

    def _observe_tensor(self, t: int, sums: np.ndarray, kept: np.ndarray) -> None:
        exponent = self.exponents[t]
        if exponent is None or sums.size == 0:
            kept[:] = sums
            return
        energy, change = self._energies(t, sums, exponent, kept)
        if energy == 0:
            self.exponents[t] = None  # too coarse to see, or truly zero: ask everyone next time
            return
        if change is not None:
            # sums = N mu + noise, differences of sums = noise of two iterations: one worker's variance is
            # mu^2 + noise^2 = (E[S^2] + (N-1) E[(S - S')^2] / 2) / N^2
            fresh = ((2 * energy + (self.nodes - 1) * change) << 32) // (2 * self.nodes**2 * sums.size)
            if fresh > JUMP * self.variances[t]:
                self.exponents[t] = None  # grew, or had one bad iteration: ask everyone next time
                return
            self.variances[t] += (fresh - self.variances[t]) >> SMOOTHING
        most = (energy << 32) // (self.nodes * sums.size)  # where workers have nothing in common
        if self.variances[t] > JUMP * most:
            self.variances[t] = most  # fell: a step that is too coarse loses more than one too fine
        self._move(t, exponent)

    def _energies(self, t: int, sums: np.ndarray, exponent: int, kept: np.ndarray) -> tuple[int, int | None]:
        """Return the sums of squares of `sums` and of their change, as `_change` has it; copy to `kept`."""
        old = self.previous_exponents[t]
        narrow = sums.dtype == np.int16 and sums.size <= MAX_COUNT
        if not narrow or self.nodes == 1 or self.previous is None or old is None or abs(old - exponent) > 1:
            kept[:] = sums
            return sum_of_squares(sums), self._change(t, sums, exponent)
        low = min(old, exponent)
        before = self.previous[self.offsets[t] : self.offsets[t + 1]]
        energy, change = squares_of_changes(sums, before, exponent - low, old - low, kept)
        return energy, change >> (2 * (exponent - low))

    def _change(self, t: int, sums: np.ndarray, exponent: int) -> int | None:
        """Return the sum of squared differences to the previous sums, in present steps, or None."""
        old = self.previous_exponents[t]
        if self.nodes == 1:
            return 0
        if self.previous is None or old is None or abs(old - exponent) > MAX_ALIGN:
            return None
        before = self.previous[self.offsets[t] : self.offsets[t + 1]].astype(np.int64)
        low = min(old, exponent)
        difference = (sums.astype(np.int64) << (exponent - low)) - (before << (old - low))
        return sum_of_squares(difference) >> (2 * (exponent - low))

    def _move(self, t: int, exponent: int) -> None:
        """Follow the variance; unless sharp a step within 0.75 octaves of c * sigma stays."""
        c = Fraction(self.coarseness) ** 2
        above, below = c.numerator * self.variances[t], c.denominator << 32  # (c * sigma / step)^2
        if above == 0:
            self.exponents[t] = None
            return
        if not self.sharp and below**2 <= 8 * above**2 < 64 * below**2:
            return
        new = self._clamp(exponent + (floor_log2(above, below) + 1) // 2)
        rise = new - exponent
        self.variances[t] = self.variances[t] >> (2 * rise) if rise > 0 else self.variances[t] << (-2 * rise)
        self.exponents[t] = new

    def dequantise(self, sums: np.ndarray) -> np.ndarray:
        """Return the mean over the nodes, flat float32, correctly rounded from the integer sums."""
        mean = self._means.take(sums.size, np.float32)
        for t, exponent in enumerate(self.exponents):
            here = slice(self.offsets[t], self.offsets[t + 1])
            step, factor = 2.0 ** (exponent or 0), 2.0 ** (exponent or 0) / self.nodes
            if sums.dtype == np.int16 and self.nodes & (self.nodes - 1) == 0 and factor >= LEAST_NORMAL:
                to_shifted_means(sums[here], np.float32(factor), mean[here])
            else:
                to_means(sums[here], float(self.nodes), step, mean[here])
        return mean

    def digest(self) -> int:
        """Return 32 bits of what the next integers depend on: exponents and variances."""
        return zlib.crc32(repr((self.exponents, self.variances, self.previous_exponents)).encode())
