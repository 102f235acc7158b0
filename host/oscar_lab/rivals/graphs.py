"""Graphs that no product part uses: a chain of blocks, halved batches, late sums, and cards behind a wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from oscar.timeline.engine import COMPUTE, LANES, PORT, Graph, Need


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
