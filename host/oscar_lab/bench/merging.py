"""Steps of a ResNet-20 under DDP, compressed layer by layer and in the groups that MergeComp's search finds.

Starts plain processes on this machine, connected by its loopback (extra torch). Every method searches up to
--most groups while its model trains, then steps in these groups and steps with a group for every tensor are
timed in turns, on rank 0. The published gain is up to 3.83 times (Wang et al., 2021, eight accelerators).
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from oscar.errors import OscarError
from oscar.schemes.registry import method_names
from oscar.tables import Table
from oscar_lab.bench.ddp import run_ranks

BAR = 2.0  # of the median over methods
SLOW = "asc-paper", "atalanta", "atalanta-dp", "rans0", "constriction"  # serial references
TABLE = Table(
    "method <16", "layers_ms:layers ms >10.1f", "merged_ms:merged ms >10.1f", "times:gain >7.2f",
    "groups >7", "searched >9",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--ranks", type=int, default=2, help="processes on this machine")
    parser.add_argument(
        "--methods", nargs="+", choices=method_names(), metavar="METHOD",
        default=[name for name in method_names() if name not in SLOW],
        help="codecs and schemes; all but the serial references unless given",
    )  # fmt: skip
    parser.add_argument("--batch", type=int, default=8, help="images of one rank")
    parser.add_argument("--most", type=int, default=2, help="groups that the search tries")
    parser.add_argument("--warmups", type=int, default=2, help="steps of each grouping that do not count")
    parser.add_argument("--iterations", type=int, default=6, help="steps of each grouping that count")
    parser.add_argument("--turns", type=int, default=3, help="of the comparison behind the search")
    parser.add_argument("--limit-s", type=float, default=300.0, help="of a method, before ranks are killed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the ranks of each method, print a row as it comes and the median gain, return them."""
    words = [
        f"--{name}={getattr(args, name)}" for name in ("batch", "most", "warmups", "iterations", "turns")
    ]
    print(f"# {args.ranks} ranks on this machine's loopback, {args.batch} images a rank")
    print(TABLE.heading, flush=True)
    rows, failed = [], {}
    for method in args.methods:
        try:
            row = run_ranks(args, ["-m", "oscar_lab.bench._merging_rank", f"--method={method}", *words])
        except OscarError as error:
            failed[method] = str(error)
            why = [line for line in str(error).splitlines() if "Error" in line] or [str(error)]
            print(f"# left out: {method}: {why[-1]}", flush=True)
            continue
        rows.append(row)
        print(TABLE.line(row, groups=len(row["stops"])), flush=True)
    gains = [row["times"] for row in rows]
    median = statistics.median(gains) if gains else float("nan")
    low, high = min(gains, default=0.0), max(gains, default=0.0)
    print(f"median gain {median:.2f}x (bar: {BAR:g}x), {low:.2f} to {high:.2f}")
    return {"runs": rows, "failed": failed, "median": median, "ok": median >= BAR}
