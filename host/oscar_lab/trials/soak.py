"""Thousands of AllReduces between real processes, all drawn from one seed: every bit is checked, memory too.

A run is cut into segments. Each makes a new communicator over the same transport, with another codec, plan,
granule, schedule, number of sub-frames, quantiser and coder. Within a segment shapes (no values to some
10,000's, fewer values than ranks, several tensors) and keys change, and gradients are Laplace, sparse,
constant, zero, huge or denormal, on all ranks or on some.

After each AllReduce the ranks exchange digests of means, sums and the sizes of the frames they sent, and
rank 0 compares them with a LocalCluster that it runs alongside over all ranks' gradients. Every rank also
looks whether its inputs were written to, and how much memory is resident: what it had after the first fifth
of the iterations may grow by --memory-mib until the end. In 2,000 iterations 8 MiB are 5 KiB for each, where
a mean takes 16 KiB and the frames that a rank sends 7 KiB: what is kept of every iteration shows.

  oscar trial soak                                   2,000 iterations, four processes, MPI
  oscar trial soak --transport tcp --seed 7 --iterations 200
  oscar trial soak --iterations 1000000 --seconds-limit 3600       an hour of it
  oscar trial soak --iterations 40 --spoil 30        does it find a flipped bit? (exit status 1)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from typing import Any

import numpy as np

from oscar.tables import Table
from oscar_lab.lab.launch import Ended
from oscar_lab.trials._ranks import lines_of, start

WARM = 0.2  # of the iterations: buffers and kernels have had time to become as large as they get
QUIET_S = 15.0  # between two lines of progress where there is no terminal
CASE = ("transport", "iterations", "segment", "values", "seed", "timeout_s", "seconds_limit", "spoil")
SHOWN = 5  # mismatches that are printed; the JSON has more
MEMORY = Table(
    "rank >4", f"warm_kib:KiB at {WARM:.0%} >11", "last_kib:at the end >11", "grown_kib:grown >6",
    "slope_kib:slope per 1,000 iterations >27.0f",
)  # fmt: skip
SEGMENTS = Table(
    "codec <10", "schedule <12", "segments >8", "iterations >10", "resets >7", "values >10",
    "sent_bytes:bytes sent >11", "mismatches >11",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--transport", choices=("mpi", "tcp"), default="mpi", help="of the ranks")
    parser.add_argument("--ranks", type=int, default=4, help="processes")
    parser.add_argument("--iterations", type=int, default=2000, help="AllReduces")
    parser.add_argument("--segment", type=int, default=25, help="AllReduces of one configuration")
    parser.add_argument("--values", type=int, default=40_000, help="most values of one AllReduce")
    parser.add_argument("--seed", type=int, default=0, help="decides everything that is drawn")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="for one wait of a rank")
    parser.add_argument("--seconds-limit", type=float, default=3600.0, help="end the soak after this time")
    parser.add_argument("--memory-mib", type=float, default=8.0, help="growth allowed after the first fifth")
    parser.add_argument(
        "--spoil", type=int, metavar="I", help="flip a bit of the last rank's sums in iteration I"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Soak, and print what was found; "ok" tells whether every bit was right and memory flat."""
    if min(args.ranks, args.iterations, args.segment, args.values) < 1:
        raise ValueError("expected at least 1 rank, iteration, value, and iteration of a segment")
    print(
        f"# {args.ranks} ranks over {args.transport}, {args.iterations} iterations, a new communicator every "
        f"{args.segment}, up to {args.values} values, seed {args.seed}"
    )
    print("# mismatches: of one rank in one iteration, with an in-process cluster over the same gradients")
    heard = _Heard(args.iterations)
    case = {name: getattr(args, name) for name in CASE}
    limit_s = args.seconds_limit + 2 * args.timeout_s
    ended = start("_soak_rank", case, args.ranks, limit_s=limit_s, hear=heard.hear)
    heard.read_all(ended.output)
    result = judge(args, heard, ended)
    _print(args, heard, result)
    return result


