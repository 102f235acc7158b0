"""Bytes and modelled time of every schedule on the same gradients (schedules.md, measuring.md).

All methods code the same integers, losslessly, so they compute the same mean. The workload trains with the
exact float mean. fp32 has no headers, and is timed by its ring and direct; ratios are given against both.
Time comes from the link model: with a codec at line rate, with the clock of the RTL, and for a model of
`LARGE` values whose frames have the measured bits per value and imbalance (`oscar.timeline.scale`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from oscar.collective.frames import Stats
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.config import Config, LinkSection
from oscar.errors import OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Row, Table
from oscar.timeline.equal import equal_time
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.replay import time_of
from oscar.timeline.scale import Measured, scale
from oscar_studies.workloads import WORKLOADS, Workload, exact_mean, make_workload

LARGE = 64_000_000
MODELS = "numpy-lm", "cnn", "transformer", "embedding"
SCHEDULES = "boomerang", "duplex", "direct"
MEAN_OF = "cnn", "transformer", "embedding"  # of the geometric mean
BARS = {8: 10.0, 16: 10.0, 64: 8.0}  # of that mean over fp32's ring, direct, ideal codec, models as they are
TABLE = Table(
    "model <12", "nodes:N >3", "schedule <10", "subframes:K >2", "bits:bits/val >8.3f",
    "time_us:time us >9.1f", "over_ring:x ring >7.2f", "over_direct:x direct >8.2f", "rtl_us:RTL us >9.1f",
    "rtl_over_ring:x ring >7.2f", "large_ms:64 M ms >9.3f", "large_over_ring:x ring >7.2f",
    "large_over_direct:x direct >8.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(WORKLOADS))
    parser.add_argument("--nodes", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--subframes", nargs="+", type=int, default=[1, 2, 4], help="a row for each")
    parser.add_argument("--schedules", nargs="+", default=list(SCHEDULES), help="of coded frames")
    parser.add_argument("--coarseness", type=float, default=0.125, help="of the 8-bit quantiser's step")
    parser.add_argument("--iterations", type=int, default=5, help="measured iterations")
    parser.add_argument("--warmup-training", type=int, default=60, help="iterations before the first")
    parser.add_argument("--learning", type=int, default=4, help="first ones, not measured: tables learn")
    parser.add_argument("--gbps", type=float, default=100.0)
    parser.add_argument("--latency-us", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all rows, print them and the means drawn from them; return both."""
    section = LinkSection(gbps=args.gbps, latency_us=args.latency_us)
    print(f"# {args.gbps:g} Gb/s, {args.latency_us:g} us; 8 bits, coarseness {args.coarseness:g}")
    print(f"# ideal {section.clock_text()}; RTL {section.rtl().clock_text()}")
    print("# x ring, x direct: against fp32 of that schedule, without headers")
    print(TABLE.heading)
    rows: list[Row] = []
    for nodes in args.nodes:
        for model in args.models:
            fresh = measure(make_workload(model, nodes=nodes, seed=args.seed), nodes, section, args)
            rows += fresh
            for row in fresh:
                print(TABLE.line(row, time_us=1e6 * row["time_s"], rtl_us=1e6 * row["rtl_s"],
                                 large_ms=1e3 * row["large_s"]), flush=True)  # fmt: skip
    means = list(_means(rows))
    for line in means:
        print(f"# {line['text']}")
    return {"rows": rows, "means": means, "ok": True}


