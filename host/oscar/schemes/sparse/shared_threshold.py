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
from oscar.schemes.sparse.thresholds import reached_by
from oscar.state import Reader, Saved, optional

NOTHING = -1.0  # the threshold of a range without values
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


def gathered(streams: Sequence[Array]) -> float:
    """Return the mean, in rank order, of thresholds that workers sent as float32; NOTHING does not count.

    Raises GradientError that names the rank whose bytes are no threshold.
    """
    total, senders = 0.0, 0
    for rank, stream in enumerate(streams):
        own = float(np.frombuffer(stream.tobytes(), "<f4")[0]) if stream.size == 4 else math.nan
        if own == NOTHING:
            continue
        if not 0 <= own < math.inf:
            raise GradientError(
                f"rank {rank} sent a threshold of {own} in {stream.size} bytes, expected 0 or more in 4: "
                "all ranks must run the same version and configuration"
            )
        total, senders = total + own, senders + 1
    return total / max(1, senders)


def read_threshold(scheme: Any, saved: Saved) -> float:
    """Return a threshold of a saved state."""
    return saved.number(0.0, LARGEST)


class SharedThreshold(Sparsifier):
    """A sparsifier with a threshold that is equal on all nodes; None before the first.

    Under "corrected" it is the mean of exact quantiles, gathered in this iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {"threshold": optional(read_threshold)}

    def _setup(self) -> None:
        super()._setup()
        self.threshold: float | None = None

    def agree(
        self, worker: SparseWorker, acc: Array, count: int, low: int, high: int
    ) -> Generator[Message, Any, None]:
        """Make the mean of the workers' exact quantiles the threshold: of `count` values in low .. high."""
        with worker.clock.on("select"):
            own = reached_by(acc, min(count, high - low), low, high) if high > low else NOTHING
        data = np.array([own], "<f4").view(np.uint8)
        streams = yield Message("thresholds", data, "agree", bits=8)
        self.threshold = self.once("threshold", lambda: gathered(streams))

    @property
    def current(self) -> float:
        """The threshold of this iteration; at first that of the published rules."""
        return first_threshold(self.count) if self.threshold is None else self.threshold
