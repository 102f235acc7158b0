"""In which order the owners of a schedule add: what floats' sums depend on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from oscar.collective.actions import Op
from oscar.collective.schedule import Schedule

Tree = Any  # a rank, or a pair of trees: (what a rank held, what it then added)


@lru_cache(maxsize=32)
def association(schedule: Schedule) -> tuple[Tree, ...]:
    """Return, for each chunk, in which order its owner's sum is added: a rank, or a pair (held, added).

    Floats added in this order have the bits that the owner has. The tree of a ring is as deep as it has
    ranks; `add_up` needs no recursion. Raises ValueError for schedules of integers only, and for a deadlock.
    """
    if schedule.integers:
        raise ValueError(
            f"expected a schedule whose owners add, got {schedule.name}: each rank adds its own way"
        )
    ranks = range(schedule.nodes)
    sums: dict[tuple[int, int], Tree] = {
        (rank, chunk): rank for rank in ranks for chunk in range(schedule.chunks)
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
                    sums[rank, action.chunk] = (sums[rank, action.chunk], coded[action.source, action.chunk])
                else:
                    break
                at[rank], moved = at[rank] + 1, True
    if any(place < len(program) for place, program in zip(at, programs, strict=True)):
        raise ValueError(f"schedule {schedule.name} deadlocks; oscar.collective.check says where")
    return tuple(sums[owner, chunk] for chunk, owner in enumerate(schedule.owners))


def add_up(tree: Tree, values: Sequence[Any]) -> Any:
    """Return the sum of `values`, by rank, in the order of a tree of `association`."""
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
