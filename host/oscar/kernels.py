"""Says that kernels are compiled, before the first one is: numba's cache may lack what a process needs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from numba.core import event

COMPILES = "numba:compile"  # the event; a kernel that comes from the cache has none
LOG = logging.getLogger("oscar.kernels")


class Compiling(event.Listener):
    """Calls `tell` when one of our kernels is about to be compiled, the first time alone."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = cache(tell)

    def on_start(self, event: Any) -> None:
        """Leave the kernels of others, as a user may have them; what was made by exec has no module."""
        function = getattr(event.data["dispatcher"], "py_func", None)
        if str(getattr(function, "__module__", None)).startswith("oscar"):
            self._tell()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


def log_compiling(rank: int) -> None:
    """From now on log one line on rank 0, at level WARNING, before this process compiles its first kernel.

    A training that hangs would look the same: compiling takes half a minute, or minutes of busy cores.
    """
    if rank == 0:
        _listen()


@cache
def _listen() -> None:
    event.register(COMPILES, Compiling(_log))


def _log() -> None:
    LOG.warning(
        "compiling kernels, once per machine and version: half a minute of a free core, more of a busy one; "
        "`python -m oscar.warm` does it ahead of a training"
    )
