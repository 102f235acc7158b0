"""What a board's driver does for its NIC: it gives commands, loads values, and reads sums.

A rank has one driver. It gives commands one after another. Values are loaded into the NIC's memory from the
start on, while commands run and final sums are read from it. Of direct, commands are given as values are
loaded, frames come and sums are whole; values are loaded, and sums are read, sub-frame by sub-frame
(`load_order`, `read_order`). Else all is done in the order of the rank's actions.

Or it gives all commands at once, as a list that the NIC runs by itself (nic-on-a-board.md, "A list"), and
loads values while it runs: those that count for an entry once the list is armed. Meanwhile it asks which
entries have ended, one after another. It reads sums while it asks for the next ones, and sees meanwhile that
the list has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from oscar.coding.costs import check_seconds
from oscar.collective.actions import SENDS, Op
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.kernels import njit

Part = tuple[int, int]  # chunk and sub-frame
# Seconds of a driver: until its last command is given, own values loaded, sums read, its question answered.
DESK = 4


class DriverCosts(NamedTuple):
    """What compiled code has to know of a driver: fields as of Driver."""

    command_s: float
    notice_s: float
    load_s: float
    read_s: float
    ask_s: float
    armed_s: float
    end_s: float
    packet_s: float
    by_list: bool


TIMES = tuple(name for name in DriverCosts._fields if name.endswith("_s"))


@dataclass(frozen=True)
class Listing:
    """What a list takes, in seconds, and what it may have.

    start_s, end_s: registers before it runs, and when it has ended. ask_s: registers that tell whether an
    entry has ended. entry_s: of an entry, until it is judged and armed. values: that the NIC's memory holds;
    entries: at most.
    """

    start_s: float
    end_s: float
    ask_s: float
    entry_s: float
    values: int
    entries: int

    def __post_init__(self) -> None:
        for name in ("start_s", "end_s", "ask_s", "entry_s"):
            check_seconds(name, getattr(self, name))


@dataclass(frozen=True)
class Driver:
    """What a driver takes, in seconds.

    command_s: registers of one command, from the first read to the last write. notice_s: until the driver
    sees that a command has ended, or that a frame has come. load_s, read_s: of a value into the NIC's memory,
    and out of it; packet_s: of loading a frame, beside its values. ask_s: of asking whether a frame's sums
    are whole; 0: it is told. armed_s: until a list is armed; end_s: until it is seen to have ended. by_list:
    it gives no commands, since a list has given all. listing: what a list takes, or
    None if the NIC has none.
    """

    command_s: float
    notice_s: float
    load_s: float
    read_s: float
    ask_s: float = 0.0
    armed_s: float = 0.0
    end_s: float = 0.0
    packet_s: float = 0.0
    by_list: bool = False
    listing: Listing | None = None

    def __post_init__(self) -> None:
        for name in TIMES:
            check_seconds(name, getattr(self, name))

    @property
    def costs(self) -> DriverCosts:
        """What `give` and `fetch` take."""
        seconds: dict[str, Any] = {name: float(getattr(self, name)) for name in TIMES}
        return DriverCosts(**seconds, by_list=self.by_list)

    def without(self, part: str) -> Driver:
        """Return the driver with 0 for `per_value_s` or `once_s`, as Cores.without does."""
        each = "load_s", "read_s"
        once = [name for name in TIMES if name not in each]
        none = each if part == "per_value_s" else once
        listing = self.listing
        if listing is not None and part != "per_value_s":
            listing = replace(listing, start_s=0.0, end_s=0.0, ask_s=0.0, entry_s=0.0)
        zeros: dict[str, Any] = dict.fromkeys(none, 0.0)
        return replace(self, listing=listing, **zeros)

    def listed(self, schedule: Schedule, values: int) -> Driver | None:
        """Return what loads values and reads sums while a list gives the commands; None: it cannot.

        `make sim` runs lists of rings and of direct.
        """
        listing = self.listing
        if listing is None or not 0 < values <= listing.values or not _has_list(schedule):
            return None
        entries = _entries(schedule)
        if not 0 < entries <= listing.entries:
            return None
        return replace(
            self, by_list=True, command_s=0.0, notice_s=0.0, ask_s=listing.ask_s, listing=None,
            armed_s=entries * listing.entry_s + listing.start_s, end_s=self.notice_s + listing.end_s,
        )  # fmt: skip

    def loaded(self, schedule: Schedule, rank: int, values: Mapping[Part, int]) -> dict[Part, float]:
        """Return when a rank's own values of each part are in its NIC; values: of parts that have some."""
        loaded_s, total_s = {}, 0.0
        for part in load_order(schedule, rank):
            if count := values.get(part, 0):
                total_s += count * self.load_s + self.packet_s
            loaded_s[part] = max(total_s, self.armed_s)
        return loaded_s


def goes_by_arrival(schedule: Schedule) -> bool:
    """Whether commands are given as values, frames and sums are there, not in the order of the actions."""
    return type(schedule) is Direct


def load_order(schedule: Schedule, rank: int) -> list[Part]:
    """Return the order of direct in which a rank loads chunks and sub-frames.

    Of a sub-frame that is what it sends first, then its own, to which others add, then what it sends next.
    """
    turns = *range(1, min(2, schedule.nodes)), 0, *range(2, schedule.nodes)
    return [((rank + turn) % schedule.nodes, sub) for sub in range(schedule.subframes) for turn in turns]


def read_order(schedule: Schedule, rank: int) -> list[Part]:
    """Return the order of direct in which a rank reads sums: of a sub-frame its own, then as they come."""
    turns = range(schedule.nodes)
    return [((rank - turn) % schedule.nodes, sub) for sub in range(schedule.subframes) for turn in turns]


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
    the frame's own values go into memory first. costs: DriverCosts.
    """
    if noticed:
        ready += costs.notice_s
    if loads:
        desk[1] += values * costs.load_s + costs.packet_s
        ready = max(ready, desk[1], costs.armed_s)
    if costs.by_list:
        return ready
    desk[0] = max(desk[0], ready) + costs.command_s
    return desk[0]


@njit(cache=True, nogil=True)
def fetch(desk: Any, done: float, values: int, costs: Any) -> Any:
    """Return when the host has sums that are whole at `done`; arguments as of `give`.

    A driver that asks has just asked when they are whole, and asks again.
    """
    desk[3] = max(desk[3], done + costs.notice_s + costs.ask_s) + costs.ask_s
    desk[2] = max(desk[2], desk[3]) + values * costs.read_s
    return desk[2]
