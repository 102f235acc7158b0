"""Stage 2 of TACCL: the order with fixed routes, by a MILP where contiguous sends of a link share one alpha.

In TACCL's cost model a send occupies its link for alpha + beta * bytes; of sends that go as one, all arrive
when the last byte does.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

from oscar.collective.routes import Routes
from oscar.planning.synthesis.model import MilpModel
from oscar.planning.synthesis.ordering import Job, Jobs, Trees
from oscar.planning.synthesis.problem import RoutingProblem

MOST_TOGETHER = 6
MOST_PAIRS = 2500  # of sends of one port: beyond, no solver comes to an end in minutes
UNIT = 1e6  # of a second
START, DONE, BEFORE, TOGETHER = "start", "done", "before", "together"


def contiguous(problem: RoutingProblem, trees: Trees, limit_s: float) -> Routes | None:
    """Return the routes in the best order found in `limit_s` seconds, each phase alone; None if none was."""
    reduce = _Ordering(problem, Trees(trees.reduce, ())).solve(limit_s / 2)
    gather = _Ordering(problem, Trees((), trees.gather)).solve(limit_s / 2) if reduce else None
    if reduce is None or gather is None:
        return None
    return Routes(problem.nodes, problem.owners, reduce.reduce, gather.gather)


class _Ordering:
    """The order of all transfers as a MILP."""

    def __init__(self, problem: RoutingProblem, trees: Trees) -> None:
        self.problem, self.jobs = problem, Jobs(problem, trees)
        self.model = MilpModel()
        self.mates: dict[Job, list[Job]] = defaultdict(list)
        self.pairs = self._pairs()

    def solve(self, limit_s: float) -> Routes | None:
        """See contiguous."""
        if len(self.pairs) > MOST_PAIRS or limit_s <= 0:
            return None
        horizon = UNIT * 2 * sum(self._alpha_s(job) + self._beta_s(job) for job in self.jobs.jobs)
        horizon = min(horizon, UNIT * 3 * self._serial_s())
        self._times()
        for (x, y), link in self.pairs.items():
            self._apart(x, y, horizon, same=link)
        found = self.model.solve({"end": 1.0}, limit_s)
        if found is None:
            return None
        return self.jobs.routes(
            {job: round(self.model.value(found, (START, job)), 4) for job in self.jobs.jobs}
        )

    def _link(self, job: Job) -> tuple[int, int]:
        return job[1].sender, job[1].receiver

    def _alpha_s(self, job: Job) -> float:
        return self.problem.topology.links[self._link(job)].latency_s + self.problem.topology.message_s

    def _beta_s(self, job: Job) -> float:
        return self.jobs.link_s(job) - self._alpha_s(job)

    def _pairs(self) -> dict[tuple[Job, Job], bool]:
        """Return the pairs that share a port and do not wait for each other: whether they share a link."""
        after: dict[Job, set[Job]] = {}

        def later(job: Job) -> set[Job]:
            if job not in after:
                after[job] = set().union(*({one} | later(one) for one in self.jobs.next[job]))
            return after[job]

        users: dict[int, list[Job]] = defaultdict(list)
        for job in self.jobs.jobs:
            link = self.problem.topology.links[self._link(job)]
            for port in {*link.out, *link.into}:
                users[port].append(job)
        pairs = {}
        for jobs in users.values():
            for x, y in combinations(jobs, 2):
                if y not in later(x) and x not in later(y) and (y, x) not in pairs:
                    pairs[x, y] = self._link(x) == self._link(y)
        for (x, y), same in pairs.items():
            if same:
                self.mates[x].append(y)
                self.mates[y].append(x)
        return pairs

    def _serial_s(self) -> float:
        """Return the work of the busiest port and the longest way of a chunk: about how long it takes."""
        busy: dict[int, float] = defaultdict(float)
        for job in self.jobs.jobs:
            link = self.problem.topology.links[self._link(job)]
            for port in {*link.out, *link.into}:
                busy[port] += self._alpha_s(job) + self._beta_s(job)
        return max(busy.values(), default=0.0) + max(self.jobs.togo.values(), default=0.0)

    def _together(self, x: Job, y: Job) -> tuple[object, ...]:
        return (TOGETHER, *sorted((x, y)))

    def _times(self) -> None:
        """A send is done after its alpha and all bytes that go with it; the next hop starts then."""
        model = self.model
        model.variable("end")
        for job in self.jobs.jobs:
            model.variable((START, job))
            model.variable((DONE, job))
            for mate in self.mates[job]:
                model.variable(self._together(job, mate), 1, whole=True)
        for job in self.jobs.jobs:
            fixed = UNIT * (self._alpha_s(job) + self._beta_s(job))
            mates = {self._together(job, mate): -UNIT * self._beta_s(mate) for mate in self.mates[job]}
            model.row({(DONE, job): 1.0, (START, job): -1.0} | mates, fixed, fixed)
            model.row({"end": 1.0, (DONE, job): -1.0}, 0)
            for before in self.jobs.waits[job]:
                model.row({(START, job): 1.0, (DONE, before): -1.0}, 0)
            if len(mates) >= MOST_TOGETHER:
                model.row(dict.fromkeys(mates, 1.0), 0, MOST_TOGETHER - 1)

    def _apart(self, x: Job, y: Job, horizon: float, *, same: bool) -> None:
        """One of two sends of a port goes first, or, on one link, both go as one."""
        model, first, second = self.model, (BEFORE, x, y), (BEFORE, y, x)
        model.variable(first, 1, whole=True)
        model.variable(second, 1, whole=True)
        joined = {self._together(x, y): 1.0} if same else {}
        model.row({first: 1.0, second: 1.0} | joined, 1, 1)
        for name, (a, b) in ((first, (x, y)), (second, (y, x))):
            model.row({(START, b): 1.0, (DONE, a): -1.0, name: -horizon}, -horizon)
            for one in joined:
                model.row({(START, b): 1.0, (START, a): -1.0, one: -horizon}, -horizon)
