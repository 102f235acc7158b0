"""Run tasks in processes, one per core: AllReduces of several configurations, trainings, searches."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from oscar.errors import OscarError
from oscar.signals import SAID
from oscar_studies.recording import Progress

T = TypeVar("T")
Tick = Callable[[], None]  # called when a task has done another AllReduce
STARTUP_S = 600.0  # of a new interpreter: it imports, and may compile


def run_tasks(
    tasks: Sequence[Callable[[Tick], T]],
    *,
    stage: str,
    total: int,
    workers: int | None = None,
    progress: Progress | None = None,
    lost: Callable[[int, str], T] | None = None,
    silence_s: float = math.inf,
) -> list[T]:
    """Return what each task returns, in the order of `tasks`; they start in that order.

    total: AllReduces of all tasks together, for `progress(stage, done, total)`.
    workers: processes (default: one per core). Forked ones share what is in memory, so that only results
    travel; where forking is not safe (outside Linux), or with one worker, tasks run here.
    lost: for tasks that may end or hang their process. Every worker is then a new interpreter, to which the
    tasks travel; `lost(task, how)` is the result of one that ends its process, or does not tick for
    `silence_s`. A worker's first tick may take STARTUP_S: it imports, and may compile.
    """
    count = min(len(tasks), workers or os.cpu_count() or 1)

    def tell(done: int) -> None:
        if progress is not None:
            progress(stage, done, total)

    if lost is not None or (count > 1 and sys.platform == "linux"):
        return _apart(tasks, count, tell, lost, silence_s)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        tell(done)

    return [task(tick) for task in tasks]


class _Worker:
    """A process that does tasks one after the other, the task it is at, and when its silence is too long."""

    def __init__(self, tasks: Sequence[Callable[[Tick], Any]], task: int, *, fresh: bool) -> None:
        context: Any = multiprocessing.get_context("spawn" if fresh else "fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(tasks, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads; the workers use NumPy and compiled loops alone.
            warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
            self.process.start()
        theirs.close()
        self.deadline = time.monotonic() + STARTUP_S if fresh else math.inf
        self.begin(task)

    def begin(self, task: int) -> None:
        """Send the number of the next task."""
        self.task = task
        with contextlib.suppress(OSError):  # it has died: its pipe tells so when it is read
            self.pipe.send(task)

    def hear(self) -> tuple[str, Any]:
        """Return the worker's message: a tick, a result or an error; or that it is lost, and how it died."""
        try:
            said: tuple[str, Any] = self.pipe.recv()
            return said
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            return "lost", f"signal {-code}" if code < 0 else f"status {code}"


def _serve(tasks: Sequence[Callable[[Tick], Any]], pipe: Connection, parent: int) -> None:
    """Do the tasks whose numbers arrive, until the parent ends this process.

    Signals end it at once, wherever it is. So does the end of the parent, however it ends: no orphan writes
    results.
    """
    for number in SAID:
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before that
        os._exit(1)
    while True:
        try:
            answer = "result", tasks[pipe.recv()](lambda: pipe.send(("tick", None)))
        except Exception as error:
            answer = "error", (error, traceback.format_exc())
        try:
            pipe.send(answer)
        except Exception as error:  # it cannot be pickled
            pipe.send(("error", (OscarError(f"{answer[1]!r} of a worker is lost: {error}"), "")))


class _InWorkerError(Exception):
    """Where in a worker an error was raised; shown by --debug."""


def _apart(
    tasks: Sequence[Callable[[Tick], T]],
    count: int,
    tell: Callable[[int], object],
    lost: Callable[[int, str], T] | None,
    silence_s: float,
) -> list[T]:
    """Do the tasks in `count` processes; see `run_tasks`. tell: is given the number of ticks."""
    results: dict[int, T] = {}
    numbers, workers, done, fresh = iter(range(len(tasks))), list[_Worker](), 0, lost is not None
    try:
        for _ in range(count):
            workers.append(_Worker(tasks, next(numbers), fresh=fresh))
        while len(results) < len(tasks):
            ready = wait([worker.pipe for worker in workers], timeout=0.2)
            for worker in list(workers):
                silent = worker.pipe not in ready
                if silent and time.monotonic() < worker.deadline:
                    continue
                kind, said = worker.hear() if not silent else ("lost", cast(Any, "hung"))
                worker.deadline = time.monotonic() + silence_s
                if kind == "error":
                    raise said[0] from _InWorkerError(said[1])
                if kind == "tick":
                    done += 1
                    continue
                following = next(numbers, None)
                if kind == "lost":
                    if lost is None:
                        why = ", most likely for want of memory; lower iterations or nodes"
                        raise OscarError(f"a worker process died ({said}){why * (said == 'signal 9')}")
                    said = lost(worker.task, said)
                    worker.process.kill()
                    workers.remove(worker)
                    workers += [] if following is None else [_Worker(tasks, following, fresh=True)]
                elif following is None:
                    worker.deadline = math.inf
                results[worker.task] = said
                if kind == "result" and following is not None:
                    worker.begin(following)
            tell(done)
        return [results[number] for number in range(len(tasks))]
    finally:
        for worker in workers:
            worker.process.kill()  # they may be deep in a task; files are written whole or not at all
        for worker in workers:
            worker.process.join()
