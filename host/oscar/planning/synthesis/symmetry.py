"""Which ranks of a network can change places: variables of a MILP that may be equal."""

from __future__ import annotations

from collections.abc import Iterator

from oscar.planning.synthesis.problem import RoutingProblem

Moves = list[tuple[tuple[int, ...], tuple[int, ...]]]  # rank by rank, chunk by chunk


def rotations(problem: RoutingProblem) -> Moves:
    """Return (rank by rank, chunk by chunk) of rotations that leave the network and the owners as they are.

    Tried: all ranks by a step, and the ranks inside every block of equal size by one.
    """
    found = []
    for moved in _candidates(problem.nodes):
        chunks = _chunks(problem, moved)
        if chunks is not None and _same(problem, moved):
            found.append((moved, chunks))
    return found


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
