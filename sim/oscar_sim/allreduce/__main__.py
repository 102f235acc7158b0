"""Command line of AllReduces by simulated NICs."""

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
from oscar.coding.asc.params import LANES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.errors import ConfigError, OscarError
from oscar.results import write_results
from oscar_hdl.flow.elaboration import shallow_stacks
from oscar_sim.allreduce import report
from oscar_sim.allreduce.expected import FORMATS
from oscar_sim.allreduce.figure import draw
from oscar_sim.allreduce.run import ORDERS, Options, Outcome, Wave, told_of
from oscar_sim.errors import RtlError
from oscar_sim.results_file import prepared
from oscar_sim.verilated import installed

SCHEDULES = "ring", "direct"
DRIVERS = tuple(report.DRIVERS)
MOST = 10**9
BOUNDS = {  # of options, least and most
    "mhz": (1, 10_000), "nodes": (2, 8), "subframes": (1, MAX_SUBFRAMES), "bits": (2, 12),
    "iterations": (1, MOST), "block_log2": (10, 17), "seed": (0, MOST), "warmup": (0, MOST),
    "rate": (1e-3, 1), "latency": (0, MOST), "make": (0, MOST), "host": (0, MOST),
}  # fmt: skip
EXAMPLES = """
Each NIC is converted RTL under Verilator. Frames come and go on 64-bit streams, a driver gives commands over
AXI4-Lite, as registers.md has it. The gradient is real. The host's coder does the same AllReduce in
software. Every frame must have equal bytes, every sum be equal; exit status 1 says that one is not.
Finally, one NIC reduces with ranks in software, which code as the host does and take no clocks.
Needs Verilator, which `make sim` installs; a NIC is compiled once, in a minute or two. nic-on-a-board.md
explains the words.

  make sim                                               both schedules, two drivers, four NICs
  make sim ARGS="--floats bfloat16"                      NICs quantise the gradients
  make sim ARGS="--trace build/sim/x.fst"                one AllReduce, with all signals of NIC 0
  python -m oscar_sim.allreduce --schedule direct --nodes 2 --values 3000
  python -m oscar_sim.allreduce --driver all --bits 12 --json build/sim/allreduce.json
"""


def run_all(jobs: Sequence[Options], wave: Wave | None = None) -> Iterator[Outcome]:
    """Run AllReduces, with progress; yield what they come to, in order.

    In MyHDL they take minutes, and run side by side.
    """
    context, beside = multiprocessing.get_context("spawn"), len(jobs) if jobs[0].simulator == "myhdl" else 1
    with context.Manager() as manager, context.Pool(beside) as pool, Show("frames") as show:
        told = manager.Queue()
        for result in [pool.apply_async(told_of, (job, told, wave)) for job in jobs]:
            while not result.ready():
                with suppress(Empty):
                    show(*told.get(timeout=1.0))
            yield result.get()


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(
        prog="python -m oscar_sim.allreduce",
        description="AllReduce by simulated NICs, clock by clock, against the host bit for bit.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--schedule", choices=(*SCHEDULES, "both"), default="both", help="(%(default)s)")
    p.add_argument("--nodes", type=int, default=Options.nodes, help="NICs, 2 to 8 (%(default)s)")
    p.add_argument(
        "--software", type=int, default=None,
        help="how many of the nodes are in software (0, and one more run in which all but one are)",
    )  # fmt: skip
    p.add_argument(
        "--units", type=int, default=Options.units, choices=(1, 2, 4, 8), help="of a NIC (%(default)s)"
    )
    p.add_argument(
        "--subframes",
        type=int,
        default=Options.subframes,
        help="frames of a chunk, cut as the host cuts it (%(default)s)",
    )
    p.add_argument("--workload", default=Options.workload, help="whose gradient it is (%(default)s)")
    p.add_argument(
        "--values", type=int, default=Options.values, help="of the gradient, 32 a NIC or more (%(default)s)"
    )
    p.add_argument("--bits", type=int, default=Options.bits, help="of the quantiser, 2 to 12 (%(default)s)")
    p.add_argument(
        "--block-log2", type=int, default=Options.block_log2, help="log2 of a block's values (%(default)s)"
    )
    p.add_argument("--seed", type=int, default=Options.seed, help="of the training (%(default)s)")
    p.add_argument(
        "--warmup", type=int, default=Options.warmup, help="iterations trained before (%(default)s)"
    )
    p.add_argument("--iterations", type=int, default=Options.iterations, help="AllReduces (%(default)s)")
    p.add_argument("--rate", type=float, default=Options.rate, help="words a clock on a link (%(default)s)")
    p.add_argument("--latency", type=int, default=Options.latency, help="clocks of a link (%(default)s)")
    p.add_argument(
        "--driver", choices=(*DRIVERS, "all"), nargs="+", default=None,
        help="how a NIC gets its commands (registers list)",
    )  # fmt: skip
    p.add_argument(
        "--floats", choices=FORMATS, default=Options.floats,
        help="NICs get gradients in this format and quantise them (they get integers)",
    )  # fmt: skip
    p.add_argument("--mhz", type=float, help="clock rate of the NICs (that of the package's NIC)")
    p.add_argument(
        "--make", type=float, default=0.0, help="clocks in which a node makes a value (%(default)s)"
    )
    told = "; ".join(f"{name}: {text}" for name, text in ORDERS.items())
    p.add_argument("--order", choices=ORDERS, default=Options.order, help=f"{told} (%(default)s)")
    p.add_argument(
        "--asks", action="store_true",
        help="read sums while a list runs, by asking which entries have ended; clocks are until all are read",
    )  # fmt: skip
    p.add_argument(
        "--simulator", choices=tuple(report.SIMULATORS), default="verilator",
        help="myhdl needs no Verilator, and takes many minutes (%(default)s)",
    )  # fmt: skip
    p.add_argument(
        "--host",
        type=int,
        nargs=3,
        metavar=("W", "R", "I"),
        help="clocks in which a host writes a register, reads one, notices an interrupt (0.1, 0.9, 1 us)",
    )
    p.add_argument(
        "--trace", type=Path, metavar="FST",
        help="run one AllReduce (direct, by a list, if not told otherwise), write all signals of NIC 0",
    )  # fmt: skip
    p.add_argument("--figure", type=Path, metavar="SVG", help="draw who sends, receives and codes when")
    p.add_argument("--json", type=Path, metavar="OUT", help="write the table there, too")
    return p


