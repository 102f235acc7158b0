"""The workload seam: per-node gradients out, their mean back in, one training step at a time."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from oscar.array import Array
from oscar.errors import ConfigError, GradientError
from oscar.state import Saved

# Separate random streams. A node's batches depend on (seed, node) alone, so node 3 of 8 draws what node 3 of
# 64 draws. No tag is zero, because SeedSequence pads with zeros: (seed, 0) would be (seed,).
_BATCHES, _WEIGHTS, _HELD_OUT = 1, 2, 3


class Workload(Protocol):
    """A data-parallel training job whose AllReduce is someone else's.

    One iteration is `gradients()`, then `apply(mean)`. The weights are replicated, so they are kept once.
    """

    name: str
    nodes: int
    tensor_names: tuple[str, ...]
    tensor_shapes: tuple[tuple[int, ...], ...]
    loss: float
    """Mean training loss (nats) over the nodes at the last `gradients()`; NaN before the first."""

    def gradients(self) -> list[list[Array]]:
        """Return `[node][tensor]`, from the current weights and every node's next batch.

        The arrays are float32, C-contiguous and fresh: the caller may write into them.
        """

    def apply(self, mean: Sequence[Array]) -> None:
        """Take one optimiser step with the mean gradient `[tensor]`; raises GradientError on wrong shapes."""

    def evaluate(self) -> dict[str, float]:
        """Return "accuracy" (0..1) and "loss" (nats) on held-out data, and what else a workload is judged by.

        Empty where nothing is held out.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return a copy of all that moves (weights, moments, batches to come), to resume a run."""

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError when it is of another workload."""


def batch_generator(seed: int, node: int) -> np.random.Generator:
    """Return the stream that draws the batches of `node`."""
    return np.random.default_rng((seed, _BATCHES, node))


def weight_generator(seed: int) -> np.random.Generator:
    """Return the stream that draws the initial weights, the same on all nodes."""
    return np.random.default_rng((seed, _WEIGHTS))


def held_out_generator() -> np.random.Generator:
    """Return the stream that draws held-out samples: the same for every seed, so that runs compare."""
    return np.random.default_rng((0, _HELD_OUT))


def exact_mean(gradients: Sequence[Sequence[Array]]) -> list[Array]:
    """Return the mean over nodes of `[node][tensor]` as float32 `[tensor]`, summed in float64."""
    means = []
    for tensors in zip(*gradients, strict=True):
        total = np.zeros(tensors[0].shape, np.float64)
        for tensor in tensors:
            total += tensor
        total /= len(tensors)
        means.append(total.astype(np.float32))
    return means


