"""A greedy matcher over time: whenever ports are free, the transfer that helps most."""

from __future__ import annotations

from oscar.collective.routes import Transfer
from oscar.planning.synthesis.ordering import Ports, Trees, turned
from oscar.planning.synthesis.problem import RoutingProblem

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
