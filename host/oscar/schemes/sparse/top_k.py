"""Top-k: each worker sends its largest values, by one density or by its link (AdaTopK, arXiv 2410.12707)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index import make_index
from oscar.schemes.base import Message
from oscar.schemes.sparse.exchanges import OwnSets, OwnSetsOptions, PointToPoint, Set
from oscar.schemes.sparse.partitions import make_partition
from oscar.schemes.sparse.sparsifier import Choice, SparseWorker, Sparsifier
from oscar.schemes.sparse.thresholds import top


class TopK(Sparsifier):
    """Each worker's k largest magnitudes."""

    name: ClassVar[str] = "topk"

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        return top(acc, self.count)
        yield  # a generator without messages


@dataclass(frozen=True)
class AdaTopKOptions(OwnSetsOptions):
    """Options of the scheme `adatopk`: OwnSetsOptions and the link rates.

    rates: relative rates of the ranks' links, by rank, for example "10, 10, 1"; empty: all are equal. Measure
        the links and set it where they differ.
    density: the mean density over the ranks.
    """

    rates: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not 0 < rate < np.inf for rate in self.by_rank):
            raise ValueError(f"rates are numbers above 0 with commas between them, got {self.rates!r}")

    @property
    def by_rank(self) -> list[float]:
        """The rates as numbers. Text that is no number becomes NaN."""
        return [_number(rate) for rate in self.rates.split(",")] if self.rates.strip() else []


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def shared_out(total: int, rates: Array, most: int) -> Array:
    """Return shares of `total` in proportion to `rates`, int64, at most `most` each."""
    parts = np.zeros(len(rates))
    full = np.zeros(len(rates), np.bool_)
    for _ in rates:
        left = total - most * int(full.sum())
        parts = np.where(full, most, left * rates / max(rates[~full].sum(), 1e-300))
        if (parts <= most).all():
            break
        full |= parts > most
    ends = np.floor(np.cumsum(np.minimum(parts, most)) + 0.5).astype(np.int64)
    return np.minimum(np.diff(ends, prepend=0), most)


class AdaTopK(OwnSets):
    """Each rank chooses its own number of largest magnitudes. Servers, chosen by a hash, add them for all."""

    name: ClassVar[str] = "adatopk"
    Options: ClassVar[type[Any]] = AdaTopKOptions

    def _setup(self) -> None:
        super()._setup()
        o = self.options
        self.rates = np.array(o.by_rank or [1.0] * self.nodes)
        self.rates /= self.rates.max()
        if self.rates.size != self.nodes:
            raise ValueError(f"expected a rate for each of {self.nodes} ranks, got {self.rates.size}")
        partition = make_partition("hash", self.values, self.nodes, seed=self.seed)
        index, grains = make_index(o.index), self.sets.grains
        self.exchange = PointToPoint(grains, self.nodes, index, partition, index)

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        each = shared_out(self.count * self.nodes, self.rates, self.values)
        return top(acc, int(each[worker.rank]))
        yield  # a generator without messages

    def deliver(self, worker: SparseWorker, own: Set) -> Generator[Message, Any, Set]:
        """See OwnSets.deliver."""
        return (yield from self.exchange.run(worker, own, self))
