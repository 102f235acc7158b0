"""Real gradients as the integers that go over links: what the benchmarks of the coder alone measure on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from oscar.array import sizes_of
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.steps import StepTracker, summarise
from oscar.numerics.tensors import check_tensors
from oscar.workloads import Workload, exact_mean


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
        values = [w.quantise(t, steps.exponents) for w, t in zip(workers, tensors, strict=True)]
        yield IntegerGradients(values, position.classes.copy())
        sums = np.add.reduce(values, dtype=np.int32)
        steps.settle(sums, position=position)
        for worker in workers:
            worker.commit()
        workload.apply(exact_mean(gradients))
