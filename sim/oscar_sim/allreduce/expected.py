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
from oscar_hdl.nic.ports import BFLOAT16, FLOAT32
from oscar_sim.driver.float_packets import Floats
from oscar_studies.workloads import exact_mean, make_workload


@dataclass
class Iteration:
    """One AllReduce of the host. local: each node's integers in plan order; sums: in natural order;
    frames: all that were coded; moved: what crossed links, for the time model; floats: what was quantised."""

    plan: ChunkPlan
    local: list[np.ndarray]
    classes: np.ndarray
    sums: np.ndarray
    frames: list[bytes]
    moved: Moved
    floats: Floats | None = None


FORMATS = {"float32": FLOAT32, "bfloat16": BFLOAT16}  # in which NICs get gradients


def _shortened(tensor: np.ndarray) -> np.ndarray:
    """Return the nearest bfloat16 towards zero, as float32."""
    return (np.ascontiguousarray(tensor, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


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


def _floats(
    cluster: LocalCluster, bucket: Sequence[Sequence[np.ndarray]], before: Sequence[int | None], form: int
) -> Floats:
    """Return what a call has quantised; before: exponents before it.

    A tensor that had none got one in the call, and the tracker kept it as the one before the next. Raises
    ConfigError where steps changed within the call, which a NIC cannot do.
    """
    steps, scheme = cluster.scheme.steps, cluster.scheme
    if scheme.renewed:
        raise ConfigError(
            f"ranks agreed on new steps of tensors {sorted(scheme.renewed)} within a call, and a NIC that "
            "quantises cannot repeat it: take another --workload, --warmup or --seed, or more --bits"
        )
    pairs = zip(before, steps.previous_exponents, strict=True)
    return Floats(
        [np.concatenate([tensor.reshape(-1) for tensor in node]) for node in bucket],
        steps.offsets.tolist(),
        [later if old is None else old for old, later in pairs],
        [sum(worker.clipped) for worker in cluster.workers],
        form,
        scheme.params.bits,
    )


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
    floats: str = "",
) -> tuple[Config, list[Iteration]]:
    """Reduce a bucket of real gradients on the host; return its configuration and all it did.

    Training runs on the whole model with the exact mean; `values` of its gradients are the bucket, `warmup`
    iterations later. floats: what NICs get of them, a name in FORMATS; of bfloat16 the host gets no more.
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
        bucket = [_bucket(node, values) for node in gradients]
        if floats == "bfloat16":
            bucket = [[_shortened(tensor) for tensor in node] for node in bucket]
        before = list(cluster.scheme.steps.exponents) if found else [None] * len(bucket[0])
        result = cluster.allreduce(bucket)
        sums, (moved,) = result.sums, result.stats.moved
        (ends,) = cluster.state.wire.links.values()
        local, chunks = [node.local.copy() for node in ends], cluster.scheme.plan
        quantised = _floats(cluster, bucket, before, FORMATS[floats]) if floats else None
        found.append(Iteration(chunks, local, chunks.gather(known), sums, list(frames), moved, quantised))
        model.apply(exact_mean(gradients))
    return config, found
