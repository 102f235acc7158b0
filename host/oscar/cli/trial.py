"""`oscar trial`: the long searches of oscar.trials."""

from __future__ import annotations

from typing import Any

from oscar.cli.bench import add_runner


def add_command(commands: Any) -> None:
    """Declare the command."""
    add_runner(
        commands,
        "trial",
        short="search for what breaks: faults, flipped bits, mutated input, soak, convergence",
        example="  oscar trial                  list them\n"
        "  oscar trial soak --help      options of one\n"
        "  oscar trial flips --json flips.json",
    )
