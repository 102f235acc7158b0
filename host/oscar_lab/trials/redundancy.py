"""Redundant tasks of ranks that are slow by chance, of which one dies: every mean must be right on all ranks.

Ranks are threads of this process. In each step each rank is fast, slow or very slow, and now and then
gradients grow a hundredfold, so that ranks agree on new step sizes. One rank dies between two messages, which
are drawn. The means of all ranks are compared with those of one process, and survivors must be told.
"""

from __future__ import annotations

import argparse
import random
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import CautionWarning
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.tasks import TaskCommunicator
from oscar.tables import Row, Table
from oscar.transports.base import TASK_TAG, Transport
from oscar.transports.threads import ThreadTransport, local_transports
from oscar_lab.trials._hunt import seed_of

NODES, COPIES, VALUES = 4, 2, 600
SLOW_S = (0.0, 0.0, 0.0, 0.0003, 0.003)  # of a task
SPIKE, EVERY = 100.0, 97  # how much larger a gradient is in one of so many steps
SENDS = 10  # of a rank in a step, about

TABLE = Table(
    "run >4", "steps >6", "victim:dies >6", "at:in step >8", "wrong:wrong means >12", "told >5",
    "drained:late copies >12", "tasks:tasks/step >11.2f", "seconds:s >7.1f",
)  # fmt: skip


class Died(Exception):
    """A rank is gone without a word."""


def die_at(transport: Transport, last: int) -> None:
    """Let a rank die before it sends its message number `last` of a task."""
    sent, send = 0, transport._send

    def limited(peer: int, tag: int, parts: Any) -> None:
        nonlocal sent
        sent += tag == TASK_TAG
        if sent == last:
            transport.close()
            raise Died
        send(peer, tag, parts)

    transport._send = limited  # type: ignore[method-assign]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each run; "ok" tells whether all means were right and all survivors were told."""
    seed = seed_of(args)
    print(f"# {NODES} ranks, {COPIES} copies, one death in each run, seed {seed}")
    print(TABLE.heading)
    rows = []
    for number in range(args.runs):
        rows.append({"run": number, **play(args.steps, f"{seed} {number}")})
        print(TABLE.line(rows[-1]), flush=True)
    return {
        "ok": all(row["wrong"] == 0 and row["told"] == NODES - 1 for row in rows),
        "seed": seed,
        "rows": rows,
    }


def play(steps: int, seed: str) -> Row:
    """Return the row of one run."""
    begin, dice = time.monotonic(), random.Random(seed)
    base, victim = dice.randrange(1 << 32), dice.randrange(NODES)
    last = dice.randrange(SENDS, max(SENDS + 1, SENDS * steps // 2))
    train = partial(_train, steps, base, victim, last)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CautionWarning)
        with ThreadPoolExecutor(NODES) as pool:
            ranks = list(pool.map(train, local_transports(NODES)))
    cluster, wrong, tasks = LocalCluster(Config(nodes=ranks[0]["tasks"])), 0, ranks[0]["tasks"]
    for step in range(steps):
        mean = cluster.allreduce([gradient(base, step, task) for task in range(tasks)]).mean
        here = [rank["means"][step] for rank in ranks if step < len(rank["means"])]
        wrong += sum(each != _digest(mean) for each in here)
    wrong += sum(len(rank["means"]) != steps for number, rank in enumerate(ranks) if number != victim)
    return {
        "steps": steps,
        "victim": victim,
        "at": len(ranks[victim]["means"]),
        "wrong": wrong,
        "told": len({str(each.message) for each in caught if f"rank {victim} died" in str(each.message)}),
        "drained": sum(rank["drained"] for rank in ranks),
        "tasks": sum(rank["computed"] for rank in ranks) / steps,
        "seconds": time.monotonic() - begin,
    }


def gradient(seed: int, step: int, task: int) -> list[np.ndarray]:
    """Return the gradient of a task."""
    size = (1 + task) * (SPIKE if step % EVERY == EVERY // 2 else 1.0)
    draw = np.random.default_rng([seed, step, task])
    return [np.float32(size) * draw.standard_normal(VALUES, np.float32), np.zeros(3, np.float32)]


def _digest(mean: list[np.ndarray]) -> int:
    return zlib.crc32(b"".join(each.tobytes() for each in mean))


def _train(steps: int, seed: int, victim: int, last: int, transport: ThreadTransport) -> dict[str, Any]:
    """Run one rank. victim: dies before it sends its message number `last`."""
    result: dict[str, Any] = {"means": [], "drained": 0, "computed": 0}
    dice = random.Random(seed + transport.rank)
    if transport.rank == victim:
        die_at(transport, last)
    schedule: Any = {"name": "redundant", "copies": COPIES}
    config = Config(nodes=NODES, schedule=schedule)
    communicator = TaskCommunicator(config, transport)
    result["tasks"] = communicator.gradients
    try:
        for step in range(steps):
            reduced = communicator.allreduce_tasks(partial(_slowly, dice.choice(SLOW_S), seed, step))
            result["means"].append(_digest(reduced.mean))
            assert reduced.stats.tasks is not None
            result["drained"] += reduced.stats.tasks.drained
            result["computed"] += len(reduced.stats.tasks.computed)
        communicator.drain()
    except Died:
        pass
    return result


def _slowly(nap: float, seed: int, step: int, task: int) -> list[np.ndarray]:
    time.sleep(nap)
    return gradient(seed, step, task)
