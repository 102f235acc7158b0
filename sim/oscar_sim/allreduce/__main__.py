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
from oscar.errors import OscarError
from oscar.results import write_results
from oscar_hdl.flow.elaboration import shallow_stacks
from oscar_sim.allreduce.run import ORDERS, Options, tables
from oscar_sim.results_file import prepared
from oscar_sim.verilated import installed

SCHEDULES = "ring", "direct"
DRIVERS = "registers", "list", "triggered", "adding"  # how a NIC gets its commands
MOST = 10**9
BOUNDS = {  # of options, least and most
    "nodes": (2, 8), "subframes": (1, MAX_SUBFRAMES), "bits": (2, 12), "iterations": (1, MOST),
    "block_log2": (10, 17), "seed": (0, MOST), "warmup": (0, MOST),
    "rate": (1e-3, 1), "latency": (0, MOST), "make": (0, MOST), "host": (0, MOST),
}  # fmt: skip
HOST = 22, 200, 223  # about .1, .9 and 1 us at 223 MHz
EXAMPLES = """
Each NIC is converted RTL under Verilator where that is installed, else the MyHDL description. Frames come and
go on 64-bit streams, a driver gives commands over AXI4-Lite, as docs/registers.md has it. The gradient is
real, from the first iterations of a training. Each NIC gets its commands by registers, as a list, and as a
list that waits for its values, which replace what memory holds or are added to it (docs/hardware.md, "A
list"). The host's coder does the same AllReduce in software. Every frame must have equal bytes, every sum be
equal; exit status 1 says that one is not.

  make sim                                               both schedules and all drivers, four NICs
  python -m oscar_sim.allreduce --schedule direct --nodes 2 --values 3000
  python -m oscar_sim.allreduce --driver list --host 0 0 0
  python -m oscar_sim.allreduce --bits 12 --json build/sim/allreduce.json
"""

Result = tuple[list[str], list[dict[str, Any]], list[str]]  # lines to print, rows, faults


def run_all(jobs: Sequence[Options]) -> Iterator[Result]:
    """Run AllReduces, with progress; yield what they come to, in order.

    In MyHDL they take minutes, and run side by side.
    """
    context, beside = multiprocessing.get_context("spawn"), len(jobs) if jobs[0].simulator == "myhdl" else 1
    with context.Manager() as manager, context.Pool(beside) as pool, Show("frames") as show:
        told = manager.Queue()
        for result in [pool.apply_async(tables, (job, told)) for job in jobs]:
            while not result.ready():
                with suppress(Empty):
                    show(*told.get(timeout=1.0))
            yield result.get()


def compared(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield how many clocks of a driver another saves, where both ran."""
    by = {(row["schedule"], row["iteration"], row["driver"]): row["clocks"] for row in rows}
    for (schedule, iteration, driver), clocks in by.items():
        for other in DRIVERS[DRIVERS.index(driver) + 1 :]:
            if found := by.get((schedule, iteration, other)):
                yield (
                    f"# {schedule}, iteration {iteration}: {clocks:,} clocks {driver}, {found:,} {other}: "
                    f"{clocks / found:.2f} times\n"
                )


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
    p.add_argument("--driver", choices=(*DRIVERS, "all"), default="all", help="of a NIC (%(default)s)")
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
        "--simulator", choices=("verilator", "myhdl"), help="(verilator where it is installed, else myhdl)"
    )
    p.add_argument(
        "--host",
        type=int,
        nargs=3,
        default=HOST,
        metavar=("W", "R", "I"),
        help="clocks that a host takes to write a register, to read one, to notice an interrupt (22 200 223)",
    )
    p.add_argument("--json", type=Path, metavar="OUT", help="write the table there, too")
    return p


def _check(args: argparse.Namespace) -> None:
    """Raise OscarError for the first option out of range."""
    for name, (least, most) in {**BOUNDS, "values": (LANES * args.nodes, MOST)}.items():
        value = getattr(args, name)
        for number in value if name == "host" else [value]:
            if not least <= number <= most:
                option = name.replace("_", "-")
                raise OscarError(f"--{option}: expected {least:,g} to {most:,g}, got {number:,g}")


def _simulator() -> str:
    """Return the faster simulator of those that are installed, and say so where it is the slow one."""
    if installed():
        return "verilator"
    print(
        "# Verilator is not installed: MyHDL simulates instead, which takes many minutes; `make verilator` "
        "installs Verilator",
        file=sys.stderr,
    )
    return "myhdl"


def main(argv: list[str] | None = None) -> int:
    """Run what is asked for, print tables; return 1 when anything differs from the host."""
    args = parser().parse_args(argv)
    shallow_stacks()
    rows: list[dict[str, object]] = []
    faults: list[str] = []
    try:
        _check(args)
        simulator = args.simulator or _simulator()
        skipped = "registers" if args.driver == "all" else None  # by --asks, which is for lists
        jobs = [
            Options(
                schedule=schedule, nodes=args.nodes, values=args.values, iterations=args.iterations,
                units=args.units, bits=args.bits, rate=args.rate, latency=args.latency,
                driver=driver, host=tuple(args.host), make=args.make, order=args.order,
                asks=args.asks and driver != skipped, simulator=simulator,
                subframes=args.subframes, workload=args.workload, block_log2=args.block_log2,
                seed=args.seed, warmup=args.warmup,
            )
            for schedule in (SCHEDULES if args.schedule == "both" else (args.schedule,))
            for driver in (DRIVERS if args.driver == "all" else (args.driver,))
        ]  # fmt: skip
        prepared(args.json)
        for lines, fresh, wrong in run_all(jobs):
            print("\n".join(lines), flush=True)
            rows += fresh
            faults += wrong
        print(*compared(rows), sep="", end="", flush=True)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        write_results(args.json, {"ok": not faults, "rows": rows, "faults": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
