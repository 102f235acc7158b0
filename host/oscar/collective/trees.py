"""The built-in tree schedules: direct, hierarchical, star and switch (docs/reference/schedules.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from oscar.collective.actions import Phase
from oscar.collective.routes import Leg, Routed, Routes, Transfer


@dataclass(frozen=True)
class Direct(Routed):
    """Every rank sends each chunk directly to its owner; the owner adds, codes once and sends to all.

    Rank r sends to r+1, r+2, and so on: at every step each port sends one frame and receives one.
    """

    name: ClassVar[str] = "direct"
    alike: ClassVar[bool] = True

    @cached_property
    def routes(self) -> Routes:
        n = self.nodes
        turns = [(rank, (rank + step) % n) for step in range(1, n) for rank in range(n)]
        push = tuple(Transfer(peer, rank, peer) for rank, peer in turns)
        pull = tuple(Transfer(rank, rank, peer) for rank, peer in turns)
        return Routes(n, tuple(range(n)), push, pull)

    @property
    def owners(self) -> tuple[int, ...]:
        return tuple(range(self.nodes))

    @property
    def hops(self) -> int:
        return 2 if self.nodes > 1 else 0

    @cached_property
    def born(self) -> tuple[tuple[int, int], ...]:
        return ((1, 0),) * self.nodes

    @cached_property
    def spread(self) -> int:
        return 1

    def legs_of(self, rank: int) -> tuple[list[Leg], list[Leg]]:
        """See Routed.legs_of. This makes one rank's legs only: 1,024 ranks together have two million."""
        n, all_terms = self.nodes, (1 << self.nodes) - 1
        there: list[Leg] = []
        back: list[Leg] = []
        for step in range(n - 1):
            to, source = (rank + step + 1) % n, (rank - step - 1) % n
            for a, b in ((rank, to), (source, rank)):
                there.append(Leg(Phase.REDUCE_SCATTER, Transfer(b, a, b), step, 0, 1 << a, 1))
                back.append(Leg(Phase.ALL_GATHER, Transfer(a, a, b), step, 1, all_terms, 1))
        return there, back


@dataclass(frozen=True)
class Star(Routed):
    """The gradient is one chunk, which rank `root` adds for all."""

    name: ClassVar[str] = "star"

    root: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.root < self.nodes:
            raise ValueError(
                f"schedule star: expected a root of 0 to {self.nodes - 1}, got {self.root}; "
                "set schedule.root to one of these ranks"
            )

    @cached_property
    def routes(self) -> Routes:
        others = [(self.root + step) % self.nodes for step in range(1, self.nodes)]
        push = tuple(Transfer(0, rank, self.root) for rank in others)
        pull = tuple(Transfer(0, self.root, rank) for rank in others)
        return Routes(self.nodes, (self.root,), push, pull)


@dataclass(frozen=True)
class Switch(Routed):
    """The last `slices` ranks are in the switch: each owns a chunk, and adds what all others send it.

    A slice has no values of its own. Rank r begins with chunk r, so that ranks meet late at a slice.
    """

    name: ClassVar[str] = "switch"

    slices: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.slices < self.nodes:
            raise ValueError(
                f"schedule switch: expected slices of 1 to {self.nodes - 1}, got {self.slices}; they are "
                f"the last ones of {self.nodes} ranks"
            )

    @property
    def valued(self) -> int:
        return self.nodes - self.slices

    def describe(self) -> str:
        """See Schedule.describe."""
        parts = f"{self.chunks} chunks of {self.subframes} sub-frames"
        return f"{self.name}, {self.valued} ranks and {self.slices} slices, {parts}"

    @cached_property
    def routes(self) -> Routes:
        ranks, slices = range(self.valued), range(self.slices)
        turns = [((rank + turn) % self.slices, rank) for turn in slices for rank in ranks]
        push = tuple(Transfer(chunk, rank, self.valued + chunk) for chunk, rank in turns)
        pull = tuple(Transfer(chunk, self.valued + chunk, rank) for chunk in slices for rank in ranks)
        return Routes(self.nodes, tuple(range(self.valued, self.nodes)), push, pull)


@dataclass(frozen=True)
class Hierarchical(Routed):
    """Groups of `group` consecutive ranks: each group sums directly, then groups send to the owners.

    In every group one rank, the owner's counterpart, collects a chunk and sends the group's sum to the owner.
    A link between groups so carries each chunk once in each direction. Chunks of other groups' owners are
    collected first. The last group may be smaller.
    """

    name: ClassVar[str] = "hierarchical"

    group: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.group <= self.nodes:
            raise ValueError(
                f"schedule hierarchical: expected groups of 1 to {self.nodes} ranks, got {self.group}; "
                "set schedule.group to such a number, or to null for about the root of the ranks"
            )

    @cached_property
    def routes(self) -> Routes:
        n, g = self.nodes, self.group
        groups = [range(first, min(n, first + g)) for first in range(0, n, g)]
        inside: list[Transfer] = []
        away: list[Transfer] = []
        between: list[Transfer] = []
        for turn in range(1, n):
            for rank in range(n):
                chunk = (rank + turn) % n  # owned by the rank of that number
                home, local = groups[chunk // g], groups[rank // g]
                collector = chunk if local is home else local[chunk % g % len(local)]
                if rank != collector:
                    (inside if local is home else away).append(Transfer(chunk, rank, collector))
                elif local is not home:
                    between.append(Transfer(chunk, rank, chunk))
        turned = [Transfer(t.chunk, t.receiver, t.sender) for t in (*between, *inside, *away)]
        return Routes(n, tuple(range(n)), (*away, *inside, *between), tuple(turned))
