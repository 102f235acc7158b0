"""Tasks on resources: who works when, by deterministic list scheduling (docs/explain/timeline.md).

`iteration` makes the graph of a training iteration whose tensors are reduced in groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from oscar.coding.costs import check_seconds
from oscar.errors import ConfigError

Floats = NDArray[np.float64]
LANES = "compute", "codec", "port", "inside", "crypto", "card"  # of one worker; all workers do the same
COMPUTE, CODEC, PORT, INSIDE, CRYPTO, CARD = range(len(LANES))
BEFORE, BACKWARD, AFTER = range(3)  # priorities: what leads to the network, the backward pass, what follows


@dataclass(frozen=True)
class Resource:
    """What does one task at a time.

    in_order: tasks of one priority begin in the order in which they were added, so that one that is not ready
    holds back those after it. shared: a core that works on all ready tasks at once, each at an equal share.
    """

    name: str
    in_order: bool = False
    shared: bool = False


class Need(NamedTuple):
    """A task waits for another: until `lag_s` after its end, or after its start."""

    task: int
    lag_s: float = 0.0
    of_start: bool = False


@dataclass(frozen=True)
class Task:
    """resource: its place in `Graph.resources`, None takes time and nothing else. Low priorities go first."""

    name: str
    resource: int | None
    duration_s: float
    needs: tuple[Need, ...] = ()
    priority: int = 0
    release_s: float = 0.0


@dataclass
class Graph:
    """Tasks in the order in which they were added, and the resources that they occupy.

    >>> graph = Graph()
    >>> core = graph.resource("core")
    >>> first = graph.add("first", core, 1.0)
    >>> second = graph.add("second", core, 2.0, [first])
    >>> graph.run().total_s
    3.0
    """

    resources: list[Resource] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    def resource(self, name: str, *, in_order: bool = False, shared: bool = False) -> int:
        """Add a resource; return its number."""
        self.resources.append(Resource(name, in_order, shared))
        return len(self.resources) - 1

    def add(
        self,
        name: str,
        resource: int | None,
        duration_s: float,
        needs: Iterable[Need | int] = (),
        *,
        priority: int = 0,
        release_s: float = 0.0,
    ) -> int:
        """Add a task; return its number. A need that is only a number is that of its end.

        Raises ValueError for a resource that there is not and for what is no time.
        """
        if resource is not None and not 0 <= resource < len(self.resources):
            raise ValueError(f"{name}: expected a resource of {len(self.resources)}, got number {resource}")
        all_needs = tuple(need if isinstance(need, Need) else Need(need) for need in needs)
        for seconds in (duration_s, release_s, *(need.lag_s for need in all_needs)):
            check_seconds(name, seconds)
        self.tasks.append(Task(name, resource, float(duration_s), all_needs, priority, release_s))
        return len(self.tasks) - 1

    def run(self) -> Timeline:
        """Return when everything happens; raises ConfigError for tasks that wait in a circle, naming them."""
        return _Run(self).result()


@dataclass(frozen=True, eq=False)
class Timeline:
    """The start and the end of every task in seconds, float64 [task].

    Attributes:
        cause: The task that delayed each task: its last need, or the previous task on its resource; -1
            for none.

    >>> graph = Graph()
    >>> _ = graph.add("send", graph.resource("port"), 0.5)
    >>> graph.run().use()
    {'port': 1.0}
    """

    graph: Graph
    start: Floats
    end: Floats
    cause: NDArray[np.int64]

    @property
    def total_s(self) -> float:
        """When the last task ends."""
        return float(self.end.max(initial=0.0))

    def on(self, resource: int) -> list[int]:
        """Return the tasks of a resource by their start."""
        tasks = [at for at, task in enumerate(self.graph.tasks) if task.resource == resource]
        return sorted(tasks, key=lambda at: (self.start[at], self.end[at], at))

    def loads(self) -> Floats:
        """Return the seconds of work on each resource, float64 [resources]."""
        work = np.zeros(len(self.graph.resources))
        for task in self.graph.tasks:
            if task.resource is not None:
                work[task.resource] += task.duration_s
        return work

    def use(self) -> dict[str, float]:
        """Return the share of the time in which each resource works, by name."""
        total = self.total_s or 1.0
        return {
            r.name: float(work) / total for r, work in zip(self.graph.resources, self.loads(), strict=True)
        }

    def critical(self) -> list[int]:
        """Return the chain of tasks that ends last, from its first: none of them waited for anything else."""
        at, chain = int(self.end.argmax()) if len(self.end) else -1, []
        while at >= 0:
            chain.append(at)
            at = int(self.cause[at])
        return chain[::-1]

    def bound_s(self) -> float:
        """Return the larger of the fullest resource's work and the longest chain of needs: a lower bound."""
        begin = np.zeros(len(self.graph.tasks))
        for at in sorted(range(len(begin)), key=lambda at: (self.start[at], self.end[at], at)):
            begin[at] = self.graph.tasks[at].release_s  # needs have started before
            for need in self.graph.tasks[at].needs:
                work = 0.0 if need.of_start else self.graph.tasks[need.task].duration_s
                begin[at] = max(begin[at], begin[need.task] + work + need.lag_s)
        longest = max((begin[at] + task.duration_s for at, task in enumerate(self.graph.tasks)), default=0.0)
        return float(max(longest, self.loads().max(initial=0.0)))


