"""Frames that the direct schedule codes while a workload trains: their values, row classes and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams, Decoder, Encoder, max_frame
from oscar.coding.asc.compiled.coder import CompiledCoder
from oscar.coding.asc.params import LANES
from oscar.coding.asc.slots import raw_rows
from oscar.coding.codec import Codec
from oscar.coding.frame import HEADER_BYTES
from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.workloads import exact_mean, make_workload


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

    def encode(self, values: Array, classes: Array | None, width: int, state: Any) -> bytes | memoryview:
        """See Coder.encode."""
        payload = super().encode(values, classes, width, state)
        rows = self._room["classes"][0][: -(-values.size // LANES)].copy()
        raw = raw_rows(self._payload, self._head, values.size)
        self.frames.append(CodedFrame(rows, raw, values.size, len(payload) + HEADER_BYTES))
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
        "asc", "int", True, lambda: Encoder(coder.params, coder=coder),
        lambda: Decoder(coder.params, coder=coder), partial(max_frame, coder.params), uses_context=True,
        decodes_into=True,
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
