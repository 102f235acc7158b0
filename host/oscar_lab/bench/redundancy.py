"""Straggling workers: time of an iteration where each task is done by one, two or three workers.

In every iteration each worker, or each task on a worker, may be several times slower, by chance. All
redundancies see the same draws. The AllReduce is real: frames of a codec, sums compared with those of the
integers; the clock is modelled: tasks, then messages over one switch. A redundancy of r makes every worker
do up to r tasks; it pays where waiting for the slowest costs more. Times are from the common begin until the
last worker has all sums.
"""

from __future__ import annotations

import argparse
import zlib
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.registry import make_codec
from oscar.errors import OscarError
from oscar.numerics.plans import make_plan
from oscar.numerics.quantiser import sum_width
from oscar.tables import Row, Table
from oscar.timeline.link import LinkModel
from oscar_lab.rivals.redundant_tasks import Redundancy
from oscar_lab.rivals.redundant_time import Race

BITS = 12
SIGMA = 8.0  # of a worker's integers, in steps: what a coarseness of 1/8 gives
BAR = 1.5  # times faster with redundancy 2 than without
GRADIENTS = 4  # that take turns

TABLE = Table(
    "redundancy >10", "mean_ms:mean ms >8.2f", "p95_ms:p95 ms >8.2f", "gain >6.2f", "tasks:tasks/iter >10.2f",
    "drained:late copies >11.1f", "megabytes:MB/iter >9.3f", "exact >6",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--redundancy", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--values", type=int, default=32_768, help="of a gradient")
    parser.add_argument("--task-ms", type=float, default=10.0, help="of a task on a worker that is not slow")
    parser.add_argument("--jitter", type=float, default=0.1, help="mean of the exponential part beside it")
    parser.add_argument(
        "--slow", type=float, default=0.1, help="chance that a worker is slow in an iteration"
    )
    parser.add_argument("--unit", choices=["worker", "task"], default="worker", help="what is slow by chance")
    parser.add_argument("--factor", type=float, default=5.0, help="how many times slower it is then")
    parser.add_argument("--gbps", type=float, default=100.0)
    parser.add_argument("--codec", default="asc", help="lossless, of integers")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all redundancies, print a row for each; ok: sums are exact, and redundancy 2 meets the bar."""
    if min(args.iterations, args.values) < 1 or not 0 <= args.slow <= 1 or args.task_ms <= 0:
        raise ValueError(
            "expected 1 iteration and value at least, a chance of 0 to 1 and tasks above 0 ms; "
            f"got {args.iterations}, {args.values}, {args.slow}, {args.task_ms}"
        )
    print(
        f"# {args.nodes} workers, {100 * args.slow:g} % of all {args.unit}s {args.factor:g}x slower in each "
        f"of {args.iterations} iterations; {args.values:,} values, {args.codec}, {args.gbps:g} Gb/s"
    )
    print(TABLE.heading)
    random = np.random.default_rng(args.seed)
    seconds = task_seconds(random, args)
    limit = (1 << (BITS - 1)) - 1
    drawn = random.normal(0, SIGMA, (GRADIENTS, args.nodes, args.values)).round().clip(-limit, limit)
    gradients = drawn.astype(np.int16)
    rows = [measure(copies, seconds, gradients, args) for copies in args.redundancy]
    base = next((row["mean_ms"] for row in rows if row["redundancy"] == 1), None)
    for row in rows:
        row["gain"] = None if base is None else base / row["mean_ms"]
        print(TABLE.line(row))
    met = [row["gain"] >= BAR for row in rows if row["redundancy"] == 2 and row["gain"] is not None]
    same = len({row["crc"] for row in rows}) == 1
    if met:
        print(f"# redundancy 2: bar {BAR}x: {'met' if met[0] else 'MISSED'}")
    print(f"# sums of all redundancies are {'the same bits' if same else 'DIFFERENT'}")
    return {"rows": rows, "bar": BAR, "same": same, "ok": same and all(met)}


def task_seconds(random: np.random.Generator, args: argparse.Namespace) -> Array:
    """Return the seconds of tasks, float64 [iteration, worker, copy]: partly exponential, slow by chance."""
    alike = args.unit == "worker"
    most = max(args.redundancy)
    size = args.iterations, args.nodes, 1 if alike else most
    slower = np.where(random.random(size) < args.slow, args.factor, 1.0)
    seconds = args.task_ms * 1e-3 * slower * (1 + random.exponential(args.jitter, size))
    return np.repeat(seconds, most, axis=2) if alike else seconds


def measure(copies: int, seconds: Array, gradients: Array, args: argparse.Namespace) -> Row:
    """Return the row of one redundancy; raises OscarError where a sum is not that of the integers."""
    link = LinkModel.of(gbps=args.gbps)
    race = Race(Redundancy(args.nodes, copies), make_codec(args.codec), lambda n: sum_width(BITS, n), link)
    bounds = make_plan("equal", args.values, args.nodes, granule=1).bounds
    laps, crc = [], 0
    for index, each in enumerate(seconds):
        tasks = gradients[index % GRADIENTS]
        lap = race.lap(tasks, each.tolist(), bounds)
        if not np.array_equal(lap.sums, tasks.sum(axis=0, dtype=np.int32)):
            raise OscarError(f"redundancy {copies}: expected exact sums in iteration {index}: this is a bug")
        crc = zlib.crc32(lap.sums.tobytes(), crc)
        laps.append(lap)
    times = np.array([lap.seconds for lap in laps])
    return {
        "redundancy": copies,
        "mean_ms": float(1e3 * times.mean()),
        "p95_ms": float(1e3 * np.percentile(times, 95)),
        "covered_ms": float(1e3 * np.mean([lap.covered_s for lap in laps])),
        "tasks": float(np.mean([lap.finished for lap in laps])),
        "drained": float(np.mean([lap.drained for lap in laps])),
        "megabytes": float(np.mean([lap.bytes for lap in laps]) / 1e6),
        "exact": True,
        "crc": crc,
    }
