"""Commands that packages add: entry points of the group oscar.commands, found by name alone.

So come the commands of oscar_studies, those of oscar_lab in a clone, and those of a package of your own.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from functools import partial
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from oscar import plugins
from oscar.errors import OscarError

LABORATORY = "oscar_lab"  # is in a clone alone; the entry points of its commands are in the wheel, too


def add_commands(commands: Any, known: tuple[str, ...]) -> None:
    """Declare the commands of packages; a name that is `known` stays as it is.

    A command whose package is missing or does not load says so when it is called, and no other one is hurt.
    """
    for name, entry in plugins.entries(plugins.COMMANDS).items():
        if name in known:
            continue
        try:
            entry.load()(commands)
        except Exception as error:
            commands.choices.pop(name, None)  # what it had begun to declare
            _add_missing(commands, entry, error)


def modules() -> Iterator[ModuleType]:
    """Yield the modules of all commands whose packages are there."""
    for entry in plugins.entries(plugins.COMMANDS).values():
        if plugins.is_importable(plugins.package_of(entry)):
            yield importlib.import_module(entry.module)


def _add_missing(commands: Any, entry: EntryPoint, error: Exception) -> None:
    if plugins.package_of(entry) == LABORATORY and not plugins.is_importable(LABORATORY):
        short = "needs a clone of OSCAR's repository"
        text = "the laboratory is not in the wheel; clone OSCAR's repository and run `make setup`"
    else:
        short = "cannot be loaded"
        text = (
            f"expected the command at {entry.value}, which cannot be loaded: {error}; "
            "install its package again"
        )
    parser = commands.add_parser(entry.name, help=short, add_help=False, prefix_chars="\0")
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    parser.set_defaults(command=partial(_refuse, text, error))


def _refuse(text: str, error: Exception, args: argparse.Namespace) -> int:
    raise OscarError(text) from error