def check_mean(mean: Sequence[Array], names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """Raise GradientError unless `mean` has one array of the right shape per tensor."""
    if len(mean) != len(names):
        raise GradientError(
            f"expected {len(names)} tensors, got {len(mean)}; pass one array per name in tensor_names"
        )
    for name, shape, tensor in zip(names, shapes, mean, strict=True):
        if tuple(tensor.shape) != tuple(shape):
            raise GradientError(
                f"mean gradient of {name}: expected shape {tuple(shape)}, got {tuple(tensor.shape)}; "
                "keep the order of tensor_names"
            )


def workload_identity(workload: Workload) -> dict[str, Any]:
    """Return what a saved state and the workload that takes it over have in common."""
    tensors = zip(workload.tensor_names, workload.tensor_shapes, strict=True)
    return {
        "name": workload.name,
        "nodes": workload.nodes,
        "tensors": [(name, tuple(shape)) for name, shape in tensors],
    }


def check_identity(workload: Workload, state: Any) -> None:
    """Raise ConfigError unless `state` was saved by a workload like this one."""
    own, saved = workload_identity(workload), Saved.of(state)["workload"]
    for key, value in own.items():
        came = saved[key]
        try:
            same = bool(came.value == value)
        except ValueError:  # an array, somewhere
            same = False
        if not same:
            raise ConfigError(
                f"workload state: expected {key} {value}, got {came.shown}; "
                "resume with the configuration of the run that saved it"
            )


class Samples(Protocol):
    """What a model learns from: inputs, and a class number (int64) for each."""

    def batch(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return `count` training samples that `rng` draws."""

    def held_out(self) -> tuple[Array, Array]:
        """Return the held-out samples, the same at every call and for every seed."""


class DataParallel(ABC):
    """What the workloads that train share: the loop over the nodes, and how a state is taken over."""

    name: str

    def __init__(
        self,
        options: Any,
        *,
        nodes: int,
        seed: int,
        named_shapes: Sequence[tuple[str, tuple[int, ...]]],
    ) -> None:
        self.options, self.nodes, self.seed = options, nodes, seed
        self.tensor_names = tuple(name for name, _ in named_shapes)
        self.tensor_shapes = tuple(tuple(shape) for _, shape in named_shapes)
        self.loss = math.nan
        self._generators: list[np.random.Generator] = []  # of batches, one a node

    @abstractmethod
    def node_gradients(self, node: int) -> tuple[list[Array], float]:
        """Return the gradients `[tensor]` and the loss of one node alone: a process per node."""

    @abstractmethod
    def _step(self, mean: Sequence[Array]) -> None:
        """Move the weights; the shapes of `mean` are right."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """See Workload.evaluate."""

    @abstractmethod
    def _model_state(self) -> dict[str, Any]:
        """Return a copy of weights and optimiser: plain values and arrays."""

    @abstractmethod
    def _load_model_state(self, saved: Saved) -> None:
        """Take over what `_model_state` returned; raises ConfigError where it is none."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "workload": workload_identity(self),
            "loss": self.loss,
            "generators": [copy.deepcopy(rng.bit_generator.state) for rng in self._generators],
            "model": self._model_state(),
        }

    def load_state_dict(self, state: Any) -> None:
        """Take over a state; where this raises, nothing has changed."""
        saved, before = Saved.of(state), self.state_dict()
        try:
            self._load(saved, before)
        except BaseException:
            self._load(Saved(before), before)
            raise

    def _load(self, saved: Saved, template: dict[str, Any]) -> None:
        check_identity(self, saved.only(*template))
        self.loss = saved["loss"].like(0.0)
        given = saved["generators"].like(template["generators"])
        for rng, own in zip(self._generators, given, strict=True):
            try:
                rng.bit_generator.state = copy.deepcopy(own)
            except (ValueError, OverflowError) as error:
                raise saved["generators"].refuse("states of generators", str(error)) from None
        self._load_model_state(saved["model"])

    def gradients(self) -> list[list[Array]]:
        results = [self.node_gradients(node) for node in range(self.nodes)]
        self.loss = math.fsum(loss for _, loss in results) / self.nodes
        return [tensors for tensors, _ in results]

    def apply(self, mean: Sequence[Array]) -> None:
        check_mean(mean, self.tensor_names, self.tensor_shapes)
        self._step(mean)


class Batched(DataParallel):
    """A workload whose nodes learn from random batches, each of `options.batch` samples."""

    def __init__(self, samples: Samples, options: Any, *, nodes: int, seed: int, **how: Any) -> None:
        super().__init__(options, nodes=nodes, seed=seed, **how)
        self.samples = samples
        self._generators = [batch_generator(seed, node) for node in range(nodes)]

    @abstractmethod
    def _learn(self, inputs: Array, targets: Array) -> tuple[list[Array], float]:
        """Return the gradients `[tensor]` and the loss of a batch."""

    @abstractmethod
    def _scores(self, inputs: Array, targets: Array) -> tuple[float, float]:
        """Return accuracy and loss on a batch."""

    def node_gradients(self, node: int) -> tuple[list[Array], float]:
        return self._learn(*self.next_batch(node))

    def next_batch(self, node: int) -> tuple[Array, Array]:
        """Return the inputs and targets that a node learns from next."""
        return self.samples.batch(self.options.batch, self._generators[node])

    def evaluate(self) -> dict[str, float]:
        accuracy, loss = self._scores(*self.samples.held_out())
        return {"accuracy": accuracy, "loss": loss}