class _Run:
    """Decides the earliest event again and again: the end of a shared task, or a start.

    What is decided later starts no earlier, so all that could be ready for a start is known when it is
    decided. Of two at once the resource with the lower number goes first.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, tasks = graph, graph.tasks
        count = len(tasks)
        self.start, self.end = np.full(count, np.nan), np.full(count, np.nan)
        self.cause = np.full(count, -1, np.int64)
        self.ready = [task.release_s for task in tasks]
        self.open = [len(task.needs) for task in tasks]
        self.after: list[list[tuple[int, Need]]] = [[] for _ in tasks]
        for at, task in enumerate(tasks):
            for need in task.needs:
                if not 0 <= need.task < count:
                    raise ValueError(f"{task.name}: expected a need of {count} tasks, got number {need.task}")
                self.after[need.task].append((at, need))
        self.waiting: list[dict[int, list[int]]] = [defaultdict(list) for _ in graph.resources]  # by priority
        self.free, self.last = [0.0] * len(graph.resources), [-1] * len(graph.resources)
        self.left: list[dict[int, float]] = [{} for _ in graph.resources]  # work of what a shared core does
        self.undecided = count
        for at, task in enumerate(tasks):
            if task.resource is not None:
                self.waiting[task.resource][task.priority].append(at)
        for at, task in enumerate(tasks):
            if task.resource is None and not self.open[at]:
                self._begin(at, self.ready[at])

    def result(self) -> Timeline:
        while self.undecided or any(self.left):
            choices = [self._finish(r) or self._choice(r) for r in range(len(self.graph.resources))]
            events = [(*choice[:2], r, choice[2]) for r, choice in enumerate(choices) if choice is not None]
            if not events:
                raise ConfigError(f"expected tasks that wait in no circle, got {self._circle()}")
            when, kind, resource, at = min(events)
            if self.graph.resources[resource].shared:
                self._advance(resource, when)
            if kind == 0:
                del self.left[resource][at]
                self._over(at, when)
                continue
            self.waiting[resource][self.graph.tasks[at].priority].remove(at)
            self._begin(at, when)
        return Timeline(self.graph, self.start, self.end, self.cause)

    def _finish(self, resource: int) -> tuple[float, int, int] | None:
        """Return the next end on a shared core, if that is before the next start."""
        left = self.left[resource]
        if not left:
            return None
        at = min(left, key=lambda one: (left[one], one))
        done = self.free[resource] + left[at] * len(left), 0, at
        start = self._choice(resource)
        return done if start is None or done <= start else start

    def _choice(self, resource: int) -> tuple[float, int, int] | None:
        """Return when a resource can begin its next task, 1, and which."""
        kind, best = self.graph.resources[resource], None
        free = 0.0 if kind.shared else self.free[resource]
        for priority in sorted(self.waiting[resource]):
            queue = self.waiting[resource][priority]
            able = [at for at in (queue[:1] if kind.in_order else queue) if not self.open[at]]
            if not able:
                continue
            at = min(able, key=lambda one: (self.ready[one], one))
            start = max(free, self.ready[at])
            if best is None or start < best[0]:
                best = start, 1, at
        return best

    def _advance(self, resource: int, when: float) -> None:
        left = self.left[resource]
        for at in left:
            left[at] = max(0.0, left[at] - (when - self.free[resource]) / len(left))
        self.free[resource] = when

    def _begin(self, at: int, when: float) -> None:
        task = self.graph.tasks[at]
        self.start[at] = when
        self.undecided -= 1
        for other, need in self.after[at]:
            if need.of_start:
                self._met(other, at, when + need.lag_s)
        if task.resource is None:
            self._over(at, when + task.duration_s)
        elif self.graph.resources[task.resource].shared:
            self.left[task.resource][at] = task.duration_s
        else:
            if self.free[task.resource] > self.ready[at] or self.cause[at] < 0:
                self.cause[at] = self.last[task.resource] if self.free[task.resource] == when else -1
            self.free[task.resource], self.last[task.resource] = when + task.duration_s, at
            self._over(at, when + task.duration_s)

    def _over(self, at: int, when: float) -> None:
        self.end[at] = when
        for other, need in self.after[at]:
            if not need.of_start:
                self._met(other, at, when + need.lag_s)

    def _met(self, at: int, by: int, when: float) -> None:
        self.open[at] -= 1
        if when > self.ready[at] or (self.cause[at] < 0 and when == self.ready[at]):
            self.ready[at], self.cause[at] = when, by
        if not self.open[at] and self.graph.tasks[at].resource is None:
            self._begin(at, self.ready[at])

    def _circle(self) -> str:
        """Return names of tasks that wait for each other, by their needs or by the order of a resource."""
        at = int(np.isnan(self.start).argmax())
        seen: list[int] = []
        while at not in seen:
            seen.append(at)
            at = self._blocker(at)
        names = [self.graph.tasks[one].name for one in [*seen[seen.index(at) :], at]]
        return " after ".join(names)

    def _blocker(self, at: int) -> int:
        task = self.graph.tasks[at]
        for need in task.needs:
            if np.isnan(self.start[need.task]) or (not need.of_start and np.isnan(self.end[need.task])):
                return need.task
        assert task.resource is not None
        return self.waiting[task.resource][task.priority][0]


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

    ready_s: when each tensor's gradient is there, without any codec, in that order.
    stops: the tensor after each group's last one.
    steps: of each group.
    shared: lanes that are a core which their tasks share.

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
    for group, group_steps in enumerate(steps):
        last = made[group]
        for step in group_steps:
            name = f"{LANES[step.lane]} {group}"
            last = graph.add(name, step.lane, step.seconds, [last], priority=step.priority)
    return graph
