"""Stochastic quantisers whose integers sum: TernGrad (arXiv 1705.07878) and QSGD (arXiv 1610.02132).

Both round each value at random so that the expected integer equals the scaled value. Workers first agree on
scales by a max message. So their integers have the same unit and can be summed, in packed fields or coded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.quantiser_kernels import energies_beyond
from oscar.numerics.saturation import Saturation
from oscar.numerics.tensors import cut
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.schemes.fields import field_bits

TAG = 0x7E29  # separates these draws from those of other users of (seed, rank)
NORMS = "max", "l2"
FINE = 4  # levels below which roundings leave more than the gradient


class _Stochastic(Scheme):
    """Agree on scales by a max, then send stochastically rounded integers of magnitudes up to `levels`."""

    levels: int

    def _setup(self) -> None:
        self.patient = self.levels < FINE
        self.bits = field_bits(self.levels, self.nodes)  # 24 at most
        self.starts = self._starts()
        self.lengths = np.diff(np.append(self.starts, self.values))

    @abstractmethod
    def _starts(self) -> Array:
        """Return the first position, int64, of each run of values that share a scale."""

    @abstractmethod
    def _prepare(self, values: Array) -> Array:
        """Return one worker's values, clipped where the method clips, float32."""

    @abstractmethod
    def _scales(self, values: Array) -> Array:
        """Return one worker's scale of every run, float32. No magnitude exceeds the scale of its run."""

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected = worker.corrected(values)
        kept = self._prepare(corrected)
        worker.saturation = self._lost(corrected, kept)
        scales = yield Message("scales", self._scales(kept), "max")
        with np.errstate(over="ignore", invalid="ignore"):  # values with a subnormal scale become zeros
            inverse = np.float32(self.levels) / np.where(scales > 0, scales, np.float32(np.inf))
            levels = np.nan_to_num(np.abs(kept) * np.repeat(inverse, self.lengths), nan=0.0, posinf=0.0)
        drawn = np.minimum(np.floor(levels + self._uniform(worker.rank)), self.levels).astype(np.int32)
        integers = np.where(kept < 0, -drawn, drawn)
        if self.options.error_feedback:
            worker.pending = corrected - self._decode(integers, scales, 1)
        if self.options.coded:
            yield Message("levels", integers, bits=self.coded_channels()["levels"], coded=True)
        else:
            yield Message("levels", integers, bits=self.bits)

    def coded_channels(self) -> dict[str, int]:
        return {"levels": self.levels.bit_length() + 1} if self.options.coded else {}

    def _lost(self, values: Array, kept: Array) -> Saturation:
        """Return the loss by the clipping of `_prepare`."""
        clipped = int(np.count_nonzero(kept != values))
        if not clipped:
            return Saturation()
        excess = cut(values - kept, self.offsets)
        lost = dict(enumerate(energies_beyond(excess, [0.0] * len(excess))))
        return Saturation.of(clipped, lost, cut(values, self.offsets))

    def _uniform(self, rank: int) -> Array:
        """Return a random float32 in [0, 1) for every value, for this worker and iteration."""
        bits = np.random.Philox(key=[self.seed ^ TAG << 32, rank], counter=[0, 0, 0, self.iteration])
        return np.random.Generator(bits).random(self.values, dtype=np.float32)

    def _decode(self, sums: Array, scales: Array, nodes: int) -> Array:
        """Return float32 `sum * (scale / (levels * nodes))`."""
        units: Array = scales / np.float32(self.levels * nodes)
        out: Array = sums.astype(np.float32) * np.repeat(units, self.lengths)
        return out

    def finish(self, totals: Sequence[Array]) -> Array:
        scales, sums = totals
        self.iteration += 1
        return self._decode(sums, scales, self.nodes)


