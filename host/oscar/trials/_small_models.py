"""Five models small enough to train in a second, with either optimiser; the extra `torch` is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from oscar.workloads.base import held_out_generator
from oscar.workloads.digits import Digits, load_digits
from oscar.workloads.options import CnnOptions, EmbeddingOptions, TransformerOptions
from oscar.workloads.text import character_ids, fold_targets, windows, word_ids
from oscar.workloads.torch_models import EmbeddingModel, TorchWorkload, TransformerModel

TEXT_BYTES, CHARACTERS = 1_000_000, 128
WORDS = EmbeddingOptions(vocabulary=1000, dimension=16, hidden=32, context=8, outputs=200)
OPTIMISERS = ("sgd", "adamw")
MOMENTUM = 0.9
HELD_OUT = 256  # sequences, or words with their contexts

Batch = tuple[Tensor, Tensor]


def perceptron() -> nn.Module:
    """Images float32 [batch, 1, 8, 8] to logits [batch, 10]; 9,610 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutions() -> nn.Module:
    """As `perceptron`, in two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


class Recurrent(nn.Module):
    """An LSTM: character codes int64 [batch, length] to logits [batch, length, 128]."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, 16)
        self.cells, self.head = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, CHARACTERS)

    def forward(self, codes: Tensor) -> Tensor:
        hidden, _ = self.cells(self.characters(codes))
        return self.head(hidden)


@lru_cache(maxsize=1)
def _data() -> Digits:
    return load_digits(CnnOptions().noise)


def _digits(count: int, rng: Any) -> Batch:
    data = _data()
    if rng is None:
        return torch.from_numpy(data.held_out_images[:, None]), torch.from_numpy(data.held_out_labels)
    images, labels = data.batch(count, rng)
    return torch.from_numpy(images[:, None]), torch.from_numpy(labels)


def _characters(count: int, rng: Any) -> Batch:
    training, held_out = character_ids(TEXT_BYTES)
    if rng is None:
        drawn = windows(held_out, count=HELD_OUT, length=25, rng=held_out_generator())
    else:
        drawn = windows(training, count=count, length=25, rng=rng)
    ids = torch.from_numpy(drawn)
    return ids[:, :-1], ids[:, 1:]


def _words(count: int, rng: Any) -> Batch:
    training, held_out = word_ids(WORDS.vocabulary, TEXT_BYTES)
    length = WORDS.context + 1
    if rng is None:
        drawn = windows(held_out, count=8 * HELD_OUT, length=length, rng=held_out_generator())
    else:
        drawn = windows(training, count=count, length=length, rng=rng)
    targets = fold_targets(drawn[:, -1], WORDS.outputs)
    return torch.from_numpy(drawn[:, :-1]), torch.from_numpy(targets)


@dataclass(frozen=True)
class Small:
    """A model, its data (count and generator, None for what is held out, to inputs and classes), its rates.

    batch: samples of a node. sgd, adamw: learning rates of SGD with momentum .9 and of AdamW.
    """

    build: Callable[[], nn.Module]
    data: Callable[[int, Any], Batch]
    batch: int
    sgd: float
    adamw: float


MODELS: dict[str, Small] = {
    "mlp": Small(perceptron, _digits, 32, 0.1, 3e-3),
    "cnn": Small(convolutions, _digits, 32, 0.05, 3e-3),
    "lstm": Small(Recurrent, _characters, 8, 0.5, 1e-2),
    "transformer": Small(
        lambda: TransformerModel(TransformerOptions(d=32, layers=1, length=24)), _characters, 8, 0.1, 3e-3
    ),
    "embedding": Small(lambda: EmbeddingModel(WORDS), _words, 64, 0.1, 3e-3),
}


class SmallWorkload(TorchWorkload):
    """One of MODELS under one of OPTIMISERS."""

    def __init__(self, name: str, optimiser: str, *, nodes: int, seed: int) -> None:
        self.name, self.small = f"{name} {optimiser}", MODELS[name]
        small = self.small

        def optimise(parameters: Any) -> torch.optim.Optimizer:
            if optimiser == "adamw":
                return torch.optim.AdamW(parameters, lr=small.adamw)
            return torch.optim.SGD(parameters, lr=small.sgd, momentum=MOMENTUM)

        super().__init__(small.build, optimise, nodes=nodes, seed=seed)

    def _batch(self, rng: Any) -> Batch:
        return self.small.data(self.small.batch, rng)

    def _held_out_batch(self) -> Batch:
        return self.small.data(0, None)
