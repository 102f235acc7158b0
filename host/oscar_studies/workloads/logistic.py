"""L1 logistic regression on hashed n-grams: high-dimensional, sparse, convex, and solved in few updates.

The objective is mean logistic loss + l1 * sum |w|. Consensus ADMM (Boyd et al., 2011, section 8.2) with its
messages written as gradients: an update of node k, from the common weights z, is

    x = argmin f_k(x) + u_k x + coupling / 2 |x - z|^2   local passes; f_k is the loss of its samples
    g_k = relaxation * coupling * (z - x) - u_k          what it sends: where that is 1, the gradient at x
    z' = prox(z - mean(g) / coupling)                    a proximal gradient step, the same on all nodes
    u_k' = coupling * (z - z') - g_k

Where a node has no feature, g_k is almost always 0. `apply` sees nothing but the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit, part
from oscar.state import Saved
from oscar_studies.workloads.base import DataParallel, batch_generator
from oscar_studies.workloads.ngrams import NgramSamples, code_samples
from oscar_studies.workloads.options import LogisticOptions

LEAST = 1e-30  # squared length of what is left to solve
HALVINGS, ENOUGH = 20, 1e-4  # of a move; and the part of the expected fall that it must bring


@dataclass(frozen=True)
class _Part:
    """One node's samples; their columns number its features, which are `features` of all."""

    samples: NgramSamples
    features: Array


class Logistic(DataParallel):
    """The workload `logistic`; see LogisticOptions."""

    name = "logistic"

    def __init__(self, *, nodes: int, seed: int, options: LogisticOptions) -> None:
        size = 1 << options.features_log2
        super().__init__(options, nodes=nodes, seed=seed, named_shapes=[("weights", (size,))])
        self.training, self.held_out = code_samples(options.lines, options.samples, options.features_log2)
        self.weights = np.zeros(size, np.float32)
        self._duals = np.zeros((nodes, size), np.float32)
        self._sent: dict[int, Array] = {}
        dealt = batch_generator(seed, 0).permutation(self.training.labels.size)
        self._parts = [_part(self.training.rows(np.sort(dealt[node::nodes]))) for node in range(nodes)]

    def node_gradients(self, node: int) -> tuple[list[Array], float]:
        o, part, dual = self.options, self._parts[node], self._duals[node]
        share = (
            self.nodes / self.training.labels.size
        )  # of a sample in f_k: the mean over nodes is the mean loss
        sent = (o.relaxation - 1) * dual
        near, held = self.weights[part.features].astype(np.float64), dual[part.features].astype(np.float64)
        s = part.samples
        rows = s.start, s.columns, s.scale, s.labels
        own, loss = _local(*rows, share, near, held, o.coupling, o.newton, o.conjugate)
        sent[part.features] = o.relaxation * o.coupling * (near - own) - held
        self._sent[node] = sent
        return [sent.copy()], loss

    def _step(self, mean: Sequence[Array]) -> None:
        coupling, before = np.float32(self.options.coupling), self.weights
        moved = before - np.asarray(mean[0], np.float32) / coupling
        bound = np.float32(self.options.l1) / coupling
        self.weights = np.sign(moved) * np.maximum(np.abs(moved) - bound, np.float32(0))
        pulled = coupling * (before - self.weights)
        for node, sent in self._sent.items():
            self._duals[node] = pulled - sent
        self._sent = {}

    def evaluate(self) -> dict[str, float]:
        """Return held-out accuracy and loss, the objective in training, and how many weights are not 0."""
        margins = _margins(self.held_out, self.weights)
        return {
            "accuracy": float(np.mean(margins > 0)),
            "loss": float(np.logaddexp(0, -margins).mean()),
            "objective": objective(self.training, self.weights, self.options.l1),
            "non_zeros": float(np.count_nonzero(self.weights)),
        }

    def _model_state(self) -> dict[str, Any]:
        return {"weights": self.weights.copy(), "duals": self._duals.copy()}

    def _load_model_state(self, saved: Saved) -> None:
        state = saved.like(self._model_state())
        self.weights, self._duals, self._sent = state["weights"], state["duals"], {}


def _part(samples: NgramSamples) -> _Part:
    features, columns = np.unique(samples.columns, return_inverse=True)
    return _Part(
        NgramSamples(samples.start, columns.astype(np.int32), samples.scale, samples.labels), features
    )


