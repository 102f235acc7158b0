"""One threshold for all workers: gathered exact quantiles, or the published rule that moves it."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError
from oscar.schemes.base import Message
from oscar.schemes.sparse.sparsifier import SparseWorker, Sparsifier
from oscar.schemes.sparse.thresholds import level, reached_by_each, rungs, wrong
from oscar.state import Reader, Saved, optional

LARGEST = float(np.finfo(np.float32).max)


def first_threshold(count: int) -> float:
    """Return the threshold at which the published rules begin."""
    return 1 / (2 * math.sqrt(count)) if count else 0.0


def released(threshold: float, chosen: int, count: int) -> float:
    """Return the next threshold by the published rule, its flaw included: within a tenth it only rises.

    The rule has a fine step down, too, but the authors' code tests for it in a way that is never true.
    """
    exam = chosen / max(1, count)
    factor = 1.005 if exam > 1.1 else 0.995 if exam <= 1 / 1.1 else 1.00125
    return min(threshold * factor, LARGEST)


def ladders_of(streams: Sequence[Array], count: int) -> Array:
    """Return float32 [rank, count] from what ranks sent; GradientError names the one whose bytes are none."""
    bad = next((rank for rank, stream in enumerate(streams) if stream.size != 4 * count), None)
    if bad is None:
        found: Array = np.concatenate(streams).view("<f4").reshape(-1, count).astype(np.float32, copy=False)
        bad = wrong(found)
        if bad is None:
            return found
    raise GradientError(
        f"rank {bad}: expected {count} magnitudes that fall, got {streams[bad].size} bytes that are none: "
        "all ranks must run the same version and configuration"
    )


def read_threshold(scheme: Any, saved: Saved) -> float:
    """Return a threshold of a saved state."""
    return saved.number(0.0, LARGEST)


class SharedThreshold(Sparsifier):
    """A sparsifier with a threshold that is equal on all nodes; None before the first.

    Under "corrected" it is what as many values as wanted reach, in this iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {"threshold": optional(read_threshold)}

    def _setup(self) -> None:
        super()._setup()
        self.threshold: float | None = None

    def agree(
        self, worker: SparseWorker, acc: Array, count: int, low: int, high: int
    ) -> Generator[Message, Any, None]:
        """Take a threshold that about `count` values reach: of all workers, each in its own low .. high.

        Every worker tells the exact magnitudes of a few ranks. Where none is to be reached, nothing changes.
        """
        if not count:
            return
        ranks = rungs(count, self.nodes)
        data = reached_by_each(acc, ranks, low, high).astype("<f4", copy=False).view(np.uint8)
        streams = yield Message("thresholds", data, "agree", bits=8)
        find = lambda: level(ladders_of(streams, ranks.size), ranks, count)  # noqa: E731
        self.threshold = self.once("threshold", find)

    @property
    def current(self) -> float:
        """The threshold of this iteration; at first that of the published rules."""
        return first_threshold(self.count) if self.threshold is None else self.threshold
