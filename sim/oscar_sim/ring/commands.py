"""A node's part of the host's schedule as commands of oscar_nic, and which table sets they use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule

ENCODE, HOP, LAST_HOP, ADOPT = 0b0100, 0b1111, 0b1011, 0b1001  # decode, add, encode, keep from bit 0


@dataclass(frozen=True)
class Command:
    """A frame in (`source`), a frame out (`target`), or both. forward: the frame that comes is passed on."""

    code: int
    chunk: int
    source: Action | None = None
    target: Action | None = None
    forward: int = -1


def commands(rank: int, schedule: Schedule) -> Iterator[Command]:
    """Yield the commands of `rank`, in the order of the host's actions."""
    received: Action | None = None  # decoded and added, to be encoded again or not
    forward = -1
    for action in schedule.actions(rank):
        if action.op is Op.DECODE_ADD:
            received = action
        elif action.op is Op.ENCODE:
            pass
        elif action.op is Op.SEND:
            if received is not None and not received.terms & action.terms:
                yield _last(received)  # the boomerang starts with local values, not with the sum
                received = None
            code = ENCODE if received is None else HOP
            yield Command(code, action.chunk, received, action)
            received = None
        elif action.op is Op.FORWARD:
            forward = action.peer
        elif action.op is Op.DECODE:
            yield Command(ADOPT, action.chunk, action, forward=forward)
            forward = -1
        elif received is not None and action.op is Op.WAIT:
            yield _last(received)
            received = None
    if received is not None:
        yield _last(received)


def _last(received: Action) -> Command:
    """Return the command for a sum that stays here: a final one, or a residual."""
    code = LAST_HOP if received.phase is Phase.REDUCE_SCATTER else ADOPT
    return Command(code, received.chunk, received)


@dataclass
class Tables:
    """Which set one of a link's tables has, and how many frames were coded with it."""

    number: int
    sequence: int


class TableSets:
    """The driver's book of table sets: a number for each table of each link, a free one to save into.

    Frames of one phase from one source are a link: those that this node makes, and those it gets.
    """

    def __init__(self, sets: int) -> None:
        self.free = list(range(sets))
        self.held: dict[tuple[Phase, int], dict[int, Tables]] = defaultdict(dict)

    def load(self, frame: Action) -> tuple[int | None, int]:
        """Return the set to load and the sequence number; at first the nearest lower table's set, or None."""
        tables = self.held[frame.phase, frame.source]
        if own := tables.get(frame.table):
            return own.number, own.sequence
        lower = max((table for table in tables if table < frame.table), default=None)
        return None if lower is None else tables[lower].number, 0

    def reserve(self) -> int:
        """Return a free number to save into."""
        if not self.free:
            raise ValueError("all table sets are taken: build the NIC with more")
        return self.free.pop()

    def commit(self, frame: Action, number: int) -> None:
        """The command was done: `number` is the table's set, the one before is free."""
        tables = self.held[frame.phase, frame.source]
        own = tables.get(frame.table)
        if own is not None:
            self.free.append(own.number)
        tables[frame.table] = Tables(number, 1 if own is None else own.sequence + 1)
