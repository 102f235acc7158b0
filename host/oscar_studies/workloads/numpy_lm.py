"""The default workload: a word-level language model on real text, in NumPy alone.

An embedding of the last few words, one hidden tanh layer, a softmax over the most frequent words
(Bengio et al., 2003). It trains in seconds and has what makes gradients interesting to a coder: sparse
embedding rows beside dense layers, and statistics that drift as it learns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar_studies.workloads.base import weight_generator
from oscar_studies.workloads.numpy_training import Adam, NumpyWorkload, glorot, softmax_cross_entropy
from oscar_studies.workloads.options import NumpyLmOptions
from oscar_studies.workloads.text import words


def initial_weights(options: NumpyLmOptions, rng: np.random.Generator) -> dict[str, Array]:
    """Return the float32 weights by name; dense layers are [inputs, outputs]."""
    joined = options.context * options.dimension
    return {
        "embedding": 0.1 * rng.standard_normal((options.vocabulary, options.dimension), dtype=np.float32),
        "hidden.weight": glorot((joined, options.hidden), rng),
        "hidden.bias": np.zeros(options.hidden, np.float32),
        "output.weight": glorot((options.hidden, options.outputs), rng),
        "output.bias": np.zeros(options.outputs, np.float32),
    }


def _forward(weights: Sequence[Array], contexts: Array) -> tuple[Array, Array, Array]:
    """Return the joined embeddings, the hidden layer and the logits, each [batch, width]."""
    embedding, hidden_weight, hidden_bias, output_weight, output_bias = weights
    joined = embedding[contexts].reshape(len(contexts), -1)
    hidden = np.tanh(joined @ hidden_weight + hidden_bias)
    return joined, hidden, hidden @ output_weight + output_bias


def backward_pass(weights: Sequence[Array], contexts: Array, targets: Array) -> Iterator[Any]:
    """Yield the mean loss (nats), then its gradient by every weight, the last first, in the weights' dtype.

    `contexts`: word numbers [batch, context]; `targets`: word numbers [batch].
    """
    embedding, hidden_weight, _, output_weight, _ = weights
    joined, hidden, logits = _forward(weights, contexts)
    loss, by_logits = softmax_cross_entropy(logits, targets)
    yield loss
    yield by_logits.sum(axis=0)
    yield hidden.T @ by_logits
    by_sum = (by_logits @ output_weight.T) * (1 - hidden * hidden)
    yield by_sum.sum(axis=0)
    yield joined.T @ by_sum
    by_joined = by_sum @ hidden_weight.T
    yield _scatter_rows(by_joined.reshape(contexts.size, -1), contexts.ravel(), rows=len(embedding))


def _scatter_rows(values: Array, indices: Array, *, rows: int) -> Array:
    """Return [rows, width] with every row of `values` added to the row its index names.

    Sorted segments, not np.add.at: the same sums, several times faster.
    """
    order = np.argsort(indices, kind="stable")
    touched, starts = np.unique(indices[order], return_index=True)
    total = np.zeros((rows, values.shape[1]), values.dtype)
    total[touched] = np.add.reduceat(values[order], starts, axis=0)
    return total


class NumpyLm(NumpyWorkload):
    """The workload `numpy-lm`; see NumpyLmOptions."""

    name = "numpy-lm"
    _forward, _backward_pass = staticmethod(_forward), staticmethod(backward_pass)

    def __init__(self, *, nodes: int, seed: int, options: NumpyLmOptions) -> None:
        weights = initial_weights(options, weight_generator(seed))
        optimiser = Adam(list(weights.values()), rate=options.learning_rate)
        super().__init__(weights, optimiser, words(options), options, nodes=nodes, seed=seed)
