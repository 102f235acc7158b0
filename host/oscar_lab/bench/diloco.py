"""torchft's DiLoCo with ProcessGroupOscar beside torchft's own process group: losses and bits over seeds.

Runs examples/diloco.py, whose replicas are processes of this machine (torchft.md; extra torchft), once
for each seed and group. Bits: what a replica sent, per value and both phases of the AllReduce.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from oscar.errors import OscarError
from oscar.tables import Table

EXAMPLE = Path(__file__).parents[3] / "examples" / "diloco.py"
BAR_LOSS, BAR_BITS = 0.02, 1.7
TAIL = 2000  # characters of a failed run's output
TABLE = Table("group <8", "seed >5", "loss:held-out loss >13.4f", "bits:bits/value >10.3f", "replicas <9")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--syncs", type=int, default=8)
    parser.add_argument("--every", type=int, default=15, help="batches between two syncs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--coarseness", type=float, default=1.0, help="step of the quantiser over sigma")
    parser.add_argument("--limit-s", type=float, default=600.0, help="of a run")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print a row for each run, and means; "ok" tells whether the bars hold."""
    print(
        f"# {args.replicas} replicas, {args.syncs} syncs of {args.every} batches, {args.coarseness:g} sigma"
    )
    print(TABLE.heading)
    rows = []
    for seed in args.seeds:
        for group in ("gloo", "oscar"):
            rows.append(_trained(args, group, seed))
            same = "identical" if rows[-1]["identical"] else "DIFFER"
            print(TABLE.line(rows[-1], replicas=same), flush=True)
    plain, coded = (
        statistics.mean(row["loss"] for row in rows if row["group"] == group) for group in ("gloo", "oscar")
    )
    bits = max(row["bits"] for row in rows if row["group"] == "oscar")
    print(f"# mean loss {plain:.4f} and {coded:.4f}: {coded - plain:+.4f}, bar {BAR_LOSS}")
    print(f"# {bits:.3f} bits/value at most, bar {BAR_BITS}")
    ok = coded - plain <= BAR_LOSS and bits <= BAR_BITS and all(row["identical"] for row in rows)
    return {"ok": ok, "rows": rows}


def _trained(args: argparse.Namespace, group: str, seed: int) -> dict[str, Any]:
    words = [f"--{name}={getattr(args, name)}" for name in ("replicas", "syncs", "every", "coarseness")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        words += ["--group", group, "--seeds", str(seed), "--json", str(report)]
        command = [sys.executable, str(EXAMPLE), *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise OscarError(f"a run still went on after --limit-s {args.limit_s:g}; raise it") from None
        if done.returncode:
            raise OscarError(f"a run ended with {done.returncode}: {(done.stdout + done.stderr)[-TAIL:]}")
        result: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))["runs"][0]
    return result
