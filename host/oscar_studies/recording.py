"""A short training with the configured AllReduce: its gradients, and when they become ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from oscar.array import sizes_of
from oscar.collective.frames import Stats
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.profile import ITERATIONS, ReadyTimes, here
from oscar.reducers.cluster import LocalCluster
from oscar_studies.workloads import WORKLOADS, Workload, exact_mean, make_workload
from oscar_studies.workloads.trace import TraceWorkload, load

if TYPE_CHECKING:
    from oscar_studies.workloads.numpy_training import NumpyWorkload
    from oscar_studies.workloads.torch_models import TorchWorkload

Gradients = list[list[np.ndarray]]  # [node][tensor] float32
Progress = Callable[[str, int, int], None]  # (stage, done, total)

MEMORY_LIMIT = 2 << 30  # bytes of gradients kept in memory


@dataclass(frozen=True)
class Recording:
    """What one training run left: gradients[iteration][node][tensor], losses (nats; NaN where unknown), the
    statistics of its AllReduces, and what `evaluate` said at the end."""

    workload: str
    shapes: tuple[tuple[int, ...], ...]
    gradients: list[Gradients]
    losses: list[float]
    stats: list[Stats]
    evaluation: dict[str, float]

    @property
    def values(self) -> int:
        """Values in one node's gradient."""
        return sum(sizes_of(self.shapes))


def open_workload(config: Config) -> Workload:
    """Return the configured workload, or its recorded trace.

    Raises ConfigError, also where the trace has other nodes or fewer iterations than asked for.
    """
    section = config.workload
    if section.trace is None:
        return make_workload(section.name, nodes=config.nodes, seed=config.seed, **section.options)
    trace: TraceWorkload = load(section.trace)
    for what, asked, has in (
        ("nodes", config.nodes, trace.nodes == config.nodes),
        ("iterations", config.iterations, trace.iterations >= config.iterations),
    ):
        if not has:
            held = trace.nodes if what == "nodes" else trace.iterations
            raise ConfigError(
                f"{section.trace}: the trace holds {held} {what}, the configuration asks for {asked}; "
                f"use --set {what}={held} or record another"
            )
    return trace


def warm_up(workload: Workload, config: Config, *, progress: Progress | None = None) -> None:
    """Train `workload` with the exact float mean for the iterations of `config.workload.warmup`."""
    total = warmup_of(config)
    for done in range(total):
        workload.apply(exact_mean(workload.gradients()))
        if progress is not None:
            progress("warming up", done + 1, total)


def warmup_of(config: Config) -> int:
    """Return the iterations to train before gradients are measured; none of a trace."""
    section = config.workload
    if section.trace is not None:
        return 0
    return WORKLOADS[section.name].warmup if section.warmup == "auto" else section.warmup


def check_memory(workload: Workload, iterations: int) -> None:
    """Raise ConfigError where the gradients of all iterations would not fit the limit."""
    one = 4 * sum(sizes_of(workload.tensor_shapes)) * workload.nodes
    if one * iterations > MEMORY_LIMIT:
        most = MEMORY_LIMIT // one
        advice = f"lower iterations to {most} (--set iterations={most})" if most else "lower nodes"
        raise ConfigError(
            f"gradients of {iterations} iterations take {one * iterations / 2**30:.1f} GiB, at most "
            f"{MEMORY_LIMIT >> 30} GiB are kept in memory; {advice}, or take a smaller workload"
        )


def record_training(config: Config, *, progress: Progress | None = None) -> Recording:
    """Warm the configured workload up, then train it for `config.iterations` with the configured cluster."""
    workload = open_workload(config)
    check_memory(workload, config.iterations)
    warm_up(workload, config, progress=progress)
    cluster = LocalCluster(config)
    kept: list[Gradients] = []
    losses: list[float] = []
    stats: list[Stats] = []
    for done in range(config.iterations):
        gradients = workload.gradients()
        result = cluster.allreduce(gradients)
        workload.apply(result.mean)
        kept.append(gradients)
        losses.append(float(workload.loss))
        stats.append(result.stats)
        if progress is not None:
            progress("training", done + 1, config.iterations)
    return Recording(workload.name, workload.tensor_shapes, kept, losses, stats, workload.evaluate())


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
    from oscar.adapters.torch.tuning import Profile

    with Profile(workload.model) as profile:
        for _ in range(iterations + 1):
            workload.model.zero_grad()
            workload.batch_loss(*workload.next_batch(0)).backward()
    workload.model.zero_grad()
    return profile.times
