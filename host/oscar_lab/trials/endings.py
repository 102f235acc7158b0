"""Processes that end without giving anything back: each must end with status 0, and none abort.

A job is some ranks that reduce over a communicator or in DDP's hook and then return from main, in turn with
all of it still held, or dropped, or after destroy_process_group. A thread of a library that waits while the
interpreter goes takes the process down (SIGABRT), now and then.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from oscar.tables import Row, Table
from oscar_lab.trials._hunt import seed_of
from oscar_lab.trials._ranks import lines_of, start

KINDS = {"tcp communicator": "torch", "tcp state": "torch", "mpi communicator": "mpi4py"}
COLUMNS = ("ranks", "processes", "status 0", "aborted", "other")
TABLE = Table("of <18", *(f"{name} >9" for name in COLUMNS))
JOB_S = 30.0  # a job may take, on a busy machine
ABORTED = (-6, 134)  # statuses of SIGABRT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--of", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--processes", type=int, default=200, help="of each kind and number of ranks")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one, which is printed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a table by kind and ranks; "ok" tells whether all processes ended with status 0."""
    seed, rows = seed_of(args), []
    print(f"# seed {seed}\n{TABLE.heading}")
    for what in args.of:
        if importlib.util.find_spec(KINDS[what]) is None:
            print(f"# without {KINDS[what]}: no {what}")
            continue
        for ranks in args.ranks:
            result, output = end(what, ranks, -(-args.processes // ranks), seed)
            rows.append({"of": what, "ranks": ranks, **counted(result)})
            print(TABLE.line(rows[-1]), flush=True)
            if output:
                print(f"# {output[-1000:]}")
    return {"ok": all(row["processes"] == row["status 0"] for row in rows), "seed": seed, "rows": rows}


def end(what: str, ranks: int, jobs: int, seed: int) -> tuple[list[int], str]:
    """Return the status of each process of `jobs` jobs, and what was written where one was not 0."""
    transport = what.split()[0]
    case = {"transport": transport, "what": what, "ranks": ranks, "jobs": jobs}
    with tempfile.TemporaryDirectory(prefix="oscar-endings-") as folder:
        said = Path(folder, "said")
        case["said"] = str(said)
        if transport == "mpi":  # mpirun tells no status but the first that is not 0
            ends = [
                start("_ending_rank", case | {"job": job, "seed": str(seed)}, ranks, limit_s=JOB_S)
                for job in range(jobs)
            ]
            bad = [one.output for one in ends if one.status]
            return [status for one in ends for status in [one.status] * ranks], "".join(bad)
        ended = start("_ending_rank", case | {"seed": str(seed)}, 1, limit_s=JOB_S * jobs)
        lines = lines_of(said.read_text(encoding="utf-8")) if said.exists() else []
    result = [status for line in lines for status in line["statuses"]]
    result += [ended.status or -1] * (ranks * jobs - len(result))  # of jobs that were never begun, or hang
    return result, ended.output if any(result) else ""


def counted(statuses: list[int]) -> Row:
    """Return the columns of a row."""
    good, aborted = statuses.count(0), sum(map(statuses.count, ABORTED))
    return {
        "processes": len(statuses),
        "status 0": good,
        "aborted": aborted,
        "other": len(statuses) - good - aborted,
    }
