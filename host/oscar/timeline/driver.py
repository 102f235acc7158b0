"""What a board's driver does for its NIC: it gives commands, loads values, and reads sums.

A rank has one driver. It gives the commands of the rank's actions in their order, one after another. The
actions' order is also the order in which values are loaded into the NIC's memory, from the start on, and in
which final sums are read from it. Values are loaded while sums are read and commands run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numba import njit

from oscar.coding.costs import check_seconds

DESK = 3  # clocks of a driver: when it has given its last command, loaded the last row, read the last row


@dataclass(frozen=True)
class Driver:
    """What a driver takes, in seconds.

    command_s: registers of one command, from the first read to the last write. notice_s: until the driver
    sees that a command has ended, or that a frame has come. load_s, read_s: of a value into the NIC's memory,
    and out of it.
    """

    command_s: float
    notice_s: float
    load_s: float
    read_s: float

    def __post_init__(self) -> None:
        for name in ("command_s", "notice_s", "load_s", "read_s"):
            check_seconds(name, getattr(self, name))

    @property
    def costs(self) -> tuple[float, float, float, float]:
        """The fields, for `give` and `fetch`."""
        return self.command_s, self.notice_s, self.load_s, self.read_s

    def without(self, part: str) -> Driver:
        """Return the driver with 0 for `per_value_s` or `once_s`, as Engines.without does."""
        none = ("load_s", "read_s") if part == "per_value_s" else ("command_s", "notice_s")
        return replace(self, **dict.fromkeys(none, 0.0))


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
