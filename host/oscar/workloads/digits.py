"""scikit-learn's 8 x 8 digits, made hard enough by noise that training quality shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.array import Array
from oscar.errors import needed
from oscar.workloads.base import held_out_generator

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
