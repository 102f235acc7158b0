"""The contract of schedules: who sends which chunk to whom, and when (docs/reference/schedules.md)."""

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
    """An AllReduce as the actions of every rank. Equal schedules have equal actions.

    Of a class:

    Attributes:
        nodes: Number of ranks.
        subframes: Sub-frames of each chunk.
        adopt: Owners decode their own final frames, so that a lossy codec leaves all ranks identical.
        name: Name in the registry.
        apart: Sums of the all-gather contain no sum of the reduce-scatter and are kept apart from it.
        integers: Ranks add in different orders, so only integers leave all ranks identical; True wherever
            `apart` is.
        alike: Turning all ranks and chunks by one leaves it as it is.
        pulls_first: A port with several frames to send sends frames of the all-gather first; otherwise it
            sends in the order of the actions.

    Raises:
        ValueError: For arguments out of range.

    >>> from oscar.collective.schedules import make_schedule
    >>> schedule = make_schedule("direct", 4)
    >>> schedule.owners, schedule.hops
    ((0, 1, 2, 3), 2)
    >>> next(iter(schedule.actions(0))).op.name
    'POST_RECV'
    """

    name: ClassVar[str]
    apart: ClassVar[bool] = False
    integers: ClassVar[bool] = False
    alike: ClassVar[bool] = False
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
        """Yield the actions of `rank`; it posts all receives first."""

    @property
    @abstractmethod
    def owners(self) -> tuple[int, ...]:
        """The rank that first has the whole sum of a chunk, by chunk. Ties: the rank in the chunk's group."""

    @property
    def shares(self) -> tuple[float, ...] | None:
        """Each chunk's share of the gradient; None for equal shares."""
        return None

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self.owners)

    @property
    def valued(self) -> int:
        """How many ranks have values of their own, the first ones; the others add for them."""
        return self.nodes

    @property
    def most_terms(self) -> int:
        """Largest number of workers whose values one frame sums."""
        return max(1, self.nodes - 1) if self.apart else self.valued

    @property
    def hops(self) -> int:
        """Frames in sequence on the longest way of a chunk, through both phases."""
        return 2 * (self.nodes - 1)

    @cached_property
    def sends(self) -> tuple[int, ...]:
        """Number of frames that each rank sends."""
        return tuple(sum(a.op in SENDS for a in self.actions(rank)) for rank in range(self.nodes))

    def peers(self, rank: int) -> frozenset[int]:
        """Return the ranks with which `rank` exchanges frames."""
        return frozenset(action.peer for action in self.actions(rank) if action.peer >= 0)

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that identify the schedule."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:16]

    def describe(self) -> str:
        """Return one line that describes the schedule."""
        return f"{self.name}, {self.nodes} ranks, {self.chunks} chunks of {self.subframes} sub-frames"
