"""Replicas under torchft that are killed and join again: nothing hangs, and all that live stay equal.

A lighthouse and its replicas train a small model (torchft.md). Again and again one replica is killed at
a random moment, others go on, and a new one heals and joins. After each event all living replicas have to
commit a step that all of them are in, within a limit. After a step all have to share the same parameters.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from oscar.tables import Table
from oscar_lab.trials._elastic_rank import replica
from oscar_lab.trials._hunt import seed_of
from oscar_lab.trials._ranks import lines_of

START_S = 120.0  # for processes to start on a busy machine
DIALS = {"min_replicas": 1, "join_timeout_ms": 2000, "quorum_tick_ms": 50, "heartbeat_timeout_ms": 1500}
CONFIG = {"quantiser": {"error_feedback": True, "coarseness": 1.0}}
TABLE = Table(
    "replicas >8",
    *(f"{name} >6" for name in ("kills", "hung", "apart")),
    "configures >10",
    *(f"{name} >11" for name in ("median s", "largest s", "back s", "at most s")),
)
Lines = list[dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--replicas", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--kills", type=int, default=25, help="for each number of replicas")
    parser.add_argument("--group", choices=("oscar", "gloo"), default="oscar")
    parser.add_argument("--way", choices=("diloco", "local_sgd", "ddp"), default="diloco")
    parser.add_argument("--limit-s", type=float, default=60.0, help="for all to be together again")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each number of replicas; "ok" tells whether nothing hung and parameters were equal."""
    seed, rows = seed_of(args), []
    print(f"# {args.group}, {args.way}, {args.kills} kills each, seed {seed}")
    print("# configures: their number and seconds; back: from a new replica's start to a step of all")
    print(TABLE.heading)
    for nodes in args.replicas:
        row = {"replicas": nodes, **_hunt(args, nodes, random.Random(f"{seed} {nodes}"))}
        rows.append(row)
        print(TABLE.line(row), flush=True)
    return {"ok": not any(row["hung"] or row["apart"] for row in rows), "seed": seed, "rows": rows}


class Replicas:
    """A lighthouse and its replicas; a context that leaves no process behind.

    group, way: as in `_elastic_rank.replica`. timeout_s: of the process group.
    """

    def __init__(self, group: str, way: str, nodes: int, *, timeout_s: float = 15.0, pause_s: float = 0.02):
        os.environ.setdefault("RUST_LOG", "error")  # torchft's servers say a lot
        from torchft.coordination import LighthouseServer

        self.names = [f"r{rank}" for rank in range(nodes)]
        self._kept = tempfile.TemporaryDirectory(prefix="oscar-elastic-")
        self.folder = Path(self._kept.name)
        self._said = self.folder / "said"
        self._said.touch()
        self._lighthouse = LighthouseServer(bind="127.0.0.1:0", **DIALS)
        address = f"http://127.0.0.1:{self._lighthouse.address().rpartition(':')[2]}"
        self._case = {
            "group": group,
            "way": way,
            "timeout_s": timeout_s,
            "pause_s": pause_s,
            "config": CONFIG,
        }
        self._case |= {"folder": str(self.folder), "said": str(self._said), "lighthouse": address}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__, "oscar.torchft"])
        self.alive: dict[str, Any] = {}
        self._lives: dict[str, int] = defaultdict(int)

    def start(self, name: str) -> None:
        """Start a replica, or another one of its name."""
        args = self._case, name, self._lives[name]
        process = self._context.Process(target=replica, args=args, daemon=True)
        self._lives[name] += 1
        process.start()
        self.alive[name] = process

    def begin(self) -> bool:
        """Start all replicas, and return whether they have a step together."""
        for name in self.names:
            self.start(name)
        ready = self.wait(lambda lines: len(lines) >= len(self.names), START_S)
        (self.folder / "go").touch()
        return ready and self.wait(partial(together, names=self.names, since=0.0), START_S)

    def kill(self, name: str) -> list[str]:
        """End a replica as a power cut does; return the others."""
        process = self.alive.pop(name)
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        return [one for one in self.names if one != name]

    def lines(self) -> Lines:
        """Return all that replicas have written so far, in the order written."""
        return lines_of(self._said.read_text(encoding="utf-8"))

    def wait(self, until: Callable[[Lines], bool], limit_s: float) -> bool:
        """Return whether `until(lines)` was true within the limit."""
        stop = time.monotonic() + limit_s
        while not (result := until(self.lines())) and time.monotonic() < stop:
            time.sleep(0.05)
        return result

    def end(self, after: int, limit_s: float) -> list[int | None]:
        """Let replicas end after so many further steps; return their exit statuses."""
        steps = [line["step"] for line in self.lines() if "digest" in line]
        (self.folder / "going").write_text(json.dumps(max(steps, default=0) + after))
        (self.folder / "going").rename(self.folder / "stop")
        stop = time.monotonic() + limit_s
        for process in self.alive.values():
            process.join(max(0.0, stop - time.monotonic()))
        return [process.exitcode for process in self.alive.values()]

    def __enter__(self) -> Replicas:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.alive):
            self.kill(name)
        self._lighthouse.shutdown()
        self._kept.cleanup()


def _hunt(args: argparse.Namespace, nodes: int, dice: random.Random) -> dict[str, Any]:
    back, hung = [], 0
    with Replicas(args.group, args.way, nodes) as job:
        hung += not job.begin()
        for _ in range(args.kills):
            time.sleep(dice.uniform(0.0, 1.0))
            victim, killed = dice.choice(job.names), time.time()
            rest = job.kill(victim)
            hung += not job.wait(partial(together, names=rest, since=killed), args.limit_s)
            time.sleep(dice.uniform(0.0, 0.5))
            job.start(victim)
            begun = time.time()
            if job.wait(partial(together, names=job.names, since=begun), args.limit_s):
                back.append(time.time() - begun)
            else:
                hung += 1
        hung += any(job.end(5, args.limit_s))
        lines = job.lines()
    seconds = configures(lines)
    return {
        "kills": args.kills,
        "hung": hung,
        "apart": len(apart(lines)),
        "configures": len(seconds),
        "median s": round(statistics.median(seconds), 3),
        "largest s": round(max(seconds), 3),
        "back s": round(statistics.median(back), 2),
        "at most s": round(max(back), 2),
    }


def together(lines: Lines, names: list[str], since: float) -> bool:
    """Whether all of `names` wrote one step after `since` in which all of them took part, and no others."""
    result = defaultdict(set)
    for line in lines:
        if line.get("participants") == len(names) and line["at"] > since:
            result[line["step"]].add(line["replica"])
    return any(set(names) <= who for who in result.values())


def apart(lines: Lines) -> list[int]:
    """Return the steps after which replicas shared no parameters."""
    digests = defaultdict(set)
    for line in lines:
        if "digest" in line:
            digests[line["step"]].add(line["digest"])
    return [step for step, result in digests.items() if len(result) > 1]


def configures(lines: Lines) -> list[float]:
    """Return the seconds of every `configure`, each once."""
    last = {(line["replica"], line["life"]): line["configure_s"] for line in lines if "digest" in line}
    return [seconds for each in last.values() for seconds in each]
