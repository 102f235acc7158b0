"""A slow rank: time of a step that waits for it, and of one whose tasks other ranks compute.

Ranks are threads of this process with a real transport between them, and the clock is real. A task takes a
fixed time in which its rank sleeps, as one that waits for a GPU; on a slow rank it takes a multiple. The
schedule `direct` has one gradient of each rank, which takes as long as all tasks of a part; everybody waits
for it. The means of every row are compared with those of one process.
"""

from __future__ import annotations

import argparse
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.reducers.tasks import TaskCommunicator
from oscar.tables import Row, Table
from oscar.transports.base import Transport
from oscar.transports.threads import local_transports

WARMUP = 4  # steps: ranks agree on step sizes, then learn who is slow
MOST_OVER = 1.35  # times a step without a slow rank
LEAST_GAIN = 3.0  # times faster than a step that waits

TABLE = Table(
    "schedule <10", "copies >6", "slow:slow rank <9", "ms:ms/step >8.1f", "over:of no slow >10.2f",
    "gain >6.2f", "computed:tasks/step >10.2f", "megabytes:MB/step >9.3f", "drained:drained MB >10.3f",
    "exact >6",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=30, help=f"that are timed, after {WARMUP} others")
    parser.add_argument("--values", type=int, default=100_000, help="of a gradient")
    parser.add_argument("--part-ms", type=float, default=300.0, help="of the tasks of one rank")
    parser.add_argument("--factor", type=float, default=5.0, help="how many times slower the slow rank is")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all rows; ok: means are exact, and copies 2 meets both goals."""
    print(
        f"# {args.nodes} ranks as threads, {args.values:,} values, {args.part_ms:g} ms for a rank's tasks, "
        f"the last rank {args.factor:g}x slower where one is; mean of {args.steps} steps of all ranks"
    )
    print(TABLE.heading)
    rows: list[Row] = []
    for copies in (None, *args.copies):
        for slow in (False, True):
            rows.append(measure(copies, slow, args))
            by_slow = {row["slow"]: row for row in rows if row["schedule"] == "direct"}
            rows[-1]["over"] = rows[-1]["ms"] / by_slow["none"]["ms"]
            rows[-1]["gain"] = by_slow["one"]["ms"] / rows[-1]["ms"] if slow else None
            print(TABLE.line(rows[-1]))
    two = [row for row in rows if row["copies"] == 2 and row["slow"] == "one"]
    met = all(row["over"] <= MOST_OVER and row["gain"] >= LEAST_GAIN for row in two)
    if two:
        print(f"# copies 2: goals {MOST_OVER}x and {LEAST_GAIN}x: {'met' if met else 'MISSED'}")
    return {"rows": rows, "ok": met and all(row["exact"] for row in rows)}


def gradient(seed: int, values: int, step: int, task: int) -> np.ndarray:
    """Return the gradient of a task."""
    return np.random.default_rng([seed, step % 3, task]).standard_normal(values, np.float32)


def measure(copies: int | None, slow: bool, args: argparse.Namespace) -> Row:
    """Return the row of one schedule. copies: None for direct."""
    schedule: Any = "direct" if copies is None else {"name": "redundant", "copies": copies}
    config = Config(nodes=args.nodes, schedule=schedule)
    train = partial(_train, config, slow, args)
    with ThreadPoolExecutor(args.nodes) as pool:
        ranks = list(pool.map(train, local_transports(args.nodes)))
    reference, crc, tasks = LocalCluster(Config(nodes=args.nodes)), 0, ranks[0]["tasks"]
    for step in range(WARMUP + args.steps):
        means = reference.allreduce([[gradient(args.seed, args.values, step, t)] for t in range(tasks)]).mean
        crc = zlib.crc32(means[0].tobytes(), crc)
    steps = np.max([rank["ends"] for rank in ranks], axis=0)  # the slowest rank's
    total = {name: sum(rank[name] for rank in ranks) / args.steps for name in ("computed", "sent", "drained")}
    return {
        "schedule": config.schedule.name,
        "copies": copies,
        "slow": "one" if slow else "none",
        "ms": 1e3 * float(steps[-1] - steps[0]) / args.steps,
        "computed": total["computed"],
        "megabytes": total["sent"] / 1e6,
        "drained": total["drained"] / 1e6,
        "exact": all(rank["crc"] == crc for rank in ranks),
    }


def _train(config: Config, slow: bool, args: argparse.Namespace, transport: Transport) -> dict[str, Any]:
    """Run one rank; return when each of its timed steps ended, and its counts."""
    redundant = config.schedule.name == "redundant"
    kind = TaskCommunicator if redundant else Communicator
    factor = args.factor if slow and transport.rank == transport.nodes - 1 else 1.0
    result: dict[str, Any] = {"ends": [], "crc": 0, "computed": 0, "sent": 0, "drained": 0}
    with kind(config, transport) as communicator:
        result["tasks"] = communicator.gradients
        seconds = 1e-3 * args.part_ms * factor * args.nodes / communicator.gradients

        def compute(step: int, task: int) -> list[np.ndarray]:
            time.sleep(seconds)
            return [gradient(args.seed, args.values, step, task)]

        for step in range(WARMUP + args.steps):
            if isinstance(communicator, TaskCommunicator):
                reduced = communicator.allreduce_tasks(partial(compute, step))
            else:
                reduced = communicator.allreduce(compute(step, transport.rank))
            result["crc"] = zlib.crc32(reduced.mean[0].tobytes(), result["crc"])
            if step >= WARMUP - 1:
                result["ends"].append(time.monotonic())
            if step >= WARMUP:
                tasks = reduced.stats.tasks
                result["computed"] += 1 if tasks is None else len(tasks.computed)
                result["sent"] += reduced.stats.sent_bytes
                result["drained"] += 0 if tasks is None else tasks.drained_bytes
        if isinstance(communicator, TaskCommunicator):
            communicator.drain()
    return result
