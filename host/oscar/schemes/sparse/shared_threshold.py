"""One threshold for all workers, by gathered exact quantiles or by the published rule."""

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
    """Return the first threshold of the published rules: 1 / (2 sqrt count)."""
    return 1 / (2 * math.sqrt(count)) if count else 0.0


def released(threshold: float, chosen: int, count: int) -> float:
    """Return the next threshold by the published rule, including its flaw.

    If `chosen` is within a tenth of `count`, the threshold only rises. The authors' code also has a fine step
    down, but its condition is never true.
    """
    exam = chosen / max(1, count)
    factor = 1.005 if exam > 1.1 else 0.995 if exam <= 1 / 1.1 else 1.00125
    return min(threshold * factor, LARGEST)


def ladders_of(streams: Sequence[Array], count: int) -> Array:
    """Return the magnitudes that ranks sent, float32 [rank, count]. GradientError names an invalid rank."""
    bad = next((rank for rank, stream in enumerate(streams) if stream.size != 4 * count), None)
    if bad is None:
        found: Array = np.concatenate(streams).view("<f4").reshape(-1, count).astype(np.float32, copy=False)
        bad = wrong(found)
        if bad is None:
            return found
    raise GradientError(
        f"rank {bad}: expected {count} falling magnitudes, got {streams[bad].size} bytes with other content: "
        "all ranks must run the same version and configuration"
    )


def read_threshold(scheme: Any, saved: Saved) -> float:
    """Return a threshold of a saved state."""
    return saved.number(0.0, LARGEST)


class SharedThreshold(Sparsifier):
    """A sparsifier with a threshold that is equal on all nodes; None before the first one.

    With `controller: corrected`, the wanted number of values reaches it in each iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {"threshold": optional(read_threshold)}

    def _setup(self) -> None:
        super()._setup()
        self.threshold: float | None = None

    def agree(
        self, worker: SparseWorker, acc: Array, count: int, low: int, high: int
    ) -> Generator[Message, Any, None]:
        """Set a threshold that about `count` values of all workers reach, each in its own low .. high.

        Every worker sends its exact magnitudes at a few ranks. With a count of 0, nothing changes.
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
        """The threshold of this iteration. It begins as in the published rules."""
        return first_threshold(self.count) if self.threshold is None else self.threshold