def measure(workload: Workload, nodes: int, section: LinkSection, args: argparse.Namespace) -> list[Row]:
    """Train, and let every schedule reduce the same gradients at every iteration after the warm-up."""
    for _ in range(args.warmup_training):
        workload.apply(exact_mean(workload.gradients()))
    sent_as = {name: "boomerang" if name == "duplex" else name for name in args.schedules}  # the same frames
    cases = [(name, subs) for name in args.schedules for subs in args.subframes]
    clusters = {key: LocalCluster(_config(*key, args)) for key in {(sent_as[n], k) for n, k in cases}}
    kept: dict[tuple[str, int], list[Stats]] = defaultdict(list)
    for iteration in range(args.learning + args.iterations):
        gradients = workload.gradients()
        for key, cluster in clusters.items():
            stats = cluster.allreduce(gradients).stats
            if not stats.exact:
                raise OscarError(f"{key}: expected the exact sum on every node, got another: this is a bug")
            if iteration >= args.learning:
                kept[key].append(stats)
        workload.apply(exact_mean(gradients))
    return [
        _row(workload.name, make_schedule(name, nodes, subframes=k), kept[sent_as[name], k], section)
        for name, k in cases
    ]


def _config(name: str, subframes: int, args: argparse.Namespace) -> Config:
    return Config.model_validate(
        {
            "quantiser": {"bits": 8, "coarseness": args.coarseness},
            "schedule": {"name": name, "subframes": subframes},
        }
    )


def _row(model: str, schedule: Schedule, runs: Sequence[Stats], section: LinkSection) -> Row:
    """Return one schedule on one model, averaged over the measured iterations."""
    ideal, rtl = section.model(), section.rtl().model()
    nodes, values = runs[0].nodes, runs[0].values
    times = {"time_s": ideal, "rtl_s": rtl}
    result = {key: _mean(time_of(schedule, s.frames, link) for s in runs) for key, link in times.items()}
    result["large_s"] = _mean(
        scale(Measured(s.frames, schedule), [nodes], link=ideal, values=LARGE)[0].time_s for s in runs
    )
    raw = {"": fp32_times(values, nodes, ideal), "large_": fp32_times(LARGE, nodes, ideal)}
    ratios = {
        f"{size}over_{name}": time_s / result["large_s" if size else "time_s"]
        for size, times_s in raw.items()
        for name, time_s in times_s.items()
    }
    ratios["rtl_over_ring"], ratios["rtl_over_direct"] = (
        raw[""][name] / result["rtl_s"] for name in ("ring", "direct")
    )
    return {
        "model": model,
        "nodes": nodes,
        "values": values,
        "schedule": schedule.name,
        "subframes": schedule.subframes,
        "bits": _mean(s.bits_per_value for s in runs),
        **result,
        **ratios,
        "fp32_ring_s": raw[""]["ring"],
        "fp32_direct_s": raw[""]["direct"],
    }


def fp32_times(values: int, nodes: int, link: LinkModel) -> dict[str, float]:
    """Return the modelled seconds of fp32 by ring and direct, without headers and codec."""
    return {
        name: equal_time(make_schedule(name, nodes), values, link, bits=FP32_BITS, coded=False)
        for name in ("ring", "direct")
    }


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _means(rows: Sequence[Row]) -> Iterable[dict[str, Any]]:
    """Geometric means over the models, of the best number of sub-frames on each."""
    for nodes in sorted({row["nodes"] for row in rows}):
        for name in dict.fromkeys(row["schedule"] for row in rows):
            best = []
            for model in MEAN_OF:
                mine = [r for r in rows if (r["model"], r["nodes"], r["schedule"]) == (model, nodes, name)]
                best += [min(mine, key=lambda row: row["time_s"])] if mine else []
            if len(best) < len(MEAN_OF):
                continue
            keys = [key for key in best[0] if "over_" in key]
            mean = {key: geometric_mean(row[key] for row in best) for key in keys}
            bar = f" (bar {BARS[nodes]:g}x)" if name == "direct" and nodes in BARS else ""
            yield {"nodes": nodes, "schedule": name, **mean, "text": (
                f"N={nodes} {name}, mean of {', '.join(MEAN_OF)}: {mean['over_ring']:.2f}x fp32's ring{bar}, "
                f"{mean['over_direct']:.2f}x its direct; RTL {mean['rtl_over_ring']:.2f}x; at 64 M values "
                f"{mean['large_over_ring']:.2f}x, {mean['large_over_direct']:.2f}x"
            )}  # fmt: skip
