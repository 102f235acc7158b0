"""What installed packages add to OSCAR by entry points: commands and methods."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import EntryPoint, entry_points

COMMANDS = "oscar.commands"  # NAME = "package.module:function", which declares the command NAME
METHODS = "oscar.methods"  # NAME = "package.module:Class", of a Scheme
STUDIES = "oscar_studies"  # comes with OSCAR, and has entry points of both groups


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of equal names the first one counts."""
    named: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        named.setdefault(entry.name, entry)
    return named


def package_of(entry: EntryPoint) -> str:
    """Return the package that an entry point leads to."""
    return entry.value.partition(":")[0].partition(".")[0].strip()


def is_importable(package: str) -> bool:
    """Return True if a package can be imported. Imports nothing."""
    return importlib.util.find_spec(package) is not None


@cache
def outdated() -> str:
    """Return what to do where the installation is older than the code; nothing where it is not.

    An editable installation runs the code as it is now, with the entry points of the day it was installed.
    """
    lacking = any(STUDIES not in map(package_of, entries(group).values()) for group in (COMMANDS, METHODS))
    if not lacking or not is_importable(STUDIES):
        return ""
    return (
        f"the installed package does not list the commands and methods of {STUDIES}, as it is older than "
        "this code: run `make setup`, or pip install -e . in the checkout"
    )
