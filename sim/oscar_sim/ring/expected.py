"""What the host makes of the same AllReduce: every frame, every sum, every plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import LinkEncoder
from oscar.coding.frame import peek
from oscar.coding.registry import asc_codec
from oscar.collective.executor import Ring
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.plans import ChunkPlan
from oscar.reducers.cluster import LocalCluster
from oscar.workloads import exact_mean, make_workload
from oscar_hdl.params import LaneParams


@dataclass
class Iteration:
    """One AllReduce of the host. local: each node's integers in plan order; sums: in natural order;
    frames: by (table step, chunk)."""

    plan: ChunkPlan
    local: list[np.ndarray]
    classes: np.ndarray
    sums: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    frames: dict[tuple[int, int], bytes] = field(default_factory=dict)


class _Recorder:
    """A link's encoder that keeps what it sends."""

    def __init__(self, encoder: LinkEncoder, cluster: _Recording) -> None:
        self.encoder, self.cluster = encoder, cluster

    def encode(self, values: Array, **how: Any) -> bytes:
        """See LinkEncoder.encode."""
        frame = self.encoder.encode(values, **how)
        head = peek(frame)
        self.cluster.iterations[-1].frames[head.step, head.chunk] = frame
        return frame

    def snapshot(self) -> Any:
        """See LinkEncoder.snapshot."""
        return self.encoder.snapshot()

    def restore(self, token: Any) -> None:
        """See LinkEncoder.restore."""
        self.encoder.restore(token)


class _Recording(LocalCluster):
    """The host's cluster, with a record of what its nodes had and sent."""

    def __init__(self, config: Config) -> None:
        codec = asc_codec(config.asc_params())
        make = codec.make_encoder
        object.__setattr__(codec, "make_encoder", lambda: _Recorder(make(), self))
        super().__init__(config, codec=codec)
        self.iterations: list[Iteration] = []

    def _reduce(
        self, flat: list[np.ndarray], plan: ChunkPlan, faults: Sequence[Any]
    ) -> tuple[Ring, np.ndarray, bool]:
        assert self.position is not None
        classes = plan.gather(self.position.classes)
        self.iterations.append(Iteration(plan, [plan.gather(v) for v in flat], classes))
        ring, sums, identical = super()._reduce(flat, plan, faults)
        self.iterations[-1].sums = sums
        return ring, sums, identical


def _bucket(gradients: Sequence[np.ndarray], values: int) -> list[np.ndarray]:
    """Cut tensors so that `values` values are left, a share of each tensor's; ConfigError if too few."""
    total = sum(g.size for g in gradients)
    if values > total:
        raise ConfigError(f"the workload's gradient has {total:,} values, {values:,} were asked for")
    left, cut = values, []
    for i, gradient in enumerate(gradients):
        last = i == len(gradients) - 1
        size = min(gradient.size, left if last else max(1, values * gradient.size // total))
        start = (gradient.size - size) // 2
        cut.append(gradient.reshape(-1)[start : start + size])
        left -= size
    return cut


def host_run(
    params: LaneParams, *, nodes: int, values: int, iterations: int, gather: str, workload: str, granule: int
) -> tuple[Config, list[Iteration]]:
    """Reduce a bucket of real gradients on the host; return its configuration and all it did.

    Training runs on the whole model with the exact mean; `values` of its gradients are the bucket.
    """
    asc = params.asc
    config = Config.model_validate(
        {
            "nodes": nodes,
            "quantiser": {"bits": 8},  # as the published clocks were measured
            "ring": {"gather": gather},
            "plan": {"name": "splitter", "granule": granule},
            "asc": {"block_log2": asc.block_log2, "interval_log2": asc.interval_log2, "map": "fixed"},
        }
    )
    model, cluster = make_workload(workload, nodes=nodes, seed=0), _Recording(config)
    for _ in range(iterations):
        gradients = model.gradients()
        cluster.allreduce([_bucket(node, values) for node in gradients])
        model.apply(exact_mean(gradients))
    return config, cluster.iterations
