"""Threads: how many a call may use and the share of each, without the GIL; and those of NumPy's BLAS."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

VARIABLE = "OSCAR_THREADS"
LOCAL_RANKS = "LOCAL_WORLD_SIZE"  # of torchrun: ranks on this machine, bound to no processors
MOST_THREADS = 16
THREAD_VALUES = 1 << 18  # values for each thread that works on them

_most: ContextVar[int | None] = ContextVar("most threads of this call", default=None)


def asked() -> int | None:
    """Return the number in OSCAR_THREADS, MOST_THREADS at most; None without one."""
    text = os.environ.get(VARIABLE, "")
    return min(MOST_THREADS, int(text)) if text.isdecimal() and int(text) else None


def processors() -> int:
    """Return how many threads work on values where nothing else runs: `asked`, or all processors."""
    return asked() or min(MOST_THREADS, _own())


def beside_training() -> int:
    """Return how many threads a call beside a training uses: `asked`, or half of a rank's processors."""
    ranks = os.environ.get(LOCAL_RANKS, "")
    half = _own() // (2 * max(1, int(ranks) if ranks.isdecimal() else 1))
    return asked() or min(MOST_THREADS, max(1, half))


def _own() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


@contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Let the calls of a block, in this thread, use so many threads instead of all `processors`."""
    token = _most.set(threads)
    try:
        yield
    finally:
        _most.reset(token)


def most_threads() -> int:
    """Return how many threads the call may use."""
    return _most.get() or processors()


def threads_for(values: int, most: int | None = None) -> int:
    """Return how many threads work on `values`; most: their limit, None for that of the call."""
    if values < 2 * THREAD_VALUES:
        return 1
    return min(most or most_threads(), values // THREAD_VALUES)


@cache
def _pool(process: int, name: str = "shares") -> ThreadPoolExecutor:
    """Return a thread pool of a process. Keyed by process, as a fork has no threads of its parent.

    Shares wait for nothing, so tasks, which wait for shares, have a pool of their own.
    """
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix=f"oscar-{name}-{process}")


def submit(work: Callable[[], object]) -> None:
    """Call `work` in a thread, which may `share` what it does with others."""
    _pool(os.getpid(), "tasks").submit(work)


def share(work: Callable[[int, int, int], Any], items: int, threads: int, unit: int = 1) -> list[Any]:
    """Call work(thread, first, last) on even shares of `items`, each in a thread; return the results.

    unit: items that stay together. If a call raises, the others are waited for first: no thread uses the
    caller's arrays after the return.
    """
    if threads == 1:
        return [work(0, 0, items)]
    step = -(-items // threads)
    step += -step % unit
    shares = [(first, min(items, first + step)) for first in range(0, items, step)]
    others: list[Future[Any]] = []
    try:
        for i, part in enumerate(shares[1:], 1):
            others.append(_pool(os.getpid()).submit(work, i, *part))
        return [work(0, *shares[0]), *(other.result() for other in others)]
    finally:
        wait(others)


def one_blas_thread() -> None:
    """Keep NumPy's matrix products on one thread. Call it before NumPy is loaded: first in a command.

    Small matrices gain nothing from a second thread, and processes side by side become ten times slower. With
    one thread, the order of float sums, and so every gradient, does not depend on the number of cores.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
