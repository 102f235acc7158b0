"""Searches in worker processes: chunks of cases, the same for the same seed; lost workers are counted."""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from oscar_studies.parallel import Tick, run_tasks

SHOW_S = 1.0  # between two looks at how far a search is, on a terminal
TICK = 100  # cases between two ticks of a worker


@dataclass
class Chunk:
    """Outcomes of cases. tally: cases by outcome; faults: in the search's own words; subjects: cases by
    subject; slowest: seconds of a case; cases: their number; lost: how workers died or hung.
    """

    tally: Counter[str] = field(default_factory=Counter)
    faults: list[Any] = field(default_factory=list)
    subjects: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    cases: int = 0
    lost: list[str] = field(default_factory=list)


Judge = Callable[[str, int, Tick], Chunk]  # a chunk by its name, which seeds it, and its number of cases


def add_arguments(parser: argparse.ArgumentParser, *, count: int, of: str) -> None:
    """Declare the options that all searches have."""
    parser.add_argument("--count", type=whole(1), default=count, help=of)
    parser.add_argument("--seed", type=whole(0), help="default: a new one, which is printed")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=whole(1), default=jobs, help="processes (default: all cores)")


def whole(least: int) -> Callable[[str], int]:
    """Return the parser of an option that is a whole number of at least `least`."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {value}")
        return value

    return number


def seed_of(args: argparse.Namespace) -> int:
    """Return the seed asked for, or a new one."""
    return secrets.randbelow(1 << 31) if args.seed is None else int(args.seed)


def hunt(
    make: Callable[[], Judge], count: int, *, seed: int, size: int, jobs: int, silence_s: float = 600.0
) -> tuple[Chunk, float]:
    """Judge `count` cases in chunks of `size`; return what all came to, and the seconds since the first tick.

    make: called once in each worker, returns its judge; it is pickled. silence_s: a worker that does not tick
    for this time hangs. A chunk whose worker is lost is not judged again.
    """
    names = [f"{seed}/{index}" for index in range(-(-count // size))]
    begin, shown = 0.0, time.monotonic()

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal begin, shown
        begin = begin or (done and time.monotonic())
        if sys.stderr.isatty() and time.monotonic() - shown > SHOW_S:
            shown = time.monotonic()
            print(f"\r{done * TICK} of {count}", end="", file=sys.stderr, flush=True)

    def lost(number: int, how: str) -> Chunk:
        kind, how = ("hangs", "hung") if how == "hung" else ("crashes", f"died ({how})")
        return Chunk(Counter({kind: 1}), lost=[f"a worker {how} in chunk {names[number]}"])

    tasks = [partial(_chunk, make, name, min(size, count - i * size)) for i, name in enumerate(names)]
    done = run_tasks(
        tasks, stage="judging", total=count, workers=jobs, progress=progress, lost=lost, silence_s=silence_s
    )
    total = Chunk(slowest=max(chunk.slowest for chunk in done), cases=sum(chunk.cases for chunk in done))
    for chunk in done:
        total.tally.update(chunk.tally)
        total.subjects.update(chunk.subjects)
        total.faults += chunk.faults
        total.lost += chunk.lost
    return total, time.monotonic() - begin if begin else 0.0


def cases(name: str, count: int, tick: Tick) -> Iterator[tuple[str, random.Random]]:
    """Yield name and dice of each case of a chunk, and tick; a case is drawn from its name alone."""
    for number in range(count):
        if number % TICK == 0:
            tick()
        yield f"{name}/{number}", random.Random(f"{name}/{number}")


_made = cache(lambda make: make())


def _chunk(make: Callable[[], Judge], name: str, count: int, tick: Tick) -> Chunk:
    judge = _made(make)
    tick()
    chunk = judge(name, count, tick)
    chunk.cases = count
    return chunk
