"""The quantiser: its parameters, and how a worker makes integers of its float32 tensors.

The steps come from oscar.numerics.steps. docs/reference/protocol.md, "Quantiser", has the rules; notes on
rates name this quantiser 8s or 8g.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np

from oscar.cores import share, threads_for
from oscar.numerics.member import Member, read_residual
from oscar.numerics.plans import ChunkPlan, in_order
from oscar.numerics.quantiser_kernels import (
    MOST_SHIFT,
    PIECE,
    add_bounded,
    addresses_of,
    all_normal,
    energies_beyond,
    grids_of,
    to_grids,
)
from oscar.numerics.saturation import Saturation, bounded_by, energy_of, power_of, rounded
from oscar.numerics.tensors import check_finite, offsets_of
from oscar.state import Reader, natural, optional

MIN_BITS, DEFAULT_BITS, MAX_BITS = 8, 12, 16  # of a worker's integers
NONE = np.empty(0, np.float32)  # where kernels take no values
NO_SHIFTS = np.empty(0, np.int8)  # where values have their tensors' steps
LOOK = 64  # values that mostly show that a tensor is not all zeros
RESIDUAL_RANGES = 16  # times the limit: steps that a residual of saturated values may have
SUM_BITS = 16  # of sums, unless the user asks for more: the fastest kernels hold them in int16

Scale = Literal["sigma", "max"]
Rounding = Literal["nearest", "stochastic"]
Step = Literal["tensor", "value"]


@dataclass(frozen=True)
class QuantiserParams:
    """Parameters of the quantiser. They are equal on all nodes.

    Attributes:
        scale: "sigma" takes each tensor's step from its standard deviation, "max" one step for all tensors
            from the largest magnitude.
        coarseness: Step / sigma, with "sigma". A larger one sends fewer bits.
        bits: Width of a worker's integers, 8 to 16. Larger values saturate. `default_bits` suggests a width.
        rounding: "nearest" (ties to even) or "stochastic" (unbiased and reproducible).
        error_feedback: Each worker adds what rounding lost to its next gradient.
        seed: Of stochastic rounding.
        step: "tensor", or with "sigma" also "value": what has a sigma, and so a step, of its own.
    """

    scale: Scale = "sigma"
    coarseness: float = 0.125
    bits: int = DEFAULT_BITS
    rounding: Rounding = "nearest"
    error_feedback: bool = False
    seed: int = 0
    step: Step = "tensor"

    def __post_init__(self) -> None:
        if self.scale not in ("sigma", "max"):
            raise ValueError(f'scale must be "sigma" or "max", got {self.scale!r}')
        if self.rounding not in ("nearest", "stochastic"):
            raise ValueError(f'rounding must be "nearest" or "stochastic", got {self.rounding!r}')
        if self.step not in ("tensor", "value"):
            raise ValueError(f'step must be "tensor" or "value", got {self.step!r}')
        if self.step == "value" and self.scale != "sigma":
            raise ValueError(
                f'step "value" needs scale "sigma", got {self.scale!r}: there is one step for all'
            )
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise ValueError(f"bits must be {MIN_BITS} to {MAX_BITS}, got {self.bits}")
        if not (math.isfinite(self.coarseness) and 2**-20 <= self.coarseness <= 2**20):
            raise ValueError(f"coarseness must lie in 2^-20 .. 2^20, got {self.coarseness}")

    @property
    def limit(self) -> int:
        """Largest magnitude of a worker's integer."""
        return (1 << (self.bits - 1)) - 1

    @property
    def max_exponent(self) -> int:
        """Largest exponent of a step: the largest integer times it is still a float32."""
        return 128 - self.bits

    @property
    def name(self) -> str:
        """Short name for tables: bits; s, v or g for whose size a step has; the coarseness if not 1/8."""
        if self.scale == "max":
            return f"{self.bits}g"
        return f"{self.bits}{'v' if self.step == 'value' else 's'}" + (
            "" if self.coarseness == 0.125 else f" c={Fraction(self.coarseness)}"
        )

    def sum_width(self, terms: int) -> int:
        """Signed bits that hold the sum of `terms` workers' integers."""
        return sum_width(self.bits, terms)

    def sum_dtype(self, nodes: int) -> np.dtype[Any]:
        """Return int16 where the sum over `nodes` fits (12 bits: up to 16 nodes, 8 bits: 256), else int32.

        Raises ValueError beyond 32 bits.
        """
        width = self.sum_width(nodes)
        if width > 32:
            raise ValueError(
                f"sums of {nodes} values of {self.bits} bits need {width} bits, at most 32 are kept"
            )
        return np.dtype(np.int16 if width <= 16 else np.int32)


