"""One power-of-two step per tensor. It is never sent: every node derives it from the aggregated sums.

Nodes that saw the same sums hold the same steps. Only a tensor without a step (in the first iteration, or
after its values grew) costs one small exchange of summaries. protocol.md, "Quantiser", has the rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from oscar.array import Array
from oscar.cores import share, threads_for
from oscar.numerics.integers import extremes, floor_log2, least_exponent, sum_of_squares
from oscar.numerics.passes import Passes
from oscar.numerics.plans import ChunkPlan, in_order
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams
from oscar.numerics.quantiser_kernels import MOST_SHIFT
from oscar.numerics.sum_kernels import PIECE, TensorRules
from oscar.numerics.tensors import Room, offsets_of, parts_of
from oscar.numerics.value_steps import FALL, GROWTH, WORD, ValueSteps, rule_of, settle_values
from oscar.state import Reader, Saved, Stateful, optional, optional_integers

MIN_EXPONENT = -149  # of a step: that of the smallest float32, of which all others are multiples
SMOOTHING = 1  # the variance estimate moves by half of the difference
JUMP = 4  # a variance that grew by more than this factor at once is asked for anew, not smoothed
MAX_COUNT = 1 << 28  # values whose squares, of 17 bits, add up within int64
MOST_SUM = 1 << 24  # of 256 workers' integers of 16 bits
MOST_VARIANCE = 1 << 256  # far above what sums of 32 bits and clamped steps come to
LEAST_NORMAL = 2.0**-126  # of float32
STAYS = np.int32(0), np.int32(0)  # of values without a step
MAX_ALIGN = 12  # exponents further apart than this are not compared


def headroom(nodes: int) -> int:
    """Return how many times the largest mean a worker's largest value may be, as quantiser 8g assumes.

    Where noise dominates, a mean shrinks with sqrt(nodes): the least power of two that is no less than that.
    """
    return 1 << ((nodes - 1).bit_length() + 1) // 2


def _read_exponents(tracker: Any, saved: Saved) -> list[int | None]:
    least, most = tracker.clamp(MIN_EXPONENT), tracker.clamp(tracker.params.max_exponent)
    return optional_integers(saved, len(tracker.sizes), least, most)


def _read_variances(tracker: Any, saved: Saved) -> list[int]:
    return [item.integer(0, MOST_VARIANCE) for item in saved.items(len(tracker.sizes))]


def _read_sums(tracker: Any, saved: Saved) -> Array:
    dtype, shape = tracker.params.sum_dtype(tracker.nodes), (int(tracker.offsets[-1]),)
    return saved.array(dtype, shape, -MOST_SUM, MOST_SUM)


def _rises(before: Sequence[int | None], after: Sequence[int | None]) -> list[int]:
    """Return by how much each exponent rose; 0 where one is None."""
    return [0 if a is None or b is None else b - a for a, b in zip(before, after, strict=True)]


def _shown(sums: Array) -> Array:
    """Return a view that nobody can write to: the next steps depend on them, too."""
    shown = sums.view()
    shown.flags.writeable = False
    return shown


class Settled(NamedTuple):
    """Aggregated sums, flat, in natural order, read-only; and their mean over the nodes.

    The mean is float32, correctly rounded from the integers.
    """

    sums: Array
    mean: Array


class StepTracker(Stateful):
    """The steps of all tensors, a pure function of exchanged summaries and aggregated sums.

    `exponents[t]` is log2 of tensor t's step, or None while it has none. Replicated on every node.
    `coarseness` may be changed before `settle`, on all nodes alike: it is that of the next steps, at once
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
        self._edges = self.offsets.tolist()
        self.exponents: list[int | None] = [None] * len(self.sizes)
        self.variances: list[int] = [0] * len(self.sizes)  # of one worker, in units of 2^(2*exponent - 32)
        self.previous: np.ndarray | None = None  # the last aggregated sums
        self._sums, self._means = Room(), Room()
        self._ruled: tuple[Any, TensorRules] | None = (
            None  # of which steps, and what the kernel takes of them
        )
        self.coarseness, self.sharp = params.coarseness, False  # of the next steps
        self._ratio = 0.0, 0, 0  # of which coarseness, and what `_move` takes of it
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
            mean = total / len(summaries)
            self.begin_anew(t, self.clamp(self.fitting(mean)), mean)

    def fitting(self, mean_square: Fraction) -> int:
        """Return the exponent nearest to coarseness * sigma, unclamped. mean_square: sigma^2, above 0."""
        square = mean_square * Fraction(self.coarseness) ** 2
        return (floor_log2(square.numerator, square.denominator) + 1) // 2

    def begin_anew(self, t: int, exponent: int, mean_square: Fraction | None) -> None:
        """Give a tensor a step on which the ranks agreed. mean_square: of one worker; None with "max"."""
        self.exponents[t] = exponent
        self.previous_exponents[t] = None  # earlier sums may have another scale
        if mean_square is not None:
            self.variances[t] = int(mean_square / Fraction(2) ** (2 * exponent - 32))

    def clamp(self, exponent: int) -> int:
        """Return the exponent, or the nearest that a step may have."""
        apart = MOST_SHIFT if self.params.step == "value" else 0
        return min(self.params.max_exponent - apart, max(MIN_EXPONENT + apart, exponent))

    def _from_peak(self, peak: Fraction) -> int | None:
        """Return the smallest exponent whose step brings `peak` within the integers' limit."""
        return None if peak == 0 else self.clamp(least_exponent(peak / self.params.limit))

    def settle(
        self,
        reduced: Array,
        plan: ChunkPlan | None = None,
        position: PositionState | ValueSteps | None = None,
        begun: Passes | None = None,
    ) -> Settled:
        """Derive all that follows from the aggregated integers: their mean, the next steps, `position`.

        reduced: as they arrived, in the order of `plan`; None: in the natural one. position: ValueSteps where
        values have steps of their own. begun: the passes over `reduced`, where some were made.
        """
        if isinstance(position, ValueSteps):
            return self._settle_values(reduced, plan, position)
        passes = begun or Passes(self, reduced, plan, position)
        passes.through(reduced.size)
        squares = passes.squares()
        if position is not None:
            position.end()
        rises = self._observe(passes.sums, squares)
        if position is not None:
            position.rescale(self.offsets, rises)
        return Settled(_shown(passes.sums), passes.mean)

    def room_for(self, reduced: Array) -> tuple[Array, Array]:
        """Return memory for the sums in the natural order, and for their mean."""
        return self._sums.take(reduced.size, reduced.dtype), self._means.take(reduced.size, np.float32)

    def _settle_values(self, reduced: Array, plan: ChunkPlan | None, own: ValueSteps) -> Settled:
        """Do what `settle` does where each value has a step of its own."""
        sums, mean = self.room_for(reduced)
        places, moving = (plan or in_order(reduced.size)).places, own.begin()
        rule, energies = rule_of(self.coarseness, self.nodes), [0] * len(self.sizes)

        def part(_: int, first: int, last: int) -> list[tuple[int, ...]]:
            """Do what belongs to the values `first` to `last`; return energies, of which tensor."""
            out = []
            for t, *span in parts_of(self._edges, first, last):
                exponent = self.exponents[t]
                scale = float(self.nodes), 2.0 ** (exponent or 0)
                moves = STAYS if exponent is None else rule
                out.append((t, *settle_values(reduced, *places, *span, sums, scale, mean, moves, *moving)))
            return out

        for t, *words in chain(*share(part, reduced.size, threads_for(reduced.size), PIECE)):
            fine, fine_rest, coarse, coarse_rest = map(int, words)
            energies[t] += (fine << WORD) + fine_rest
            energies[t] += (coarse << WORD) + coarse_rest << 2 * MOST_SHIFT
        own.end()
        before = list(self.exponents)
        for t, energy in enumerate(energies):
            self._observe_energy(t, energy)
        own.rebase(self.offsets, _rises(before, self.exponents))
        return Settled(_shown(sums), mean)

    def _observe_energy(self, t: int, energy: int) -> None:
        """Derive the next exponent of tensor t from the sum of squares of its sums in 2^-MOST_SHIFT steps."""
        exponent, count = self.exponents[t], self.sizes[t]
        if exponent is None or count == 0:
            return
        fresh = (energy << 32 - 2 * MOST_SHIFT) // (self.nodes * count)
        grown = fresh - self.variances[t]
        if energy == 0:
            return
        if fresh > GROWTH * self.nodes * self.variances[t]:
            self.exponents[t] = None
            return
        self.variances[t] += grown >> (SMOOTHING if grown > 0 else FALL)
        self._move(t, exponent)

    def rules(self, sums: Array) -> TensorRules:
        """Return what the kernel must know of each tensor; it is kept while steps stay.

        The kernel does not compare with last sums of much other steps; `_observe_tensor` does what is left.
        """
        first = self.previous is None
        known = sums.dtype, first, tuple(self.exponents), tuple(self.previous_exponents)
        if self._ruled is None or self._ruled[0] != known:
            self._ruled = known, self._make_rules(narrow=sums.dtype == np.int16, first=first)
        return self._ruled[1]

    def _make_rules(self, *, narrow: bool, first: bool) -> TensorRules:
        steps = np.ldexp(1.0, np.array([exponent or 0 for exponent in self.exponents], np.int64))
        factors = (steps / self.nodes).astype(np.float32)
        product = narrow and self.nodes & (self.nodes - 1) == 0
        factors[(steps < self.nodes * LEAST_NORMAL) | (not product)] = 0
        comparing = narrow and self.nodes > 1 and not first and self.params.scale != "max"
        pairs = list(zip(self.exponents, self.previous_exponents, self.sizes, strict=True))
        known = np.array([
            comparing and now is not None and old is not None and abs(old - now) <= 1 and size <= MAX_COUNT
            for now, old, size in pairs
        ], np.bool_)  # fmt: skip
        rises = [
            now - old if fits and now is not None and old is not None else 0
            for (now, old, _), fits in zip(pairs, known.tolist(), strict=True)
        ]
        shifts = np.maximum(np.array(rises, np.int64)[:, None] * [1, -1], 0)
        return TensorRules(steps, factors, shifts, known)

    def _observe(self, sums: Array, squares: Sequence[tuple[int, int | None] | None]) -> list[int]:
        """Derive the next steps; return by how much each exponent rose. squares: see `_observe_tensor`."""
        before = list(self.exponents)
        if self.params.scale == "max":
            self._observe_peak(sums)
        else:
            compared = list(before)
            for t, energies in enumerate(squares):
                if not self._observe_tensor(t, sums[self.offsets[t] : self.offsets[t + 1]], energies):
                    compared[t] = None  # zeros would make the next sums look like noise
            self.previous, self.previous_exponents = sums, compared
        return _rises(before, self.exponents)

    def _observe_peak(self, sums: np.ndarray) -> None:
        exponent = next((e for e in self.exponents if e is not None), None)
        if exponent is None:
            return
        peak = self.peak(sums) * headroom(self.nodes)
        if peak == 0:
            return
        new = self._from_peak(Fraction(peak, self.nodes) * Fraction(2) ** exponent)
        self.exponents = [new] * len(self.sizes)

    def peak(self, sums: Any) -> int:
        """Return the largest magnitude of sums, in any order."""
        low, high = extremes(sums)
        return max(high, -low)

    def energies(self, sums: Array) -> list[int]:
        """Return the sum of squares of each tensor's sums, in the natural order."""
        return [sum_of_squares(sums[first:end]) for first, end in pairwise(self._edges)]

    def _observe_tensor(self, t: int, sums: Array, squares: tuple[int, int | None] | None) -> bool:
        """Derive the next exponent of tensor t; return False where all sums are zero, which changes nothing.

        squares: sums of squares of `sums` and of their change (see `change`), where they are known.
        """
        exponent, size = self.exponents[t], self.sizes[t]
        if exponent is None or size == 0:
            return True
        change: int | None
        energy, change = squares or (sum_of_squares(sums), self.change(t, sums, exponent))
        if energy == 0:
            return False  # truly zero, or else the call would have got a finer step (renewal.py)
        if change is not None:
            # sums = N mu + noise, differences of sums = noise of two iterations: one worker's variance is
            # mu^2 + noise^2 = (E[S^2] + (N-1) E[(S - S')^2] / 2) / N^2
            fresh = ((2 * energy + (self.nodes - 1) * change) << 32) // (2 * self.nodes**2 * size)
            if fresh > JUMP * self.variances[t]:
                self.exponents[t] = None  # grew, or had one bad iteration: ask everyone next time
                return True
            self.variances[t] += (fresh - self.variances[t]) >> SMOOTHING
        most = (energy << 32) // (self.nodes * size)  # where workers have nothing in common
        if self.variances[t] > JUMP * most:
            self.variances[t] = most  # fell: a step that is too coarse loses more than one too fine
        self._move(t, exponent)
        return True

    def change(self, t: int, sums: np.ndarray, exponent: int) -> int | None:
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
        if self._ratio[0] != self.coarseness:
            numerator, denominator = self.coarseness.as_integer_ratio()
            self._ratio = self.coarseness, numerator**2, denominator**2 << 32
        _, square, below = self._ratio
        above = square * self.variances[t]  # above / below: (c * sigma / step)^2
        if above == 0:
            self.exponents[t] = None
            return
        if not self.sharp and below**2 <= 8 * above**2 < 64 * below**2:
            return
        new = self.clamp(exponent + (floor_log2(above, below) + 1) // 2)
        rise = new - exponent
        self.variances[t] = self.variances[t] >> (2 * rise) if rise > 0 else self.variances[t] << (-2 * rise)
        self.exponents[t] = new

    def digest(self) -> int:
        """Return 32 bits of what the next integers depend on: exponents and variances."""
        return zlib.crc32(repr((self.exponents, self.variances, self.previous_exponents)).encode())
