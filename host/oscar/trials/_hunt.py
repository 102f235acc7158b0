"""Searches in worker processes: chunks of cases, equal for equal seeds; a worker that ends is counted."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

STARTUP_S = 600.0  # of a worker, which may compile
SHOW_S = 1.0  # between two looks at how far it is, on a terminal


@dataclass
class Chunk:
    """What cases came to: outcomes counted, faults in the search's own words, the slowest case in seconds."""

    tally: Counter[str] = field(default_factory=Counter)
    faults: list[Any] = field(default_factory=list)
    subjects: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def add(self, other: Chunk) -> None:
        """Take in what another chunk came to."""
        self.tally.update(other.tally)
        self.faults += other.faults
        self.subjects.update(other.subjects)
        self.slowest = max(self.slowest, other.slowest)


Judge = Callable[[str, int], Chunk]  # a chunk by its name, which seeds it, and its number of cases


def _work(pipe: Connection, make: Callable[[], Judge]) -> None:
    """Say when the judge is there; then judge the chunks that come, and send what each came to."""
    try:
        judge = make()
    except Exception as error:
        pipe.send(error)
        return
    pipe.send(Chunk())
    while (task := pipe.recv()) is not None:
        pipe.send(judge(*task))


class _Worker:
    """One process and the chunk it is at."""

    def __init__(self, make: Callable[[], Judge]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, make), daemon=True)
        self.process.start()
        theirs.close()
        self.task: tuple[str, int] | None = None
        self.deadline = time.monotonic() + STARTUP_S

    def close(self) -> None:
        """End the process, whatever it does."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


class Hunt(Chunk):
    """All chunks together; `lost` says which workers ended or fell silent, and in which chunk.

    make: called in each worker, returns its judge; both have to travel to a new process. count: cases in all,
    size: of a chunk. silence_s: how long a chunk may take before its worker counts as hanging.
    """

    def __init__(self, make: Callable[[], Judge], *, seed: int, size: int, silence_s: float = 600.0) -> None:
        super().__init__()
        self.make, self.seed, self.size, self.silence_s = make, seed, size, silence_s
        self.lost: list[str] = []
        self.done, self.started, self.shown = 0, 0.0, time.monotonic()

    def run(self, count: int, jobs: int) -> None:
        """Judge `count` cases in `jobs` processes; raises what a worker raises before its first chunk."""
        sizes = [min(self.size, count - at) for at in range(0, count, self.size)]
        tasks = [(f"{self.seed}/{index}", cases) for index, cases in enumerate(sizes)]
        workers = [_Worker(self.make) for _ in range(min(jobs, len(sizes)))]
        try:
            while workers:
                ready = wait([worker.pipe for worker in workers], timeout=1.0)
                for worker in list(workers):
                    if worker.pipe in ready or time.monotonic() > worker.deadline:
                        workers.remove(worker)
                        workers += self._hear(worker, tasks, silent=worker.pipe not in ready)
                self._show(count)
        finally:
            for worker in workers:
                worker.close()

    @property
    def seconds(self) -> float:
        """Seconds since the first worker was ready."""
        return time.monotonic() - self.started if self.started else 0.0

    def _hear(self, worker: _Worker, tasks: list[tuple[str, int]], *, silent: bool) -> list[_Worker]:
        """Take what a worker sent, give it the next chunk; return who goes on: it, a new one, or nobody."""
        try:
            came = None if silent else worker.pipe.recv()
        except EOFError:
            worker.process.join()
            came = None
        if isinstance(came, Exception):
            raise came
        if came is None:
            how = "hung" if silent else f"died with exit status {worker.process.exitcode}"
            worker.close()
            if worker.task is None:
                raise RuntimeError(f"a worker {how} before its first case")
            self.tally["hangs" if silent else "crashes"] += 1
            self.lost.append(f"a worker {how} in chunk {worker.task[0]}")
            return [_Worker(self.make)] if tasks else []
        self.started = self.started or time.monotonic()
        self.add(came)
        self.done += worker.task[1] if worker.task else 0
        worker.task, worker.deadline = tasks.pop(0) if tasks else None, time.monotonic() + self.silence_s
        worker.pipe.send(worker.task)
        if worker.task is not None:
            return [worker]
        worker.process.join()
        worker.close()
        return []

    def _show(self, count: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.shown > SHOW_S:
            self.shown = time.monotonic()
            print(f"\r{self.done} of {count}", end="", file=sys.stderr, flush=True)
