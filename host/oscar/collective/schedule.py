"""The seam between what is reduced and who sends what to whom: a schedule (docs/schedules.md)."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from oscar.collective.actions import MAX_SUBFRAMES, SENDS, Action

MAX_NODES = 1024


@dataclass(frozen=True)
class Schedule(ABC):
    """One AllReduce between `nodes` ranks, each chunk cut into `subframes`, as actions of every rank.

    adopt: owners decode their own final frames, so that a lossy codec leaves all ranks identical. Equal
    schedules have equal actions. Raises ValueError for arguments out of range.

    name: in the registry. apart: sums of the second phase never hold what the first summed, and are kept
    apart from it. integers: ranks add in orders of their own, as all do that keep sums apart; only integers,
    whose addition is exact in any order, leave all ranks identical then.
    pulls_first: on a port with several frames to send, those of the all-gather go first; otherwise the order
    is that of the actions.
    """

    name: ClassVar[str]
    apart: ClassVar[bool] = False
    integers: ClassVar[bool] = False
    pulls_first: ClassVar[bool] = False

    nodes: int
    subframes: int = 1
    adopt: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MAX_NODES or not 1 <= self.subframes <= MAX_SUBFRAMES:
            raise ValueError(
                f"schedule {self.name}: expected 1 to {MAX_NODES} nodes and 1 to {MAX_SUBFRAMES} subframes, "
                f"got nodes={self.nodes}, subframes={self.subframes}"
            )

    @abstractmethod
    def actions(self, rank: int) -> Iterator[Action]:
        """Yield what `rank` does; receives are posted before anything else."""

    @property
    @abstractmethod
    def owners(self) -> tuple[int, ...]:
        """The rank that has a chunk's sum first, by chunk; of several the one in its own group."""

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Each chunk's share of the gradient, where the schedule asks for unequal ones."""
        return None

    @property
    def chunks(self) -> int:
        """Number of chunks that a plan has to make."""
        return len(self.owners)

    @property
    def most_terms(self) -> int:
        """Most workers whose values one frame sums."""
        return max(1, self.nodes - 1) if self.apart else self.nodes

    @property
    def hops(self) -> int:
        """Frames that follow each other on the longest way of a chunk, there and back."""
        return 2 * (self.nodes - 1)

    @cached_property
    def sends(self) -> tuple[int, ...]:
        """How many frames each rank sends."""
        return tuple(sum(a.op in SENDS for a in self.actions(rank)) for rank in range(self.nodes))

    def peers(self, rank: int) -> frozenset[int]:
        """Return the ranks that `rank` sends to or receives from."""
        return frozenset(action.peer for action in self.actions(rank) if action.peer >= 0)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that differ where two schedules do."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def describe(self) -> str:
        """Return one line about it."""
        return f"{self.name}, {self.nodes} ranks, {self.chunks} chunks of {self.subframes} sub-frames"
