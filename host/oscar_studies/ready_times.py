"""Measures when the gradients of a workload become ready (docs/tuning.md)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from oscar.planning.tuning.profile import ITERATIONS, ReadyTimes, here

if TYPE_CHECKING:
    from oscar_studies.workloads.numpy_training import NumpyWorkload
    from oscar_studies.workloads.torch_models import TorchWorkload


def of_numpy(workload: NumpyWorkload, iterations: int = ITERATIONS) -> ReadyTimes:
    """Return when the gradients of a workload become ready, on one core; draws its next batches."""
    clock, rows, forward = time.perf_counter, [], []
    for _ in range(iterations + 1):
        inputs, targets = workload.next_batch(0)
        began = clock()
        passed = workload.backward_pass(inputs, targets)
        next(passed)  # the loss
        forward.append(clock() - began)
        rows.append([clock() - began for _ in passed])
    names = workload.tensor_names[::-1]
    sizes = [int(np.prod(shape)) for shape in workload.tensor_shapes[::-1]]
    made = f"{workload.name}, median of {iterations} iterations"
    tensors = list(zip(names, sizes, strict=True))
    return ReadyTimes.median(tensors, rows[1:], forward[1:], made, here("numpy"))


def of_workload(workload: TorchWorkload, iterations: int = ITERATIONS) -> ReadyTimes:
    """Return when the gradients of a workload become ready; draws its next batches."""
    from oscar.adapters.torch.profile import Profile

    with Profile(workload.model) as profile:
        for _ in range(iterations + 1):
            workload.model.zero_grad()
            workload.batch_loss(*workload.next_batch(0)).backward()
    workload.model.zero_grad()
    return profile.times
