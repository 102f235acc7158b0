"""Training without a framework: the loss, two optimisers, and what NumPy workloads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from oscar.array import Array
from oscar.state import Saved
from oscar_studies.workloads.base import Batched, Samples


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

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Momentum:
    """Stochastic gradient descent with momentum: v = m v + g, w -= rate v."""

    def __init__(self, weights: Sequence[Array], *, rate: float, momentum: float) -> None:
        self.rate, self.momentum = np.float32(rate), np.float32(momentum)
        self._velocity = [np.zeros_like(weight) for weight in weights]

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None:
        for weight, velocity, gradient in zip(weights, self._velocity, gradients, strict=True):
            velocity *= self.momentum
            velocity += gradient
            weight -= self.rate * velocity

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of the velocities."""
        return {"velocity": [velocity.copy() for velocity in self._velocity]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        _copy_all(state["velocity"], self._velocity)


class Adam:
    """Adam with bias correction (Kingma and Ba, 2015, algorithm 1), its moments in float32."""

    def __init__(self, weights: Sequence[Array], *, rate: float) -> None:
        self.rate, self.betas, self.epsilon = rate, (0.9, 0.999), np.float32(1e-8)
        self._first = [np.zeros_like(weight) for weight in weights]
        self._second = [np.zeros_like(weight) for weight in weights]
        self._steps = 0

    def step(self, weights: Sequence[Array], gradients: Sequence[Array]) -> None:
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

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of both moments and the number of steps taken."""
        moments = {"first": self._first, "second": self._second}
        return {"steps": self._steps, **{key: [m.copy() for m in kept] for key, kept in moments.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        self._steps = state["steps"]
        _copy_all(state["first"], self._first)
        _copy_all(state["second"], self._second)


def _copy_all(sources: Sequence[Array], targets: Sequence[Array]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target[...] = source


class NumpyWorkload(Batched):
    """A workload whose weights are named NumPy arrays; a subclass has the functions of its model.

    `_forward` takes weights and inputs, and returns the layers, the logits last; `_backward_pass` takes
    weights, inputs and targets, and yields the loss and the gradients from the last one to the first.
    """

    _forward: Callable[[Sequence[Array], Array], tuple[Array, ...]]
    _backward_pass: Callable[[Sequence[Array], Array, Array], Iterator[Any]]

    def __init__(
        self, weights: Mapping[str, Array], optimiser: Optimiser, samples: Samples, options: Any, **how: Any
    ) -> None:
        super().__init__(samples, options, named_shapes=[(n, w.shape) for n, w in weights.items()], **how)
        self.weights = list(weights.values())
        self._optimiser = optimiser

    def _learn(self, inputs: Array, targets: Array) -> tuple[list[Array], float]:
        loss, *gradients = self.backward_pass(inputs, targets)
        return gradients[::-1], loss

    def backward_pass(self, inputs: Array, targets: Array) -> Iterator[Any]:
        """Yield a batch's loss, then the gradient of every tensor as it becomes ready, the last first."""
        return self._backward_pass(self.weights, inputs, targets)

    def _scores(self, inputs: Array, targets: Array) -> tuple[float, float]:
        logits = self._forward(self.weights, inputs)[-1]
        return float(np.mean(logits.argmax(axis=1) == targets)), softmax_cross_entropy(logits, targets)[0]

    def _step(self, mean: Sequence[Array]) -> None:
        self._optimiser.step(self.weights, [np.asarray(tensor, np.float32) for tensor in mean])

    def _model_state(self) -> dict[str, Any]:
        return {
            "weights": [weight.copy() for weight in self.weights],
            "optimiser": self._optimiser.state_dict(),
        }

    def _load_model_state(self, saved: Saved) -> None:
        state = saved.like(self._model_state())
        _copy_all(state["weights"], self.weights)
        self._optimiser.load_state_dict(state["optimiser"])
