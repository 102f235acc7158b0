"""CLT-k: workers take turns in choosing for all. ScaleCom adds a low-pass filter of the residual."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.schemes.base import Message
from oscar.schemes.sparse.sparsifier import Choice, SparseOptions, SparseWorker, Sparsifier
from oscar.schemes.sparse.thresholds import top


class CltK(Sparsifier):
    """In iteration t, worker t mod N chooses its k largest magnitudes; the others choose nothing."""

    name: ClassVar[str] = "clt-k"

    @property
    def leader(self) -> int:
        """The rank that chooses in this iteration."""
        return self.iteration % self.nodes

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        if worker.rank != self.leader:
            return np.zeros(0, np.int64)
        return top(acc, self.count)
        yield  # a generator without messages

    def tell(self, worker: SparseWorker, stream: Array) -> Generator[Message, Any, Sequence[Array]]:
        """See Sparsifier.tell. The leader sends each worker one part of its stream; all gather the parts.

        So no port carries the stream N - 1 times. The empty streams of the other workers need no message.
        """
        cuts = np.zeros(self.nodes + 1, np.int64)
        if worker.rank == self.leader:
            cuts = np.arange(self.nodes + 1) * stream.size // self.nodes
        parts = tuple(np.diff(cuts).tolist())
        came = yield Message("parts", stream[: cuts[-1]], "exchange", bits=8, parts=parts)
        every = yield Message("index", came[self.leader], "gather", bits=8)
        return self.once("streams", lambda: self._streams(np.concatenate(every)))

    def _streams(self, stream: Array) -> list[Array]:
        nothing = np.zeros(0, np.int64)
        every = [self.index.encode(rank, nothing) for rank in range(self.nodes)]
        every[self.leader] = stream
        return every


@dataclass(frozen=True)
class ScaleComOptions(SparseOptions):
    """Options of the scheme `scalecom`: SparseOptions and the low-pass filter.

    beta: weight of new values in the residual, 0 to 1. 1 keeps all values that were not sent, as clt-k does.
        Lower it for large learning rates or batches; raise it if training is slow.
    """

    beta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.beta <= 1:
            raise ValueError(
                f"beta is the weight of new values in the residual, above 0 and at most 1, got {self.beta}"
            )


class ScaleComWorker(SparseWorker):
    """A worker whose residual m becomes (1 - beta) m + beta (acc - sent)."""

    def __init__(self, rank: int, values: int, beta: float) -> None:
        super().__init__(rank, values)
        self.beta = np.float32(beta)

    def keep(self, acc: Array, positions: Array, sent: Array) -> None:
        """See SparseWorker.keep."""
        super().keep(acc, positions, sent)
        acc *= self.beta
        if self.carried is not None:
            acc += (1 - self.beta) * self.carried


class ScaleCom(CltK):
    """CLT-k with a low-passed residual. Sent values and residual do not add up to the whole gradient."""

    name: ClassVar[str] = "scalecom"
    Options = ScaleComOptions

    def make_worker(self, rank: int) -> ScaleComWorker:
        """See Scheme.make_worker."""
        return ScaleComWorker(rank, self.values, self.options.beta)
