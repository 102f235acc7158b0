"""Noisy 8 x 8 digits of scikit-learn, and a small perceptron: the quickest workload with an accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import needed
from oscar_studies.workloads.base import held_out_generator, weight_generator
from oscar_studies.workloads.numpy_training import Momentum, NumpyWorkload, glorot, softmax_cross_entropy
from oscar_studies.workloads.options import NumpyDigitsOptions

_PIXELS, _CLASSES = 64, 10


def initial_weights(options: NumpyDigitsOptions, rng: np.random.Generator) -> dict[str, Array]:
    """Return the float32 weights by name; dense layers are [inputs, outputs]."""
    return {
        "hidden.weight": glorot((_PIXELS, options.hidden), rng),
        "hidden.bias": np.zeros(options.hidden, np.float32),
        "output.weight": glorot((options.hidden, _CLASSES), rng),
        "output.bias": np.zeros(_CLASSES, np.float32),
    }


def _forward(weights: Sequence[Array], pixels: Array) -> tuple[Array, Array, Array]:
    """Return the pixels, the hidden layer and the logits, each [batch, width]."""
    hidden_weight, hidden_bias, output_weight, output_bias = weights
    pixels = pixels.reshape(len(pixels), -1)
    hidden = np.maximum(pixels @ hidden_weight + hidden_bias, 0)
    return pixels, hidden, hidden @ output_weight + output_bias


def backward_pass(weights: Sequence[Array], pixels: Array, labels: Array) -> Iterator[Any]:
    """Yield the mean loss (nats), then its gradient by every weight, the last first, in the weights' dtype.

    `pixels`: [batch, 64] or [batch, 8, 8]; `labels`: class numbers [batch].
    """
    pixels, hidden, logits = _forward(weights, pixels)
    loss, by_logits = softmax_cross_entropy(logits, labels)
    yield loss
    yield by_logits.sum(axis=0)
    yield hidden.T @ by_logits
    by_sum = (by_logits @ weights[2].T) * (hidden > 0)
    yield by_sum.sum(axis=0)
    yield pixels.T @ by_sum


class NumpyDigits(NumpyWorkload):
    """The workload `numpy-digits`; see NumpyDigitsOptions."""

    name = "numpy-digits"
    _forward, _backward_pass = staticmethod(_forward), staticmethod(backward_pass)

    def __init__(self, *, nodes: int, seed: int, options: NumpyDigitsOptions) -> None:
        weights = initial_weights(options, weight_generator(seed))
        optimiser = Momentum(list(weights.values()), rate=options.learning_rate, momentum=options.momentum)
        super().__init__(weights, optimiser, load_digits(options.noise), options, nodes=nodes, seed=seed)


_TRAINING = 1297  # of 1797; the other 500 are held out
_REPEATS = 4  # noisy versions of every held-out image


@dataclass(frozen=True)
class Digits:
    """Samples: images float32 [count, 8, 8] from 0 to 1 (before noise) and their classes int64 [count]."""

    images: Array
    labels: Array
    noisy: tuple[Array, Array]  # held-out images, noise already added, and their classes
    noise: float

    def batch(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        chosen = rng.integers(self.labels.size, size=count)
        return _noisy(self.images[chosen], self.noise, rng), self.labels[chosen]

    def held_out(self) -> tuple[Array, Array]:
        return self.noisy


def _noisy(images: Array, noise: float, rng: np.random.Generator) -> Array:
    return images + np.float32(noise) * rng.standard_normal(images.shape, dtype=np.float32)


def load_digits(noise: float) -> Digits:
    """Return the data set, split and noised the same way for every seed; raises MissingExtraError."""
    raw = needed("sklearn.datasets", "the digits", "torch", target="torch").load_digits()
    rng = held_out_generator()
    order = rng.permutation(len(raw.target))
    images = (raw.images / 16.0).astype(np.float32)[order]
    labels = raw.target.astype(np.int64)[order]
    held_out = _noisy(np.tile(images[_TRAINING:], (_REPEATS, 1, 1)), noise, rng)
    noisy = held_out, np.tile(labels[_TRAINING:], _REPEATS)
    return Digits(images[:_TRAINING], labels[:_TRAINING], noisy, noise)
