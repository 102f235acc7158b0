"""The torch workloads (CNN, transformer, large embedding), and the only module here that imports torch.

Making one of them sets torch to a single thread, for the whole process: with small models a second thread
costs more than it gains, the rest of OSCAR uses the cores, and the order of float sums, hence every gradient,
then does not depend on the machine's core count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import ConfigError, MissingExtraError, install
from oscar.state import Saved

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional
except ImportError as error:
    raise MissingExtraError(
        "the workloads cnn, transformer and embedding need torch, which is not installed; "
        f"install the extra: {install('torch', target='torch')}; "
        "or use the workload numpy-lm"
    ) from error

from oscar_studies.workloads.base import Batched, Samples
from oscar_studies.workloads.numpy_digits import load_digits
from oscar_studies.workloads.options import CnnOptions, EmbeddingOptions, TransformerOptions
from oscar_studies.workloads.text import characters, words

_CHARACTERS = 128
_HEAD_WIDTH = 32


def _plain(tree: Any) -> Any:
    """Return a copy of torch's state with arrays in place of tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().numpy().copy()
    if isinstance(tree, dict):
        return {key: _plain(item) for key, item in tree.items()}
    return type(tree)(_plain(item) for item in tree) if isinstance(tree, (list, tuple)) else tree


def _tensors(tree: Any) -> Any:
    """Undo `_plain`; torch takes over copies, never the arrays themselves."""
    if isinstance(tree, np.ndarray):
        return torch.from_numpy(tree.copy())
    if isinstance(tree, dict):
        return {key: _tensors(item) for key, item in tree.items()}
    return type(tree)(_tensors(item) for item in tree) if isinstance(tree, (list, tuple)) else tree


