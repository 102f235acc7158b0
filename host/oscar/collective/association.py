"""The order in which the owners of a schedule add: sums of floats depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from oscar.collective.actions import Op
from oscar.collective.schedule import Schedule

Tree = Any  # a rank, or a pair of trees: (sum that a rank held, sum that it added)


@lru_cache(maxsize=32)
def association(schedule: Schedule) -> tuple[Tree, ...]:
    """Return the order of additions that leads to each chunk's sum, as a tree by chunk.

    A tree is a rank, or a pair (held, added) of trees. Floats added in this order equal the owner's sum bit
    for bit. A ring's tree is as deep as the ring has ranks; `add_up` walks it without recursion.
    Raises ValueError for a schedule that is for integers only, and for a schedule that deadlocks.

    >>> from oscar.collective.schedules import make_schedule
    >>> association(make_schedule("ring", 3))
    ((2, (1, 0)), (0, (2, 1)), (1, (0, 2)))
    """
    if schedule.integers:
        raise ValueError(
            f"expected a schedule whose owners add, got {schedule.name}: each rank adds its own way"
        )
    ranks = range(schedule.nodes)
    sums: dict[tuple[int, int], Tree] = {
        (rank, chunk): rank if rank < schedule.valued else None
        for rank in ranks
        for chunk in range(schedule.chunks)
    }
    coded: dict[tuple[int, int], Tree] = {}
    programs = [
        [
            a
            for a in schedule.actions(rank)
            if not a.phase and not a.sub and a.op in (Op.ENCODE, Op.DECODE_ADD)
        ]
        for rank in ranks
    ]
    at, moved = [0] * schedule.nodes, True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            for action in program[at[rank] :]:
                if action.op is Op.ENCODE:
                    coded[rank, action.chunk] = sums[rank, action.chunk]
                elif (action.source, action.chunk) in coded:
                    own, came = sums[rank, action.chunk], coded[action.source, action.chunk]
                    sums[rank, action.chunk] = came if own is None else (own, came)
                else:
                    break
                at[rank], moved = at[rank] + 1, True
    if any(place < len(program) for place, program in zip(at, programs, strict=True)):
        raise ValueError(f"schedule {schedule.name} deadlocks; oscar.collective.check says where")
    return tuple(sums[owner, chunk] for chunk, owner in enumerate(schedule.owners))


def add_up(tree: Tree, values: Sequence[Any]) -> Any:
    """Return the sum of `values` (by rank), added in the order of a tree from `association`."""
    stack: list[Tree] = [tree]
    sums: list[Any] = []
    while stack:
        top = stack.pop()
        if top is None:
            added = sums.pop()
            sums.append(sums.pop() + added)
        elif isinstance(top, tuple):
            stack += [None, top[1], top[0]]
        else:
            sums.append(values[top])
    return sums[0]
