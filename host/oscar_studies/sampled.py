"""A cluster that runs its ring in some iterations only, which speeds up long simulated trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from oscar.config import BURST, Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.scheduling import network_of
from oscar.reducers.wire import Traffic
from oscar.schemes.base import Channel, Message
from oscar.schemes.registry import method_info


class SampledCluster(LocalCluster):
    """A LocalCluster that sums directly, except in the last `BURST` of every `every` iterations.

    Sums of integers are exact, so a missing ring changes no weight. Quantiser, error feedback and position
    state always run. Iterations without a ring count no frames; `measured` names the iterations whose frames
    stand for the others. Raises ConfigError unless the codec's sum is an exact sum of integers.
    """

    def __init__(self, config: Config, *, every: int) -> None:
        if every < BURST:
            raise ConfigError(f"expected a ring in one of at least {BURST} iterations, got {every}")
        super().__init__(config)
        if not method_info(config.method).commutes:
            raise ConfigError(
                f"the ring can be left out for lossless integer codecs only, {config.method} is not one; "
                "set train.ring_every to 1"
            )
        self.every = every

    def measured(self, iteration: int) -> bool:
        """Whether the frames of this iteration stand for the whole period."""
        return iteration % self.every == self.every - 1

    def has_ring(self) -> bool:
        """Whether the coming iteration runs its ring."""
        return self.iteration % self.every >= self.every - BURST

    def _make_wire(self, nodes: int, channels: Mapping[str, Channel]) -> LocalWire:
        return _SampledWire(self, nodes, channels)


class _SampledWire(LocalWire):
    """Adds coded messages directly in iterations without a ring."""

    def __init__(self, cluster: SampledCluster, nodes: int, channels: Mapping[str, Channel]) -> None:
        super().__init__(nodes, channels, **network_of(cluster.config, nodes))
        self.cluster = cluster

    def _coded(self, messages: Sequence[Message]) -> tuple[Any, Traffic]:
        if self.cluster.has_ring():
            return super()._coded(messages)
        if self.faults:
            raise ConfigError("expected no faults in an iteration without a ring; set train.ring_every to 1")
        total, notice = np.zeros_like(messages[0].data), 0
        for message in messages:
            total += message.data
            notice |= message.notice or 0
        plan = messages[0].plan
        answer = total if messages[0].notice is None else (total, notice)
        return answer, Traffic(plan="equal" if plan is None else plan.name)
