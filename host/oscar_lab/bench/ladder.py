"""What staleness of one step costs in loss: blocks that take the sum before, gradients applied a step late.

ladder: a residual network in which block i reads what stood before block i - 1's sum was added, so that this
sum need not be waited for (Zhang et al., 2025); otherwise it is the same network. late: the plain network,
where every mean gradient is applied one iteration after its own. Both against plain training, with the same
weights, batches and rate; differences are paired by seed. A training is lost that ends with twice the loss of
a guess. Digits with noise, NumPy, one node: the sums are exact, so nodes would change nothing. The time is
that of the model, of blocks that compute and reduce for as long as each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.cores import one_blas_thread
from oscar.tables import Row, Table
from oscar_lab.rivals.graphs import blocks, ladder
from oscar_studies.workloads.base import weight_generator
from oscar_studies.workloads.numpy_digits import load_digits
from oscar_studies.workloads.numpy_training import Momentum, NumpyWorkload, glorot, softmax_cross_entropy
from oscar_studies.workloads.options import NumpyDigitsOptions

PIXELS, CLASSES = 64, 10
MEANS = "loss", "more", "error", "accuracy"
KINDS = "plain", "ladder", "late"
TABLE = Table(
    "kind <7", "blocks >6", "rate >6.3f", "steps >6", "loss >8.4f", "more >8.4f", "error >8.4f",
    "accuracy >9.4f", "lost >5", "time >7.3f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--steps", type=int, nargs="+", default=[300, 1500], help="of training")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.003, 0.01, 0.03], help="of learning")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train all kinds with all seeds; a row for each: held-out loss, and what it has more than plain."""
    if min(*args.blocks, *args.steps, args.seeds - 1, args.width) < 1 or min(args.rates) <= 0:
        raise ValueError("expected blocks, steps and a width from 1, and 2 seeds or more")
    one_blas_thread()
    print(f"# digits, width {args.width}, {args.seeds} seeds; time over plain, modelled")
    print(TABLE.heading)
    rows: list[Row] = []
    for depth, rate in product(args.blocks, args.rates):
        with np.errstate(over="ignore", invalid="ignore"):  # where a training is lost
            ends = {
                kind: np.array([list(_losses(args, depth, rate, kind, seed)) for seed in range(args.seeds)])
                for kind in KINDS
            }
        for (at, steps), kind in product(enumerate(args.steps), KINDS):
            loss, accuracy = ends[kind][:, at].T
            more = loss - ends["plain"][:, at, 0]
            means = loss.mean(), more.mean(), more.std(ddof=1) / np.sqrt(args.seeds), accuracy.mean()
            lost = int(args.seeds - (loss <= 2 * np.log(CLASSES)).sum())
            row: Row = {"kind": kind, "blocks": depth, "rate": rate, "steps": steps, "lost": lost}
            row |= dict.fromkeys(MEANS) if lost else dict(zip(MEANS, map(float, means), strict=True))
            rows.append(row | {"time": _time(depth, kind)})
            print(TABLE.line(rows[-1]), flush=True)
    return {"rows": rows}


def _losses(
    args: argparse.Namespace, depth: int, rate: float, kind: str, seed: int
) -> Iterator[tuple[float, float]]:
    """Yield held-out loss and accuracy after each of `args.steps`."""
    model = Residual(depth, args.width, seed=seed, rate=rate, stale=kind == "ladder")
    waiting: list[Array] | None = None
    for step in range(1, max(args.steps) + 1):
        (mean,) = model.gradients()
        own = waiting if kind == "late" else mean
        if own is not None:
            model.apply(own)
        waiting = mean
        if step in args.steps:
            result = model.evaluate()
            yield result["loss"], result["accuracy"]


def _time(depth: int, kind: str) -> float | None:
    """Return the modelled time of a forward pass over plain's; late gradients do not change it."""
    chain, reductions = blocks([1.0] * depth, [1.0] * depth)
    changed = ladder(chain, reductions) if kind == "ladder" else chain
    return None if kind == "late" else changed.run().total_s / chain.run().total_s


class Residual(NumpyWorkload):
    """Pixels, a dense layer, blocks x + narrow(relu(widen(y))), a dense layer; y is x, or stale: x before.

    width: of x; that of a block is twice as large. A block's output begins small, by the root of the blocks.
    """

    name = "residual"

    def __init__(self, depth: int, width: int, *, seed: int, rate: float, stale: bool) -> None:
        rng = weight_generator(seed)
        weights = {"input.weight": glorot((PIXELS, width), rng)}
        for block in range(depth):
            weights[f"{block}.widen.weight"] = glorot((width, 2 * width), rng)
            weights[f"{block}.widen.bias"] = np.zeros(2 * width, np.float32)
            weights[f"{block}.narrow.weight"] = glorot((2 * width, width), rng) / np.float32(np.sqrt(depth))
        weights |= {
            "output.weight": glorot((width, CLASSES), rng),
            "output.bias": np.zeros(CLASSES, np.float32),
        }
        self.depth, self.stale = depth, stale
        options = NumpyDigitsOptions(batch=32)
        optimiser = Momentum(list(weights.values()), rate=rate, momentum=options.momentum)
        super().__init__(weights, optimiser, load_digits(options.noise), options, nodes=1, seed=seed)

    def source(self, block: int) -> int:
        """Return which x a block reads."""
        return max(0, block - 1) if self.stale else block

    def _forward(self, weights: Sequence[Array], pixels: Array) -> tuple[Array, ...]:
        """Return x before every block and after the last, what was widened, and the logits."""
        x, wide = [pixels.reshape(len(pixels), -1) @ weights[0]], []
        for block in range(self.depth):
            widen, bias, narrow = weights[1 + 3 * block : 4 + 3 * block]
            wide.append(np.maximum(x[self.source(block)] @ widen + bias, 0))
            x.append(x[-1] + wide[-1] @ narrow)
        return (*x, *wide, x[-1] @ weights[-2] + weights[-1])

    def _backward_pass(self, weights: Sequence[Array], pixels: Array, labels: Array) -> Iterator[Any]:
        layers = self._forward(weights, pixels)
        x, wide, logits = layers[: self.depth + 1], layers[self.depth + 1 : -1], layers[-1]
        loss, by_logits = softmax_cross_entropy(logits, labels)
        yield loss
        yield by_logits.sum(axis=0)
        yield x[-1].T @ by_logits
        by_x = [np.zeros_like(one) for one in x]
        by_x[-1] = by_logits @ weights[-2].T
        for block in range(self.depth - 1, -1, -1):
            widen, _, narrow = weights[1 + 3 * block : 4 + 3 * block]
            by_out = by_x[block + 1]
            yield wide[block].T @ by_out
            by_wide = (by_out @ narrow.T) * (wide[block] > 0)
            yield by_wide.sum(axis=0)
            yield x[self.source(block)].T @ by_wide
            by_x[block] += by_out
            by_x[self.source(block)] += by_wide @ widen.T
        yield pixels.reshape(len(pixels), -1).T @ by_x[0]
