"""Steps of a transformer under DDP without a hook, with torch's fp16 hook and with OSCAR's, in turns.

Starts one plain process per rank of examples/ddp_transformer.py (a checkout is needed, and the extra torch):
on this machine as it is, or with --mbps in the lab, on hosts whose links have that rate (needs root,
lab.md). A step is the slowest rank's: forward, backward with the AllReduce in it, and the optimiser.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar.errors import OscarError
from oscar.tables import Table
from oscar_lab.lab.launch import launch
from oscar_lab.lab.network import HostNetwork

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "ddp_transformer.py"
BARS = {"none": 5.0, "fp16": 2.5}  # times the speed of a step
BARS_MBPS = 100.0  # at which they hold
GRACE_S = 2.0  # once a rank has failed: the others say what they know
TAIL = 3000  # characters of what ranks said last, where one failed
TABLE = Table(
    "hook <14", "median_ms:step ms >8.1f", "quartiles >17", "cpu_ms:CPU ms >7.1f", "sent_mb:MB sent >8.3f",
    "loss >7.3f", "identical: replicas <10", "times_oscar:oscar is <",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument(
        "--hooks",
        nargs="+",
        default=["none", "fp16", "oscar"],
        help="none, fp16, oscar, tuned (with a policy, docs/how-to/tune.md), or schemes",
    )
    parser.add_argument("--mbps", type=float, help="rate of the lab's links; without it no lab")
    parser.add_argument("--tolerance", type=float, default=0.005, help="of the goodput of the lab's links")
    parser.add_argument("--steps", type=int, default=20, help="of each hook")
    parser.add_argument("--settling", type=int, default=5, help="first steps of each hook, not counted")
    parser.add_argument(
        "--bypass", choices=("auto", "never"), default="never", help="of OSCAR's hooks: auto is their default"
    )
    parser.add_argument("--gbps", type=float, default=1.0, help="of the link that tuned begins with")
    parser.add_argument("--latency-us", type=float, default=100.0, help="of it")
    parser.add_argument("--retune", type=int, default=4, help="steps after which tuned chooses anew")
    parser.add_argument("--batch", type=int, default=1, help="sequences of one rank")
    parser.add_argument("--length", type=int, default=32, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=256, help="of the model, a multiple of 8")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--coarseness", type=float, default=0.125, help="of the hook oscar")
    parser.add_argument("--schedule", default="network", help="of the hook oscar, by name")
    parser.add_argument("--bucket-mb", type=float, default=25.0, help="of DDP")
    parser.add_argument("--script", type=Path, default=SCRIPT, help="what a rank runs")
    parser.add_argument("--limit-s", type=float, default=900.0, help="after which ranks are killed")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run all ranks, print the table with ratios to `oscar`, return them; ok: replicas are identical."""
    if not args.script.exists():
        raise OscarError(f"expected {args.script}; run it in a checkout, or name the script with --script")
    words = [str(args.script), "--hook", *args.hooks]
    if args.mbps is not None:
        args.gbps = args.mbps * 1e-3
    for name in (
        "bypass",
        "settling",
        "gbps",
        "latency_us",
        "retune",
        "steps",
        "batch",
        "length",
        "width",
        "layers",
        "coarseness",
        "schedule",
        "bucket_mb",
    ):
        words += [f"--{name.replace('_', '-')}", str(getattr(args, name))]
    where = "this machine's loopback" if args.mbps is None else f"links of {args.mbps:g} Mb/s"
    print(f"# {args.ranks} ranks, {where}, batch {args.batch} x {args.length}, {args.steps} steps in turns")
    result = run_ranks(args, words) if args.mbps is None else _in_lab(args, words)
    _show(result, bars=args.mbps == BARS_MBPS)
    return result | {"ok": all(row["identical"] for row in result["runs"]), "mbps": args.mbps}


def _in_lab(args: argparse.Namespace, words: Sequence[str]) -> dict[str, Any]:
    """Run the ranks on hosts of a lab whose links have been calibrated; bytes on the wire are counted."""
    from oscar_lab.lab.calibrate import calibrate

    with HostNetwork(args.ranks) as network:
        network.shape(args.mbps * 1e6)
        flows = calibrate(network, args.mbps * 1e6, tolerance=args.tolerance)
        before = network.wires()
        result = run_ranks(args, words, network)
        wires = [after - was for after, was in zip(network.wires(), before, strict=True)]
    counted = sum(len(row["step_ms"]) * row["sent_bytes"] for row in result["runs"])
    for host, wire in enumerate(wires):
        if wire.sent < 0.95 * counted:  # ranks differ by a few bytes, counted are means
            raise OscarError(
                f"host {host}: {wire.sent:,} bytes left its link, at least {counted:,.0f} were sent: "
                "what was measured did not go over this wire"
            )
    lab = {"goodput_bps": [f.goodput_bps for f in flows], "wire_bytes": [w.sent for w in wires]}
    return result | {"lab": lab}


def run_ranks(
    args: argparse.Namespace, program: Sequence[str], network: HostNetwork | None = None
) -> dict[str, Any]:
    """Run a program as `args.ranks` processes, on hosts of a network or here; return what a rank reports.

    program: a script, or -m and a module, and arguments; with --json it writes a report.

    Raises OscarError that quotes the ranks where one failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ended = launch(
            "tcp", args.ranks, [*program, "--json", str(report)],
            limit_s=args.limit_s, token=str(report), network=network, grace_s=GRACE_S,
        )  # fmt: skip
        failed = [(status < 0, rank, status) for rank, status in enumerate(ended.statuses) if status != 0]
        for _, rank, status in sorted(failed):  # ranks that were killed come last
            how = f"ended with status {status}"
            if ended.hung:
                how = f"still ran after --limit-s {args.limit_s:g} and was killed; its last output"
            raise OscarError(f"rank {rank} {how}: {ended.output[-TAIL:]}")
        result: dict[str, Any] = json.loads(report.read_text())
    return result


def _show(result: dict[str, Any], *, bars: bool) -> None:
    rows = {row["hook"]: row for row in result["runs"]}
    print(
        f"# {result['values']:,} parameters; step: medians, quartiles of the slowest rank; CPU: of one rank"
    )
    print(TABLE.heading)
    for name, row in rows.items():
        low, high = row["quartiles_ms"]
        times = row["median_ms"] / rows["oscar"]["median_ms"] if "oscar" in rows else float("nan")
        row["times_oscar"] = times
        bar = f" (bar: {BARS[name]:g}x)" if bars and name in BARS else ""
        shown = {"quartiles": f"{low:.1f}-{high:<8.1f}", "sent_mb": row["sent_bytes"] / 1e6}
        replicas = "identical" if row["identical"] else "DIFFER"
        print(TABLE.line(row, **shown, identical=replicas, times_oscar=f"{times:.2f}x{bar}"))
        if "predicted_ms" in row:
            error = row["predicted_ms"] / row["median_ms"] - 1
            groups = ", ".join(f"{option} up to {stop}" for stop, option in row["groups"])
            print(f"# {name}: {row['predicted_ms']:.1f} ms predicted ({error:+.1%}); groups: {groups}")
