"""Where results come from: revision, methods' versions, Python, machine, time; written into each of them."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from oscar.version import METHOD_VERSIONS, __version__

CHECKOUT = Path(__file__).parents[2]  # if this file is in a clone
SECRET = re.compile(r"(\bkey\s*[=:]\s*)\S.*", re.DOTALL)


def provenance() -> dict[str, str]:
    """Return facts about the run for readers of its results, as texts by name."""
    return {
        "written": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "arguments": arguments(sys.argv[1:]),
        "revision": revision(),
        "processor": f"{processor()}, {os.cpu_count()} cores",
        "system": platform.platform(),
        # Exact, as the texts to train on are of Python's library.
        "python": f"{platform.python_version()}, numpy {installed('numpy')}",
        "methods": ", ".join(f"{name} {number}" for name, number in METHOD_VERSIONS.items()) + ", others 1",
    }


def arguments(words: Sequence[str]) -> str:
    """Return a command's arguments as one text, without the values of keys."""
    return " ".join(SECRET.sub(r"\1...", word) for word in words)


def revision() -> str:
    """Return the commit that is checked out, or the package's version outside a clone of ours.

    An installed package may lie inside a repository of its user, whose commits say nothing about it.
    """
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
    try:
        if 'name = "oscar-allreduce"' not in (CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"):
            return f"version {__version__}"
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        output = ""
    return output or f"version {__version__}"


def installed(package: str) -> str:
    """Return the version of a package, "none" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
