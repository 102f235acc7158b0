"""Run tasks in forked processes, one per core: AllReduces of several configurations, or whole trainings."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, TypeVar

from oscar.allreduce.cluster import LocalCluster
from oscar.allreduce.stats import Stats
from oscar.config import Config
from oscar.errors import OscarError
from oscar.experiment.training import Gradients, Progress

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


_shared: tuple[Sequence[Callable[[Tick], Any]], Any] | None = None  # what forked workers inherit


def _die_with_parent() -> None:
    """Ask Linux to kill this worker when its parent dies, however it dies: no orphan writes results."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _work(index: int) -> Any:
    assert _shared is not None
    tasks, counter = _shared

    def tick() -> None:
        with counter.get_lock():
            counter.value += 1

    return tasks[index](tick)


def _forked(
    tasks: Sequence[Callable[[Tick], T]], count: int, stage: str, total: int, progress: Progress | None
) -> list[T]:
    global _shared
    context = multiprocessing.get_context("fork")
    counter = context.Value("l", 0)
    _shared = (tasks, counter)
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_die_with_parent)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads; the workers use NumPy and compiled loops alone.
            warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
            futures: list[Future[T]] = [pool.submit(_work, i) for i in range(len(tasks))]
        waiting = set(futures)
        while waiting:
            finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()  # raise at once
            if progress is not None:
                progress(stage, counter.value, total)
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise OscarError(
            "a worker process died, most likely for want of memory; lower iterations or nodes"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _shared = None


def _rank(codec: str) -> int:
    return SLOW_FIRST.index(codec) if codec in SLOW_FIRST else len(SLOW_FIRST)
