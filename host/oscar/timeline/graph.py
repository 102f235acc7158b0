"""Graphs of tasks: an iteration under a policy, a chain of blocks, and what changes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oscar.errors import ConfigError
from oscar.timeline.engine import Floats, Graph, Need

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


def blocks(compute_s: Sequence[float], reduce_s: Sequence[float]) -> tuple[Graph, list[int]]:
    """Return a chain of blocks, each of which needs what the one before it reduced, and the reductions."""
    graph = Graph()
    for name in LANES:
        graph.resource(name)
    last: list[int] = []
    reductions = []
    for at, (compute, reduce) in enumerate(zip(compute_s, reduce_s, strict=True)):
        last = [graph.add(f"block {at}", COMPUTE, compute, last)]
        last = [graph.add(f"reduce {at}", PORT, reduce, last)]
        reductions += last
    return graph, reductions


def iso(graph: Graph, overhead_s: float = 0.0) -> Graph:
    """Return the same work as two halves of a batch, each of which waits only for itself.

    overhead_s: what a half takes beyond half of the time.
    """
    out = Graph(list(graph.resources))
    for task in graph.tasks:
        for half in range(2):
            needs = tuple(need._replace(task=2 * need.task + half) for need in task.needs)
            took = task.duration_s / 2 + overhead_s
            out.tasks.append(replace(task, name=f"{task.name}.{half}", duration_s=took, needs=needs))
    return out


def ladder(graph: Graph, reductions: Sequence[int]) -> Graph:
    """Return a graph in which what needs a reduction takes the one before it: this changes the model.

    Instead of reduction k it needs k - 1, and what k itself needs (ladder-residual).
    """
    number = {task: at for at, task in enumerate(reductions)}

    def late(need: Need) -> Iterable[Need]:
        if need.task not in number:
            return [need]
        earlier = reductions[max(0, number[need.task] - 1) : number[need.task]]
        return [*graph.tasks[need.task].needs, *(Need(task) for task in earlier)]

    out = Graph(list(graph.resources))
    for at, task in enumerate(graph.tasks):
        needs = task.needs if at in number else tuple(new for need in task.needs for new in late(need))
        out.tasks.append(replace(task, needs=tuple(dict.fromkeys(needs))))
    return out


def offload(
    graph: Graph, moved: Mapping[int, float], card: int, wire: int, there_s: float, back_s: float
) -> Graph:
    """Return a graph in which tasks run on a card that takes `moved` seconds for each, behind a wire.

    Their input crosses the wire before, in `there_s`, their result after, in `back_s`.
    """
    out = Graph(list(graph.resources))
    made: dict[int, tuple[int, int]] = {}  # of each task the one that starts it, and the one that ends it

    def placed(needs: Iterable[Need]) -> tuple[Need, ...]:
        return tuple(need._replace(task=made[need.task][0 if need.of_start else 1]) for need in needs)

    for at, task in enumerate(graph.tasks):
        if any(need.task not in made for need in task.needs):
            raise ValueError(f"{task.name}: expected needs that were added before it")
        changed = replace(task, needs=placed(task.needs))
        if at not in moved:
            out.tasks.append(changed)
            made[at] = (len(out.tasks) - 1,) * 2
            continue
        first = out.add(f"{task.name} there", wire, there_s, changed.needs, release_s=task.release_s)
        work = out.add(task.name, card, moved[at], [first], priority=task.priority)
        made[at] = first, out.add(f"{task.name} back", wire, back_s, [work])
    return out
