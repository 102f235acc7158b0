"""Spanning trees of chunks, and the order in which each port sends their transfers.

Greedy (`in_order`): of the transfers that could start first, the one with the longest way to go goes first.
Matched over time (`matched`): whenever ports are free, the transfer that helps most is taken.
Stage 2 of TACCL (`contiguous`): routes are fixed, and a MILP finds the order. In TACCL's cost model a send
occupies its link for alpha + beta * bytes. Contiguous sends of a link share one alpha, and all arrive when
the last byte does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from oscar.collective.routes import Routes, Transfer
from oscar.planning.synthesis.model import MilpModel
from oscar.planning.synthesis.problem import RoutingProblem
from oscar.timeline.topology import Link

Job = tuple[int, Transfer]  # phase, transfer
MOST_TOGETHER = 6
MOST_PAIRS = 2500  # of sends of one port: beyond, no solver comes to an end in minutes
UNIT = 1e6  # of a second
START, DONE, BEFORE, TOGETHER = "start", "done", "before", "together"


class Jobs:
    """Transfers of both phases: what each waits for, and the longest way from it to the end."""

    def __init__(self, problem: RoutingProblem, trees: Trees) -> None:
        self.problem = problem
        summed = terms(trees.reduce)
        self.size = {(0, t): problem.sizes[summed[t] - 1] for t in trees.reduce}
        self.size |= {(1, t): problem.sizes[-1] for t in trees.gather}
        self.jobs = list(self.size)
        into: dict[tuple[int, int, int], list[Job]] = defaultdict(list)
        for phase, t in self.jobs:
            into[phase, t.chunk, t.receiver].append((phase, t))
        self.waits: dict[Job, list[Job]] = {}
        for phase, t in self.jobs:
            starts_gather = phase == 1 and t.sender == problem.owners[t.chunk]
            self.waits[phase, t] = into[0 if starts_gather else phase, t.chunk, t.sender]
        self.next: dict[Job, list[Job]] = defaultdict(list)
        for job, before in self.waits.items():
            for one in before:
                self.next[one].append(job)
        self.togo: dict[Job, float] = {}
        for job in self.jobs:
            self._way(job)

    def link_s(self, job: Job) -> float:
        """Return how long a transfer takes over an idle link."""
        t = job[1]
        return self.problem.hop_s(self.problem.topology.links[t.sender, t.receiver], self.size[job])

    def _way(self, job: Job) -> float:
        if job not in self.togo:
            self.togo[job] = self.link_s(job) + max((self._way(one) for one in self.next[job]), default=0.0)
        return self.togo[job]

    def routes(self, starts: dict[Job, float]) -> Routes:
        """Return the routes in order of `starts`; of equal ones the longest way to go first."""
        order = sorted(self.jobs, key=lambda job: (starts[job], -self.togo[job]))
        halves = [tuple(t for phase, t in order if phase == half) for half in (0, 1)]
        return Routes(self.problem.nodes, self.problem.owners, halves[0], halves[1])


def in_order(problem: RoutingProblem, trees: Trees, *, pulls_first: bool = True) -> Routes:
    """Return the routes of `trees`, every port's transfers in the order in which a list schedule starts them.

    pulls_first: on ties gathers go before reduces. On other ties rank r sends to r+1 before r+2, so that
    equal ports form matchings.
    """
    jobs, ports = Jobs(problem, trees), Ports(problem)
    n, links = problem.nodes, problem.topology.links
    ready = {job: 0.0 for job in jobs.jobs if not jobs.waits[job]}
    missing = {job: len(jobs.waits[job]) for job in jobs.jobs}
    came: dict[Job, float] = defaultdict(float)
    started: dict[Job, float] = {}

    def key(job: Job) -> tuple[float, ...]:
        t = job[1]
        start = max(ready[job], ports.ready(links[t.sender, t.receiver]))
        pull = float(1 - job[0] if pulls_first else 0)
        togo = -round(jobs.togo[job] * 1e12)
        return round(start * 1e12), pull, togo, (t.receiver - t.sender) % n, t.chunk

    while ready:
        job = min(ready, key=key)
        t = job[1]
        link = links[t.sender, t.receiver]
        start = max(ready.pop(job), ports.ready(link))
        arrival = ports.send(link, start, jobs.size[job])
        started[job] = start
        for one in jobs.next[job]:
            came[one] = max(came[one], arrival)
            missing[one] -= 1
            if not missing[one]:
                ready[one] = came[one]
    return jobs.routes(started)


class Trees(NamedTuple):
    """reduce: up to the owners, gather: down from them; each in the order in which they were found."""

    reduce: tuple[Transfer, ...]
    gather: tuple[Transfer, ...]


def turned(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Return the transfers backwards: the last first, from receiver to sender."""
    return tuple(Transfer(t.chunk, t.receiver, t.sender) for t in reversed(tuple(transfers)))