def sum_width(bits: int, terms: int) -> int:
    """Return the signed bits that hold the sum of `terms` integers of `bits`."""
    return bits + max(0, terms - 1).bit_length()


def default_bits(nodes: int) -> int:
    """Return 12 while sums over `nodes` fit 16 bits, else the width that fits: 11 from 17 nodes, 8 at 256.

    An entropy coder pays for the values that occur, not for the width, so there is no reason to clip early.
    """
    return max(MIN_BITS, min(DEFAULT_BITS, SUM_BITS - sum_width(0, nodes)))


class WorkerQuantiser(Member):
    """One worker's side of the quantiser: rounding, and the residual that error feedback carries over.

    Args:
        params: Parameters of the quantiser.
        rank: The worker's rank.
        values: Number of values of all tensors, if known. A loaded state is checked against it.

    Attributes:
        energies: Sum of squares of the last iteration's integers, by tensor.
        clipped: Number of values that saturated, by tensor.
        lost: Energy that saturation cut off, by tensor. Only tensors with saturated values are in it.
        cut_off: Energy that was cut off residuals, by tensor.
        grown: Tensors whose steps are too small (oscar.numerics.renewal).
        room: Memory for integers, reused from call to call so that its pages stay mapped.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "iteration": natural,
        "residual": optional(
            read_residual, when=lambda worker: worker.params.error_feedback, without="without error feedback"
        ),
    }

    energies_of = staticmethod(energies_beyond)

    def __init__(self, params: QuantiserParams, rank: int, values: int | None = None) -> None:
        super().__init__(rank, values)
        self.params, self.iteration = params, 0
        self._spare: np.ndarray | None = None
        self.energies: list[int] = []
        self.clipped: list[int] = []
        self.lost: dict[int, float] = {}
        self.cut_off: dict[int, float] = {}
        self.grown: list[int] = []
        self._edges: tuple[list[int], np.ndarray] = [], offsets_of([])  # sizes of tensors, and their offsets
        self._cut: Sequence[Any] | None = None  # the tensors of this call
        self._gradient_energies: list[float] = []  # of the tensors in `_cut`, once they were asked for
        self.room: np.ndarray | None = None

    def corrected(self, tensors: Sequence[np.ndarray], only: Sequence[int] | None = None) -> list[np.ndarray]:
        """Return the flat tensors with the residual of error feedback added, where there is one.

        Args:
            tensors: Flat tensors.
            only: Indices of the tensors to return, in this order. None returns all.

        Raises:
            ValueError: The residual, which may come from a file, belongs to other tensors.
        """
        self._check_residual(tensors)
        chosen = range(len(tensors)) if only is None else only
        if self.residual is None:
            return [tensors[t] for t in chosen]
        out = [np.empty(tensors[t].size, np.float32) for t in chosen]
        for t, values in zip(chosen, out, strict=True):
            add_bounded(tensors[t], self.residual[self.slice_of(t, tensors)], values)
        return out

    def slice_of(self, t: int, tensors: Sequence[Any]) -> slice:
        """Return where tensor `t` lies among the values of all flat tensors."""
        return slice(*self._offsets(tensors)[t : t + 2].tolist())

    def gradient_energies(self, tensors: Sequence[Any]) -> list[float]:
        """Return the sum of squares of each flat tensor, without the residual; a call computes it once."""
        if self._cut is not tensors or not self._gradient_energies:
            self._cut, self._gradient_energies = tensors, self.energies_of(tensors, [0.0] * len(tensors))
        return self._gradient_energies

    def quantise(
        self,
        tensors: Sequence[np.ndarray],
        exponents: Sequence[int | None],
        dtype: Any = np.int32,
        plan: ChunkPlan | None = None,
        out: np.ndarray | None = None,
        shifts: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the integers of all tensors, corrected by the residual, as one flat array.

        A tensor without a step becomes zeros. So does one whose gradient is all zeros: its residual waits.
        The residual changes only when `commit` is called.

        Args:
            tensors: Flat float32 gradients.
            exponents: log2 of each tensor's step. None: the tensor has no step.
            dtype: Of the result: int32, or int16 if sums fit it.
            plan: The order of the result. None is the natural order.
            out: Memory for the result, used if it has the right size and dtype.
            shifts: int8, by how much each value's exponent is above its tensor's. None: all are 0.

        Raises:
            ValueError: The residual belongs to other tensors.
            GradientError: A value is NaN or Inf.
        """
        self._check_residual(tensors)
        values, feedback = sum(tensor.size for tensor in tensors), self.params.error_feedback
        if self.residual is not None:
            exponents = [None if self.is_idle(t) else e for t, e in zip(tensors, exponents, strict=True)]
        if not all_normal(exponents, 0 if shifts is None else MOST_SHIFT):
            check_finite(tensors, self.rank)
            integers = self._quantise_plainly(tensors, exponents, dtype, shifts)
            return integers if plan is None else plan.gather(integers)
        places = (plan or in_order(values)).places
        if out is None or out.shape != (values,) or out.dtype != dtype:
            out = np.empty(values, dtype)
        if None in exponents:
            check_finite(tensors, self.rank, [t for t, exponent in enumerate(exponents) if exponent is None])
            out[:] = 0
        keep = self._room(values) if feedback else NONE
        residual = NONE if self.residual is None else self.residual
        value_shifts = NO_SHIFTS if shifts is None else shifts
        noise, limit = self._generator(), np.float32(self.params.limit)
        flat, addresses = addresses_of(tensors)
        given = grids_of(exponents), limit, residual, value_shifts, *places, noise, out, keep

        def run(_: int, first: int, last: int) -> tuple[int, np.ndarray, np.ndarray]:
            """Quantise the values `first` to `last`; return what `to_grids` does, its tallies and weights."""
            tallies, weights = np.zeros((len(flat), 2), np.int64), np.zeros((len(flat), 2))
            bad = to_grids(addresses, self._offsets(flat), first, last, *given, tallies, weights)
            return bad, tallies, weights

        parts = share(run, values, threads_for(values), PIECE)
        check_finite(flat, self.rank, sorted(bad for bad, *_ in parts if bad >= 0))
        self.pending = keep if feedback else None
        self.clipped, self.energies = sum(tallies for _, tallies, _ in parts).T.tolist()
        self._take_weights(sum(weights for *_, weights in parts), tensors, exponents, shifts)
        return out

    def _take_weights(
        self, weights: Any, tensors: Any, exponents: Sequence[int | None], shifts: np.ndarray | None
    ) -> None:
        """Set what saturation took, and the gradient's energies, from the weights of `to_grids`."""
        lost, energies = weights.T.tolist()
        self._cut, self._gradient_energies = tensors, [] if None in exponents else energies
        if shifts is None:
            self.lost = {t: lost[t] for t, clipped in enumerate(self.clipped) if clipped}
        else:
            self._weigh(tensors, exponents, shifts)
        self.sum_up(tensors, exponents, shifts)

    def fetched(self, values: Any) -> np.ndarray:
        """Return values, which may be on a device, as an array of the host."""
        return np.asarray(values)

    @staticmethod
    def is_idle(tensor: Any) -> bool:
        """Return True if a gradient is all zeros: nothing of its tensor is sent, and its residual waits."""
        return not tensor[:LOOK].any() and not tensor.any()

    def store(self, here: slice, values: np.ndarray) -> None:
        """Write a part of the pending residual."""
        assert self.pending is not None
        self.pending[here] = values

    def _weigh(
        self, tensors: Sequence[Any], exponents: Sequence[int | None], shifts: np.ndarray | None = None
    ) -> None:
        """Set what saturation took. Only tensors with saturated values are read again."""
        self.lost = {}
        hit = {t for t, exponent in enumerate(exponents) if self.clipped[t] and exponent is not None}
        if hit and shifts is None:
            limit = self.params.limit
            edges = [math.ldexp(limit, exponents[t]) if t in hit else math.inf for t in range(len(tensors))]  # type: ignore[arg-type]
            beyond = self.energies_of(tensors, edges, self.residual)
            self.lost = {t: beyond[t] for t in hit}
        for t in hit if shifts is not None else ():
            power = power_of(exponents[t], self.slice_of(t, tensors), shifts)
            most = np.ldexp(float(self.params.limit), power)
            self.lost[t] = energy_of(np.maximum(np.abs(self.corrected(tensors, [t])[0]) - most, 0.0))

    def sum_up(
        self,
        tensors: Sequence[Any],
        exponents: Sequence[int | None],
        shifts: np.ndarray | None,
        dropped: Mapping[int, float] | None = None,
    ) -> None:
        """Bound the residuals of tensors with saturated values, and sum up all losses.

        dropped: energy that was cut off earlier residuals, by tensor.
        """
        self.saturation = Saturation.of(sum(self.clipped), self.lost, tensors, self.gradient_energies)
        lost, most = dict(dropped or {}), np.float32(RESIDUAL_RANGES * self.params.limit)
        for t in self.lost if self.pending is not None else ():
            here = self.slice_of(t, tensors)
            residual = self.fetched(self.pending[here])  # type: ignore[index]
            beyond, bounded = bounded_by(most, power_of(exponents[t], here, shifts), residual)
            if beyond:
                lost[t] = lost.get(t, 0.0) + beyond
                self.store(here, bounded)
        self.cut_off = lost
        self.dropped = Saturation.of(0, lost, tensors, self.gradient_energies)

    def _quantise_plainly(
        self,
        tensors: Sequence[np.ndarray],
        exponents: Sequence[int | None],
        dtype: Any,
        shifts: np.ndarray | None,
    ) -> np.ndarray:
        """Do what `quantise` does in NumPy, with any rounding and at any exponent."""
        limit, out = self.params.limit, np.zeros(sum(t.size for t in tensors), dtype)
        noise = self.noise(out.size)
        keep = np.zeros(out.size, np.float32) if self.params.error_feedback else None
        self.clipped, self.energies, at = [0] * len(tensors), [0] * len(tensors), 0
        for t, (tensor, exponent) in enumerate(zip(self.corrected(tensors), exponents, strict=True)):
            here = slice(at, at + tensor.size)
            at += tensor.size
            if exponent is None:
                if keep is not None:
                    keep[here] = tensor
                continue
            power: Any = exponent if shifts is None else shifts[here].astype(np.int32) + np.int32(exponent)
            quantised, unbounded = rounded(tensor, power, limit, None if noise is None else noise[here])
            self.clipped[t] = int(np.count_nonzero(unbounded != quantised))
            self.energies[t] = int(np.square(quantised, dtype=np.int64).sum())
            out[here] = quantised
            if keep is not None:
                keep[here] = tensor - np.ldexp(quantised.astype(np.float32), power)
        self.pending = keep
        self._weigh(tensors, exponents, shifts)
        self.sum_up(tensors, exponents, shifts)
        return out

    def _check_residual(self, tensors: Sequence[np.ndarray]) -> None:
        """Raise ValueError unless the residual is as large as `tensors`: kernels do not check bounds."""
        values = sum(tensor.size for tensor in tensors)
        if self.residual is not None and self.residual.shape != (values,):
            raise ValueError(
                f"the residual is of shape {self.residual.shape}, expected ({values},); "
                "resume with the state of this model"
            )

    def _offsets(self, tensors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the offsets of flat tensors, those of the last call if sizes are equal."""
        if self._edges[0] != (sizes := [tensor.shape[0] for tensor in tensors]):
            self._edges = sizes, offsets_of(sizes)
        return self._edges[1]

    def _room(self, count: int) -> np.ndarray:
        """Return an array for the next residual: the one before the last, so that pages stay mapped."""
        if self._spare is None or self._spare is self.residual or self._spare.size != count:
            self._spare = np.empty(count, np.float32)  # a call that fails goes back to the present one
        return self._spare

    def _generator(self) -> np.ndarray:
        """Return key and counter of this iteration's noise, uint64; nothing for rounding to nearest."""
        stochastic = self.params.rounding == "stochastic"
        return np.array([self.params.seed, self.rank, self.iteration] if stochastic else [], np.uint64)

    def noise(self, count: int) -> np.ndarray | None:
        """Return this iteration's draws of stochastic rounding, float64; None for rounding to nearest."""
        if self.params.rounding == "nearest":
            return None
        bits = np.random.Philox(key=[self.params.seed, self.rank], counter=[0, 0, 0, self.iteration])
        return np.random.Generator(bits).random(count)

    def commit(self) -> None:
        """Keep the residual and move on to the next iteration, once the AllReduce has succeeded."""
        self._spare, self._cut = self.residual, None
        super().commit()
        self.iteration += 1

    def _follow(self) -> None:
        self._cut = None  # or else the tensors of a call that failed would stay in memory
        super()._follow()
