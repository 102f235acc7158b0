"""Bytes and modelled time of every coder and chunk plan on the same gradients (docs/explain/measuring.md).

All methods are lossless after one and the same quantiser, so they compute the same mean, and rates compare.
The workload trains with the exact float mean: no method steers what the others are measured on. Time comes
from the link model with a codec at line rate, once for the model as it is and once for a model of
`LARGE` values whose frames have the measured bits per value and the measured imbalance between chunks
(`oscar.timeline.scale`), since the shipped models are so small that latency hides most of what coding saves.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from oscar import yaml_core
from oscar.collective.frames import Stats
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Row, Table
from oscar.timeline.equal import equal_time
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import time_of
from oscar.timeline.scale import Measured, scale
from oscar_studies.workloads import WORKLOADS, Workload, exact_mean, make_workload
from oscar_studies.workloads.trace import load

LARGE = 64_000_000
LINK = LinkModel()
CLOCK = f"codec: ideal (line rate, {LINK.codec_latency_s * 1e6:g} us deep)"
NO_WIRE = LinkModel(bandwidth_bps=1e18)  # what is left of the time is latency

# What goes over the links, and by which schedule.
METHODS: dict[str, tuple[str, str]] = {
    "atalanta": ("atalanta", "ring"),
    "atalanta-dp": ("atalanta-dp", "ring"),
    "asc-paper": ("asc-paper", "ring"),
    "asc-ring": ("asc", "ring"),
    "asc": ("asc", "boomerang"),
}
DUPLEX = "asc-duplex"  # the frames of "asc", both phases at once: a row of its own, since only time differs
GRANULES = {"interleave": (128, 256, 512), "splitter": (256, 512), "snake": (256, 512)}
ALL_PLANS = ("equal", *(f"{name}:{size}" for name, sizes in GRANULES.items() for size in sizes))
DEFAULT_PLANS: dict[str, tuple[str, ...]] = {
    "atalanta": ("equal", "interleave:256"),
    "atalanta-dp": ("equal",),
    "asc-paper": ("equal", "interleave:256"),
    "asc-ring": ("equal", "interleave:256"),
    "asc": ALL_PLANS,
}
BARS = {"cnn": 1.40, "transformer": 1.20, "embedding": 5.0}  # figure (a), quantiser 8s, 8 nodes


TABLE = Table(
    "model <22", "nodes:N >3", "quantiser:q <3", "method <12", "plan <15", "step_sync_bits:sync b/v >8.3f",
    "bits:mean b/v >8.3f", "efficiency:effic. >6.3f", "time_us:time us >8.1f", "speedup:speed-up >8.2f",
    "latency_share:lat >5.2f", "large_speedup:at 64 M >8.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument(
        "--models", nargs="*", default=list(BARS), choices=list(WORKLOADS), help="workloads to measure"
    )
    parser.add_argument("--trace", nargs="*", default=[], metavar="FILE.npz", help="recorded traces as well")
    parser.add_argument("--nodes", nargs="+", type=int, default=[8], help="a trace has its own number")
    parser.add_argument("--quantiser", choices=["8s", "8g"], default="8s", help="step per tensor or global")
    parser.add_argument("--iterations", type=int, default=20, help="measured iterations")
    parser.add_argument(
        "--warmup-training", type=int, default=60, help="iterations before the first AllReduce"
    )
    parser.add_argument(
        "--learning", type=int, default=3, help="first iterations, not measured: tables learn"
    )
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--plans", nargs="+", metavar="PLAN[:GRANULE]", help="default: each method's own")
    parser.add_argument("--asc", nargs="*", default=[], metavar="KEY=VALUE", help="of ASC: block_log2=14")
    parser.add_argument("--subframes", type=int, default=1, help="sub-frames per chunk")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--summary", nargs="+", type=Path, metavar="JSON", help="only print these files")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure (or read) all rows, print them and the figures drawn from them, and return both."""
    rows: list[Row] = []
    if args.summary:
        for path in args.summary:
            rows += json.loads(path.read_text(encoding="utf-8"))["rows"]
        _print_rows(rows)
    else:
        print(f"# quantiser {args.quantiser}: every method codes the same integers, losslessly")
        link = f"{LINK.bandwidth_bps / 1e9:g} Gb/s, {LINK.latency_s * 1e6:g} us"
        print(f"# link {link}; {CLOCK}; sub-frames {args.subframes}")
        after = f"{args.warmup_training} of training and {args.learning} of learning"
        print(
            f"# baseline of speed-ups: fp32 ring without headers; {args.iterations} iterations after {after}"
        )
        for workload, warmup in _workloads(args):
            fresh = measure(workload, args, warmup=warmup)
            _print_rows(fresh, header=not rows)
            rows += fresh
    figures = draw_figures(rows)
    for line in figures["lines"]:
        print(line)
    return {"rows": rows, "figures": figures}