def _margins(samples: NgramSamples, weights: Array) -> Array:
    result = np.empty(samples.labels.size)
    _times(samples.start, samples.columns, samples.scale * samples.labels, weights.astype(np.float64), result)
    return result


def objective(samples: NgramSamples, weights: Array, l1: float) -> float:
    """Return mean logistic loss + l1 * sum |w|."""
    loss = np.logaddexp(0, -_margins(samples, weights)).mean()
    return float(loss + l1 * np.abs(weights).sum(dtype=np.float64))


@njit(cache=True, nogil=True)
def _times(start: Any, columns: Any, scale: Any, vector: Any, out: Any) -> None:
    """out = A vector, where row i of A has scale[i] in its columns."""
    for i in range(len(out)):
        total = 0.0
        for k in range(start[i], start[i + 1]):
            total += vector[columns[k]]
        out[i] = scale[i] * total


@part
def _add_transposed(start: Any, columns: Any, scale: Any, rows: Any, out: Any) -> None:
    """out += A' rows."""
    for i in range(len(rows)):
        value = scale[i] * rows[i]
        for k in range(start[i], start[i + 1]):
            out[columns[k]] += value


@njit(cache=True, nogil=True)
def _dot(a: Any, b: Any) -> float:
    total = 0.0
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit(cache=True, nogil=True)
def _local(
    start: Any, columns: Any, scale: Any, labels: Any, share: float,
    near: Any, dual: Any, coupling: float, newton: int, conjugate: int,
) -> tuple[Any, float]:  # fmt: skip
    """Return a node's x of the module's first line, by Newton's method, and its loss at `near`."""
    x, count = near.copy(), len(labels)
    margins, rows, curvature = np.empty(count), np.empty(count), np.empty(count)
    _times(start, columns, scale, near, margins)
    margins *= labels
    loss = _loss(margins, rows, 0.0) * share
    for _ in range(newton):
        for i in range(count):
            wrong = 1 / (1 + np.exp(margins[i]))
            rows[i], curvature[i] = share * labels[i] * wrong, share * wrong * (1 - wrong)
        gradient = dual + coupling * (x - near)
        down = -gradient  # of the smooth part as well
        _add_transposed(start, columns, scale, rows, down)
        move = _newton(start, columns, scale, curvature, down, coupling, conjugate)
        _times(start, columns, scale, move, rows)
        rows *= labels
        size = _length(
            margins, rows, share, _dot(gradient, move), coupling * _dot(move, move), _dot(down, move)
        )
        x += size * move
        margins += size * rows
    return x, loss


@part
def _newton(
    start: Any, columns: Any, scale: Any, curvature: Any, down: Any, coupling: float, conjugate: int
) -> Any:
    """Solve (A' diag(curvature) A + coupling) move = down, by a few conjugate gradients."""
    move, rows = np.zeros_like(down), np.empty_like(curvature)
    rest, toward, left = down.copy(), down.copy(), _dot(down, down)
    for _ in range(conjugate):
        if left < LEAST:
            break
        _times(start, columns, scale, toward, rows)
        bent = coupling * toward
        _add_transposed(start, columns, scale, curvature * rows, bent)
        size = left / _dot(toward, bent)
        move += size * toward
        rest -= size * bent
        before, left = left, _dot(rest, rest)
        toward = rest + left / before * toward
    return move


@njit(cache=True, nogil=True)
def _length(margins: Any, along: Any, share: float, slope: float, bend: float, fall: float) -> float:
    """Return the first of 1, 1/2, 1/4 ... by which a move lowers the node's objective; 0 where none does.

    slope, bend: of what is no loss; fall: of all, at the start.
    """
    here, size = share * _loss(margins, along, 0.0), 1.0
    for _ in range(HALVINGS):
        there = share * _loss(margins, along, size) + size * slope + size * size * bend / 2
        if there <= here - ENOUGH * size * fall:
            return size
        size /= 2
    return 0.0


@njit(cache=True, nogil=True)
def _loss(margins: Any, along: Any, size: float) -> float:
    total = 0.0
    for i in range(len(margins)):
        margin = margins[i] + size * along[i] if size else margins[i]
        total += np.log1p(np.exp(-abs(margin))) + max(0.0, -margin)
    return total
