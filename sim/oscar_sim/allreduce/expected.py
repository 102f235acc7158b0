"""What the host makes of the same AllReduce: every frame, every sum, every plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams
from oscar.coding.codec import LinkEncoder
from oscar.coding.registry import asc_codec
from oscar.collective.frames import Moved
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.numerics.plans import ChunkPlan
from oscar.reducers.cluster import LocalCluster
from oscar_studies.workloads import exact_mean, make_workload


@dataclass
class Iteration:
    """One AllReduce of the host. local: each node's integers in plan order; sums: in natural order;
    frames: all that were coded; moved: what crossed links, for the time model."""

    plan: ChunkPlan
    local: list[np.ndarray]
    classes: np.ndarray
    sums: np.ndarray
    frames: list[bytes]
    moved: Moved


class _Recorder:
    """A link's encoder that keeps what it sends."""

    def __init__(self, encoder: LinkEncoder, frames: list[bytes]) -> None:
        self.encoder, self.frames = encoder, frames

    def encode(self, values: Array, **how: Any) -> bytes:
        """See LinkEncoder.encode."""
        frame = self.encoder.encode(values, **how)
        self.frames.append(bytes(frame))
        return frame

    def __getattr__(self, name: str) -> Any:
        return getattr(self.encoder, name)

    def snapshot(self) -> Any:
        """See LinkEncoder.snapshot."""
        return self.encoder.snapshot()

    def restore(self, token: Any) -> None:
        """See LinkEncoder.restore."""
        self.encoder.restore(token)


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
    params: AscParams,
    *,
    nodes: int,
    values: int,
    iterations: int,
    schedule: str,
    workload: str,
    granule: int,
    plan: str = "interleave",
    bits: int = 8,
    subframes: int = 1,
    seed: int = 0,
    warmup: int = 0,
) -> tuple[Config, list[Iteration]]:
    """Reduce a bucket of real gradients on the host; return its configuration and all it did.

    Training runs on the whole model with the exact mean; `values` of its gradients are the bucket, `warmup`
    iterations later.
    """
    config = Config.model_validate(
        {
            "nodes": nodes,
            "quantiser": {"bits": bits},
            "schedule": {"name": schedule, "subframes": subframes},
            "plan": {"name": plan, "granule": granule},
        }
    )
    frames: list[bytes] = []
    codec, found = asc_codec(params), []
    recording = replace(codec, make_encoder=lambda: _Recorder(codec.make_encoder(), frames))
    model, cluster = make_workload(workload, nodes=nodes, seed=seed), LocalCluster(config, codec=recording)
    for _ in range(warmup):
        model.apply(exact_mean(model.gradients()))
    for _ in range(iterations):
        frames.clear()
        gradients = model.gradients()
        known = (
            cluster.scheme.position.classes.copy() if found else np.zeros(values, np.uint8)
        )  # a call moves them
        result = cluster.allreduce([_bucket(node, values) for node in gradients])
        sums, (moved,) = result.sums, result.stats.moved
        (ends,) = cluster.state.wire.links.values()
        local, chunks = [node.local.copy() for node in ends], cluster.scheme.plan
        found.append(Iteration(chunks, local, chunks.gather(known), sums, list(frames), moved))
        model.apply(exact_mean(gradients))
    return config, found