def _workloads(args: argparse.Namespace) -> Iterable[tuple[Workload, int]]:
    for path in args.trace:
        yield load(path), 0
    for nodes in args.nodes:
        for model in args.models:
            yield make_workload(model, nodes=nodes, seed=args.seed), args.warmup_training


def _config(method: str, plan: str, args: argparse.Namespace) -> Config:
    codec, schedule = METHODS[method]
    name, _, granule = plan.partition(":")
    return Config.model_validate(
        {
            "method": codec,
            "asc": yaml_core.parse("\n".join(args.asc).replace("=", ": ")) or {},
            "quantiser": {"scale": "sigma" if args.quantiser == "8s" else "max", "bits": 8},
            "plan": {"name": name, "granule": int(granule or 256)},
            "schedule": {"name": schedule, "subframes": args.subframes},
        }
    )


def measure(workload: Workload, args: argparse.Namespace, *, warmup: int) -> list[Row]:
    """Train, and let every method reduce the same gradients at every iteration after `warmup`."""
    for _ in range(warmup):
        workload.apply(exact_mean(workload.gradients()))
    cases = [(method, plan) for method in args.methods for plan in args.plans or DEFAULT_PLANS[method]]
    clusters = {case: LocalCluster(_config(*case, args)) for case in cases}
    kept: dict[tuple[str, str], list[Stats]] = defaultdict(list)
    for iteration in range(args.learning + args.iterations):
        gradients = workload.gradients()
        for case, cluster in clusters.items():
            stats = cluster.allreduce(gradients).stats
            if not stats.exact:
                raise OscarError(f"{case}: expected the exact sum on every node, got another: this is a bug")
            if iteration >= args.learning:
                kept[case].append(stats)
        workload.apply(exact_mean(gradients))
    rows = [_row(workload.name, args.quantiser, case, clusters[case], kept[case]) for case in cases]
    for case in cases:
        if case[0] == "asc":
            again = (DUPLEX, case[1])
            rows.append(_row(workload.name, args.quantiser, again, clusters[case], kept[case]))
    return rows


def modelled_times(
    stats: Stats, cluster: LocalCluster, name: str = "boomerang", *, link: LinkModel = LINK
) -> tuple[float, float, float, float]:
    """Return seconds of (fp32's ring, this AllReduce), as the model is, then of both at LARGE values."""
    subframes = cluster.config.schedule.subframes
    schedule, raw = (make_schedule(n, stats.nodes, subframes=subframes) for n in (name, "ring"))
    raw_bits = cluster.params.sum_width(stats.nodes)
    measured = Measured(stats.frames, schedule, raw_bits=raw_bits)
    return (
        equal_time(raw, stats.values, link, coded=False),
        time_of(schedule, stats.frames, link),
        equal_time(raw, LARGE, link, coded=False),
        scale(measured, [stats.nodes], link=link, values=LARGE)[0].time_s,
    )


def _row(
    model: str, quantiser: str, case: tuple[str, str], cluster: LocalCluster, runs: Sequence[Stats]
) -> Row:
    """Return one method and plan on one model, averaged over the measured iterations.

    step_sync_bits: bits per value if every link carried what the busiest one does; bits: mean over the links,
    headers included; speedup: time of uncompressed fp32 over time; latency_share: part of `time_s` that an
    endless bandwidth would leave; large_*: the same at LARGE values.
    """
    name = "duplex" if case[0] == DUPLEX else METHODS[case[0]][1]
    times, latency = (
        np.mean([modelled_times(s, cluster, name, link=link) for s in runs], axis=0)
        for link in (LINK, NO_WIRE)
    )
    step_sync, count = sum(s.step_sync_bytes for s in runs), len(runs)
    return {
        "model": model,
        "nodes": runs[0].nodes,
        "values": runs[0].values,
        "quantiser": quantiser,
        "method": case[0],
        "plan": case[1],
        "iterations": count,
        "step_sync_bytes": step_sync / count,
        "step_sync_bits": sum(s.step_sync_bits for s in runs) / count,
        "bits": sum(s.bits_per_value for s in runs) / count,
        "efficiency": sum(s.frames.bytes for s in runs) / (step_sync * runs[0].nodes),
        "time_s": float(times[1]),
        "speedup": float(times[0] / times[1]),
        "latency_share": float(latency[1] / times[1]),
        "large_time_s": float(times[3]),
        "large_speedup": float(times[2] / times[3]),
        "large_latency_share": float(latency[3] / times[3]),
    }


