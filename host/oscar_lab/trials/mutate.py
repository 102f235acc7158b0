"""Mutated frames: every one decodes or raises FrameError; no crash, no hang, no byte read after the frame.

Half of the mutated frames get a new length and CRC-32, so that they reach the block parser. Each is
decoded twice, by two decoders and with different bytes after it in memory; both must agree. ASC's second
decoder puts values into the middle of an array, where nothing beside them may change. Workers are processes
of their own, so that even a segmentation fault is counted.

`--boundscheck` makes numba check every index of the compiled kernels (NUMBA_BOUNDSCHECK=1, compiled anew
into a temporary cache). Use a smaller count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from oscar.errors import FrameError
from oscar.tables import Row, Table
from oscar_lab.trials import _hunt
from oscar_lab.trials._hunt import Chunk, cases, hunt
from oscar_lab.trials._mutate_subjects import FrameSubject, make_subjects, same
from oscar_lab.trials._mutations import MUTATIONS, Mutation
from oscar_studies.parallel import Tick

CHUNK = 4096  # mutations that a worker is given at a time
HANG_SECONDS = 1.0  # of processor time, as machines are shared: one decode may take this long
SILENCE_S = 60.0  # a worker that does not tick for this long has hung
KINDS = ("sealed", "returned", "frame_errors", "crashes", "hangs", "over_reads", "wrong")
TABLE = Table("mutations >12", *(f"{kind} >12" for kind in KINDS), "slowest_ms >12", "per_second >12")
KEPT_FAULTS = 20  # of which the frame is kept, as hex
SPARE = 64  # bytes after each frame, different for the two decodes


def _attempt(
    decode: Callable[[Any], Any], memory: bytearray, size: int
) -> tuple[Any, BaseException | None, float]:
    start = time.thread_time()
    try:
        return decode(memoryview(memory)[:size]), None, time.thread_time() - start
    except Exception as error:  # what is not a FrameError is a fault, to be reported with its frame
        return None, error, time.thread_time() - start


def _judge(
    subject: FrameSubject, frame: bytearray, sealed: bool, tally: Counter[str]
) -> tuple[str | None, float]:
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


class FrameJudge:
    """Judges chunks of mutations, the same for the same name."""

    make_subjects = staticmethod(make_subjects)
    mutations: Sequence[Mutation] = MUTATIONS

    def __init__(self, seed: int) -> None:
        self.subjects = self.make_subjects(seed)

    def __call__(self, name: str, count: int, tick: Tick) -> Chunk:
        chunk = Chunk()
        for _, r in cases(name, count, tick):
            subject = self.subjects[r.randrange(len(self.subjects))]
            frame, other = bytearray(subject.frames[0]), subject.frames[1]
            for _ in range(r.choice((1, 1, 1, 2, 3))):
                if frame:
                    self.mutations[r.randrange(len(self.mutations))](r, frame, other)
            sealed = r.random() < 0.5
            if sealed:
                subject.reseal(frame)
                chunk.tally["sealed"] += 1
            fault, seconds = _judge(subject, frame, sealed, chunk.tally)
            chunk.slowest = max(chunk.slowest, seconds)
            chunk.subjects[subject.name] += 1
            if fault and len(chunk.faults) < KEPT_FAULTS:
                chunk.faults.append({"subject": subject.name, "fault": fault, "frame": frame.hex()})
        for subject in self.subjects:  # no mutated frame may have moved a decoder's state
            for decode in (subject.decode, subject.decode_again):
                if not same(decode(subject.frames[0]), subject.expected[0]):
                    chunk.tally["wrong"] += 1
                    chunk.faults.append({"subject": subject.name, "fault": "state moved", "frame": ""})
        return chunk


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` reads to a parser."""
    declare(parser, count=200_000, of="mutated frames")


def declare(parser: argparse.ArgumentParser, *, count: int, of: str) -> None:
    """Add what `attack` reads to a parser."""
    _hunt.add_arguments(parser, count=count, of=of)
    parser.set_defaults(seed=0)
    text = "check every index of the kernels; compiles for minutes first"
    parser.add_argument("--boundscheck", action="store_true", help=text)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Judge `args.count` mutated frames and print a table; "ok" tells whether nothing was wrong."""
    return attack(FrameJudge, args, "mutate")


def attack(judge: type[FrameJudge], args: argparse.Namespace, name: str) -> dict[str, Any]:
    """Judge what `run` of the trial `name` asks for."""
    print(f"# {name}: count {args.count}, seed {args.seed}, jobs {args.jobs}, boundscheck {args.boundscheck}")
    how = {"seed": args.seed, "size": CHUNK, "jobs": args.jobs, "silence_s": SILENCE_S}
    with _environment(args.boundscheck):
        found, seconds = hunt(partial(judge, args.seed), args.count, **how)
    faults = [*({"subject": "worker", "fault": end, "frame": ""} for end in found.lost), *found.faults]
    result: Row = {
        "mutations": found.cases,
        "seconds": round(seconds, 3),
        "per_second": round(found.cases / seconds, 1) if seconds else 0.0,
        **{kind: found.tally[kind] for kind in KINDS},
        "slowest_ms": round(found.slowest * 1000, 3),
        "subjects": dict(sorted(found.subjects.items())),
        "faults": faults[:KEPT_FAULTS],
        "ok": not any(found.tally[kind] for kind in ("crashes", "hangs", "over_reads", "wrong")),
    }
    print(TABLE.heading, TABLE.line(result), sep="\n")
    for fault in result["faults"]:
        print(f"# {fault['subject']}: {fault['fault']}: {fault['frame']}")
    return {"seed": args.seed, "jobs": args.jobs, "boundscheck": args.boundscheck, **result}
