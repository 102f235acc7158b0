"""A cluster that runs its ring in bursts only: for long trainings whose weights do not depend on the ring."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from oscar.config import BURST, Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster


class SparseRing(LocalCluster):
    """A LocalCluster that sums directly, except in the last `BURST` of every `every` iterations.

    Sums of integers are exact, so leaving the ring out changes no weight; quantiser, error feedback and
    position state always run. Without the ring no frames are counted: `measured` says which iterations'
    frames stand for the rest. Raises ConfigError for codecs whose ring is not an exact sum of integers.
    """

    def __init__(self, config: Config, *, every: int) -> None:
        if every < BURST:
            raise ConfigError(f"expected a ring in one of at least {BURST} iterations, got {every}")
        super().__init__(config)
        if not (self.codec.lossless and self.codec.domain == "int"):
            raise ConfigError(
                f"the ring can be left out for lossless integer codecs only, {self.codec.name} is not one; "
                "set train.ring_every to 1"
            )
        self.every = every

    def measured(self, iteration: int) -> bool:
        """Whether the frames of this iteration stand for the whole period."""
        return iteration % self.every == self.every - 1

    def _has_ring(self) -> bool:
        return self.iteration % self.every >= self.every - BURST

    def _reduce(self, flat: list[np.ndarray], plan: Any, faults: Any) -> Any:
        if self._has_ring():
            return super()._reduce(flat, plan, faults)
        nodes = len(flat)
        none = np.zeros((2, max(0, nodes - 1), nodes, 1), np.int64)
        total = np.zeros(flat[0].size, self.params.sum_dtype(nodes))
        for local in flat:
            total += local.astype(total.dtype, copy=False)
        return SimpleNamespace(frame_bytes=none, counts=none, clocks=lambda: None), total, True

    def _is_sum(self, plan: Any, flat: list[np.ndarray], sums: np.ndarray) -> bool:
        return not self._has_ring() or super()._is_sum(plan, flat, sums)
