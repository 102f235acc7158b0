"""The driver's book of a direction's table sets: which holds which table of which link."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from oscar.collective.actions import Phase
from oscar.errors import ConfigError


class Link(NamedTuple):
    """An end of a link. rank: who encodes what comes; who gets what goes, -1 for all."""

    phase: Phase
    rank: int


class Tables(NamedTuple):
    """What a command says about tables."""

    load: int
    save: int
    fresh: bool
    sequence: int


@dataclass
class _Held:
    number: int
    frames: int


class TableSets:
    """Numbers of sets by link and table. A set learns in place: a command that fails leaves it as it was."""

    def __init__(self, sets: int) -> None:
        self.sets = sets
        self.held: dict[Link, dict[int, _Held]] = defaultdict(dict)
        self.used = 0

    def take(self, link: Link, table: int) -> Tables:
        """Return what the next frame of a table is coded with; it counts as coded.

        A table without a set starts from that of the nearest lower one, as on the host.
        Raises ConfigError when there are no more sets.
        """
        tables = self.held[link]
        if own := tables.get(table):
            sequence, own.frames = own.frames, own.frames + 1 & 0xFFFF
            return Tables(own.number, own.number, fresh=False, sequence=sequence)
        if self.used == self.sets:
            raise ConfigError(f"the NIC's {self.sets} table sets are taken: build it with more")
        lower = max((known for known in tables if known < table), default=None)
        number, self.used = self.used, self.used + 1
        tables[table] = _Held(number, 1)
        if lower is None:
            return Tables(0, number, fresh=True, sequence=0)
        return Tables(tables[lower].number, number, fresh=False, sequence=0)
