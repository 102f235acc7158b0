"""Training without a framework: the loss, two optimisers, and what NumPy workloads share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from oscar.workloads.base import DataParallel

Array = npt.NDArray[Any]


def softmax_cross_entropy(logits: Array, targets: Array) -> tuple[float, Array]:
    """Return the mean loss (nats) and its gradient by `logits` [batch, classes], in their dtype.

    `targets`: class numbers [batch].
    """
    rows = np.arange(targets.size)
    shifted = logits - logits.max(axis=1, keepdims=True)
    gradient = np.exp(shifted)
    total = gradient.sum(axis=1, keepdims=True)
    loss = float(np.mean(np.log(total[:, 0]) - shifted[rows, targets]))
    gradient /= total
    gradient[rows, targets] -= 1
    gradient /= targets.size
    return loss, gradient


def glorot(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Return float32 weights [inputs, outputs], uniform in +-sqrt(6 / (inputs + outputs))."""
    bound = np.sqrt(6.0 / sum(shape))
    return rng.uniform(-bound, bound, shape).astype(np.float32)


class Optimiser(Protocol):
    """Moves weights in place by one step."""

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None: ...


class Momentum:
    """Stochastic gradient descent with momentum: v = m v + g, w -= rate v."""

    def __init__(self, weights: Sequence[Array], *, rate: float, momentum: float) -> None:
        self.rate, self.momentum = np.float32(rate), np.float32(momentum)
        self._velocity = [np.zeros_like(weight) for weight in weights]

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None:
        """See Optimiser.step."""
        for weight, velocity, gradient in zip(weights, self._velocity, gradients, strict=True):
            velocity *= self.momentum
            velocity += gradient
            weight -= self.rate * velocity


class Adam:
    """Adam with bias correction (Kingma and Ba, 2015, algorithm 1), its moments in float32."""

    def __init__(self, weights: Sequence[Array], *, rate: float) -> None:
        self.rate, self.betas, self.epsilon = rate, (0.9, 0.999), np.float32(1e-8)
        self._first = [np.zeros_like(weight) for weight in weights]
        self._second = [np.zeros_like(weight) for weight in weights]
        self._steps = 0

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None:
        """See Optimiser.step."""
        self._steps += 1
        one, two = (np.float32(beta) for beta in self.betas)
        rate = np.float32(self.rate / (1 - self.betas[0] ** self._steps))
        correction = np.float32(1 / (1 - self.betas[1] ** self._steps))
        for weight, first, second, gradient in zip(
            weights, self._first, self._second, gradients, strict=True
        ):
            first += (1 - one) * (gradient - first)
            second += (1 - two) * (gradient * gradient - second)
            weight -= rate * first / (np.sqrt(second * correction) + self.epsilon)


class NumpyWorkload(DataParallel):
    """A workload whose weights are named NumPy arrays."""

    def __init__(self, weights: Mapping[str, Array], optimiser: Optimiser, *, nodes: int, seed: int) -> None:
        super().__init__(nodes=nodes, seed=seed, named_shapes=[(n, w.shape) for n, w in weights.items()])
        self.weights = list(weights.values())
        self._optimiser = optimiser

    def _step(self, mean: Sequence[Array]) -> None:
        self._optimiser.step(self.weights, [np.asarray(tensor, np.float32) for tensor in mean])
