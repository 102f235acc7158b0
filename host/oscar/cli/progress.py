"""Progress on stderr: a bar on a terminal, a line per stage elsewhere, a line before kernels are compiled."""

from __future__ import annotations

import mmap
import sys
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

QUIET_SECONDS = 15.0  # between two lines of one stage where there is no terminal
COMPILING = "# compiling what this command needs, once per machine and version: about 20 s"


def compiling_said() -> AbstractContextManager[Any]:
    """Print a line when numba compiles what its cache lacks: once, also for processes forked meanwhile."""
    from numba.core import event

    from oscar.kernels import COMPILES, Compiling

    said = mmap.mmap(-1, 1)  # forked processes share it

    def say() -> None:
        if said[0] == 0:
            said[0] = 1
            print(COMPILING, file=sys.stderr, flush=True)

    installed: AbstractContextManager[Any] = event.install_listener(COMPILES, Compiling(say))
    return installed


class Show:
    """`show(stage, done, total)`; use as a context manager. unit: of what is counted."""

    def __init__(self, unit: str = "AllReduces") -> None:
        self._unit = unit

    def __enter__(self) -> Show:
        self._bar = self._open_bar() if sys.stderr.isatty() else None
        self._tasks: dict[str, object] = {}
        self._began: dict[str, float] = {}
        self._spoke = time.monotonic()
        return self

    @staticmethod
    def _open_bar():  # type: ignore[no-untyped-def]
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        bar = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,  # no thread: the comparison forks
        )
        bar.start()
        return bar

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that `done` of `total` of `stage` are done."""
        now = time.monotonic()
        began = self._began.setdefault(stage, now)
        if self._bar is not None:
            if stage not in self._tasks:
                self._tasks[stage] = self._bar.add_task(stage, total=total)
            self._bar.update(self._tasks[stage], completed=done)
            self._bar.refresh()
        elif (done == total and stage not in self._tasks) or now - self._spoke > QUIET_SECONDS:
            self._spoke = now
            if done == total:
                self._tasks[stage] = True
            print(
                f"# {stage}: {done} of {total} {self._unit}, {now - began:.0f} s", file=sys.stderr, flush=True
            )
