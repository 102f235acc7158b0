"""Run tasks in forked processes, one per core: AllReduces of several configurations, or whole trainings."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from oscar.collective.stats import Stats
from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.signals import SAID
from oscar.studies.recording import Gradients, Progress

T = TypeVar("T")
Tick = Callable[[], None]  # called when a task has done another AllReduce

# Rough cost of a codec beside the others: long jobs start first, so that no core is left with one at the end.
SLOW_FIRST = ("atalanta-dp", "constriction", "atalanta", "asc", "rans0", "zstd", "asc-paper")


@dataclass(frozen=True)
class Job:
    """One configuration and the gradients [iteration][node][tensor] that its cluster reduces."""

    config: Config
    gradients: Sequence[Gradients]

    def run(self, tick: Tick) -> list[Stats]:
        """Return the statistics of every iteration; `tick` is called after each."""
        cluster = LocalCluster(self.config)
        stats = []
        for gradients in self.gradients:
            stats.append(cluster.allreduce(gradients).stats)
            tick()
        return stats


def run_jobs(
    jobs: Sequence[Job], *, workers: int | None = None, progress: Progress | None = None
) -> list[list[Stats]]:
    """Return each job's statistics, in the order of `jobs`; see `run_tasks`."""
    order = sorted(range(len(jobs)), key=lambda i: _rank(jobs[i].config.codec))
    total = sum(len(job.gradients) for job in jobs)
    tasks = [jobs[i].run for i in order]
    done = run_tasks(tasks, stage="comparing", total=total, workers=workers, progress=progress)
    return [done[order.index(i)] for i in range(len(jobs))]


def run_tasks(
    tasks: Sequence[Callable[[Tick], T]],
    *,
    stage: str,
    total: int,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[T]:
    """Return what each task returns, in the order of `tasks`; they start in that order.

    total: AllReduces of all tasks together, for `progress(stage, done, total)`.
    workers: processes (default: one per core). Forked ones share what is in memory, so that only results
    travel; where forking is not safe (outside Linux), or with one worker, tasks run here.
    """
    count = min(len(tasks), workers or os.cpu_count() or 1)
    if count > 1 and sys.platform == "linux":
        return _forked(tasks, count, stage, total, progress)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(stage, done, total)

    return [task(tick) for task in tasks]


class _Worker:
    """A forked process that does tasks one after the other, and the task it is at."""

    def __init__(self, tasks: Sequence[Callable[[Tick], Any]]) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(tasks, theirs, os.getpid()), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads; the workers use NumPy and compiled loops alone.
            warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
            self.process.start()
        theirs.close()
        self.task = -1

    def begin(self, task: int) -> None:
        """Send the number of the next task."""
        self.task = task
        with contextlib.suppress(OSError):  # it has died: its pipe tells so when it is read
            self.pipe.send(task)

    def hear(self) -> tuple[str, Any]:
        """Return what it said: a tick, a result or an error. Raises OscarError where it has died."""
        try:
            said: tuple[str, Any] = self.pipe.recv()
            return said
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = f"signal {-code}" if code < 0 else f"status {code}"
            why = ", most likely for want of memory; lower iterations or nodes" if code == -9 else ""
            raise OscarError(f"a worker process died ({how}){why}") from None


def _serve(tasks: Sequence[Callable[[Tick], Any]], pipe: Connection, parent: int) -> None:
    """Do the tasks whose numbers come, for ever: the parent ends this process.

    Signals end it at once, wherever it is. The parent's end does too, however it came: no orphan writes
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


def _forked(
    tasks: Sequence[Callable[[Tick], T]], count: int, stage: str, total: int, progress: Progress | None
) -> list[T]:
    results: dict[int, T] = {}
    numbers, workers, done = iter(range(len(tasks))), list[_Worker](), 0
    try:
        for _ in range(count):
            workers.append(_Worker(tasks))
            workers[-1].begin(next(numbers))
        while len(results) < len(tasks):
            ready = wait([worker.pipe for worker in workers], timeout=0.2)
            for worker in workers:
                if worker.pipe not in ready:
                    continue
                kind, said = worker.hear()
                if kind == "error":
                    raise said[0] from _InWorkerError(said[1])
                if kind == "tick":
                    done += 1
                    continue
                results[worker.task] = said
                following = next(numbers, None)
                if following is not None:
                    worker.begin(following)
            if progress is not None:
                progress(stage, done, total)
        return [results[number] for number in range(len(tasks))]
    finally:
        for worker in workers:
            worker.process.kill()  # they may be deep in a task; files are written whole or not at all
        for worker in workers:
            worker.process.join()


def _rank(codec: str) -> int:
    return SLOW_FIRST.index(codec) if codec in SLOW_FIRST else len(SLOW_FIRST)
