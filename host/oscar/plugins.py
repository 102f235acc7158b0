"""What installed packages add to OSCAR by entry points: commands, codecs and methods."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from oscar.errors import PACKAGES

COMMANDS = "oscar.commands"  # NAME = "package.module:function", which declares the command NAME
CODECS = "oscar.codecs"  # NAME = "package.module:function", which returns a Codec of this name
METHODS = "oscar.methods"  # NAME = "package.module:Class", of a Scheme
STUDIES = "oscar_studies"  # has entry points of all groups


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; of equal names OSCAR's own counts, or the first one."""
    named: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: package_of(entry) not in PACKAGES):
        named.setdefault(entry.name, entry)
    return named


def package_of(entry: EntryPoint) -> str:
    """Return the package that an entry point leads to."""
    return entry.value.partition(":")[0].partition(".")[0].strip()


def is_importable(package: str) -> bool:
    """Return True if a package can be imported. Imports nothing."""
    return importlib.util.find_spec(package) is not None


def outdated(separator: str = "") -> str:
    """Return what to do where the installation is older than the code, after `separator`; else nothing.

    An editable installation runs the code as it is now, with the entry points of the day it was installed.
    """
    listed = [set(map(package_of, entries(group).values())) for group in (COMMANDS, CODECS, METHODS)]
    if all(STUDIES in packages for packages in listed) or not is_importable(STUDIES):
        return ""
    return (
        f"{separator}the installed package does not list the commands, codecs and methods of {STUDIES}, as "
        "it is older than this code: run `make setup`, or pip install -e . in the checkout"
    )
