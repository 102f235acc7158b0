"""What a board's driver does for its NIC: it gives commands, loads values, and reads sums.

A rank has one driver. It gives the commands of the rank's actions in their order, one after another. The
actions' order is also the order in which values are loaded into the NIC's memory, from the start on, and in
which final sums are read from it. Values are loaded while sums are read and commands run.

Or it gives all commands at once, as a list that the NIC runs by itself (docs/hardware.md, "A list"): when all
values are loaded. It reads the sums when the list has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from numba import njit

from oscar.coding.costs import check_seconds
from oscar.collective.actions import SENDS, Op
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct

DESK = 3  # clocks of a driver: when it has given its last command, loaded the last row, read the last row


@dataclass(frozen=True)
class Listing:
    """What a list takes, in seconds, and what it may have.

    start_s, end_s: registers before it runs, and when it has ended. entry_s: of an entry, until it is judged
    and armed. values: that the NIC's memory holds; entries: at most.
    """

    start_s: float
    end_s: float
    entry_s: float
    values: int
    entries: int

    def __post_init__(self) -> None:
        for name in ("start_s", "end_s", "entry_s"):
            check_seconds(name, getattr(self, name))


class Listed(NamedTuple):
    """Seconds of an AllReduce by a list, before its first command and behind its last."""

    before_s: float
    after_s: float


@dataclass(frozen=True)
class Driver:
    """What a driver takes, in seconds.

    command_s: registers of one command, from the first read to the last write. notice_s: until the driver
    sees that a command has ended, or that a frame has come. load_s, read_s: of a value into the NIC's memory,
    and out of it. listing: what a list takes; None: the NIC has none.
    """

    command_s: float
    notice_s: float
    load_s: float
    read_s: float
    listing: Listing | None = None

    def __post_init__(self) -> None:
        for name in ("command_s", "notice_s", "load_s", "read_s"):
            check_seconds(name, getattr(self, name))

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """The fields, for `give` and `fetch`."""
        return self.command_s, self.notice_s, self.load_s, self.read_s

    def without(self, part: str) -> Driver:
        """Return the driver with 0 for `per_value_s` or `once_s`, as Cores.without does."""
        none = ("load_s", "read_s") if part == "per_value_s" else ("command_s", "notice_s")
        listing = self.listing
        if listing is not None and part != "per_value_s":
            listing = replace(listing, start_s=0.0, end_s=0.0, entry_s=0.0)
        return replace(self, listing=listing, **dict.fromkeys(none, 0.0))

    def listed(self, schedule: Schedule, values: int) -> Listed | None:
        """Return what an AllReduce of so many values takes by a list beside its commands; None: it has none.

        `make sim` runs lists of rings and of direct.
        """
        listing = self.listing
        if listing is None or not 0 < values <= listing.values or not _has_list(schedule):
            return None
        entries = _entries(schedule)
        if entries > listing.entries:
            return None
        before = values * self.load_s + entries * listing.entry_s + listing.start_s
        return Listed(before, self.notice_s + listing.end_s + values * self.read_s)


def _has_list(schedule: Schedule) -> bool:
    return type(schedule) is Direct or (isinstance(schedule, Ring) and not schedule.apart)


@lru_cache(maxsize=64)
def _entries(schedule: Schedule) -> int:
    """Return the commands of a rank: a frame that goes to several is one."""
    actions = list(schedule.actions(0))
    sent = {(a.phase, a.chunk, a.sub) for a in actions if a.op in SENDS}
    return len(sent) + sum(a.op is Op.WAIT for a in actions)


@njit(cache=True, nogil=True)
def give(desk: Any, ready: float, values: int, noticed: bool, loads: bool, costs: Any) -> Any:
    """Return when a command has been given, whose input is there at `ready`; keeps `desk` up to date.

    desk: float64 [DESK]. values: of its frame. noticed: the driver has to see that its input is there. loads:
    the frame's own values go into memory first. costs: the fields of Driver.
    """
    command, notice, load, _ = costs
    if noticed:
        ready += notice
    if loads:
        desk[1] += values * load
        ready = max(ready, desk[1])
    desk[0] = max(desk[0], ready) + command
    return desk[0]


@njit(cache=True, nogil=True)
def fetch(desk: Any, done: float, values: int, costs: Any) -> Any:
    """Return when the host has sums that are whole at `done`; arguments as of `give`."""
    desk[2] = max(desk[2], done + costs[1]) + values * costs[3]
    return desk[2]
