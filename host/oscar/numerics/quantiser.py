"""float32 tensors to integers and back, with one power-of-two step per tensor that is never sent.

Every node derives the next steps from the aggregated integers it just received, so nodes that saw the same
sums hold the same steps. Only a tensor without a step (the first iteration, or an all-zero sum) costs one
small exchange. docs/protocol.md, "Quantiser", has the rules; notes on rates name this quantiser 8s or 8g.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from oscar.errors import GradientError
from oscar.numerics.quantiser_kernels import (
    NORMAL_EXPONENTS,
    add_bounded,
    all_finite,
    energy_beyond,
    round_to_grid,
    round_with_residual,
    squares_of_changes,
    to_means,
)
from oscar.numerics.saturation import Saturation
from oscar.state import Saved, crc, optional_integers

SUMMARY_BYTES = 8  # what one node sends per tensor without a step: u32 mantissa, i16 exponent, padding
MIN_EXPONENT = -140  # of a step; float32 reaches down to 2^-149
SMOOTHING = 1  # the variance estimate moves by half of the difference
JUMP = 4  # a variance that changed so many times at once is not followed by halves
MAX_COUNT = 1 << 28  # values whose squares, of 17 bits, add up within int64
MOST_SUM = 1 << 24  # of 256 workers' integers of 16 bits
MOST_VARIANCE = 1 << 256  # far above what sums of 32 bits and clamped steps come to
MAX_ALIGN = 12  # exponents further apart than this are not compared
MIN_BITS, DEFAULT_BITS, MAX_BITS = 8, 12, 16  # of a worker's integers
SUM_BITS = 16  # in which sums stay where nobody says otherwise: the kernels and the lanes are made for it

Scale = Literal["sigma", "max"]
Rounding = Literal["nearest", "stochastic"]


@dataclass(frozen=True)
class QuantiserParams:
    """How tensors become integers; equal on all nodes.

    scale: "sigma" takes each tensor's step from its standard deviation, "max" one step for all tensors
    from the largest magnitude. coarseness: step / sigma (with "sigma"); larger sends fewer bits.
    bits: width of a worker's integers, 8 to 16; larger values saturate. `default_bits` says what to take.
    rounding: "nearest" (ties to even) or "stochastic" (unbiased; counter-based generator, reproducible).
    error_feedback: each worker adds what rounding lost to its next gradient.
    """

    scale: Scale = "sigma"
    coarseness: float = 0.125
    bits: int = DEFAULT_BITS
    rounding: Rounding = "nearest"
    error_feedback: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.scale not in ("sigma", "max"):
            raise ValueError(f'scale must be "sigma" or "max", got {self.scale!r}')
        if self.rounding not in ("nearest", "stochastic"):
            raise ValueError(f'rounding must be "nearest" or "stochastic", got {self.rounding!r}')
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
        """Short name for tables: bits, s or g for the scale, and the coarseness where it is not 1/8."""
        if self.scale == "max":
            return f"{self.bits}g"
        return f"{self.bits}s" + ("" if self.coarseness == 0.125 else f" c={Fraction(self.coarseness)}")

    def sum_width(self, terms: int) -> int:
        """Signed bits that hold the sum of `terms` workers' integers."""
        return sum_width(self.bits, terms)

    def sum_dtype(self, nodes: int) -> np.dtype[Any]:
        """int16 where the sum over `nodes` fits (12 bits: up to 16 nodes, 8 bits: 256), else int32.

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
    """Return 12 while sums over `nodes` fit 16 bits, then what still fits: 11 from 17 nodes, 8 at 256.

    An entropy coder pays for the values that occur, not for the width, so there is no reason to clip early.
    """
    return max(MIN_BITS, min(DEFAULT_BITS, SUM_BITS - sum_width(0, nodes)))


def check_tensors(
    tensors: Sequence[np.ndarray], node: int, *, remedy: str = "skip this iteration or lower the loss scale"
) -> list[np.ndarray]:
    """Return `tensors` as contiguous flat float32 arrays (copied only where needed).

    Raises GradientError on NaN or Inf, TypeError on anything but floating-point arrays.
    """
    flat = []
    for index, tensor in enumerate(tensors):
        array = np.asarray(tensor)
        if array.dtype.kind != "f":
            raise TypeError(
                f"node {node}, tensor {index}: expected float32, got {array.dtype}; convert it first"
            )
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32).reshape(-1)
        if not all_finite(array):
            bad = int(np.flatnonzero(~np.isfinite(array))[0])
            count = int((~np.isfinite(array)).sum())
            raise GradientError(
                f"node {node}, tensor {index}: {count} of {array.size} values are NaN, Inf or too large, "
                f"the first at flat index {bad} ({array[bad]})",
                advice=f"; {remedy}",
            )
        flat.append(array)
    return flat


def floor_log2(numerator: int, denominator: int) -> int:
    """floor(log2(numerator / denominator)) of positive integers, exactly."""
    guess = numerator.bit_length() - denominator.bit_length()
    high = numerator << max(0, -guess)
    low = denominator << max(0, guess)
    return guess if high >= low else guess - 1


def headroom(nodes: int) -> int:
    """8g: how many times the largest mean a worker's largest value is taken to be at most.

    Where noise dominates a mean shrinks with sqrt(nodes); this is the power of two from there up.
    """
    return 1 << ((nodes - 1).bit_length() + 1) // 2


def sum_of_squares(values: np.ndarray) -> int:
    """Exact sum of squares of integers of up to 40 bits, as a Python integer."""
    wide = values.astype(np.int64)
    if max(int(wide.max(initial=0)), -int(wide.min(initial=0))) < 1 << 24:
        return _dot(wide, wide)
    high, low = wide >> 16, wide & 0xFFFF
    return (_dot(high, high) << 32) + (_dot(high, low) << 17) + _dot(low, low)


def _dot(a: np.ndarray, b: np.ndarray) -> int:
    """Exact inner product of integers of up to 24 bits."""
    size = 1 << 14  # 2 x 24 + 14 bits fit int64
    return sum(int(np.dot(a[at : at + size], b[at : at + size])) for at in range(0, a.size, size))


def summarise(tensors: Sequence[np.ndarray], params: QuantiserParams) -> list[tuple[int, int]]:
    """What one node tells the others of tensors without a step: (mantissa, exponent) of size.

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


