"""THC, tensor homomorphic compression (Li et al., NSDI 2024, arXiv 2302.08545): sums of table entries.

Workers agree on the largest norm, rotate, clip to what a normal value of that norm exceeds with probability
`tail`, and round each value at random to one of 2^bits levels. Levels lie on a finer grid of `granularity`
steps, where owners add them without decoding. Each worker owns a chunk, like a parameter server beside it: it
gets codes of `bits`, and all get its sums, wide enough for every worker at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import erf, exp, pi, sqrt
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.tensors import cut, pack_bits, packed_size, unpack_bits
from oscar.schemes.base import Message, Messages, Scheme, Worker, check_bytes, handed
from oscar_studies.peers.rotation import LEAST, Rotation

TAG = 0x7C0E
DIGITS = 12  # of costs: what libraries' exponentials differ in must not choose a table


@cache
def best_table(bits: int, granularity: int, tail: float) -> tuple[int, ...]:
    """Return the 2^bits places on a grid of `granularity` steps with the least variance of random rounding.

    The grid spans what a normal value exceeds, on both sides together, with probability `tail`. First and
    last place are its ends. Dynamic programming over all choices.
    """
    top = NormalDist().inv_cdf(1 - tail / 2)
    at = [top * (2 * place / granularity - 1) for place in range(granularity + 1)]
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, (0,))}
    for _ in range((1 << bits) - 1):
        best = {
            high: min(
                (round(cost + _variance(at[low], at[high]), DIGITS), (*chosen, high))
                for low, (cost, chosen) in best.items()
                if low < high
            )
            for high in range(1, granularity + 1)
            if any(low < high for low in best)
        }
    return best[granularity][1]


def _variance(low: float, high: float) -> float:
    """Return the integral of (x - low) (high - x) over the normal density from `low` to `high`."""

    def density(x: float) -> float:
        return exp(-x * x / 2) / sqrt(2 * pi)

    mass = (erf(high / sqrt(2)) - erf(low / sqrt(2))) / 2
    first = density(low) - density(high)
    second = mass + low * density(low) - high * density(high)
    return (low + high) * first - low * high * mass - second


@dataclass(frozen=True)
class ThcOptions:
    """Options of the scheme `thc`. Bits, granularity and tail are as others report of the paper.

    bits: of a value on its way to the owner. Raise it for less noise.
    granularity: steps of the grid on which sums are taken. Raise it for levels that fit the distribution
        better; lower it for narrower sums on the way back.
    tail: share of values beyond the range, which are clipped. Lower it for less clipping, raise it for finer
        levels.
    block: values that are rotated together, a power of two. Lower it for speed.
    error_feedback: a worker keeps its rounding and clipping errors. Switch it off if training gets worse by
        the noise that comes late.
    """

    bits: int = 4
    granularity: int = 30
    tail: float = 1 / 32
    block: int = 1 << 20
    error_feedback: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 6:
            raise ValueError(f"a value has 1 to 6 bits, got {self.bits}")
        if not (1 << self.bits) - 1 <= self.granularity <= 128:  # each level tries all pairs of places
            raise ValueError(
                f"granularity is {(1 << self.bits) - 1} to 128 at {self.bits} bits, got {self.granularity}"
            )
        if not 1e-6 <= self.tail <= 0.5:
            raise ValueError(f"tail is 1e-6 to 0.5, got {self.tail}")
        if self.block < LEAST or self.block & (self.block - 1):
            raise ValueError(f"block is a power of two, {LEAST} at least, got {self.block}")


class Thc(Scheme):
    """Send rotated values as places in a table, whose entries sum."""

    name: ClassVar[str] = "thc"
    Options: ClassVar[type[Any]] = ThcOptions

    def _setup(self) -> None:
        options = self.options
        self.rotation = Rotation(self.values, options.block)
        self.table = np.array(best_table(options.bits, options.granularity, options.tail), np.float32)
        top = NormalDist().inv_cdf(1 - options.tail / 2)
        self.spans = np.float32(top) / np.sqrt(self.rotation.sizes).astype(np.float32)
        self.sum_bits = (self.nodes * options.granularity).bit_length()
        words = self.rotation.padded // LEAST
        self.bounds = np.array([words * chunk // self.nodes * LEAST for chunk in range(self.nodes + 1)])

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected, options = worker.corrected(values), self.options
        signs = self.once("signs", lambda: self.rotation.signs(self.seed, self.iteration))
        with np.errstate(over="ignore", invalid="ignore"):  # huge values: their mean is Inf, which is told
            rotated = self.rotation.forward(corrected, signs)
            norms = [np.linalg.norm(part.astype(np.float64)) for part in cut(rotated, self.rotation.offsets)]
            norms32 = np.array(norms, np.float64).astype(np.float32)
        largest = yield Message("norms", norms32, "max")
        with np.errstate(over="ignore", invalid="ignore"):  # apart: workers take turns at each yield
            codes = self._round(rotated, largest, worker.rank)
            if options.error_feedback:
                own = self._decode(self.table[codes], largest, 1)
                worker.pending = corrected - self.rotation.back(own, signs)
        parts = [pack_bits(chunk, options.bits) for chunk in cut(codes, self.bounds)]
        came = yield handed("codes", parts)
        sums = self._add(came, int(self.bounds[worker.rank + 1] - self.bounds[worker.rank]))
        yield Message("sums", pack_bits(sums, self.sum_bits), "gather", bits=8)

    def _round(self, rotated: Array, norms: Array, rank: int) -> Array:
        """Return the code of each rotated value, drawn so that its level is right in the mean."""
        largest = self._spread(norms)
        with np.errstate(divide="ignore"):
            inverse = np.where(largest > 0, 1 / largest, 0).astype(np.float32)
        places = np.nan_to_num((rotated * inverse + 1) * np.float32(self.options.granularity / 2))
        np.clip(places, 0, self.options.granularity, out=places)
        upper = np.searchsorted(self.table[:-1], places, side="right")
        low, high = self.table[upper - 1], self.table[upper]
        key = [self.seed ^ TAG << 32, rank]
        random = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, self.iteration]))
        drawn: Array = (
            upper - 1 + (random.random(places.size, dtype=np.float32) * (high - low) < places - low)
        )
        return drawn

    def _spread(self, norms: Array) -> Array:
        """Return the largest magnitude of each rotated value."""
        return np.repeat(norms * self.spans, self.rotation.sizes)

    def _add(self, came: Sequence[Array], count: int) -> Array:
        sums = np.zeros(count, np.int64)
        for source, data in enumerate(came):
            check_bytes(data, packed_size(count, self.options.bits), source)
            sums += self.table.astype(np.int64)[unpack_bits(data, count, self.options.bits)]
        return sums

    def _decode(self, sums: Array, norms: Array, nodes: int) -> Array:
        """Return the mean of rotated values from sums of table entries, float32."""
        unit = np.float32(2 / (self.options.granularity * nodes))
        mean: Array = (sums.astype(np.float32) * unit - 1) * self._spread(norms)
        return mean

    def finish(self, totals: Sequence[Any]) -> Array:
        norms, every = totals
        sizes = np.diff(self.bounds)
        for source, (data, count) in enumerate(zip(every, sizes.tolist(), strict=True)):
            check_bytes(data, packed_size(count, self.sum_bits), source)
        sums = [unpack_bits(data, count, self.sum_bits) for data, count in zip(every, sizes, strict=True)]
        signs = self.once("signs", lambda: self.rotation.signs(self.seed, self.iteration))
        self.iteration += 1
        with np.errstate(over="ignore", invalid="ignore"):
            return self.rotation.back(self._decode(np.concatenate(sums), norms, self.nodes), signs)
