"""scikit-learn's 8 x 8 digits, made hard enough by noise that training quality shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.array import Array
from oscar.errors import MissingExtraError
from oscar.workloads.base import held_out_generator

_TRAINING = 1297  # of 1797; the other 500 are held out
_REPEATS = 4  # noisy versions of every held-out image


@dataclass(frozen=True)
class Digits:
    """Images float32 [count, 8, 8] from 0 to 1 (before noise) and their classes int64 [count]."""

    images: Array
    labels: Array
    held_out_images: Array  # noise already added
    held_out_labels: Array
    noise: float

    def batch(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return `count` random training images with fresh noise, and their classes."""
        chosen = rng.integers(self.labels.size, size=count)
        return _noisy(self.images[chosen], self.noise, rng), self.labels[chosen]


def _noisy(images: Array, noise: float, rng: np.random.Generator) -> Array:
    return images + np.float32(noise) * rng.standard_normal(images.shape, dtype=np.float32)


def load_digits(noise: float) -> Digits:
    """Return the data set, split and noised the same way for every seed; raises MissingExtraError."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise MissingExtraError(
            "the digits workloads need scikit-learn, which is not installed; "
            "the extra `torch` brings it: `make torch`, or pip install -e '.[torch]' in the checkout"
        ) from error
    raw = load()
    rng = held_out_generator()
    order = rng.permutation(len(raw.target))
    images = (raw.images / 16.0).astype(np.float32)[order]
    labels = raw.target.astype(np.int64)[order]
    return Digits(
        images=images[:_TRAINING],
        labels=labels[:_TRAINING],
        held_out_images=_noisy(np.tile(images[_TRAINING:], (_REPEATS, 1, 1)), noise, rng),
        held_out_labels=np.tile(labels[_TRAINING:], _REPEATS),
        noise=noise,
    )
