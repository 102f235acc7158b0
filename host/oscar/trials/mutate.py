"""Mutated frames: every one decodes or raises FrameError; no crash, no hang, no byte read behind the frame.

Half of the mutations get their length and CRC-32 recomputed, so that they reach the block parser. Each
mutated frame is decoded twice, with other bytes behind it in memory and by a decoder with another past;
both must agree. Workers are processes of their own, so that even a segmentation fault is counted.

`--boundscheck` makes numba check every index of the compiled kernels (NUMBA_BOUNDSCHECK=1, compiled anew
into a temporary cache) and checks their accesses to several items at once, which numba leaves alone:
unaligned words, vectors of twelve lanes, rows of sixteen slots. Use a smaller count.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from oscar.errors import FrameError
from oscar.trials._mutate_subjects import Subject, make_subjects, same
from oscar.trials._mutations import MUTATIONS, reseal

CHUNK = 4096  # mutations between two reports of a worker
HANG_SECONDS = 1.0  # one decode may take this long
SILENCE_SECONDS = 60.0  # a worker that reports nothing for this long has hung; at first it may be compiling
STARTUP_SECONDS = 600.0
KEPT_FAULTS = 20  # of which the frame is kept, as hex
SPARE = 64  # bytes behind each frame, different for the two decodes


def _attempt(
    decode: Callable[[Any], Any], memory: bytearray, size: int
) -> tuple[Any, BaseException | None, float]:
    start = time.perf_counter()
    try:
        return decode(memoryview(memory)[:size]), None, time.perf_counter() - start
    except Exception as error:  # what is not a FrameError is a fault, to be reported with its frame
        return None, error, time.perf_counter() - start


def _judge(subject: Subject, frame: bytearray, sealed: bool, tally: Counter[str]) -> tuple[str | None, float]:
    """Decode one mutated frame twice; return what is wrong with the outcome, and the slower time."""
    size = len(frame)
    first, error, seconds = _attempt(subject.decode, frame + bytes(SPARE), size)
    second, error_again, again = _attempt(subject.decode_again, frame + b"\xff" * SPARE, size)
    seconds = max(seconds, again)
    if seconds > HANG_SECONDS:
        tally["hangs"] += 1
        return f"took {seconds:.2f} s", seconds
    for problem in (error, error_again):
        if problem is not None and not isinstance(problem, FrameError):
            tally["crashes"] += 1
            return f"raised {problem!r}", seconds
    if (error is None) != (error_again is None) or not same(first, second):
        tally["over_reads"] += 1
        return f"decodes differ: {error or 'values'} / {error_again or 'values'}", seconds
    if error is None and not sealed:
        intact = [v for f, v in zip(subject.frames, subject.expected, strict=True) if f == frame]
        intact = intact or [subject.expected[0]]
        if not any(same(first, values) for values in intact):
            tally["wrong"] += 1
            return "returned other values under an intact CRC-32", seconds
    tally["frame_errors" if error else "returned"] += 1
    return None, seconds


def _chunk(subjects: list[Subject], seed: int, index: int, count: int) -> dict[str, Any]:
    """Judge `count` mutations, the same for the same seed and index."""
    r = random.Random(f"{seed}/{index}")
    tally: Counter[str] = Counter()
    per: Counter[str] = Counter()
    faults: list[dict[str, str]] = []
    slowest = 0.0
    for _ in range(count):
        subject = subjects[r.randrange(len(subjects))]
        frame, other = bytearray(subject.frames[0]), subject.frames[1]
        for _ in range(r.choice((1, 1, 1, 2, 3))):
            if frame:
                MUTATIONS[r.randrange(len(MUTATIONS))](r, frame, other)
        sealed = r.random() < 0.5
        if sealed:
            reseal(frame)
            tally["sealed"] += 1
        fault, seconds = _judge(subject, frame, sealed, tally)
        slowest = max(slowest, seconds)
        per[subject.name] += 1
        if fault and len(faults) < KEPT_FAULTS:
            faults.append({"subject": subject.name, "fault": fault, "frame": frame.hex()})
    for subject in subjects:  # no mutated frame may have moved a decoder's state
        for decode in (subject.decode, subject.decode_again):
            if not same(decode(subject.frames[0]), subject.expected[0]):
                tally["wrong"] += 1
                faults.append({"subject": subject.name, "fault": "state moved", "frame": ""})
    return {"tally": dict(tally), "per": dict(per), "faults": faults, "slowest": slowest}


def _checked(access: Any, items: int, *, takes_value: bool) -> Any:
    """Return an access that raises IndexError unless all its `items`, from the offset, lie in the array."""
    from numba import njit

    @njit
    def check(size: int, offset: int) -> None:
        if np.uint64(offset) > np.uint64(size) or np.uint64(size) - np.uint64(offset) < np.uint64(items):
            raise IndexError("several items at once reach beyond the array")

    @njit(inline="always")
    def read(array: Any, offset: Any) -> Any:
        check(array.size, offset)
        return access(array, offset)

    @njit(inline="always")
    def take(array: Any, offset: Any, value: Any) -> Any:
        check(array.size, offset)
        return access(array, offset, value)

    return take if takes_value else read


def _check_accesses() -> int:
    """Replace the kernels' accesses to several items at once by checked ones; return how many places.

    numba checks indices, not these: they are intrinsics. Kernels look them up when they are compiled.
    """
    from oscar.coding.asc import decode_kernels, encode_kernels, kernels
    from oscar.numerics import simd as lanes

    replaced = 0
    for name, items, takes_value, modules in (
        ("load64", 8, False, (kernels, decode_kernels)),
        ("store64", 8, True, (kernels, encode_kernels)),
        ("count_below", 16, True, (decode_kernels,)),
        ("load", 12, False, (lanes,)),
        ("store", 12, True, (lanes,)),
    ):
        checked = _checked(getattr(modules[0], name), items, takes_value=takes_value)
        for module in modules:
            setattr(module, name, checked)
            replaced += 1
    return replaced


def _work(pipe: Connection, seed: int, boundscheck: bool) -> None:
    """Take (index, count) from the pipe, send back the result of that chunk; None ends."""
    try:
        checked = _check_accesses() if boundscheck else 0
        subjects = make_subjects(seed)
    except Exception as error:
        pipe.send(error)
        return
    pipe.send({"subjects": [s.name for s in subjects], "checked": checked})
    while (task := pipe.recv()) is not None:
        pipe.send(_chunk(subjects, seed, *task))


class _Worker:
    """One process and the chunk it is at."""

    def __init__(self, seed: int, boundscheck: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, seed, boundscheck), daemon=True)
        self.process.start()
        theirs.close()
        self.task: tuple[int, int] | None = None
        self.deadline = time.monotonic() + STARTUP_SECONDS

    def assign(self, task: tuple[int, int] | None) -> None:
        """Send the next chunk, or None to end."""
        self.task, self.deadline = task, time.monotonic() + SILENCE_SECONDS
        self.pipe.send(task)

    def close(self) -> None:
        """End the process, whatever it does."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _environment(boundscheck: bool) -> Iterator[None]:
    """Give workers NUMBA_BOUNDSCHECK=1 and a cache of their own: numba would reuse unchecked code."""
    if not boundscheck:
        yield
        return
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="oscar-mutate-") as cache:
        os.environ.update(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=cache)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


