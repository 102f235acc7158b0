"""FSDP2 between hosts: losses and bytes of `between_hosts` beside native HSDP, on real ranks of this machine.

Every seed trains a transformer with native HSDP, and with OSCAR between hosts, from equal weights on equal
batches (fsdp.md; extra torch). Bits: what a rank sent to other hosts, per value of its shard. A ring in
bf16 sends 32 (N - 1) / N between N hosts.
"""

from __future__ import annotations

import argparse
from typing import Any

from oscar.tables import Table
from oscar_lab.bench.ddp import run_ranks

BF16_BITS = 16
TABLE = Table(
    "seed >4", "coarseness >10g", "native:native loss >11.4f", "hook:OSCAR loss >10.4f",
    "more:difference >10.4f", "bits:bits/value >10.3f", "times:x less than bf16 >15.2f", "replicas <9",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--inside", type=int, default=2, help="ranks of a host")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--coarseness", nargs="+", type=float, default=[0.125, 0.25])
    parser.add_argument("--limit-s", type=float, default=900.0, help="of all, before ranks are killed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the ranks, print a row for each seed and coarseness, return them."""
    words = [f"--hosts={args.hosts}", f"--steps={args.steps}"]
    words += ["--seeds", *map(str, args.seeds), "--coarseness", *map(str, args.coarseness)]
    args.ranks = args.hosts * args.inside
    result = run_ranks(args, ["-m", "oscar_lab.bench._fsdp_rank", *words])
    ring = 2 * BF16_BITS * (args.hosts - 1) / args.hosts
    print(f"# {args.hosts} hosts of {args.inside} ranks, {result['values']:,} parameters, {args.steps} steps")
    print(TABLE.heading)
    for row in result["rows"]:
        row |= {"more": row["hook"] - row["native"], "times": ring / row["bits"]}
        print(TABLE.line(row, replicas="identical" if row["identical"] else "DIFFER"))
    return result
