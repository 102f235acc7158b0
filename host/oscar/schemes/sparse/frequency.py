"""FedFT and DeMo: sum the largest cosine coefficients of every chunk, and keep the others.

Tensors are cut into chunks, and an orthonormal DCT-II transforms each chunk. The transform is linear, so
coefficients add as values do. Choice, error feedback and sums work on coefficients; only the mean is
transformed back. See docs/reference/sparse.md. FedFT: arXiv 2409.05242. DeMo: arXiv 2411.19870.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.schemes.base import Messages
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker, Sparsifier


@njit(cache=True, nogil=True)
def _transform(values: Any, bounds: Any, table: Any, starts: Any, out: Any) -> None:
    """Multiply every chunk by the matrix of its length. Matrix rows are added in order; zeros are skipped."""
    for c in range(len(bounds) - 1):
        first, n = bounds[c], bounds[c + 1] - bounds[c]
        for j in range(n):
            x = values[first + j]
            if x != 0:
                row = starts[n] + j * n
                for k in range(n):
                    out[first + k] += x * table[row + k]


@njit(cache=True, nogil=True)
def _pick(values: Any, bounds: Any, share: float, chosen: Any) -> int:
    """Mark the largest magnitudes of every chunk; return their count. Ties: lower first. Zeros: never."""
    count = 0
    for c in range(len(bounds) - 1):
        first, last = bounds[c], bounds[c + 1]
        for _ in range(max(1, int(share * (last - first) + 0.5))):
            best, most = -1, np.float32(0)
            for j in range(first, last):
                if not chosen[j] and abs(values[j]) > most:
                    best, most = j, abs(values[j])
            if best < 0:
                break
            chosen[best] = True
            count += 1
    return count


@cache
def basis(length: int) -> Array:
    """Return the orthonormal DCT-II matrix of `length` values, float32 [frequency, value]."""
    rows = [
        [
            math.sqrt((2 if k else 1) / length) * math.cos(math.pi * (2 * j + 1) * k / (2 * length))
            for j in range(length)
        ]
        for k in range(length)
    ]
    return np.array(rows, np.float32)


class Cosines:
    """The transform of tensors in chunks of `chunk` values; a tensor's last chunk may be shorter."""

    def __init__(self, sizes: Sequence[int], chunk: int) -> None:
        edges, at = [0], 0
        for size in sizes:
            edges += [*range(at + chunk, at + size, chunk), at + size] if size else []
            at += size
        self.bounds = np.array(edges, np.int64)
        lengths = sorted({int(n) for n in np.diff(self.bounds)})
        self._starts = np.zeros(chunk + 1, np.int64)
        place = 0
        for length in lengths:
            self._starts[length] = place
            place += length * length
        nothing = [np.zeros(0, np.float32)]
        self._back = np.concatenate([basis(n).reshape(-1) for n in lengths] or nothing)
        self._forth = np.concatenate([basis(n).T.reshape(-1) for n in lengths] or nothing)

    def forward(self, values: Array) -> Array:
        """Return the coefficients of float32 values."""
        return self._run(values, self._forth)

    def backward(self, coefficients: Array) -> Array:
        """Return the values of float32 coefficients. Equal tables give equal bits."""
        return self._run(coefficients, self._back)

    def _run(self, values: Array, table: Array) -> Array:
        out = np.zeros(values.size, np.float32)
        _transform(values, self.bounds, table, self._starts, out)
        return out

    def largest(self, coefficients: Array, share: float) -> Array:
        """Return the sorted positions of the largest `share` of every chunk, at least one of each."""
        chosen = np.zeros(coefficients.size, np.bool_)
        _pick(coefficients, self.bounds, share, chosen)
        return np.flatnonzero(chosen)


@dataclass(frozen=True)
class FedFtOptions(SparseOptions):
    """Options of the scheme `fedft`: SparseOptions, with a density for each chunk.

    density: share of every chunk's coefficients that a worker chooses, at least one. Raise it if training
        lags behind uncompressed.
    chunk: values of a chunk, 2 to 1024. Raise it for smooth tensors; lower it for a faster transform.
    """

    density: float = 0.03125
    chunk: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.chunk <= 1024:
            raise ValueError(f"a chunk has 2 to 1024 values, got {self.chunk}")


class FedFt(Sparsifier):
    """Each worker chooses its largest coefficients of every chunk, with error feedback of coefficients."""

    name: ClassVar[str] = "fedft"
    Options: ClassVar[type[Any]] = FedFtOptions

    def _setup(self) -> None:
        super()._setup()
        self.cosines = Cosines(self.sizes, self.options.chunk)

    def messages(self, worker: SparseWorker, values: Array) -> Messages:
        coefficients = self.cosines.forward(values)
        yield from super().messages(worker, coefficients)

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        return self.cosines.largest(acc, self.count / max(1, self.values))
        yield  # a generator without messages

    def finish(self, totals: Sequence[Any]) -> Array:
        return self.cosines.backward(super().finish(totals))


@dataclass(frozen=True)
class DemoOptions(FedFtOptions):
    """Options of the scheme `demo`: FedFtOptions and the momentum.

    decay: factor of every worker's own momentum per iteration, 0 to 1. Lower it if training oscillates.
    """

    decay: float = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay is a factor of 0 to 1, got {self.decay}")


class DemoWorker(SparseWorker):
    """A worker whose residual is the part of its momentum that was not sent."""

    def __init__(self, rank: int, values: int, decay: float) -> None:
        super().__init__(rank, values)
        self.decay = np.float32(decay)

    def accumulate(self, values: Array, momentum: float) -> Array:
        """Return the decayed momentum plus this gradient."""
        carried, self.carried = self.carried, None
        acc = super().accumulate(values, momentum)
        self.carried = carried
        if carried is not None:
            acc += self.decay * carried
        return acc


class Demo(FedFt):
    """DeMo: each worker takes the largest coefficients out of its own momentum; these are summed."""

    name: ClassVar[str] = "demo"
    Options: ClassVar[type[Any]] = DemoOptions

    def make_worker(self, rank: int) -> DemoWorker:
        return DemoWorker(rank, self.values, self.options.decay)
