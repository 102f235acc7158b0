"""The laboratory's commands, which `oscar` adds to its own in a clone."""

from __future__ import annotations

from typing import Any

from oscar_lab.cli import bench, lab


def add_commands(commands: Any) -> None:
    """Declare `oscar lab`, `oscar bench` and `oscar trial`."""
    lab.add_command(commands)
    bench.add_commands(commands)