def _check(args: argparse.Namespace) -> None:
    """Raise OscarError for the first option out of range."""
    for name, (least, most) in {**BOUNDS, "values": (LANES * args.nodes, MOST)}.items():
        value = getattr(args, name)
        for number in (value or ()) if name == "host" else [value]:
            if not least <= number <= most:
                option = name.replace("_", "-")
                raise OscarError(f"--{option}: expected {least:,g} to {most:,g}, got {number:,g}")


def _choices(args: argparse.Namespace) -> tuple[Sequence[str], Sequence[str]]:
    """Return the schedules and the drivers to run; with --trace one of each."""
    schedules = SCHEDULES if args.schedule == "both" else (args.schedule,)
    chosen = args.driver or ["registers", "list"]
    drivers = DRIVERS if "all" in chosen else tuple(dict.fromkeys(chosen))
    if args.trace is None:
        return schedules, drivers
    if args.simulator != "verilator":
        raise ConfigError(f"--trace is written by Verilator, got --simulator {args.simulator}: leave one out")
    if args.schedule == "both":
        schedules = ("direct",)
    if args.driver is None:
        drivers = ("list",)
    if len(drivers) > 1:
        raise ConfigError(f"--trace is of one AllReduce, got {len(drivers)} drivers: name one")
    args.iterations = 1
    return schedules, drivers


def _jobs(args: argparse.Namespace, schedules: Sequence[str], drivers: Sequence[str]) -> list[Options]:
    """Return what is to be run."""
    kinds = [(schedule, driver, args.software or 0) for schedule in schedules for driver in drivers]
    if args.software is None and args.trace is None and "list" in drivers and args.nodes > 2:
        kinds.append((schedules[-1], "list", args.nodes - 1))
    skipped = "registers" if len(drivers) > 1 else None  # by --asks, which is for lists
    return [
        Options(
            schedule=schedule, nodes=args.nodes, values=args.values, iterations=args.iterations,
            units=args.units, bits=args.bits, rate=args.rate, latency=args.latency,
            driver=driver, host=tuple(args.host), make=args.make, order=args.order,
            asks=args.asks and driver != skipped, simulator=args.simulator,
            subframes=args.subframes, workload=args.workload, block_log2=args.block_log2,
            seed=args.seed, warmup=args.warmup, software=software, floats=args.floats,
        )
        for schedule, driver, software in kinds
    ]  # fmt: skip


def _run(args: argparse.Namespace, origin: str) -> int:
    """Run what is asked for and print it; return the exit status."""
    schedules, drivers = _choices(args)
    jobs = _jobs(args, schedules, drivers)
    for file in (args.json, args.figure, args.trace):
        prepared(file)
    if args.simulator == "verilator" and not installed():
        raise RtlError(
            "Verilator and g++ are needed: `make verilator` installs them; --simulator myhdl needs neither, "
            "and takes many minutes"
        )
    wave = None if args.trace is None else Wave(args.trace.resolve(), args.mhz)
    print(*report.heading(jobs, args.mhz, origin), sep="\n", flush=True)
    rows: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    for outcome in run_all(jobs, wave):
        outcomes.append(outcome)
        fresh = [report.timed(row, args.mhz) for row in outcome.rows]
        rows += fresh
        for row in fresh:
            print(report.line(row), flush=True)
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    if rows:
        print(*report.summary(rows, outcomes), sep="\n")
    if args.figure and rows:
        draw(args.figure, rows)
    if args.json:
        write_results(args.json, {"ok": not faults, "rows": rows, "faults": faults})
    files = {
        "all signals of NIC 0, for GTKWave or Surfer": args.trace,
        "who sends, receives and codes when": args.figure,
        "every number": args.json,
    }
    last = [*report.written(files), *(f"# FAULT: {fault}" for fault in faults)]
    print(*last, report.verdict(rows, sum(job.iterations for job in jobs)), sep="\n")
    return 1 if faults else 0


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for, print a table; return 1 when anything differs from the host."""
    args = parser().parse_args(argv)
    shallow_stacks()
    mhz, origin = report.default_mhz(args.units)
    if args.mhz is None:
        args.mhz = mhz
    else:
        origin = "as --mhz says"
    try:
        _check(args)
        args.host = args.host or report.host_clocks(args.mhz)
        return _run(args, origin)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