def terms(reduce: Iterable[Transfer]) -> dict[Transfer, int]:
    """Return how many workers each transfer of reduce trees sums, whatever their order."""
    fed: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    transfers = list(reduce)
    for t in transfers:
        fed[t.chunk, t.receiver].append(t)
    out: dict[Transfer, int] = {}

    def count(t: Transfer) -> int:
        if t not in out:
            out[t] = 1 + sum(count(one) for one in fed[t.chunk, t.sender])
        return out[t]

    for t in transfers:
        count(t)
    return out


class Ports:
    """Frames are sent one at a time over each port; a frame occupies those where it leaves and arrives."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.ports, self.message_s = problem.topology.ports, problem.topology.message_s
        self.free = [0.0] * len(self.ports)

    def ready(self, link: Link) -> float:
        """Return from when on a frame would meet no other, at either end."""
        out = max((self.free[at] for at in link.out), default=0.0)
        return max([out, *(self.free[at] - link.latency_s for at in link.into)])

    def send(self, link: Link, start: float, size: float) -> float:
        """Send `size` bytes at `start`; return when they have arrived (cut-through)."""
        cost = self.message_s + size * max((self.ports[at].seconds_per_byte for at in link.out), default=0.0)
        leave, first = start + cost, start + link.latency_s
        arrival = leave + link.latency_s
        for at in link.out:
            self.free[at] = leave
        for at in link.into:
            begin = max(self.free[at], first)
            arrival = max(arrival, begin + self.message_s + size * self.ports[at].seconds_per_byte)
        for at in link.into:
            self.free[at] = arrival
        return arrival


EPSILON = 1e-12  # seconds


class _Matcher:
    """One gather: who has which chunk from when on, frames in flight included."""

    def __init__(self, problem: RoutingProblem, size: float) -> None:
        self.problem, self.size = problem, size
        self.ports = Ports(problem)
        self.have: list[dict[int, float]] = [{owner: 0.0} for owner in problem.owners]
        self.depth = dict.fromkeys(enumerate(problem.owners), 0)
        self.inflow = [0] * problem.nodes
        self.sent: list[Transfer] = []

    def run(self) -> tuple[Transfer, ...]:
        """Return all transfers in order of their starts."""
        links, n = self.problem.topology.links, self.problem.nodes
        while any(len(have) < n for have in self.have):
            _, t = next((key, t) for key, t in sorted(self._keys()) if not self._better(t, key[0] * 1e-12))
            link = links[t.sender, t.receiver]
            start = max(self.have[t.chunk][t.sender], self.ports.ready(link))
            self.have[t.chunk][t.receiver] = self.ports.send(link, start, self.size)
            self.depth[t.chunk, t.receiver] = self.depth[t.chunk, t.sender] + 1
            self.inflow[t.receiver] += 1
            self.sent.append(t)
        return tuple(self.sent)

    def _keys(self) -> list[tuple[tuple[int, ...], Transfer]]:
        """Return what could be sent, best first: early, had by few, after few hops, to who got least."""
        out: list[tuple[tuple[int, ...], Transfer]] = []
        n = self.problem.nodes
        for (i, j), link in self.problem.topology.links.items():
            free = self.ports.ready(link)
            for chunk, have in enumerate(self.have):
                if i not in have or j in have:
                    continue
                start = round(max(have[i], free) * 1e12)
                ahead = (j - self.problem.owners[chunk]) % n
                deep = self.depth[chunk, i]
                spread = (start, len(have), deep, self.inflow[j], (j - i) % n, ahead, i)
                out.append((spread, Transfer(chunk, i, j)))
        return out

    def _better(self, t: Transfer, start: float) -> bool:
        """Whether another rank, frames in flight included, would bring this chunk there earlier."""
        links, have = self.problem.topology.links, self.have[t.chunk]
        arrival = start + self.problem.hop_s(links[t.sender, t.receiver], self.size)
        for rank, since in have.items():
            link = links.get((rank, t.receiver))
            if rank == t.sender or link is None:
                continue
            if max(since, self.ports.ready(link)) + self.problem.hop_s(link, self.size) < arrival - EPSILON:
                return True
        return False


def matched(problem: RoutingProblem) -> Trees:
    """Return trees for a gather of whole sums, and for a reduce of one-worker frames, backwards in time."""
    gather = _Matcher(problem, problem.sizes[-1]).run()
    reduce = turned(_Matcher(problem.turned(), problem.sizes[0]).run())
    return Trees(reduce, gather)


def contiguous(problem: RoutingProblem, trees: Trees, limit_s: float) -> Routes | None:
    """Return the routes in the best order found in `limit_s` seconds, each phase alone; None if none was."""
    reduce = _OrderModel(problem, Trees(trees.reduce, ())).solve(limit_s / 2)
    gather = _OrderModel(problem, Trees((), trees.gather)).solve(limit_s / 2) if reduce else None
    if reduce is None or gather is None:
        return None
    return Routes(problem.nodes, problem.owners, reduce.reduce, gather.gather)


class _OrderModel:
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
        solution = self.model.solve({"end": 1.0}, limit_s)
        if solution is None:
            return None
        return self.jobs.routes(
            {job: round(self.model.value(solution, (START, job)), 4) for job in self.jobs.jobs}
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