class StepTracker:
    """The steps of all tensors, a pure function of exchanged summaries and aggregated sums.

    `exponents[t]` is log2 of tensor t's step, or None while it has none. Replicated on every node.
    """

    def __init__(self, params: QuantiserParams, sizes: Sequence[int], nodes: int) -> None:
        self.params, self.sizes, self.nodes = params, list(sizes), nodes
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.exponents: list[int | None] = [None] * len(self.sizes)
        self.variances: list[int] = [0] * len(self.sizes)  # of one worker, in units of 2^(2*exponent - 32)
        self.previous: np.ndarray | None = None  # the last aggregated sums
        self._spare: np.ndarray | None = None  # those before
        self._square = Fraction(params.coarseness) ** 2
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
            square = total / len(summaries) * Fraction(self.params.coarseness) ** 2
            exponent = self._clamp((floor_log2(square.numerator, square.denominator) + 1) // 2)
            self.exponents[t] = exponent
            self.previous_exponents[t] = None  # sums of before may be of another size
            self.variances[t] = int(total / len(summaries) / Fraction(2) ** (2 * exponent - 32))

    def _clamp(self, exponent: int) -> int:
        return min(self.params.max_exponent, max(MIN_EXPONENT, exponent))

    def _from_peak(self, peak: Fraction) -> int | None:
        """Smallest exponent whose step brings `peak` within the integers' limit."""
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
            for t in range(len(self.sizes)):
                self._observe_tensor(t, sums[self.offsets[t] : self.offsets[t + 1]])
            self._keep(sums)
            self.previous_exponents = before
        return [0 if a is None or b is None else b - a for a, b in zip(before, self.exponents, strict=True)]

    def _keep(self, sums: np.ndarray) -> None:
        """Copy `sums`, which the caller may write to, in turns into two arrays: pages stay mapped."""
        room = self._spare
        if room is None or room is self.previous or room.shape != sums.shape or room.dtype != sums.dtype:
            room = np.empty_like(sums)  # what `restore` brought back is not written to
        room[:] = sums
        self._spare, self.previous = self.previous, room

    def _observe_peak(self, sums: np.ndarray) -> None:
        exponent = next((e for e in self.exponents if e is not None), None)
        if exponent is None:
            return
        peak = int(np.abs(sums.astype(np.int64)).max(initial=0)) * headroom(self.nodes)
        new = self._from_peak(Fraction(peak, self.nodes) * Fraction(2) ** exponent)
        self.exponents = [new] * len(self.sizes)

    def _observe_tensor(self, t: int, sums: np.ndarray) -> None:
        exponent = self.exponents[t]
        if exponent is None or sums.size == 0:
            return
        energy, change = self._energies(t, sums, exponent)
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

    def _energies(self, t: int, sums: np.ndarray, exponent: int) -> tuple[int, int | None]:
        """Return the sums of squares of `sums` and of their change, as `_change` has it."""
        old = self.previous_exponents[t]
        narrow = sums.dtype == np.int16 and sums.size <= MAX_COUNT
        if not narrow or self.nodes == 1 or self.previous is None or old is None or abs(old - exponent) > 1:
            return sum_of_squares(sums), self._change(t, sums, exponent)
        low = min(old, exponent)
        before = self.previous[self.offsets[t] : self.offsets[t + 1]]
        energy, change = squares_of_changes(sums, before, exponent - low, old - low)
        return energy, change >> (2 * (exponent - low))

    def _change(self, t: int, sums: np.ndarray, exponent: int) -> int | None:
        """Sum of squared differences to the previous sums in units of the present step, or None."""
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
        """Follow the variance, with hysteresis: a step within 0.75 octaves of c * sigma stays."""
        c = self._square
        above, below = c.numerator * self.variances[t], c.denominator << 32  # (c * sigma / step)^2
        if above == 0:
            self.exponents[t] = None
            return
        if below**2 <= 8 * above**2 < 64 * below**2:
            return
        new = self._clamp(exponent + (floor_log2(above, below) + 1) // 2)
        rise = new - exponent
        self.variances[t] = self.variances[t] >> (2 * rise) if rise > 0 else self.variances[t] << (-2 * rise)
        self.exponents[t] = new

    def dequantise(self, sums: np.ndarray) -> list[np.ndarray]:
        """Return each tensor's mean over the nodes, flat float32, correctly rounded from the integer sum."""
        means = []
        for t, exponent in enumerate(self.exponents):
            part = sums[self.offsets[t] : self.offsets[t + 1]]
            means.append(np.empty(part.size, np.float32))
            to_means(part, float(self.nodes), 2.0 ** (exponent or 0), means[-1])
        return means

    def digest(self) -> int:
        """Return 32 bits of what the next integers depend on: exponents and variances."""
        return crc([self.exponents, self.variances, self.previous_exponents])

    def snapshot(self) -> tuple[Any, ...]:
        """Return a cheap token of the present state for `restore`."""
        return (
            list(self.exponents), list(self.variances), self.previous, list(self.previous_exponents)
        )  # fmt: skip

    def restore(self, token: tuple[Any, ...]) -> None:
        """Go back to the state of `snapshot`."""
        exponents, variances, self.previous, old = token
        self.exponents, self.variances, self.previous_exponents = list(exponents), list(variances), list(old)

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "exponents": list(self.exponents),
            "variances": list(self.variances),
            "previous": None if self.previous is None else self.previous.copy(),
            "previous_exponents": list(self.previous_exponents),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state).only("exponents", "variances", "previous", "previous_exponents")
        steps = len(self.sizes), MIN_EXPONENT, self.params.max_exponent
        exponents = optional_integers(saved["exponents"], *steps)
        variances = [item.integer(0, MOST_VARIANCE) for item in saved["variances"].items(len(self.sizes))]
        old = optional_integers(saved["previous_exponents"], *steps)
        previous, dtype = saved["previous"], self.params.sum_dtype(self.nodes)
        shape = (int(self.offsets[-1]),)
        sums = None if previous.missing else previous.array(dtype, shape, -MOST_SUM, MOST_SUM)
        self.exponents, self.variances = exponents, variances
        self.previous, self.previous_exponents = sums, old


class WorkerQuantiser:
    """One worker's side: rounding, and the residual that error feedback carries over.

    values: of all tensors, where that is known; a state that is loaded is checked by it.
    """

    def __init__(self, params: QuantiserParams, rank: int, values: int | None = None) -> None:
        self.params, self.rank, self.values = params, rank, values
        self.residual: np.ndarray | None = None
        self.iteration = 0
        self.saturation = Saturation()  # of the last call, the residual's part included
        self._pending: np.ndarray | None = None
        self._spare: np.ndarray | None = None

    def corrected(self, tensors: Sequence[np.ndarray], only: Sequence[int] | None = None) -> list[np.ndarray]:
        """Return the flat tensors with the residual of error feedback added, where there is one.

        only: of these tensors, in this order; None: of all. Raises ValueError where the residual, which may
        come from a file, is of other tensors.
        """
        self._check_residual(tensors)
        chosen = range(len(tensors)) if only is None else only
        if self.residual is None:
            return [tensors[t] for t in chosen]
        offsets = np.cumsum([0, *(tensor.size for tensor in tensors)])
        out = []
        for t in chosen:
            out.append(np.empty(tensors[t].size, np.float32))
            add_bounded(tensors[t], self.residual[offsets[t] : offsets[t + 1]], out[-1])
        return out

    def quantise(
        self, tensors: Sequence[np.ndarray], exponents: Sequence[int | None], dtype: Any = np.int32
    ) -> np.ndarray:
        """Return all tensors, corrected, as one flat array of `dtype`; without a step, zeros.

        tensors: flat float32, as they came; dtype: int32, or int16 as sums may have. The residual changes
        only when `commit` is called. Raises ValueError where the residual is of other tensors.
        """
        self._check_residual(tensors)
        if self.params.rounding == "stochastic" or any(
            exponent is not None and exponent not in NORMAL_EXPONENTS for exponent in exponents
        ):
            return self._quantise_plainly(tensors, exponents, dtype)
        out = np.empty(sum(t.size for t in tensors), dtype)
        keep = self._room(out.size) if self.params.error_feedback else np.empty(0, np.float32)
        limit = np.float32(self.params.limit)
        clipped, at = [0] * len(tensors), 0
        for t, (tensor, exponent) in enumerate(zip(tensors, exponents, strict=True)):
            here = slice(at, at + tensor.size)
            at += tensor.size
            if exponent is None:
                out[here] = 0
                if self.params.error_feedback:
                    keep[here] = tensor
                    if self.residual is not None:
                        add_bounded(tensor, self.residual[here], keep[here])
                continue
            factor, step = np.float32(2.0**-exponent), np.float32(2.0**exponent)
            if self.residual is None:
                beyond = round_to_grid(tensor, factor, step, limit, out[here], keep[here])
            else:
                before = self.residual[here]
                beyond = round_with_residual(tensor, before, factor, step, limit, out[here], keep[here])
            clipped[t] = int(beyond)
        self._pending = keep if self.params.error_feedback else None
        self.saturation = self._weigh(clipped, tensors, exponents)
        return out

    def _weigh(
        self, clipped: Sequence[int], tensors: Sequence[np.ndarray], exponents: Sequence[int | None]
    ) -> Saturation:
        """Return what tensors lost of which some values saturated; others are not looked at again."""
        lost = {}
        for t, exponent in enumerate(exponents):
            if clipped[t] and exponent is not None:
                (values,) = self.corrected(tensors, [t])
                lost[t] = float(energy_beyond(values, math.ldexp(self.params.limit, exponent)))
        return Saturation.of(sum(clipped), lost, tensors)

    def _quantise_plainly(
        self, tensors: Sequence[np.ndarray], exponents: Sequence[int | None], dtype: Any
    ) -> np.ndarray:
        """Do the same by NumPy: with any rounding, at any exponent."""
        limit = float(self.params.limit)
        out = np.zeros(sum(t.size for t in tensors), dtype)
        noise = self._noise(out.size) if self.params.rounding == "stochastic" else None
        keep = np.zeros(out.size, np.float32) if self.params.error_feedback else None
        clipped, at = [0] * len(tensors), 0
        for t, (tensor, exponent) in enumerate(zip(self.corrected(tensors), exponents, strict=True)):
            here = slice(at, at + tensor.size)
            at += tensor.size
            if exponent is None:
                if keep is not None:
                    keep[here] = tensor
                continue
            with np.errstate(over="ignore"):
                scaled = np.ldexp(tensor, -exponent)
            rounded = np.rint(scaled) if noise is None else np.floor(scaled.astype(np.float64) + noise[here])
            clipped[t] = int(np.count_nonzero(np.abs(rounded) > limit))
            out[here] = np.clip(rounded, -limit, limit)
            if keep is not None:
                keep[here] = tensor - np.ldexp(out[here].astype(np.float32), exponent)
        self._pending = keep
        self.saturation = self._weigh(clipped, tensors, exponents)
        return out

    def _check_residual(self, tensors: Sequence[np.ndarray]) -> None:
        """Raise ValueError unless the residual is as large as `tensors`: kernels do not check bounds."""
        values = sum(tensor.size for tensor in tensors)
        if self.residual is not None and self.residual.shape != (values,):
            raise ValueError(
                f"the residual is of shape {self.residual.shape}, expected ({values},); "
                "resume with the state of this model"
            )

    def _room(self, count: int) -> np.ndarray:
        """Return an array for the next residual: the one before the present, so that pages stay mapped."""
        if self._spare is None or self._spare is self.residual or self._spare.size != count:
            self._spare = np.empty(count, np.float32)  # the present one is needed where the call fails
        return self._spare

    def _noise(self, count: int) -> np.ndarray:
        bits = np.random.Philox(key=[self.params.seed, self.rank], counter=[0, 0, 0, self.iteration])
        return np.random.Generator(bits).random(count)

    def commit(self) -> None:
        """The AllReduce succeeded: keep the residual and move on to the next iteration."""
        self._spare, self.residual, self._pending = self.residual, self._pending, None
        self.iteration += 1

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the state."""
        return {
            "iteration": self.iteration,
            "residual": None if self.residual is None else self.residual.copy(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""
        saved = Saved.of(state).only("iteration", "residual")
        iteration, residual = saved["iteration"].integer(), saved["residual"]
        if not self.params.error_feedback and not residual.missing:
            raise residual.refuse("None without error feedback", "a residual")
        shape = np.shape(residual.value)[:1] if self.values is None else (self.values,)
        self.residual = None if residual.missing else residual.array(np.float32, shape)
        self.iteration = iteration
