"""Graphs of tasks: an iteration under a policy, a chain of blocks, and what changes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oscar.errors import ConfigError
from oscar.timeline.engine import Floats, Graph

LANES = "compute", "codec", "port", "inside", "crypto", "card"  # of one worker; all workers do the same
COMPUTE, CODEC, PORT, INSIDE, CRYPTO, CARD = range(len(LANES))
BEFORE, BACKWARD, AFTER = range(3)  # priorities: what leads to the network, the backward pass, what follows


class Step(NamedTuple):
    """One step of a group of tensors, after the one before it."""

    lane: int
    priority: int
    seconds: float


def check_ready(ready_s: npt.ArrayLike) -> Floats:
    """Return when tensors are ready, float64 [tensors]; raises ConfigError unless these times never fall."""
    ready = np.asarray(ready_s, float)
    if ready.ndim != 1 or not ready.size or not np.isfinite(ready).all():
        raise ConfigError(f"expected a finite ready time for each tensor, got {ready.tolist()}")
    if ready[0] < 0:
        raise ConfigError(f"expected ready times of 0 or more, got {ready[0]:g} s for tensor 0")
    if (falls := np.flatnonzero(np.diff(ready) < 0)).size:
        at = int(falls[0]) + 1
        raise ConfigError(
            f"expected ready times in the order of the backward pass, got {ready[at]:g} s for tensor {at} "
            f"after {ready[at - 1]:g} s"
        )
    return ready


def iteration(
    ready_s: npt.ArrayLike,
    stops: Sequence[int],
    steps: Sequence[Sequence[Step]],
    shared: Collection[int] = (),
) -> Graph:
    """Return the tasks of an iteration whose tensors are reduced in groups.

    ready_s: when each tensor's gradient is there, without any codec, in that order. stops: the tensor behind
    each group's last one. steps: of each group. shared: lanes that are a core which their tasks share.

    Every lane serves the tasks of one priority in the order of groups, since all ranks need the same order;
    of several priorities the lowest that is ready. On the lane `compute` a group's first steps go before the
    backward pass of what follows, its last ones after all of it.
    """
    ready = check_ready(ready_s)
    rises = list(stops) == sorted(set(stops)) and min(stops, default=0) > 0 and max(stops) == ready.size
    if not rises or len(stops) != len(steps):
        raise ValueError(f"expected groups that cover {ready.size} tensors in order, got stops {list(stops)}")
    graph = Graph()
    for lane, name in enumerate(LANES):
        graph.resource(name, in_order=True, shared=lane in shared)
    before = 0.0
    made: list[int] = []
    for group, stop in enumerate(stops):
        took, before = ready[stop - 1] - before, ready[stop - 1]
        made.append(graph.add(f"backward {group}", COMPUTE, took, made[-1:], priority=BACKWARD))
    for group, own in enumerate(steps):
        last = made[group]
        for step in own:
            name = f"{LANES[step.lane]} {group}"
            last = graph.add(name, step.lane, step.seconds, [last], priority=step.priority)
    return graph