class CnnModel(nn.Module):
    """Images float32 [batch, 8, 8] to logits [batch, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Sequential(nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images[:, None]))


class TransformerBlock(nn.Module):
    """One pre-norm transformer layer on [batch, length, d]: causal attention, then a 4 d wide network."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm_attention, self.norm_wide = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.merge = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.widen, self.narrow = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, d = x.shape
        heads = self.qkv(self.norm_attention(x)).view(batch, length, 3, d // _HEAD_WIDTH, _HEAD_WIDTH)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, d))
        return x + self.narrow(functional.gelu(self.widen(self.norm_wide(x))))


class TransformerModel(nn.Module):
    """Character codes int64 [batch, length] to logits [batch, length, 128]."""

    def __init__(self, options: TransformerOptions) -> None:
        super().__init__()
        d = options.d
        self.characters, self.positions = nn.Embedding(_CHARACTERS, d), nn.Embedding(options.length, d)
        self.blocks = nn.Sequential(*(TransformerBlock(d) for _ in range(options.layers)))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, _CHARACTERS)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0.0, 0.02)

    def forward(self, codes: Tensor) -> Tensor:
        x = self.characters(codes) + self.positions.weight[: codes.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class EmbeddingModel(nn.Module):
    """Word numbers int64 [batch, context] to logits [batch, outputs], of the last two words and the mean."""

    def __init__(self, options: EmbeddingOptions) -> None:
        super().__init__()
        self.words = nn.Embedding(options.vocabulary, options.dimension)
        self.hidden = nn.Linear(3 * options.dimension, options.hidden)
        self.output = nn.Linear(options.hidden, options.outputs)
        nn.init.normal_(self.words.weight, 0.0, 0.05)

    def forward(self, contexts: Tensor) -> Tensor:
        result = self.words(contexts)
        seen = torch.cat([result[:, -1], result[:, -2], result.mean(dim=1)], dim=1)
        return self.output(functional.relu(self.hidden(seen)))


class TorchWorkload(Batched):
    """A workload whose weights are those of a torch module, which makes logits of a batch of `samples`."""

    def __init__(
        self,
        build: Callable[[], nn.Module],
        optimise: Callable[[Any], torch.optim.Optimizer],
        samples: Samples,
        options: Any,
        *,
        nodes: int,
        seed: int,
        warmup: int = 1,
    ) -> None:
        torch.set_num_threads(1)
        with torch.random.fork_rng(devices=[]):  # leaves the caller's generator as it was
            torch.manual_seed(seed)
            self.model = build()
        self._parameters = list(self.model.parameters())
        self._optimiser = optimise(self._parameters)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimiser, lambda step: min(1.0, (step + 1) / warmup)
        )
        named = [(name, tuple(parameter.shape)) for name, parameter in self.model.named_parameters()]
        super().__init__(samples, options, nodes=nodes, seed=seed, named_shapes=named)

    def _logits(self, inputs: Array, targets: Array) -> tuple[Tensor, Tensor]:
        """Return logits [samples, classes] and classes; every position of a sequence is a sample."""
        logits = self.model(torch.from_numpy(inputs))
        return logits.reshape(-1, logits.shape[-1]), torch.from_numpy(targets).reshape(-1)

    def batch_loss(self, inputs: Array, targets: Array) -> Tensor:
        """Return the loss of a batch, for its gradients."""
        return functional.cross_entropy(*self._logits(inputs, targets))

    def _learn(self, inputs: Array, targets: Array) -> tuple[list[Array], float]:
        loss = self.batch_loss(inputs, targets)
        gradients = torch.autograd.grad(loss, self._parameters)
        # Copied: autograd may return strided views, or one tensor for two parameters.
        copies = [np.array(gradient.numpy(), np.float32, order="C") for gradient in gradients]
        return copies, float(loss.detach())

    def _step(self, mean: Sequence[Array]) -> None:
        for parameter, tensor in zip(self._parameters, mean, strict=True):
            parameter.grad = torch.from_numpy(np.array(tensor, np.float32, order="C"))
        self._optimiser.step()
        self._schedule.step()

    def _model_state(self) -> dict[str, Any]:
        return {
            "model": _plain(self.model.state_dict()),
            "optimiser": _plain(self._optimiser.state_dict()),
            "schedule": _plain(self._schedule.state_dict()),
        }

    def _load_model_state(self, saved: Saved) -> None:
        parts: dict[str, Any] = {
            "model": self.model,
            "optimiser": self._optimiser,
            "schedule": self._schedule,
        }
        for name, part in parts.items():
            try:
                part.load_state_dict(_tensors(saved[name].value))
            except ConfigError:
                raise
            except Exception as error:  # what torch raises for foreign content is wide
                raise saved[name].refuse("what torch saved", str(error)) from None

    @torch.no_grad()
    def _scores(self, inputs: Array, targets: Array) -> tuple[float, float]:
        logits, classes = self._logits(inputs, targets)
        accuracy = (logits.argmax(dim=1) == classes).float().mean()
        return float(accuracy), float(functional.cross_entropy(logits, classes))


class Cnn(TorchWorkload):
    """The workload `cnn`; see CnnOptions."""

    name = "cnn"

    def __init__(self, *, nodes: int, seed: int, options: CnnOptions) -> None:
        optimise = partial(torch.optim.SGD, lr=options.learning_rate, momentum=options.momentum)
        samples = load_digits(options.noise)
        super().__init__(CnnModel, optimise, samples, options, nodes=nodes, seed=seed)


class Transformer(TorchWorkload):
    """The workload `transformer`; see TransformerOptions."""

    name = "transformer"

    def __init__(self, *, nodes: int, seed: int, options: TransformerOptions) -> None:
        optimise = partial(torch.optim.AdamW, lr=options.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
        build, samples = partial(TransformerModel, options), characters(options.length, options.text_bytes)
        super().__init__(build, optimise, samples, options, nodes=nodes, seed=seed, warmup=options.warmup)


class Embedding(TorchWorkload):
    """The workload `embedding`; see EmbeddingOptions."""

    name = "embedding"

    def __init__(self, *, nodes: int, seed: int, options: EmbeddingOptions) -> None:
        build, optimise = (
            partial(EmbeddingModel, options),
            partial(torch.optim.Adam, lr=options.learning_rate),
        )
        super().__init__(build, optimise, words(options), options, nodes=nodes, seed=seed)
