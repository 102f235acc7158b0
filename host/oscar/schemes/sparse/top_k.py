"""Top-k: every worker chooses its own largest values; the union grows to up to N k."""

from __future__ import annotations

from typing import ClassVar

from oscar.array import Array
from oscar.schemes.sparse.sparsifier import Choice, SparseWorker, Sparsifier
from oscar.schemes.sparse.thresholds import top


class TopK(Sparsifier):
    """Each worker's k largest magnitudes."""

    name: ClassVar[str] = "topk"

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        return top(acc, self.count)
        yield  # a generator without messages
