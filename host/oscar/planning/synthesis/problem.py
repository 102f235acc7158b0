"""What a schedule is made for: a network, who owns which chunk, and how large frames are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from oscar.errors import ConfigError, needed
from oscar.timeline.topology import Link, Topology

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
        every = [whole] * n if isinstance(whole, (int, float)) else whole
        return cls(
            topology, tuple(range(n)) * per_rank, tuple(size / (n * per_rank) for size in every), values
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
        n = self.nodes
        far = [[0.0 if i == j else math.inf for j in range(n)] for i in range(n)]
        for (i, j), link in self.topology.links.items():
            far[i][j] = self.hop_s(link, self.sizes[-1])
        for k in range(n):
            for i in range(n):
                for j in range(n):
                    far[i][j] = min(far[i][j], far[i][k] + far[k][j])
        return tuple(map(tuple, far))

    def turned(self) -> RoutingProblem:
        """Return the problem with all links reversed: a gather there is a reduce here, backwards."""
        top = self.topology
        links = {(j, i): Link(link.latency_s, link.into, link.out) for (i, j), link in top.links.items()}
        turned = Topology(top.nodes, top.ports, links, top.kind, top.text, top.message_s)
        return RoutingProblem(turned, self.owners, self.sizes, self.values)


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
