"""Jobs of the hook's thread: buckets and tasks, in the order of the hook's calls, counted and watched.

The watch detects that buckets take much more or much less time than when it was decided how they go.
"""

from __future__ import annotations

import atexit
import queue
import statistics
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from oscar.adapters.torch.layout import BucketLayout
from oscar.reducers.communicator import PeerStats
from oscar.transports.base import Transport


@dataclass
class Totals:
    """Counts so far; `Counted` documents each."""

    values: int = 0
    sent_bytes: int = 0
    clipped: int = 0
    clipped_energy: float = 0.0
    uncompressed_values: int = 0

    def note(self, stats: PeerStats) -> None:
        """Add a call of the communicator."""
        self.sent_bytes += stats.sent_bytes
        self.clipped += stats.clipped
        self.clipped_energy = max(self.clipped_energy, stats.clipped_energy)


class Counted:
    """Totals as attributes."""

    _totals: Totals

    @property
    def values(self) -> int:
        """Values that were reduced so far."""
        return self._totals.values

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank has sent for gradients, uncompressed buckets included (not those only measured)."""
        return self._totals.sent_bytes

    @property
    def clipped(self) -> int:
        """Values of this rank that saturated so far."""
        return self._totals.clipped

    @property
    def clipped_energy(self) -> float:
        """The largest share of a bucket's energy that saturation took so far, 0 to 1."""
        return self._totals.clipped_energy

    @property
    def uncompressed_values(self) -> int:
        """Values that went uncompressed for their dtype, layout or device (docs/how-to/ddp.md)."""
        return self._totals.uncompressed_values


RECENT = 8  # calls of each bucket whose median counts
CHANGED = 2.0  # times as long, or as short
NOISE_S = 1e-3  # seconds of all buckets together by which times have to differ
Key = tuple[int, int]  # index and values of a bucket


class Watch:
    """Seconds of the last calls of each bucket on this rank, beside those after the last decision.

    Any thread may note a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: dict[Key, deque[float]] = {}
        self._before: float | None = None  # seconds of all buckets, soon after the last decision

    def note(self, key: Key, seconds: float) -> None:
        """Note the seconds of a call of a bucket, compressed or not."""
        with self._lock:
            self._recent.setdefault(key, deque(maxlen=RECENT)).append(seconds)

    def changed(self, keys: Iterable[Key]) -> bool:
        """Return True if the buckets `keys` together take much more or much less time than before.

        The first result for which all have RECENT times is False. Later times are compared with it.
        """
        with self._lock:
            calls = [tuple(self._recent.get(key, ())) for key in keys]
        if not calls or min(map(len, calls)) < RECENT:
            return False
        now = sum(map(statistics.median, calls))
        if self._before is None:
            self._before = now
        apart = abs(now - self._before) > NOISE_S
        return apart and not self._before / CHANGED <= now <= self._before * CHANGED

    def clear(self) -> None:
        """Begin anew, after a decision."""
        with self._lock:
            self._recent.clear()
        self._before = None


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
    for ended in [each for each in _running if not each.is_alive()]:
        del _running[ended]
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
