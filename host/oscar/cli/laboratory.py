"""The door to the laboratory: `oscar bench`, `trial` and `lab` come from the package oscar_lab of a clone.

The laboratory makes the evidence behind OSCAR's figures. It imports oscar; oscar knows it by name alone.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any

from oscar.errors import OscarError

PACKAGE = "oscar_lab"
COMMANDS = "lab", "bench", "trial"


def present() -> bool:
    """Return whether the laboratory is installed, as it is in a clone after `make setup`."""
    return importlib.util.find_spec(PACKAGE) is not None


def module(name: str) -> Any:
    """Return the module `name` of the laboratory; raises OscarError where there is no laboratory."""
    if not present():
        raise OscarError("the laboratory is not in the wheel; clone OSCAR's repository and run `make setup`")
    return importlib.import_module(f"{PACKAGE}.{name}")


def add_commands(commands: Any) -> None:
    """Declare the laboratory's commands; without the laboratory each says that it needs a clone."""
    if present():
        module("cli").add_commands(commands)
        return
    for name in COMMANDS:
        parser = commands.add_parser(
            name, help="needs a clone of OSCAR's repository", add_help=False, prefix_chars="\0"
        )
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(command=_refuse)


def _refuse(args: argparse.Namespace) -> int:
    module("cli")
    return 2