@dataclass(frozen=True)
class TernGradOptions:
    """Options of the scheme `terngrad`.

    clip: clip magnitudes beyond this many standard deviations of their tensor; 0 clips nothing. Deviations
        are from zero, not from the mean, so a tensor of equal values keeps them. Lower it for less noise;
        raise it to keep large values.
    coded: code the sums with ASC instead of fixed fields. Switch it on if most values round to 0.
    error_feedback: a worker keeps its rounding errors. Not part of the published method. A rounding may leave
        more than the value, so what is kept may grow without end; leave it off unless a trial shows a gain.
    """

    clip: float = 2.5
    coded: bool = False
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.clip <= 1e6:
            raise ValueError(f"clip is a number of standard deviations, 0 for none, got {self.clip}")


class TernGrad(_Stochastic):
    """Round every value at random to minus, zero or plus its tensor's scale."""

    name: ClassVar[str] = "terngrad"
    Options: ClassVar[type[Any]] = TernGradOptions
    clips: ClassVar[bool] = True
    levels = 1

    def caution(self) -> str | None:
        return (
            "rounding to three values adds about as much noise as there is gradient, and clipped parts are "
            "lost: training may diverge, or end worse than uncompressed; qsgd rounds to finer levels"
        )

    def _starts(self) -> Array:
        return self.offsets[:-1]

    def _prepare(self, values: Array) -> Array:
        if not self.options.clip:
            return values
        kept = values.copy()
        for part in cut(kept, self.offsets):
            if part.size:
                most = np.float32(self.options.clip * np.sqrt(np.mean(np.square(part, dtype=np.float64))))
                np.clip(part, -most, most, out=part)
        return kept

    def _scales(self, values: Array) -> Array:
        return np.array([np.abs(part).max(initial=0) for part in cut(values, self.offsets)], np.float32)


@dataclass(frozen=True)
class QsgdOptions:
    """Options of the scheme `qsgd`.

    levels: levels of magnitude besides 0. Raise it for less noise; lower it for fewer bytes.
    bucket: values of one tensor that share a scale. Lower it for less noise; raise it for fewer scales to
        send.
    norm: "max" scales by the largest magnitude of a bucket. "l2" scales by its Euclidean norm, as in the
        paper's analysis; it gives more zeros and more noise.
    coded: code the sums with ASC instead of fixed fields. Switch it on if most values round to 0.
    error_feedback: a worker keeps its rounding errors. Not part of the published method; switch it on with
        few levels.
    """

    levels: int = 7
    bucket: int = 512
    norm: str = "max"
    coded: bool = False
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.levels < 1 << 15:
            raise ValueError(f"there are 1 to {(1 << 15) - 1} levels, got {self.levels}")
        if self.bucket < 1:
            raise ValueError(f"a bucket has at least one value, got {self.bucket}")
        if self.norm not in NORMS:
            raise ValueError(f"norm is one of {', '.join(NORMS)}, got {self.norm!r}")


class Qsgd(_Stochastic):
    """Round every value at random to a multiple of its bucket's scale / levels."""

    name: ClassVar[str] = "qsgd"
    Options: ClassVar[type[Any]] = QsgdOptions

    def _setup(self) -> None:
        self.levels = self.options.levels
        super()._setup()

    def _starts(self) -> Array:
        runs = [
            np.arange(first, last, self.options.bucket) for first, last in pairwise(self.offsets.tolist())
        ]
        return np.concatenate([np.zeros(0, np.int64), *runs])

    def _prepare(self, values: Array) -> Array:
        return values

    def _scales(self, values: Array) -> Array:
        if not self.starts.size:
            return np.zeros(0, np.float32)
        if self.options.norm == "max":
            return np.maximum.reduceat(np.abs(values), self.starts)
        energy = np.add.reduceat(np.square(values, dtype=np.float64), self.starts)
        # Rounded up, so that no magnitude exceeds its norm.
        return np.nextafter(np.sqrt(energy).astype(np.float32), np.float32(np.inf)) * (energy > 0)
