"""The base of sparsifiers whose workers send only their own chosen values, not all values at the union.

A worker's chosen positions and the applied positions may differ. The residual loses only applied values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index import Popular, make_index
from oscar.schemes.base import Message, Messages
from oscar.schemes.sparse.exchanges import AllGather, Set
from oscar.schemes.sparse.grains import Grains
from oscar.schemes.sparse.sparsifier import SparseOptions, SparseWorker, Sparsifier


@dataclass(frozen=True)
class OwnSetsOptions(SparseOptions):
    """SparseOptions with fp32 values only, and without the index `popular`, which learns from gathers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values != "fp32" or self.index == Popular.name:
            raise ValueError(
                "workers send sets of their own: expected values: fp32, and an index other than "
                f"{Popular.name}, got {self.values!r} and {self.index!r}"
            )


class OwnSets(Sparsifier):
    """A sparsifier whose subclasses define `choose` and `deliver`. `sets` packs positions and values."""

    Options: ClassVar[type[Any]] = OwnSetsOptions

    def _setup(self) -> None:
        super()._setup()
        grains = Grains.of(np.array([0, self.values]), [1])
        self.sets = AllGather(grains, self.nodes, make_index(self.options.index))

    @abstractmethod
    def deliver(self, worker: SparseWorker, own: Set) -> Generator[Message, Any, Set]:
        """Yield messages; return the sorted applied positions and their sums, equal on all workers."""

    def messages(self, worker: SparseWorker, values: Array) -> Messages:
        acc = worker.accumulate(values, self.options.momentum)
        worker.chosen = yield from self.choose(worker, acc)
        applied = yield from self.deliver(worker, (worker.chosen, acc[worker.chosen]))
        own = np.intersect1d(worker.chosen, applied[0], assume_unique=True)
        worker.keep(acc, own, acc[own])
        self.once("applied", lambda: applied)

    def finish(self, totals: Sequence[Any]) -> Array:
        union, sums = self._memory["applied"]
        mean = np.zeros(self.values, np.float32)
        mean[union] = sums / np.float32(self.nodes)
        self.united = union.size
        self.iteration += 1
        return mean
