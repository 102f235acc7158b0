"""The best schedule for a network: built-in ones and synthesised ones, judged by replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from time import monotonic

from oscar.collective.actions import SENDS
from oscar.collective.exchange import ExchangeSchedule
from oscar.collective.frames import Frames
from oscar.collective.routes import Routed, Routes
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule
from oscar.collective.schedules import SCHEDULES
from oscar.collective.trees import Hierarchical
from oscar.errors import ConfigError
from oscar.planning.synthesis.ordering import Trees, contiguous, in_order, matched
from oscar.planning.synthesis.problem import RoutingProblem, bound_s
from oscar.planning.synthesis.routing import routed
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import replay

ROUTING_SHARE = 0.6  # of the time limit; the rest is for the order
MILP, GREEDY = "milp", "greedy"


@dataclass(frozen=True)
class Result:
    """schedule: the winner, by name `winner`. seconds: of every candidate, by name.

    routes: of the winner; None for rings and exchange, which have none. bound_s: no schedule is faster. said:
    what people should know, a sentence each.
    """

    schedule: Schedule
    routes: Routes | None
    winner: str
    seconds: dict[str, float]
    bound_s: float
    said: tuple[str, ...]


def synthesise(
    problem: RoutingProblem,
    *,
    subframes: int = 1,
    limit_s: float = 60.0,
    integers: bool = True,
) -> Result:
    """Return the fastest schedule found for `problem`: never slower than a built-in one by replay.

    limit_s: of the MILPs together. integers: sums are exact in any order, so that boomerang, duplex and
    exchange may run. Raises ConfigError where nothing runs on the network, MissingExtraError without scipy
    and networkx.
    """
    run = _Candidates(problem)
    for schedule in _built_in(problem.nodes, subframes, integers=integers):
        run.offer(_name(schedule), schedule)
    for order in _orders(problem, matched(problem)):
        run.offer(GREEDY, _of(order, subframes))
    end = monotonic() + limit_s
    trees = routed(problem, ROUTING_SHARE * limit_s)
    if trees is None:
        run.said.append(f"the MILP found no routes within {limit_s:g} s: the best of the others is taken")
    else:
        for order in _orders(problem, trees):
            run.offer(MILP, _of(order, subframes))
        last = contiguous(problem, trees, end - monotonic())
        if last is None:
            run.said.append(
                "the second MILP found no order in time: the order of the MILP's routes is greedy"
            )
        else:
            run.offer(MILP, _of(last, subframes))
    return run.result()


class _Candidates:
    """Schedules and their times; of one name the fastest is kept."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.best: dict[str, tuple[float, Schedule]] = {}
        self.said: list[str] = []

    def offer(self, name: str, schedule: Schedule) -> None:
        """Time a schedule, unless the network lacks a link that it uses."""
        try:
            seconds = time_of(schedule, self.problem)
        except ConfigError:
            return
        if name not in self.best or seconds < self.best[name][0]:
            self.best[name] = seconds, schedule

    def result(self) -> Result:
        """Return the fastest; on a tie what was offered first, so that a built-in one stays."""
        winner = min(self.best, key=lambda name: self.best[name][0])
        schedule = self.best[winner][1]
        routes = schedule.routes if isinstance(schedule, Routed) else None
        seconds = {name: seconds for name, (seconds, _) in self.best.items()}
        return Result(schedule, routes, winner, seconds, bound_s(self.problem), tuple(self.said))


def _orders(problem: RoutingProblem, trees: Trees) -> Iterator[Routes]:
    """Yield the orders to try: as found, and by the list schedule with either phase first."""
    yield Routes(problem.nodes, problem.owners, trees.reduce, trees.gather)
    for pulls_first in (True, False):
        yield in_order(problem, trees, pulls_first=pulls_first)


def _built_in(nodes: int, subframes: int, *, integers: bool) -> Iterator[Schedule]:
    """Yield the schedules of the registry, those of groups with every size of group."""
    for name in ("ring", "boomerang", "duplex", "direct", "star"):
        kind: Callable[..., Schedule] = SCHEDULES[name]
        if integers or not SCHEDULES[name].integers:
            yield kind(nodes, subframes)
    for group in range(2, nodes):
        if nodes % group == 0:
            yield Hierarchical(nodes, subframes, group=group)
            if integers:
                yield ExchangeSchedule(nodes, subframes, group=group)


def _name(schedule: Schedule) -> str:
    return (
        f"{schedule.name} {schedule.group}"
        if isinstance(schedule, (Hierarchical, ExchangeSchedule))
        else schedule.name
    )


def _of(routes: Routes, subframes: int) -> FileSchedule:
    return FileSchedule(routes.nodes, subframes, routes=routes)


VALUE_BYTES = 4  # where a problem does not say how many values there are


def time_of(schedule: Schedule, problem: RoutingProblem) -> float:
    """Return the seconds of one AllReduce, by replay; coding takes no time.

    Raises ConfigError where the network lacks a link that the schedule uses, ValueError for another number of
    ranks.
    """
    rows = []
    values = problem.values or problem.frame_bytes(problem.nodes, 1) / VALUE_BYTES
    count = ceil(values / schedule.chunks / schedule.subframes)
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op not in SENDS:
                continue
            if (rank, a.peer) not in problem.topology.links:
                raise ConfigError(
                    f"schedule {schedule.name}: rank {rank} sends to rank {a.peer}, and the topology has no "
                    "such link; add it, or take another schedule"
                )
            size = ceil(problem.frame_bytes(a.workers, schedule.chunks) / schedule.subframes)
            rows.append((a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, count, size))
    if not rows:
        return 0.0
    link = LinkModel(message_s=problem.topology.message_s)
    return replay(schedule, Frames.of(rows), link, problem.topology, coded=False).total_s