class _Heard:
    """Reads what rank 0 writes, line by line, and shows its progress on stderr."""

    def __init__(self, total: int) -> None:
        self.total, self.rest, self.begin = total, b"", time.monotonic()
        self.spoke = self.begin
        self.segments: list[dict[str, Any]] = []
        self.mismatches: list[dict[str, Any]] = []
        self.report: dict[str, Any] | None = None

    def hear(self, fresh: bytes) -> None:
        """Show how far rank 0 is."""
        lines = (self.rest + fresh).split(b"\n")
        self.rest = lines.pop()
        ends = [line for line in lines if line.startswith(b'{"segment": ')]
        if ends:
            self._show(json.loads(ends[-1])["done"])

    def _show(self, done: int) -> None:
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if terminal:
            print(f"\r{done} of {self.total}", end="", file=sys.stderr, flush=True)
        elif now - self.spoke > QUIET_S:
            self.spoke = now
            text = f"# soak: {done} of {self.total} AllReduces, {now - self.begin:.0f} s"
            print(text, file=sys.stderr, flush=True)

    def read_all(self, output: str) -> None:
        """Read rank 0's lines in all that was written."""
        if sys.stderr.isatty():
            print(file=sys.stderr)
        for line in lines_of(output):
            if "segment" in line:
                self.segments.append(line)
            elif "mismatch" in line:
                self.mismatches.append(line)
            elif "memory" in line:
                self.report = line


def judge(args: argparse.Namespace, heard: _Heard, ended: Ended) -> dict[str, Any]:
    """Return the result: what was done, the mismatches, the memory of every rank, and why it is not ok."""
    report = heard.report or {
        "done": sum(row["iterations"] for row in heard.segments),
        "mismatches": len(heard.mismatches),
        "seconds": time.monotonic() - heard.begin,
        "memory": [],
    }
    memory = [memory_of(samples, report["done"]) for samples in report["memory"]]
    grown = max((row["grown_kib"] for row in memory), default=0)
    why = []
    if ended.hung or ended.orphans:
        why.append(f"hung: {ended.hung}, processes left: {ended.orphans}")
    elif ended.launcher_hung:
        why.append("mpirun did not end after its ranks")
    elif ended.status != 0 or heard.report is None:
        why.append(f"ended with status {ended.status} before all was done")
    if report["mismatches"]:
        why.append(f"mismatches: {report['mismatches']}")
    if grown > args.memory_mib * 1024:
        why.append(f"a rank's memory grew by {grown / 1024:.1f} MiB, {args.memory_mib:g} are allowed")
    return {
        "ok": not why,
        "why": why,
        "ranks": args.ranks,
        "transport": args.transport,
        "seed": args.seed,
        "iterations": report["done"],
        "asked": args.iterations,
        "seconds": report["seconds"],
        "mismatches": report["mismatches"],
        "kept": heard.mismatches,
        "segments": heard.segments,
        "memory": memory,
        "output": "" if not why or heard.report is not None else ended.output[-8000:],
    }


def memory_of(samples: list[list[int]], done: int) -> dict[str, Any]:
    """Return what a rank's samples [iterations, KiB] say: after the warm-up, last, growth, slope.

    slope_kib: per 1,000 iterations, by least squares over the second half; 0 with fewer than two samples.
    """
    warm = next((kib for at, kib in samples if at >= WARM * done), samples[-1][1])
    later = np.array([sample for sample in samples if sample[0] >= done / 2], np.float64)
    slope = float(np.polyfit(later[:, 0], later[:, 1], 1)[0]) if len(later) > 1 else 0.0
    last = samples[-1][1]
    return {
        "warm_kib": warm,
        "last_kib": last,
        "most_kib": max(kib for _, kib in samples),
        "grown_kib": last - warm,
        "slope_kib": 1000 * slope,
        "samples": samples,
    }


def _print(args: argparse.Namespace, heard: _Heard, result: dict[str, Any]) -> None:
    _print_segments(heard)
    print(MEMORY.heading)
    for rank, row in enumerate(result["memory"]):
        print(MEMORY.line(row, rank=rank))
    for line in result["kept"][:SHOWN]:
        print(f"# wrong: {json.dumps(line)}")
    if result["output"]:
        print(result["output"], file=sys.stderr)
    if result["iterations"] < args.iterations and not result["why"]:
        print(f"# stopped after {result['iterations']} iterations: --seconds-limit {args.seconds_limit:g}")
    grown = max((row["grown_kib"] for row in result["memory"]), default=0)
    print(
        f"# {result['iterations']} iterations in {result['seconds']:.0f} s, "
        f"{result['mismatches']} mismatches, most grown {grown / 1024:.1f} MiB of {args.memory_mib:g}: "
        f"{'; '.join(result['why']) or 'ok'}"
    )


def _print_segments(heard: _Heard) -> None:
    totals: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in heard.segments:
        total = totals[row["codec"], row["schedule"]]
        total["segments"] += 1
        for name in ("iterations", "resets", "values", "sent_bytes", "mismatches"):
            total[name] += row[name]
    print(SEGMENTS.heading)
    for (codec, schedule), total in sorted(totals.items()):
        print(SEGMENTS.line(total, codec=codec, schedule=schedule))
