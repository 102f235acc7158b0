"""When each command of a NIC began and ended, as a table and a picture in text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oscar_sim.driver.nic_driver import Command

COLUMNS = 48


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


def picture(steps: Sequence[dict[str, Any]]) -> list[str]:
    """Draw them: a bar from when a command was given, full from when the NIC was free for it, to its end.

    Commands whose ends were noticed together have their clocks and rate once, in the last of their lines.
    """
    end = max(step["ended"] for step in steps)
    last = {(step["name"], step["ended"]): number for number, step in enumerate(steps)}
    lines = [f"{'':28} {'values':>6} {'clocks':>6} {'a clock':>7}  0{end:>{COLUMNS - 1},} clocks"]
    for number, step in enumerate(steps):
        given, busy, ended = (
            round(clock * COLUMNS / end)
            for clock in (step["given"], step["ended"] - step["clocks"], step["ended"])
        )
        busy = max(given, busy)
        bar = " " * given + "." * (busy - given) + "#" * max(1, ended - busy)
        cells = f"{step['clocks']:>6,} {step['values_per_clock']:>7.2f}"
        if last[step["name"], step["ended"]] != number:
            cells = f"{'counted below':>14}"
        lines.append(
            f"{step['name'].lower():<8}{step['what']:<20} {step['values']:>6,} {cells} |{bar:<{COLUMNS}}|"
        )
    return lines


def _what(command: Command) -> str:
    frame = command.frame
    half = "final" if frame.phase else "push"
    source = f" from {frame.source}" if command.name == "RECEIVE" else ""
    sub = f".{frame.sub}" if frame.sub else ""
    return f"{half} chunk {frame.chunk}{sub}{source}"
