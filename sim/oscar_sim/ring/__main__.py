"""Command line of the ring of simulated NICs."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from oscar.cli.progress import Show
from oscar.errors import OscarError
from oscar.files import write_json
from oscar_sim.results_file import prepared
from oscar_sim.ring.run import RingOptions, tables

SCHEDULES = "ring", "boomerang"
# Measured: a step of the schedule takes about 6,000 clocks, most of them to build tables, and a core
# simulates some 2,200 clocks of a NIC in a second.
STEP_CLOCKS, CLOCKS_A_SECOND = 6000, 2200

Result = tuple[list[str], list[dict[str, Any]], list[str]]  # lines to print, rows, faults


def seconds(options: RingOptions) -> float:
    """Return about how long a ring takes on a core of its own."""
    clocks = options.iterations * 2 * options.nodes * STEP_CLOCKS
    return clocks * options.nodes / CLOCKS_A_SECOND


def run_all(jobs: Sequence[RingOptions]) -> Iterator[Result]:
    """Run rings side by side, with progress; yield what they come to, in order."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(len(jobs)) as pool, Show("frames") as show:
        told = manager.Queue()
        for result in [pool.apply_async(tables, (job, told)) for job in jobs]:
            while not result.ready():
                with suppress(Empty):
                    show(*told.get(timeout=1.0))
            yield result.get()


def main(argv: list[str] | None = None) -> int:
    """Run the rings asked for, print their tables; return 1 when anything differs from the host."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_sim.ring",
        description="Ring AllReduce by NICs in MyHDL, clock by clock, against the host bit for bit.",
    )
    parser.add_argument("--schedule", choices=(*SCHEDULES, "both"), default="both", help="(%(default)s)")
    parser.add_argument("--nodes", type=int, default=RingOptions.nodes, help="(%(default)s)")
    parser.add_argument(
        "--values", type=int, default=RingOptions.values, help="of the gradient bucket (%(default)s)"
    )
    parser.add_argument(
        "--iterations", type=int, default=2, help="AllReduces, one after the other (%(default)s)"
    )
    parser.add_argument(
        "--rate", type=float, default=1.0, help="16-bit words a clock on a link (%(default)s)"
    )
    parser.add_argument(
        "--latency", type=int, default=20, help="clocks from end to end of a link (%(default)s)"
    )
    parser.add_argument(
        "--vcd",
        type=Path,
        metavar="FILE.vcd",
        help="waveform of one ring (boomerang, unless --schedule says ring), with MyHDL's simulator",
    )
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args(argv)
    if not 2 <= args.nodes <= 8 or args.values < 8 * args.nodes or not 0 < args.rate <= 1:
        parser.error("expected 2 to 8 nodes, at least 8 values a node, and a rate above 0 and up to 1")
    if args.iterations < 1 or args.latency < 0:
        parser.error("expected at least one iteration and a latency of 0 or more clocks")
    schedules = (
        SCHEDULES
        if args.schedule == "both" and args.vcd is None
        else (args.schedule.replace("both", "boomerang"),)
    )
    jobs = [
        RingOptions(
            schedule=schedule, nodes=args.nodes, values=args.values, iterations=args.iterations,
            rate=args.rate, latency=args.latency, vcd=args.vcd,
        )
        for schedule in schedules
    ]  # fmt: skip
    rows: list[dict[str, object]] = []
    faults: list[str] = []
    try:
        prepared(args.json)
        cores = min(len(jobs), multiprocessing.cpu_count())
        print(f"# takes about {sum(map(seconds, jobs)) / cores / 60:.1f} minutes", flush=True)
        for lines, fresh, wrong in run_all(jobs):
            print("\n".join(lines), flush=True)
            rows += fresh
            faults += wrong
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        write_json(args.json, {"ok": not faults, "rows": rows, "faults": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
