"""Jobs of the hook's thread: buckets and tasks, in the order of the hook's calls."""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from oscar.adapters.torch.layout import BucketLayout
from oscar.adapters.torch.watch import Key
from oscar.transports.base import Transport

JOIN_S = 5.0
_running: dict[threading.Thread, queue.Queue[Any]] = {}  # the jobs that each thread waits for


@dataclass(frozen=True)
class Job:
    """A bucket to reduce.

    Attributes:
        future: Set to the result.
        buffer: The bucket's gradients.
        mark: Of its gradients, see Staging.
        key: Index and number of values.
        layout: Its tensors.
        last: It is the last of its backward's buckets that are compressed.
        measure: Time it beside a plain AllReduce.
        forget: Drop all state first, because the buckets were made anew.
        new: The ranks have not compared its layout.
    """

    future: Any
    buffer: Any
    mark: Any
    key: Key
    layout: BucketLayout
    last: bool
    measure: bool
    forget: bool
    new: bool


@dataclass(frozen=True)
class ThreadTask:
    """Other work between buckets.

    Attributes:
        work: Called once, in the hook's thread.
        done: Set to the result of `work`, or to its exception.
    """

    work: Callable[[], Any]
    done: Future[Any]

    def run(self) -> None:
        """Do the work. Raises the exceptions of `work`."""
        try:
            result = self.work()
        except BaseException as error:
            self.done.set_exception(error)
            raise
        self.done.set_result(result)


class Performs(Protocol):
    """An object that does the jobs."""

    def perform(self, job: Job | ThreadTask) -> None:
        """Reduce one bucket and set its Future, or run a task."""


def start_thread(state: Performs, jobs: queue.Queue[Job | ThreadTask | None]) -> threading.Thread:
    """Return a thread that reduces buckets in the order of the hook's calls, until the state is closed."""
    thread = threading.Thread(target=_work, args=(weakref.ref(state), jobs), name="oscar-ddp", daemon=True)
    for gone in [each for each in _running if not each.is_alive()]:
        del _running[gone]
    thread.start()
    _running[thread] = jobs
    # Before finalisers, which are registered by now: a state that ends meanwhile would end their loop.
    atexit.unregister(_wait)
    atexit.register(_wait)
    return thread


def _work(state: weakref.ref[Performs], jobs: queue.Queue[Job | ThreadTask | None]) -> None:
    while (job := jobs.get()) is not None:
        here = state()
        if here is None:
            return
        here.perform(job)
        del here, job  # where nobody else holds the state, it ends here, in this thread


def end(
    jobs: queue.Queue[Job | ThreadTask | None], transport: Transport, threads: list[threading.Thread]
) -> None:
    """End the hook's thread, which may finish what it was given, and the transport."""
    others = [thread for thread in threads if thread is not threading.current_thread()]
    jobs.put(None)
    for thread in others:
        thread.join(JOIN_S)
    transport.close()  # a thread that still waits for a peer raises now
    for thread in others:
        thread.join(JOIN_S)


def _wait() -> None:
    """Wait for all threads: one that tears its state down while the interpreter goes aborts the process."""
    for jobs in _running.values():
        jobs.put(None)
    for thread in _running:
        thread.join(JOIN_S)
