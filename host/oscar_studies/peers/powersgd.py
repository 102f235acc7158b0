"""PowerSGD (arXiv 1905.13727): send matrix gradients as low-rank factors, by one step of a power iteration.

Each worker multiplies its matrix M by the last Q. The products are summed and made orthonormal: this is P.
Then M' P is summed and becomes Q. The mean gradient is P Q'. A worker keeps the difference to its own matrix
as a residual. A tensor of more than two dimensions is a matrix of its first dimension by all others. A tensor
that factors would not make smaller is sent in full.

The hook that torch ships needs a process group. This implementation runs over any sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.state import Saved

TAG = 0x9053  # separates these draws from those of other users of the seed


@njit(cache=True, nogil=True)
def orthonormalise(p: Any) -> None:
    """Make the columns of float32 [rows, rank] orthonormal in place, in a fixed order of operations.

    Modified Gram-Schmidt runs twice, because one pass in float32 loses orthogonality. A column that the
    others span becomes zeros.
    """
    rows, rank = p.shape
    for k in range(rank):
        largest, before = np.float32(0), np.float32(0)
        for i in range(rows):
            largest = max(largest, abs(p[i, k]))
        for i in range(rows):  # scale first, so that no square leaves the range of float32
            p[i, k] = p[i, k] / largest if largest > 0 else np.float32(0)
            before += p[i, k] * p[i, k]
        for _ in range(2):
            for other in range(k):
                dot = np.float32(0)
                for i in range(rows):
                    dot += p[i, k] * p[i, other]
                for i in range(rows):
                    p[i, k] -= dot * p[i, other]
        norm = np.float32(0)
        for i in range(rows):
            norm += p[i, k] * p[i, k]
        # Only rounding is left of a dependent column. Float32 cannot resolve 1e-12 of the energy.
        scale = np.float32(1) / np.sqrt(norm) if norm > np.float32(1e-12) * before else np.float32(0)
        for i in range(rows):
            p[i, k] *= scale


@njit(cache=True, nogil=True)
def product(p: Any, q: Any, out: Any) -> None:
    """Write P Q' to flat float32 `out`. The order of additions is fixed, so all nodes get equal bits."""
    rows, columns = len(p), len(q)
    for i in range(rows):
        for j in range(columns):
            total = np.float32(0)
            for k in range(p.shape[1]):
                total += p[i, k] * q[j, k]
            out[i * columns + j] = total


@dataclass(frozen=True)
class PowerSgdOptions:
    """Options of the scheme `powersgd`.

    rank: rank of the factors, 1 to 256. Raise it if training lags behind uncompressed; lower it for fewer
        bytes.
    warm_start: begin with the last iteration's Q, not with a random Q. Leave it on: gradients change slowly.
    error_feedback: a worker keeps the part of its gradient that the factors missed. Leave it on for training.
    """

    rank: int = 8
    warm_start: bool = True
    error_feedback: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= 256:
            raise ValueError(f"rank must be 1 to 256, got {self.rank}")


@dataclass(frozen=True)
class _Matrix:
    """One tensor as a matrix: its place in the flat gradient, its shape and the rank of its factors."""

    here: slice
    rows: int
    columns: int
    rank: int


def _read_factors(scheme: Any, saved: Saved) -> list[Array]:
    pairs = zip(saved.items(len(scheme.matrices)), scheme.matrices, strict=True)
    return [item.array(np.float32, (m.columns, m.rank)) for item, m in pairs]


class PowerSgd(Scheme):
    """Send low-rank factors of all matrices in two messages, and all other tensors in full with the first."""

    name: ClassVar[str] = "powersgd"
    Options: ClassVar[type[Any]] = PowerSgdOptions
    patient = True

    STATE = Scheme.STATE | {"factors": _read_factors}

    def _setup(self) -> None:
        self.matrices, whole = [], [np.zeros(0, np.int64)]
        for t, shape in enumerate(self.shapes):
            here = slice(int(self.offsets[t]), int(self.offsets[t + 1]))
            rows = shape[0] if len(shape) > 1 else 0
            columns = self.sizes[t] // rows if rows else 0
            rank = min(self.options.rank, rows, columns)
            if 0 < rank * (rows + columns) < self.sizes[t]:
                self.matrices.append(_Matrix(here, rows, columns, rank))
            else:
                whole.append(np.arange(here.start, here.stop))
        self.whole = np.concatenate(whole)
        self.factors = self._draw()
        for q in self.factors:
            orthonormalise(q)

    def _draw(self) -> list[Array]:
        """Return this iteration's random Q of each matrix, float32 [columns, rank]."""
        out = []
        for t, matrix in enumerate(self.matrices):
            bits = np.random.Philox(key=[self.seed ^ TAG << 32, t], counter=[0, 0, 0, self.iteration])
            shape = matrix.columns, matrix.rank
            out.append(np.random.Generator(bits).standard_normal(shape, dtype=np.float32))
        return out

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected = worker.corrected(values)
        mine = [corrected[m.here].reshape(m.rows, m.columns) for m in self.matrices]
        left = [matrix @ q for matrix, q in zip(mine, self.factors, strict=True)]
        first = yield Message("left", np.concatenate([corrected[self.whole], *(p.ravel() for p in left)]))
        mean = first[: self.whole.size]
        if self.matrices:
            ps = self.once("ps", lambda: self._left(first))
            right = [matrix.T @ p for matrix, p in zip(mine, ps, strict=True)]
            second = yield Message("right", np.concatenate([q.ravel() for q in right]))
            mean = self.once("mean", lambda: self._mean(first, second))
            if self.options.error_feedback:
                worker.pending = corrected - mean
                worker.pending[self.whole] = 0

    def _left(self, first: Array) -> list[Array]:
        """Return the orthonormal factors of the summed products."""
        out, at = [], self.whole.size
        for m in self.matrices:
            p = first[at : at + m.rows * m.rank].reshape(m.rows, m.rank).copy()
            orthonormalise(p)
            out.append(p)
            at += p.size
        return out

    def _right(self, second: Array) -> list[Array]:
        """Return the mean right factors."""
        out, at = [], 0
        for m in self.matrices:
            size = m.columns * m.rank
            out.append(second[at : at + size].reshape(m.columns, m.rank) / np.float32(self.nodes))
            at += size
        return out

    def _mean(self, first: Array, second: Array) -> Array:
        mean = np.empty(self.values, np.float32)
        mean[self.whole] = first[: self.whole.size] / np.float32(self.nodes)
        ps = self.once("ps", lambda: self._left(first))
        for m, p, q in zip(self.matrices, ps, self._right(second), strict=True):
            product(p, q, mean[m.here])
        return mean

    def finish(self, totals: Sequence[Array]) -> Array:
        second = totals[1] if self.matrices else np.zeros(0, np.float32)
        mean = self.once("mean", lambda: self._mean(totals[0], second))
        self.iteration += 1
        drawn = self._draw()
        if self.options.warm_start:
            for q, other in zip(self._right(second), drawn, strict=True):
                orthonormalise(q)
                np.copyto(other, q, where=q.any(axis=0))  # keep a random column where q's is stuck at zero
        for q in drawn:
            orthonormalise(q)
        self.factors = drawn
        return mean
