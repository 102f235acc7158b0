"""When a NIC's units work, and when each of its commands began and ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from oscar_hdl.nic.ports import NicProbe
from oscar_sim.driver.nic_driver import Command

JOINED = 32  # clocks between two rows that are of one span of work


class Work(NamedTuple):
    """When units decode or encode, from the first row to the last one."""

    what: str
    begin: int
    end: int


class UnitWork:
    """Spans in which a NIC's units decode, and encode, as its strobes tell."""

    def __init__(self, probe: NicProbe) -> None:
        self.probe = probe
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.spans: list[Work] = []
        self._last: dict[str, int] = {}  # of each kind, the number of its last span

    def tick(self, clock: int) -> None:
        """One rising edge."""
        for what, strobe in (("decode", self.probe.decode_row), ("encode", self.probe.encode_row)):
            if not strobe:
                continue
            last = self._last.get(what)
            if last is not None and clock - self.spans[last].end <= JOINED:
                self.spans[last] = self.spans[last]._replace(end=clock)
            else:
                self._last[what] = len(self.spans)
                self.spans.append(Work(what, clock, clock))


def shares(commands: Sequence[Command]) -> list[tuple[int, list[Command]]]:
    """Return for each command how long its direction of the NIC worked, and the commands this was for.

    The time runs from when the command was given, or when the one before had ended, to its end. A driver that
    notices several ends in one read of a register cannot tell them apart: these commands share their time.
    """
    together: dict[tuple[str, int], list[Command]] = {}
    for command in sorted(commands, key=lambda c: c.ended):
        together.setdefault((command.name, command.ended), []).append(command)
    free = {"RECEIVE": 0, "SEND": 0}
    clocks = {}
    for (name, ended), group in together.items():
        clocks[name, ended] = ended - max(free[name], min(command.given for command in group))
        free[name] = ended
    return [(clocks[c.name, c.ended], together[c.name, c.ended]) for c in commands]


def rows(commands: Sequence[Command], start: int) -> list[dict[str, Any]]:
    """Return a NIC's commands as they were given; clocks count from `start`.

    `clocks` and `values_per_clock` are of all commands whose ends were noticed together, of which there are
    `noticed_together`.
    """
    return [
        {
            "name": command.name,
            "what": _what(command),
            "values": command.count,
            "given": command.given - start,
            "ended": command.ended - start,
            "clocks": clocks,
            "values_per_clock": round(sum(each.count for each in group) / max(1, clocks), 3),
            "noticed_together": len(group),
        }
        for command, (clocks, group) in zip(commands, shares(commands), strict=True)
    ]


def _what(command: Command) -> str:
    frame = command.frame
    half = "final" if frame.phase else "push"
    source = f" from {frame.source}" if command.name == "RECEIVE" else ""
    sub = f".{frame.sub}" if frame.sub else ""
    return f"{half} chunk {frame.chunk}{sub}{source}"
