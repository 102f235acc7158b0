"""A lower bound on an AllReduce's time: what must cross every cut, and every port, whatever the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from oscar.planning.synthesis.problem import RoutingProblem, package

MOST_ROUNDS = 30  # of new cuts: each one only raises the bound
Row = tuple[tuple[int, ...], float]  # links, the bytes that they carry together at the least


def bound_s(problem: RoutingProblem) -> float:
    """Return seconds below which no schedule ends; networkx finds the cuts, an LP the loads of links.

    Out of every set of ranks go frames that hold its values, whatever else they sum. All that a network of p
    parts sends between them is 2 (p - 1) frames for each value (gossip).
    """
    if problem.nodes == 1:
        return 0.0
    return _Bound(problem).solve()


class _Bound:
    """The LP over the bytes of links; T is the last variable."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem, self.links = problem, list(problem.topology.links.items())
        self.whole = [problem.frame_bytes(k + 1, 1) for k in range(problem.nodes)]
        least = [min(self.whole[k:]) for k in range(problem.nodes)]  # a frame of more terms holds these, too
        self.cover = [0.0]  # bytes of frames that hold k ranks' values, by k
        for k in range(1, problem.nodes + 1):
            self.cover.append(min(least[j - 1] + self.cover[k - j] for j in range(1, k + 1)))

    def solve(self) -> float:
        """Add cuts until the flow of no pair is too small."""
        rows = {*self._partitions(), *(self._cut({rank}) for rank in range(self.problem.nodes))}
        rows |= {self._cut({*range(self.problem.nodes)} - {rank}) for rank in range(self.problem.nodes)}
        for _ in range(MOST_ROUNDS):
            loads = self._loads(rows)
            new = set(self._violated(loads)) - rows
            if not new:
                break
            rows |= new
        way = max(max(row) for row in self._latencies())
        return max(float(loads[-1]), way)

    def _cut(self, ranks: set[int]) -> Row:
        out = tuple(at for at, ((i, j), _) in enumerate(self.links) if i in ranks and j not in ranks)
        return out, self.cover[len(ranks)]

    def _partitions(self) -> Iterator[Row]:
        """Yield what parts send each other: ranks that links of a rate or better hold together are a part."""
        problem, n = self.problem, self.problem.nodes
        costs = sorted({problem.port_s(link, 1.0) for _, link in self.links})
        for most in (0.0, *costs[:-1]):
            part = list(range(n))
            for (i, j), link in self.links:
                if problem.port_s(link, 1.0) <= most:
                    part = [part[j] if one == part[i] else one for one in part]
            between = tuple(at for at, ((i, j), _) in enumerate(self.links) if part[i] != part[j])
            if between:
                yield between, 2 * (len(set(part)) - 1) * min(self.whole)

    def _loads(self, rows: set[Row]) -> Any:
        """Return the bytes of each link and T, of the least T."""
        top, width = self.problem.topology, len(self.links) + 1
        matrix, limits = [], []
        for links, least in rows:
            line = np.zeros(width)
            line[list(links)] = -1
            matrix.append(line)
            limits.append(-least)
        for at, port in enumerate(top.ports):
            used = [k for k, (_, link) in enumerate(self.links) if at in (*link.out, *link.into)]
            if used:
                line = np.zeros(width)
                line[used], line[-1] = port.seconds_per_byte, -1
                matrix.append(line)
                limits.append(-min(self.links[k][1].latency_s for k in used))
        cost = np.zeros(width)
        cost[-1] = 1
        scale = self.whole[-1]  # bytes as parts of the gradient, times in milliseconds: near 1
        table = np.array(matrix)
        table[len(rows) :, :-1] *= scale * 1e3
        limits_ = np.array(limits)
        limits_[: len(rows)] /= scale
        limits_[len(rows) :] *= 1e3
        found = package("scipy.optimize").linprog(cost, table, limits_, method="highs")
        return found.x * np.array([scale] * (width - 1) + [1e-3])

    def _violated(self, loads: Any) -> Iterator[Row]:
        """Yield the least cuts between pairs that carry too little."""
        networkx = package("networkx")
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(self.problem.nodes))
        for ((i, j), _), load in zip(self.links, loads, strict=False):
            graph.add_edge(i, j, capacity=float(load))
        for i, j in permutations(range(self.problem.nodes), 2):
            value, (side, _) = networkx.minimum_cut(graph, i, j)
            row = self._cut(set(side))
            if value < row[1] * (1 - 1e-6):
                yield row

    def _latencies(self) -> list[list[float]]:
        n = self.problem.nodes
        far = np.full((n, n), np.inf)
        np.fill_diagonal(far, 0)
        for (i, j), link in self.links:
            far[i, j] = link.latency_s
        for k in range(n):
            far = np.minimum(far, far[:, [k]] + far[[k], :])
        return [[float(one) for one in row] for row in far]
