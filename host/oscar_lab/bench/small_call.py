"""What a call of few values takes between processes on this machine, beside Gloo's AllReduce of float32.

Ranks run the default configuration over a transport. Each turn times a call and one of Gloo's, after a
barrier each; medians count. CPU is processor time of all threads of rank 0 in a call of ours.
"""

from __future__ import annotations

import argparse
from typing import Any

from oscar.tables import Table
from oscar_lab.bench.ddp import run_ranks

TABLE = Table(
    "values >10,", "call_ms:call ms >8.2f", "fastest_ms:fastest >8.2f", "cpu_ms:CPU ms >8.2f",
    "gloo_ms:Gloo ms >8.2f", "gloo_fastest_ms:fastest >8.2f", "times:times Gloo >10.1f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--values", type=int, nargs="+", default=[100, 10_000], help="of a gradient")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--method", default="asc", help="by name, as in a configuration")
    parser.add_argument("--schedule", default="network", help="by name, as in a configuration")
    parser.add_argument("--group", type=int, help="ranks of a group, of that schedule")
    parser.add_argument("--turns", type=int, default=300, help="of each size; medians count")
    parser.add_argument("--limit-s", type=float, default=600.0, help="longest run of all ranks, in seconds")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks, print the table, and return it."""
    if min(args.ranks, args.turns, *args.values) < 1:
        raise ValueError(
            f"expected 1 rank, turn and value at least, got {args.ranks}, {args.turns}, {args.values}"
        )
    words = ["--method", args.method, "--turns", str(args.turns), "--values", *map(str, args.values)]
    words += ["--schedule", args.schedule, *([] if args.group is None else ["--group", str(args.group)])]
    rows = run_ranks(args, ["-m", "oscar_lab.bench._small_call_rank", *words])["table"]
    print(f"# {args.ranks} ranks over TCP, {args.method}, {args.schedule}; medians of {args.turns} calls")
    print(TABLE.heading)
    for row in rows:
        print(TABLE.line(row))
    return {"options": {key: value for key, value in vars(args).items() if key != "json"}, "table": rows}