class _Gathering:
    """Hands chunks to workers until all are judged; a worker that dies or falls silent is replaced."""

    def __init__(
        self, count: int, seed: int, jobs: int, boundscheck: bool, progress: Callable[[int], None]
    ) -> None:
        self.tasks = iter([(i, min(CHUNK, count - i * CHUNK)) for i in range(-(-count // CHUNK))])
        self.seed, self.boundscheck, self.progress = seed, boundscheck, progress
        self.tally: Counter[str] = Counter()
        self.per: Counter[str] = Counter()
        self.faults: list[dict[str, str]] = []
        self.slowest, self.done, self.checked, self.started = 0.0, 0, 0, 0.0
        self.jobs, self.workers = jobs, list[_Worker]()

    def run(self) -> dict[str, Any]:
        """Return the result once every chunk is judged."""
        try:
            self.workers += [_Worker(self.seed, self.boundscheck) for _ in range(self.jobs)]
            while self.workers:
                ready = wait([w.pipe for w in self.workers], timeout=1.0)
                for worker in list(self.workers):
                    if worker.pipe in ready:
                        self._hear(worker)
                    elif time.monotonic() > worker.deadline:
                        self._lost(worker, "hangs", f"was silent for over {SILENCE_SECONDS:.0f} s")
        finally:
            for worker in self.workers:
                worker.close()
        return self._result()

    def _hear(self, worker: _Worker) -> None:
        """Take what a worker sent, and give it the next chunk."""
        try:
            result = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            self._lost(worker, "crashes", f"died with exit status {worker.process.exitcode}")
            return
        if isinstance(result, Exception):
            raise result
        if worker.task is None:
            self.started, self.checked = self.started or time.perf_counter(), result["checked"]
        else:
            self.tally.update(result["tally"])
            self.per.update(result["per"])
            self.faults += result["faults"]
            self.slowest = max(self.slowest, result["slowest"])
            self.done += worker.task[1]
            self.progress(self.done)
        task = next(self.tasks, None)
        worker.assign(task)
        if task is None:
            worker.process.join()
            worker.close()
            self.workers.remove(worker)

    def _lost(self, worker: _Worker, kind: str, how: str) -> None:
        """Count a worker that is gone, and start another."""
        self.tally[kind] += 1
        where = f"{how} in chunk {worker.task} of seed {self.seed}"
        self.faults.append({"subject": "worker", "fault": where, "frame": ""})
        worker.close()
        self.workers.remove(worker)
        if worker.task is None:
            raise RuntimeError(f"a worker {how} before its first frame")
        self.workers.append(_Worker(self.seed, self.boundscheck))

    def _result(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self.started
        kinds = ("sealed", "returned", "frame_errors", "crashes", "hangs", "over_reads", "wrong")
        return {
            "mutations": self.done,
            "seconds": round(seconds, 3),
            "per_second": round(self.done / seconds, 1) if seconds else 0.0,
            **{kind: self.tally[kind] for kind in kinds},
            "slowest_ms": round(self.slowest * 1000, 3),
            "subjects": dict(sorted(self.per.items())),
            "checked_accesses": self.checked,
            "faults": self.faults[:KEPT_FAULTS],
        }


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {value}")
        return value

    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` reads to a parser."""
    parser.add_argument(
        "--count", type=_whole(1), default=200_000, help="mutated frames (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=_whole(0), default=0, help="same seed, same mutations (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=_whole(1), default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument(
        "--boundscheck",
        action="store_true",
        help="check every index of the kernels; compiles for minutes first",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Judge `args.count` mutated frames and print a table; "ok" tells whether nothing was wrong."""
    print(f"# mutate: count {args.count}, seed {args.seed}, jobs {args.jobs}, boundscheck {args.boundscheck}")
    shown = time.monotonic()

    def progress(done: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - shown > 1:
            shown = time.monotonic()
            print(f"\r{done} of {args.count}", end="", file=sys.stderr, flush=True)

    with _environment(args.boundscheck):
        result = _Gathering(args.count, args.seed, args.jobs, args.boundscheck, progress).run()
    keys = ("mutations", "sealed", "returned", "frame_errors", "crashes", "hangs", "over_reads", "wrong")
    print("".join(f"{key:>13}" for key in (*keys, "slowest_ms", "per_second")))
    print("".join(f"{result[key]:>13}" for key in (*keys, "slowest_ms", "per_second")))
    for fault in result["faults"]:
        print(f"# {fault['subject']}: {fault['fault']}: {fault['frame']}")
    result["ok"] = not any(result[key] for key in ("crashes", "hangs", "over_reads", "wrong"))
    return {"seed": args.seed, "jobs": args.jobs, "boundscheck": args.boundscheck, **result}
