"""A fault at every action of every rank: it is told or it does no harm, and nothing hangs (figure i)."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from oscar.collective.frames import AllReduceResult
from oscar.collective.local import Fault, FaultKind
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.errors import PeerError
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Table
from oscar_lab.trials._ranks import config_of, laplace

KINDS: tuple[FaultKind, ...] = ("kill", "stall", "corrupt", "delay")
OUTCOMES = ("error", "exact", "wrong")
SHAPES = ((211, 97), (3001,), (), (640,))
SHOWN = 10  # wrong outcomes that are printed; the JSON holds all
TABLE = Table(
    "schedule <12", "fault <8", "cases >6", *(f"{o} >6" for o in OUTCOMES), "slowest_ms: slowest ms >11.0f"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--subframes", type=int, default=2)
    parser.add_argument("--schedules", nargs="+", choices=list(SCHEDULES), default=list(SCHEDULES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--codec", default="asc", help="codec on the links")
    parser.add_argument("--bound", type=float, default=5.0, help="seconds in which every call must return")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Inject every fault and print how each kind ended; "ok" tells whether every one was handled."""
    print(f"# {args.nodes} nodes, {args.subframes} sub-frames, codec {args.codec}")
    print("# a fault of each kind at every action of every rank, one at a time")
    print("# error: PeerError that names rank, peer, step and chunk; exact: the sum is right on every node")
    print("# after each: inputs are untouched, and the next call sends what an undisturbed cluster sends")
    print(TABLE.heading)
    rows, wrong = [], []
    for schedule in args.schedules:
        bench = _Bench(args, schedule)
        for kind in args.kinds:
            counts: Counter[str] = Counter()
            slowest = 0.0
            for fault in _faults(args, schedule, kind):
                started = time.perf_counter()
                outcome, why = bench.strike(fault)
                seconds = time.perf_counter() - started
                if seconds > args.bound:
                    outcome, why = "wrong", f"took {seconds:.1f} s"
                if outcome == "wrong":
                    wrong.append(f"{schedule} {fault}: {why}")
                counts[outcome] += 1
                slowest = max(slowest, seconds)
            row = {"schedule": schedule, "fault": kind, "cases": counts.total(), "slowest_s": slowest}
            rows.append(row | {outcome: counts[outcome] for outcome in OUTCOMES})
            print(TABLE.line(rows[-1], slowest_ms=slowest * 1e3), flush=True)
    cases = sum(row["cases"] for row in rows)
    longest = max((row["slowest_s"] for row in rows), default=0.0)
    print(f"# (i) {cases} faults, {len(wrong)} wrong, none hung: the slowest took {longest:.2f} s")
    for line in wrong[:SHOWN]:
        print(f"# wrong: {line}")
    return {"ok": not wrong, "rows": rows, "cases": cases, "wrong": wrong}


def _faults(args: argparse.Namespace, name: str, kind: FaultKind) -> Iterable[Fault]:
    schedule = make_schedule(name, args.nodes, subframes=args.subframes)
    for rank in range(args.nodes):
        for action, _ in enumerate(schedule.actions(rank)):
            yield Fault(kind, rank, action, rounds=3 * args.nodes)


class _Bench:
    """One warm cluster that is struck again and again, and what an undisturbed one does."""

    def __init__(self, args: argparse.Namespace, schedule: str) -> None:
        config = config_of(
            args.codec,
            schedule,
            subframes=args.subframes,
            quantiser={"error_feedback": True, "rounding": "stochastic"},
            plan={"name": "splitter", "granule": 64},
        )
        self.nodes, self.seed = args.nodes, args.seed
        self.struck, calm = LocalCluster(config), LocalCluster(config)
        first = self._gradients(0)
        self.struck.allreduce(first)
        calm.allreduce(first)
        self.state = calm.state_dict()
        self.second = self._gradients(1)
        self.before = _bytes(self.second)
        self.expected = calm.allreduce(self.second)

    def _gradients(self, iteration: int) -> list[list[np.ndarray]]:
        return [laplace([self.seed, iteration, node], SHAPES) for node in range(self.nodes)]

    def strike(self, fault: Fault) -> tuple[str, str]:
        """Return the outcome of a call with `fault`, and what was wrong with it or with the call after."""
        outcome = "exact"
        self.struck.load_state_dict(self.state)
        try:
            result = self.struck.allreduce(self.second, faults=[fault])
            if why := self._differs(result):
                return "wrong", why
            self.struck.load_state_dict(self.state)
        except PeerError as error:
            outcome = "error"
            if why := self._misnames(error, fault):
                return "wrong", why
        except Exception as error:
            return "wrong", f"raised {error!r}"
        if _bytes(self.second) != self.before:
            return "wrong", "inputs were written to"
        if why := self._differs(self.struck.allreduce(self.second)):
            return "wrong", f"next call: {why}"
        return outcome, ""

    def _differs(self, result: AllReduceResult) -> str:
        """Say what differs from the undisturbed call, or nothing."""
        if not (result.stats.exact and result.stats.identical):
            return "sums are not exact on every node"
        if not np.array_equal(result.sums, self.expected.sums):
            return "sums differ"
        if result.stats.frames != self.expected.stats.frames:
            return "frames differ"
        return ""

    def _misnames(self, error: PeerError, fault: Fault) -> str:
        if fault.kind == "delay":
            return f"a delay is no fault: {error}"
        if error.peer != fault.rank:
            return f"blames rank {error.peer}: {error}"
        if not (error.step >= 0 and 0 <= error.chunk < self.nodes and error.rank != error.peer):
            return f"names no action: {error}"
        return ""


def _bytes(gradients: list[list[np.ndarray]]) -> list[bytes]:
    return [tensor.tobytes() for node in gradients for tensor in node]