def _print_rows(rows: Sequence[Row], *, header: bool = True) -> None:
    if header:
        print(f"# speed-up against fp32; lat: share of the time that is latency; at {LARGE / 1e6:g} M values")
        print(TABLE.heading)
    for row in rows:
        print(TABLE.line(row, time_us=row["time_s"] * 1e6), flush=True)


def draw_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures that `rows` allow, each a list of dicts, and `lines` that say them."""
    groups: dict[tuple[str, int, str], dict[tuple[str, str], Row]] = defaultdict(dict)
    for row in rows:
        groups[row["model"], row["nodes"], row["quantiser"]][row["method"], row["plan"]] = row
    figures: dict[str, Any] = {"gain": [], "paper": [], "plans": [], "speedup": []}
    for (model, nodes, quantiser), group in sorted(groups.items(), key=lambda item: item[0][1]):
        where = {"model": model, "nodes": nodes, "quantiser": quantiser}
        ours = [row for (method, _), row in group.items() if method == "asc"]
        best = min(ours, key=lambda row: row["step_sync_bytes"], default=None)
        base, paper = group.get(("atalanta", "equal")), group.get(("asc-paper", "equal"))
        if base and best:
            gain = base["step_sync_bytes"] / best["step_sync_bytes"]
            bar = BARS.get(model) if quantiser == "8s" and nodes == 8 else None
            figures["gain"].append(where | {"plan": best["plan"], "gain": gain, "bar": bar})
        if base and paper:
            figures["paper"].append(
                where
                | {
                    "bytes": base["step_sync_bytes"] / paper["step_sync_bytes"],
                    "time": base["time_s"] / paper["time_s"],
                    "large_time": base["large_time_s"] / paper["large_time_s"],
                }
            )
        plans = {row["plan"]: row["step_sync_bytes"] for row in ours}
        if "equal" in plans and len(plans) > 1:
            gains = {plan: plans["equal"] / size for plan, size in plans.items() if plan != "equal"}
            figures["plans"].append(where | {"gains": gains, "winner": max(gains, key=gains.__getitem__)})
    figures["speedup"] = _speedups(groups)
    figures["lines"] = list(_lines(figures))
    return figures


def _speedups(groups: dict[tuple[str, int, str], dict[tuple[str, str], Row]]) -> list[dict[str, Any]]:
    """Return each method's speed-up over fp32 at its best plan: the geometric mean over the models."""
    out = []
    for nodes, quantiser in sorted({(key[1], key[2]) for key in groups}):
        for method in (*METHODS, DUPLEX):
            best = []
            for (_, n, q), group in groups.items():
                mine = [row for (m, _), row in group.items() if m == method]
                if n == nodes and q == quantiser and mine:
                    best.append(min(mine, key=lambda row: row["step_sync_bytes"]))
            if best:
                out.append(
                    {
                        "nodes": nodes,
                        "quantiser": quantiser,
                        "method": method,
                        "models": [row["model"] for row in best],
                        "speedup": geometric_mean(row["speedup"] for row in best),
                        "latency_share": max(row["latency_share"] for row in best),
                        "large_speedup": geometric_mean(row["large_speedup"] for row in best),
                    }
                )
    return out


def _lines(figures: dict[str, Any]) -> Iterable[str]:
    large = f"at {LARGE / 1e6:g} M values"
    for f in figures["gain"]:
        met = f["bar"] is not None and f["gain"] >= f["bar"]
        bar = "" if f["bar"] is None else f", bar {f['bar']:.2f}: {'met' if met else 'MISSED'}"
        yield (
            f"# (a) {_where(f)}: Atalanta equal / ASC boomerang {f['plan']}, step-synchronous bytes: "
            f"{f['gain']:.3f}x{bar}"
        )
    for f in figures["paper"]:
        yield (
            f"# (b) {_where(f)}: Atalanta / ASC as the paper has it, both equal: bytes {f['bytes']:.3f}x, "
            f"time {f['time']:.3f}x, {large} {f['large_time']:.3f}x"
        )
    for f in figures["speedup"]:
        yield (
            f"# (c) N={f['nodes']} {f['quantiser']} {f['method']}, mean over {', '.join(f['models'])}: "
            f"AllReduce {f['speedup']:.2f}x fp32 (up to {f['latency_share']:.0%} latency), "
            f"{large} {f['large_speedup']:.2f}x"
        )
    for f in figures["plans"]:
        gains = ", ".join(f"{plan} {gain:.3f}x" for plan, gain in f["gains"].items())
        yield (
            f"# (e) {_where(f)}: step-synchronous bytes of ASC, equal / plan: {gains}; winner {f['winner']}"
        )


def _where(figure: dict[str, Any]) -> str:
    return f"{figure['model']} {figure['quantiser']} N={figure['nodes']}"
