"""Run AllReduces of several configurations over the same gradients, one process per core."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from oscar.allreduce.cluster import LocalCluster
from oscar.allreduce.stats import Stats
from oscar.config import Config
from oscar.errors import OscarError
from oscar.experiment.training import Gradients, Progress

# Rough cost of a codec beside the others: long jobs start first, so that no core is left with one at the end.
SLOW_FIRST = ("atalanta-dp", "constriction", "atalanta", "asc", "rans0", "zstd", "asc-paper")


@dataclass(frozen=True)
class Job:
    """One configuration and the gradients [iteration][node][tensor] that its cluster reduces."""

    config: Config
    gradients: Sequence[Gradients]

    def run(self, tick: Callable[[], None]) -> list[Stats]:
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
    """Return each job's statistics, in the order of `jobs`.

    workers: processes (default: one per core). Forked ones share the gradients in memory, so that only
    statistics travel; where forking is not safe (outside Linux), or with one worker, jobs run here.
    """
    count = min(len(jobs), workers or os.cpu_count() or 1)
    total = sum(len(job.gradients) for job in jobs)
    if count > 1 and sys.platform == "linux":
        return _forked(jobs, count, total, progress)
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress("comparing", done, total)

    return [job.run(tick) for job in jobs]


_shared: tuple[Sequence[Job], Any] | None = None  # what forked workers inherit


def _work(index: int) -> list[Stats]:
    assert _shared is not None
    jobs, counter = _shared

    def tick() -> None:
        with counter.get_lock():
            counter.value += 1

    return jobs[index].run(tick)


def _forked(jobs: Sequence[Job], count: int, total: int, progress: Progress | None) -> list[list[Stats]]:
    global _shared
    context = multiprocessing.get_context("fork")
    counter = context.Value("l", 0)
    order = sorted(range(len(jobs)), key=lambda i: _rank(jobs[i].config.codec))
    _shared = (jobs, counter)
    pool = ProcessPoolExecutor(count, mp_context=context)
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside threads; the workers use NumPy and compiled loops alone.
            warnings.filterwarnings("ignore", message=".*multi-threaded", category=DeprecationWarning)
            futures: dict[int, Future[list[Stats]]] = {i: pool.submit(_work, i) for i in order}
        waiting = set(futures.values())
        while waiting:
            finished, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()  # raise at once
            if progress is not None:
                progress("comparing", counter.value, total)
        return [futures[i].result() for i in range(len(jobs))]
    except BrokenProcessPool:
        raise OscarError(
            "a worker process died, most likely for want of memory; lower iterations or nodes"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        _shared = None


def _rank(codec: str) -> int:
    return SLOW_FIRST.index(codec) if codec in SLOW_FIRST else len(SLOW_FIRST)
