"""A mixed-integer linear programme by named variables, solved by HiGHS (extra `schedule`).

Variables that a symmetry of the network makes equal are one variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from oscar.planning.synthesis.problem import RoutingProblem, package

GAP = 0.005  # of the objective: routes are judged by replay, the last percent is not worth minutes


class Solution(NamedTuple):
    """values: by name. gap: of the objective to its bound."""

    values: dict[object, float]
    gap: float


class MilpModel:
    """Collects variables and rows; names of one class (`same`) are one variable."""

    def __init__(self, same: Classes | None = None) -> None:
        self.same = same or Classes()
        self.index: dict[object, int] = {}
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.rows: dict[tuple[tuple[tuple[int, float], ...], float, float], None] = {}

    def variable(self, name: object, upper: float = math.inf, *, whole: bool = False) -> None:
        """Add a variable of 0 .. upper, if its class has none yet."""
        name = self.same.of(name)
        if name not in self.index:
            self.index[name] = len(self.index)
            self.upper.append(upper)
            self.whole.append(int(whole))

    def row(self, terms: Mapping[Any, float], low: float, high: float = math.inf) -> None:
        """Demand low <= sum of weight * variable <= high; the same row twice counts once."""
        sums: dict[int, float] = {}
        for name, weight in terms.items():
            at = self.index[self.same.of(name)]
            sums[at] = sums.get(at, 0.0) + weight
        self.rows[tuple(sorted((at, w) for at, w in sums.items() if w)), low, high] = None

    def solve(self, minimise: Mapping[Any, float], limit_s: float, gap: float = GAP) -> Solution | None:
        """Return the best found in `limit_s` seconds, to `gap` of the best there is; None for none."""
        if limit_s <= 0:
            return None
        optimize, sparse = package("scipy.optimize"), package("scipy.sparse")
        entries = [(at, i, w) for i, (terms, _, _) in enumerate(self.rows) for at, w in terms]
        columns, rows, weights = (np.array(part) for part in zip(*entries, strict=True))
        shape = len(self.rows), len(self.index)
        matrix = sparse.csr_matrix((weights, (rows, columns)), shape=shape)
        low, high = (np.array([row[k] for row in self.rows]) for k in (1, 2))
        cost = np.zeros(len(self.index))
        for name, weight in minimise.items():
            cost[self.index[self.same.of(name)]] = weight
        result = optimize.milp(
            cost,
            integrality=np.array(self.whole),
            bounds=optimize.Bounds(0, np.array(self.upper)),
            constraints=optimize.LinearConstraint(matrix, low, high),
            options={"time_limit": limit_s, "mip_rel_gap": gap},
        )
        if result.x is None:
            return None
        return Solution(
            {name: float(result.x[at]) for name, at in self.index.items()}, float(result.mip_gap or 0)
        )

    def value(self, solution: Solution, name: object) -> float:
        """Return the value of `name`, 0 without a variable."""
        return solution.values.get(self.same.of(name), 0.0)


Moves = list[tuple[tuple[int, ...], tuple[int, ...]]]  # rank by rank, chunk by chunk


def rotations(problem: RoutingProblem) -> Moves:
    """Return (rank by rank, chunk by chunk) of rotations that leave the network and the owners as they are.

    Tried: all ranks by a step, and the ranks inside every block of equal size by one.
    """
    result = []
    for moved in _candidates(problem.nodes):
        chunks = _chunks(problem, moved)
        if chunks is not None and _same(problem, moved):
            result.append((moved, chunks))
    return result


def _candidates(n: int) -> Iterator[tuple[int, ...]]:
    for step in range(1, n):
        if n % step == 0:
            yield tuple((rank + step) % n for rank in range(n))
    for size in range(2, n):
        if n % size == 0:
            yield tuple(rank - rank % size + (rank + 1) % size for rank in range(n))


def _chunks(problem: RoutingProblem, moved: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return where each chunk goes: the k-th of an owner is the k-th of the other; None if there is none."""
    of = [[c for c, owner in enumerate(problem.owners) if owner == rank] for rank in range(problem.nodes)]
    if any(len(of[rank]) != len(of[moved[rank]]) for rank in range(problem.nodes)):
        return None
    return tuple(of[moved[owner]][of[owner].index(c)] for c, owner in enumerate(problem.owners))


def _same(problem: RoutingProblem, moved: tuple[int, ...]) -> bool:
    """Whether links and the ports that they share are the same after the move."""
    top = problem.topology
    ports: dict[int, int] = {}
    for (i, j), link in top.links.items():
        other = top.links.get((moved[i], moved[j]))
        if other is None or other.latency_s != link.latency_s:
            return False
        for mine, theirs in ((link.out, other.out), (link.into, other.into)):
            if len(mine) != len(theirs):
                return False
            for a, b in zip(mine, theirs, strict=True):
                same_rate = top.ports[a].seconds_per_byte == top.ports[b].seconds_per_byte
                if not same_rate or ports.setdefault(a, b) != b:
                    return False
    return len(set(ports.values())) == len(ports)


class Classes:
    """Keys that stand for one thing (union-find)."""

    def __init__(self) -> None:
        self.parent: dict[object, object] = {}

    def join(self, one: object, other: object) -> None:
        """Make both stand for the same."""
        self.parent[self.of(one)] = self.of(other)

    def of(self, key: object) -> object:
        """Return the key that stands for `key`."""
        while self.parent.get(key, key) != key:
            key = self.parent[key]
        return key
