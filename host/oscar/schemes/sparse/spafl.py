"""SpaFL in a data-parallel loop: send one number per row, the move of its threshold (arXiv 2406.00431).

SpaFL's clients keep their own weights and share one threshold for each filter or neuron. Data-parallel
replicas must stay equal, so they can only apply the moves of thresholds. A row of the mean gradient is its
threshold's move times random signs, which all ranks draw alike. See docs/reference/sparse.md, "SpaFL".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.schemes.base import Message, Messages, Scheme, Worker
from oscar.schemes.sparse.partitions import mixed


@njit(cache=True, nogil=True)
def _moves(values: Any, starts: Any, key: Any, out: Any) -> None:
    """Write the mean of every row's signed values, added in order."""
    for row in range(len(starts) - 1):
        total = np.float32(0)
        for j in range(starts[row], starts[row + 1]):
            total += values[j] if mixed(j, key) & np.uint64(1) else -values[j]
        out[row] = total / np.float32(starts[row + 1] - starts[row])


@njit(cache=True, nogil=True)
def _spread(moves: Any, starts: Any, key: Any, out: Any) -> None:
    for row in range(len(starts) - 1):
        for j in range(starts[row], starts[row + 1]):
            out[j] = moves[row] if mixed(j, key) & np.uint64(1) else -moves[row]


@dataclass(frozen=True)
class SpaFlOptions:
    """Options of the scheme `spafl`.

    error_feedback: a worker adds the part of its gradient that the moves missed to its next gradient. Leave
        it on for training.
    """

    error_feedback: bool = True


class SpaFl(Scheme):
    """SpaFL. starts: first value of each row, and the end. A one-dimensional tensor has one-value rows."""

    name: ClassVar[str] = "spafl"
    patient = True
    Options: ClassVar[type[Any]] = SpaFlOptions

    def _setup(self) -> None:
        starts = [np.zeros(0, np.int64)]
        for shape, first, size in zip(self.shapes, self.offsets, self.sizes, strict=False):
            width = size // shape[0] if len(shape) > 1 and size else 1
            starts.append(np.arange(first, first + size, width))
        self.starts = np.append(np.concatenate(starts), self.values).astype(np.int64)

    def caution(self) -> str | None:
        return (
            "one number per row gives a random direction, far from the gradient in long rows: "
            "training ends far worse than uncompressed"
        )

    @property
    def _key(self) -> Any:
        """The key of the signs. It changes in every iteration, so that every direction has its turn."""
        return np.uint64((self.seed << 32 ^ self.iteration) & ((1 << 64) - 1))

    def messages(self, worker: Worker, values: Array) -> Messages:
        feedback = self.options.error_feedback
        acc = worker.corrected(values) if feedback else values
        moves = np.empty(len(self.starts) - 1, np.float32)
        _moves(acc, self.starts, self._key, moves)
        total = yield Message("thresholds", moves)
        if feedback:
            sent = np.empty(self.values, np.float32)
            _spread(moves, self.starts, self._key, sent)
            worker.pending = acc - sent
        self.once("moves", lambda: total / np.float32(self.nodes))

    def finish(self, totals: Sequence[Any]) -> Array:
        mean = np.empty(self.values, np.float32)
        _spread(self._memory["moves"], self.starts, self._key, mean)
        self.iteration += 1
        return mean
