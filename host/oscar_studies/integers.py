"""Integers and frames as they go over links while a workload trains: for benchmarks of the coder alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.asc import AscParams, Decoder, Encoder, max_frame
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.codec import Codec
from oscar.coding.frame import HEADER_BYTES
from oscar.config import Config
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.renewal import summed
from oscar.numerics.steps import StepTracker
from oscar.numerics.summaries import summarise
from oscar.numerics.tensors import check_tensors
from oscar.reducers.cluster import LocalCluster
from oscar_studies.workloads import Workload, exact_mean, make_workload


@dataclass(frozen=True)
class IntegerGradients:
    """Each node's integers (int32, flat), and the position classes that all nodes code them with."""

    values: list[np.ndarray]
    classes: np.ndarray


def integers(workload: Workload, iterations: int) -> Iterator[IntegerGradients]:
    """Train with the exact mean and yield what the quantiser 8s makes of every iteration's gradients."""
    params = QuantiserParams(bits=8)
    sizes = sizes_of(workload.tensor_shapes)
    steps = StepTracker(params, sizes, workload.nodes)
    workers = [WorkerQuantiser(params, rank) for rank in range(workload.nodes)]
    position = PositionState(sum(sizes))
    for _ in range(iterations):
        gradients = workload.gradients()
        tensors = [check_tensors(node, rank) for rank, node in enumerate(gradients)]
        if unset := steps.unset:
            steps.agree([summarise([node[t] for t in unset], params) for node in tensors])
        values, sums = summed(workers, tensors, steps, position)
        yield IntegerGradients(values, position.classes.copy())
        steps.settle(sums, position=position)
        for worker in workers:
            worker.commit()
        workload.apply(exact_mean(gradients))


@dataclass(frozen=True)
class CodedFrame:
    """A frame as it was coded: classes of its rows, which are in raw blocks; values, bytes."""

    classes: Array
    raw: Array
    count: int
    size: int


class _NotingCoder(CompiledCoder):
    """The compiled coder; keeps what it encodes."""

    def __init__(self, params: AscParams) -> None:
        super().__init__(params, 1)
        self.frames: list[CodedFrame] = []
        self.values: list[tuple[Array, Array]] = []

    def encode(
        self, values: Array, classes: Array | None, width: int, state: Any, into: Array | None = None
    ) -> bytes | memoryview:
        """See Coder.encode."""
        payload = super().encode(values, classes, width, state, into)
        rows, raw = self.coded_rows()
        self.frames.append(CodedFrame(rows.copy(), raw, values.size, len(payload) + HEADER_BYTES))
        if classes is not None:
            self.values.append((values.astype(np.int16), classes.astype(np.uint8)))
        return payload


def measured(
    model: str, nodes: int, params: AscParams, *, iterations: int, seed: int
) -> tuple[int, tuple[list[CodedFrame], list[CodedFrame]]]:
    """Return how many values a model has, and what was coded last: workers' values, sums."""
    coder = _NotingCoder(params)
    total = _train(model, nodes, coder, iterations, seed)
    pushes = nodes * (nodes - 1)
    return total, (coder.frames[:pushes], coder.frames[pushes:])


def pushed(model: str, nodes: int, seed: int) -> list[tuple[Array, Array]]:
    """Return values and position classes of all frames that the direct schedule codes; the sums come last."""
    coder = _NotingCoder(AscParams(sent_rows=False))
    _train(model, nodes, coder, 4, seed)
    return coder.values


def _train(model: str, nodes: int, coder: _NotingCoder, iterations: int, seed: int) -> int:
    """Train; return the values of a gradient. The coder has the frames of the last AllReduce."""
    codec = Codec(
        "asc", "int", lossless=True, make_encoder=lambda: Encoder(coder.params, coder=coder),
        make_decoder=lambda: Decoder(coder.params, coder=coder),
        max_frame=partial(max_frame, coder.params), uses_context=True, decodes_into=True,
    )  # fmt: skip
    workload = make_workload(model, nodes=nodes, seed=seed)
    config = {"nodes": nodes, "schedule": {"name": "direct"}, "quantiser": {"bits": 12}}
    cluster = LocalCluster(Config.model_validate(config), codec=codec)
    for _ in range(iterations):
        coder.frames.clear()
        coder.values.clear()
        gradients = workload.gradients()
        cluster.allreduce(gradients)
        workload.apply(exact_mean(gradients))
    return sum(tensor.size for tensor in gradients[0])
