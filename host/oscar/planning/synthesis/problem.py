"""What a schedule is made for, and a lower bound on its time.

A problem is a network, who owns which chunk, and how large frames are. The bound is what must cross every
cut, and every port, whatever the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import numpy as np

from oscar.errors import ConfigError, needed
from oscar.timeline.engine import Floats
from oscar.timeline.topology import Link, Pair, Topology

Distances = tuple[tuple[float, ...], ...]
package = partial(needed, purpose="making a schedule", extra="schedule")  # imports scipy or networkx


@dataclass(frozen=True)
class RoutingProblem:
    """An AllReduce over `topology`.

    owners: rank by chunk; a rank may own several. sizes: bytes of a chunk's frame by how many workers' values
    it sums, 1 .. N; all equal for values that are not coded. values: of the
    gradient, for a codec's time; 0: as many as fp32 would have. Raises ConfigError where a rank cannot reach
    another, ValueError for owners or sizes out of range.
    """

    topology: Topology
    owners: tuple[int, ...]
    sizes: tuple[float, ...]
    values: int = 0

    def __post_init__(self) -> None:
        n = self.nodes
        if not self.owners or not all(0 <= owner < n for owner in self.owners):
            raise ValueError(f"owners: expected ranks of 0 to {n - 1}, one for each chunk, got {self.owners}")
        if len(self.sizes) != n or not all(math.isfinite(size) and size > 0 for size in self.sizes):
            raise ValueError(f"sizes: expected bytes of frames of 1 to {n} workers, got {self.sizes}")
        _check_connected(self.topology)

    @classmethod
    def of(
        cls, topology: Topology, whole: float | Sequence[float], *, per_rank: int = 1, values: int = 0
    ) -> RoutingProblem:
        """Return the problem where each rank owns `per_rank` chunks.

        whole: bytes of the whole gradient as one frame, for 1 .. N workers, or one number for all.
        """
        n = topology.nodes
        if per_rank < 1:
            raise ValueError(f"per_rank: expected 1 chunk or more for each rank, got {per_rank}")
        sizes = [whole] * n if isinstance(whole, (int, float)) else whole
        return cls(
            topology, tuple(range(n)) * per_rank, tuple(size / (n * per_rank) for size in sizes), values
        )

    @property
    def nodes(self) -> int:
        """Number of ranks."""
        return self.topology.nodes

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.owners)

    @property
    def equal(self) -> bool:
        """Whether a frame is as large whatever it sums."""
        return len(set(self.sizes)) == 1

    def frame_bytes(self, terms: int, chunks: int | None = None) -> float:
        """Return the bytes of a frame that sums `terms` workers, if the gradient is cut into `chunks`."""
        return self.sizes[terms - 1] * self.chunks / (chunks or self.chunks)

    def hop_s(self, link: Link, size: float) -> float:
        """Return how long `size` bytes take over an idle link."""
        return link.latency_s + self.port_s(link, size)

    def port_s(self, link: Link, size: float) -> float:
        """Return how long `size` bytes occupy the slowest port of a link."""
        ports = self.topology.ports
        rates = (ports[at].seconds_per_byte for at in (*link.out, *link.into))
        return self.topology.message_s + size * max(rates, default=0.0)

    @cached_property
    def distances(self) -> Distances:
        """Seconds from rank to rank on the fastest way through an idle network, a whole sum."""
        links = self.topology.links
        far = _shortest(self.nodes, {pair: self.hop_s(link, self.sizes[-1]) for pair, link in links.items()})
        return tuple(map(tuple, far.tolist()))

    def turned(self) -> RoutingProblem:
        """Return the problem with all links reversed: a gather there is a reduce here, backwards."""
        top = self.topology
        links = {(j, i): Link(link.latency_s, link.into, link.out) for (i, j), link in top.links.items()}
        turned = Topology(top.nodes, top.ports, links, top.kind, top.text, top.message_s)
        return RoutingProblem(turned, self.owners, self.sizes, self.values)


def _shortest(n: int, hops: dict[Pair, float]) -> Floats:
    """Return the length of the shortest way from rank to rank, float64 [n, n] (Floyd-Warshall)."""
    far = np.full((n, n), np.inf)
    np.fill_diagonal(far, 0)
    for pair, length in hops.items():
        far[pair] = length
    for k in range(n):
        far = np.minimum(far, far[:, [k]] + far[[k], :])
    return far


def _check_connected(topology: Topology) -> None:
    """Raise ConfigError naming a pair of ranks between which nothing can pass."""
    ways: dict[int, list[int]] = {}
    for i, j in topology.links:
        ways.setdefault(i, []).append(j)
    for start in range(topology.nodes):
        reached, todo = {start}, [start]
        while todo:
            new = set(ways.get(todo.pop(), ())) - reached
            reached |= new
            todo += new
        missing = set(range(topology.nodes)) - reached
        if missing:
            raise ConfigError(
                f"topology: expected a way from every rank to every other, but rank {start} cannot reach "
                f"rank {min(missing)}; add a link on the way between them"
            )


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
        farthest = _shortest(self.problem.nodes, {pair: link.latency_s for pair, link in self.links}).max()
        return max(float(loads[-1]), float(farthest))

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
        result = package("scipy.optimize").linprog(cost, table, limits_, method="highs")
        return result.x * np.array([scale] * (width - 1) + [1e-3])

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
