"""A mixed-integer linear programme by named variables, solved by HiGHS (extra `schedule`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from oscar.planning.synthesis.problem import package
from oscar.planning.synthesis.symmetry import Classes

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
        found = optimize.milp(
            cost,
            integrality=np.array(self.whole),
            bounds=optimize.Bounds(0, np.array(self.upper)),
            constraints=optimize.LinearConstraint(matrix, low, high),
            options={"time_limit": limit_s, "mip_rel_gap": gap},
        )
        if found.x is None:
            return None
        return Solution(
            {name: float(found.x[at]) for name, at in self.index.items()}, float(found.mip_gap or 0)
        )

    def value(self, solution: Solution, name: object) -> float:
        """Return the value of `name`, 0 without a variable."""
        return solution.values.get(self.same.of(name), 0.0)
