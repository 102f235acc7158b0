"""When each command of a NIC began and ended, as a table and a picture in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oscar_sim.driver.nic_driver import Command

COLUMNS = 48


def clocks_of(commands: Sequence[Command]) -> list[int]:
    """Return how long each command had its direction of the NIC for itself.

    That is from when it was given, or the one before had ended, to its own end.
    """
    free = {"RECEIVE": 0, "SEND": 0}
    found = []
    for command in sorted(commands, key=lambda c: c.ended):
        found.append((command, command.ended - max(command.given, free[command.name])))
        free[command.name] = command.ended
    by_command = {id(command): clocks for command, clocks in found}
    return [by_command[id(command)] for command in commands]


def rows(commands: Sequence[Command], start: int) -> list[dict[str, Any]]:
    """Return a NIC's commands as they were given; clocks count from `start`."""
    return [
        {
            "name": command.name,
            "what": _what(command),
            "values": command.count,
            "given": command.given - start,
            "ended": command.ended - start,
            "clocks": clocks,
            "values_per_clock": round(command.count / max(1, clocks), 3),
        }
        for command, clocks in zip(commands, clocks_of(commands), strict=True)
    ]


def picture(steps: Sequence[dict[str, Any]]) -> list[str]:
    """Draw them: a bar from when a command was given, full from when the NIC was free for it, to its end."""
    end = max(step["ended"] for step in steps)
    lines = [f"{'':28} {'values':>6} {'clocks':>6} {'a clock':>7}  0{end:>{COLUMNS - 1},} clocks"]
    for step in steps:
        given, busy, ended = (
            round(clock * COLUMNS / end)
            for clock in (step["given"], step["ended"] - step["clocks"], step["ended"])
        )
        bar = " " * given + "." * (busy - given) + "#" * max(1, ended - busy)
        lines.append(
            f"{step['name'].lower():<8}{step['what']:<20} {step['values']:>6,} {step['clocks']:>6,} "
            f"{step['values_per_clock']:>7.2f} |{bar:<{COLUMNS}}|"
        )
    return lines


def _what(command: Command) -> str:
    frame = command.frame
    half = "final" if frame.phase else "push"
    source = f" from {frame.source}" if command.name == "RECEIVE" else ""
    sub = f".{frame.sub}" if frame.sub else ""
    return f"{half} chunk {frame.chunk}{sub}{source}"
