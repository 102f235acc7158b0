"""The redundant schedule: several ranks can compute each task, and nobody waits for a slow one.

docs/reference/schedules.md, "Redundant tasks". `oscar.reducers.tasks` runs it. The actions here are
those of ranks that are equally fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule

MAX_PIECES = 64
MOST_PIECES = 8  # by default


def usual_pieces(nodes: int) -> int:
    """Return one task of a part for each other rank, so that all share its work; MOST_PIECES at most."""
    return max(1, min(nodes - 1, MOST_PIECES))


@dataclass(frozen=True)
class Redundant(Schedule):
    """An AllReduce in one hop: every rank sends its integers to all others, and all add.

    An iteration has nodes * pieces *tasks*. Rank r computes those of its *part*, pieces * r and the following
    ones. copies - 1 other ranks can compute each of them in its place. The backups of a part are spread over
    the other ranks, so that all share the work of a slow rank.

    copies: ranks that can compute a task, 1 to nodes. pieces: tasks of a rank's part, 1 to MAX_PIECES.

    >>> from oscar.collective.schedules import make_schedule
    >>> schedule = make_schedule("redundant", 4, copies=2)
    >>> schedule.tasks, schedule.ranks_of(0), schedule.ranks_of(1)
    (12, (0, 1), (0, 2))
    """

    name: ClassVar[str] = "redundant"
    integers: ClassVar[bool] = True

    copies: int = 2
    pieces: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.copies <= self.nodes:
            raise ValueError(
                f"schedule redundant: expected copies of 1 to {self.nodes}, the ranks, got {self.copies}; "
                "set schedule.copies to such a number"
            )
        if not 1 <= self.pieces <= MAX_PIECES:
            raise ValueError(f"schedule redundant: expected pieces of 1 to {MAX_PIECES}, got {self.pieces}")
        if self.adopt:
            raise ValueError("schedule redundant: expected a lossless codec; take direct or ring")

    @property
    def owners(self) -> tuple[int, ...]:
        return (0,)

    @property
    def hops(self) -> int:
        return 1 if self.nodes > 1 else 0

    @property
    def tasks(self) -> int:
        """Number of tasks of an iteration."""
        return self.nodes * self.pieces

    def ranks_of(self, task: int) -> tuple[int, ...]:
        """Return the ranks that can compute `task`: first the rank whose part it is of."""
        n, (first, piece) = self.nodes, divmod(task, self.pieces)
        others = [(first + 1 + (piece + turn) % (n - 1)) % n for turn in range(self.copies - 1)]
        return first, *others

    def part(self, rank: int) -> range:
        """Return the tasks of the rank's own part."""
        return range(rank * self.pieces, (rank + 1) * self.pieces)

    @cached_property
    def _backups(self) -> dict[int, list[int]]:
        tasks: dict[int, list[int]] = {rank: [] for rank in range(self.nodes)}
        by_turn = [self.ranks_of(task) for task in range(self.tasks)]
        for turn in range(1, self.copies):
            for task, ranks in enumerate(by_turn):
                tasks[ranks[turn]].append(task)
        return tasks

    def backups(self, rank: int) -> list[int]:
        """Return the tasks of other ranks' parts that `rank` can compute, in the order in which it does."""
        return self._backups[rank]

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions. Each part is one frame; nobody is slow, so there are no copies."""
        n, subs = self.nodes, range(self.subframes)
        sources = [(rank - step - 1) % n for step in range(n - 1)]
        if n == 1:
            return
        for sub in subs:
            for step, source in enumerate(sources):
                yield self._action(Op.POST_RECV, step, sub, source, peer=source)
        for sub in subs:
            yield self._action(Op.ENCODE, 0, sub, rank)
            for step in range(n - 1):
                yield self._action(Op.SEND, step, sub, rank, peer=(rank + step + 1) % n)
        for sub in subs:
            for step, source in enumerate(sources):
                yield self._action(Op.WAIT, step, sub, source, peer=source)
                yield self._action(Op.DECODE_ADD, step, sub, source)

    def _action(self, op: Op, step: int, sub: int, source: int, *, peer: int = -1) -> Action:
        return Action(op, Phase.REDUCE_SCATTER, step, 0, sub, peer, source, terms=1 << source)
