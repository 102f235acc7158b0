"""Stage 1 of TACCL: which links each chunk takes, by a MILP with relaxed bandwidth.

A gather is solved; a reduce is a gather over reversed links, backwards. Times are in units of a microsecond,
so that the solver's tolerances fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from time import monotonic

from oscar.collective.routes import Transfer
from oscar.planning.synthesis.model import Classes, MilpModel, Moves, rotations
from oscar.planning.synthesis.ordering import Trees, turned
from oscar.planning.synthesis.problem import RoutingProblem
from oscar.timeline.topology import Link, Pair

SLACK = 0.5  # a way to a rank may be longer than the shortest by this much of the owner's farthest rank
UNIT = 1e6  # of a second
TIDY = 1.0  # weight of the ports' mean work beside the end: an idle port is there for the other phase
SENT, START, TERMS = "sent", "start", "terms"
_Name = tuple[str | int, ...]


def routed(problem: RoutingProblem, limit_s: float) -> Trees | None:
    """Return the trees of both phases, None where none were found in `limit_s` seconds.

    Ranks that can change places do the same, where that leaves a solution; that is a small programme. Where
    sizes differ, a reduce's frames are as large as the terms that they sum.
    """
    end = monotonic() + limit_s
    share = 0.5 if problem.equal else 0.33
    gather = _solve(problem, share * limit_s, summed=False)
    if gather is None:
        return None
    reduce = _solve(problem.turned(), end - monotonic(), summed=not problem.equal)
    return None if reduce is None else Trees(turned(reduce), gather)


def _solve(problem: RoutingProblem, limit_s: float, *, summed: bool) -> tuple[Transfer, ...] | None:
    """Solve with all symmetries, with one, and with none, until there is a solution."""
    end, moves = monotonic() + limit_s, rotations(problem)
    for some in (moves, moves[:1], [])[0 if len(moves) > 1 else 2 - len(moves) :]:
        result = _Routing(problem, some, summed=summed).solve(end - monotonic())
        if result is not None:
            return result
    return None


class _Routing:
    """One gather as a MILP."""

    def __init__(self, problem: RoutingProblem, moves: Moves, *, summed: bool) -> None:
        self.problem, self.summed = problem, summed
        self.n = problem.nodes
        self.sizes = problem.sizes[:-1] if summed else problem.sizes[-1:]
        self.allowed = list(self._allowed())
        # A move maps the problem onto itself: what it maps onto each other is one variable.
        same, choices = Classes(), range(len(self.sizes))
        for ranks, chunks in moves:
            for c, (i, j) in self.allowed:
                same.join((SENT, c, i, j), (SENT, chunks[c], ranks[i], ranks[j]))
                for k in choices:
                    same.join((TERMS, c, i, j, k), (TERMS, chunks[c], ranks[i], ranks[j], k))
            for c in range(self.problem.chunks):
                for rank in range(self.n):
                    same.join((START, c, rank), (START, chunks[c], ranks[rank]))
        self.model = MilpModel(same)
        self._variables()
        self._trees()
        self._times()
        self._ports()
        self._work()

    def solve(self, limit_s: float) -> tuple[Transfer, ...] | None:
        """Return the transfers in order of their starts."""
        model = self.model
        result = model.solve({"end": 1.0, "work": TIDY / len(self.allowed)}, limit_s)
        if result is None:
            return None
        started = [
            (model.value(result, (START, c, i)), c, i, j)
            for c, (i, j) in self.allowed
            if model.value(result, (SENT, c, i, j)) > 0.5
        ]
        return tuple(Transfer(c, i, j) for _, c, i, j in sorted(started))

    def _allowed(self) -> Iterator[tuple[int, Pair]]:
        """Yield (chunk, link) of ways that are not much longer than the shortest."""
        far, size = self.problem.distances, self.problem.sizes[-1]
        for chunk, owner in enumerate(self.problem.owners):
            reach = max(far[owner])
            for (i, j), link in self.problem.topology.links.items():
                way = far[owner][i] + self.problem.hop_s(link, size)
                if j != owner and way <= far[owner][j] + SLACK * reach:
                    yield chunk, (i, j)

    def _variables(self) -> None:
        self.model.variable("end")
        for c, (i, j) in self.allowed:
            self.model.variable((SENT, c, i, j), 1, whole=True)
            for k in range(len(self.sizes)) if self.summed else ():
                self.model.variable((TERMS, c, i, j, k), 1, whole=True)
        for c, owner in enumerate(self.problem.owners):
            for rank in range(self.n):
                self.model.variable((START, c, rank), 0 if rank == owner else float("inf"))

    def _trees(self) -> None:
        """Every rank but the owner receives a chunk once; a link's terms are those of the tree below it."""
        into: dict[tuple[int, int], list[Pair]] = defaultdict(list)
        out: dict[tuple[int, int], list[Pair]] = defaultdict(list)
        for c, (i, j) in self.allowed:
            into[c, j].append((i, j))
            out[c, i].append((i, j))
        choices = range(len(self.sizes))
        for (c, rank), links in into.items():
            self.model.row({(SENT, c, *pair): 1.0 for pair in links}, 1, 1)
            if not self.summed:
                continue
            flow = {(TERMS, c, *pair, k): k + 1.0 for pair in links for k in choices}
            self.model.row(
                flow | {(TERMS, c, *pair, k): -k - 1.0 for pair in out[c, rank] for k in choices}, 1, 1
            )
            for pair in links:
                self.model.row({(SENT, c, *pair): -1.0} | {(TERMS, c, *pair, k): 1.0 for k in choices}, 0, 0)

    def _bytes(self, c: int, pair: Pair, weight: float) -> dict[_Name, float]:
        """Return the terms of `weight` times the bytes of a chunk over a link."""
        if not self.summed:
            return {(SENT, c, *pair): weight * self.sizes[0]}
        return {(TERMS, c, *pair, k): weight * size for k, size in enumerate(self.sizes)}

    def _rate(self, link: Link) -> float:
        ports = self.problem.topology.ports
        return UNIT * max((ports[at].seconds_per_byte for at in (*link.out, *link.into)), default=0.0)

    def _times(self) -> None:
        """A chunk arrives after it was there where it comes from; the end is after all."""
        problem = self.problem
        most = UNIT * 3 * sum(max(row) for row in problem.distances)
        for c, (i, j) in self.allowed:
            link = problem.topology.links[i, j]
            fixed = UNIT * (link.latency_s + problem.topology.message_s)
            terms: dict[_Name, float] = {(START, c, j): 1.0, (START, c, i): -1.0, (SENT, c, i, j): -most}
            for name, weight in self._bytes(c, (i, j), -self._rate(link)).items():
                terms[name] = terms.get(name, 0.0) + weight
            self.model.row(terms, fixed - most)
            self.model.row({"end": 1.0, (START, c, j): -1.0}, 0)

    def _work(self) -> None:
        """All time on links together."""
        self.model.variable("work")
        terms: dict[_Name | str, float] = defaultdict(float, {"work": 1.0})
        for c, pair in self.allowed:
            for name, weight in self._bytes(c, pair, -self._rate(self.problem.topology.links[pair])).items():
                terms[name] += weight
        self.model.row(terms, 0)

    def _ports(self) -> None:
        """What goes through a port takes its time, one after another."""
        top = self.problem.topology
        for at, port in enumerate(top.ports):
            terms: dict[object, float] = defaultdict(float, {"end": 1.0})
            late = [link.latency_s for link in top.links.values() if at in (*link.out, *link.into)]
            for c, pair in self.allowed:
                link = top.links[pair]
                if at not in (*link.out, *link.into):
                    continue
                name: _Name = (SENT, c, *pair)
                terms[name] -= UNIT * top.message_s
                for name, weight in self._bytes(c, pair, -UNIT * port.seconds_per_byte).items():
                    terms[name] += weight
            if len(terms) > 1:
                self.model.row(terms, UNIT * min(late))
