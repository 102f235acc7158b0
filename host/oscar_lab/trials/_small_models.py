"""Five models small enough to train in a second, with either optimiser; the extra `torch` is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from oscar_studies.workloads.base import Samples
from oscar_studies.workloads.numpy_digits import load_digits
from oscar_studies.workloads.options import CnnOptions, EmbeddingOptions, TransformerOptions
from oscar_studies.workloads.text import characters, words
from oscar_studies.workloads.torch_models import EmbeddingModel, TorchWorkload, TransformerModel

TEXT_BYTES, CHARACTERS = 1_000_000, 128
WORDS = EmbeddingOptions(
    vocabulary=1000, dimension=16, hidden=32, context=8, outputs=200, text_bytes=TEXT_BYTES
)
MOMENTUM = 0.9
HELD_OUT = 256  # sequences, or words with their contexts


def perceptron() -> nn.Module:
    """Images float32 [batch, 8, 8] to logits [batch, 10]; 9,610 parameters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutions() -> nn.Module:
    """As `perceptron`, in two convolutions and two dense layers."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
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


@dataclass(frozen=True)
class Small:
    """A model, its samples, how many of them a node takes, and the learning rate by optimiser.

    sgd: of SGD with momentum .9.
    """

    build: Callable[[], nn.Module]
    samples: Callable[[], Samples]
    batch: int
    sgd: float
    adamw: float


_digits = cache(lambda: load_digits(CnnOptions().noise))
_characters = partial(characters, 24, TEXT_BYTES, looks=HELD_OUT)

MODELS: dict[str, Small] = {
    "mlp": Small(perceptron, _digits, 32, 0.1, 3e-3),
    "cnn": Small(convolutions, _digits, 32, 0.05, 3e-3),
    "lstm": Small(Recurrent, _characters, 8, 0.5, 1e-2),
    "transformer": Small(
        partial(TransformerModel, TransformerOptions(d=32, layers=1, length=24)), _characters, 8, 0.1, 3e-3
    ),
    "embedding": Small(
        partial(EmbeddingModel, WORDS), partial(words, WORDS, looks=8 * HELD_OUT), 64, 0.1, 3e-3
    ),
}


class SmallWorkload(TorchWorkload):
    """One of MODELS under "sgd" or "adamw"."""

    def __init__(self, name: str, optimiser: str, *, nodes: int, seed: int) -> None:
        self.name, small = f"{name} {optimiser}", MODELS[name]
        optimise: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
            "sgd": partial(torch.optim.SGD, lr=small.sgd, momentum=MOMENTUM),
            "adamw": partial(torch.optim.AdamW, lr=small.adamw),
        }
        super().__init__(small.build, optimise[optimiser], small.samples(), small, nodes=nodes, seed=seed)
