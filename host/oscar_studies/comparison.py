"""One experiment, from configuration to results: train once, put every method through the same gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.frame import HEADER_BYTES
from oscar.coding.registry import ASC
from oscar.collective.frames import Stats
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.config import Config, Method
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.method import make_codec_of
from oscar.reducers.scheduling import schedule_of
from oscar.results import FORMS
from oscar.schemes.registry import MethodInfo, method_info
from oscar.timeline.equal import equal_time
from oscar.timeline.replay import time_of
from oscar.version import __version__
from oscar_studies.parallel import Tick, run_tasks
from oscar_studies.recording import Gradients, Progress, Recording, record_training, warmup_of

# Rough cost of a codec beside the others: long jobs start first, so that no core is left with one at the end.
SLOW_FIRST = ("atalanta-dp", "constriction", "atalanta", "asc", "rans0", "zstd", "asc-paper")
MEANS = (  # of Stats, in a row of the results
    "bits_per_value", "step_sync_bits", "step_sync_bytes", "wire_bytes", "time_s", "busiest_egress",
    "busiest_ingress", "efficiency", "clipped", "clipped_energy",
)  # fmt: skip
RTL_ITERATIONS = 4  # last ones, timed with the RTL's clock, as in all published tables
WARM_UP = 2  # iterations that do not count: tables, steps and plans come from what was seen before


def run_experiment(
    config: Config, *, workers: int | None = None, progress: Progress | None = None
) -> tuple[dict[str, Any], Recording]:
    """Return what results.json holds, and the training run it comes from.

    workers: processes that share the methods (default: one per core; 1: none but this one).
    Every AllReduce is checked: `ok` tells whether all lossless methods were exact and all nodes identical.
    """
    recording = record_training(config, progress=progress)
    compared = list(config.compared())
    own = config.variant(methods=())
    others = [variant for _, _, variant in compared if variant != own]  # the recording has measured its own
    measured = iter(_reduce_all(others, recording.gradients, workers=workers, progress=progress))
    rows = [
        _row(
            method,
            plan,
            recording.stats if variant == own else next(measured),
            config,
            schedule_of(variant, make_codec_of(variant), config.nodes, recording.values),
        )
        for method, plan, variant in compared
    ]
    _relate(rows, config, recording.values)
    quantiser = config.quantiser_params(config.nodes)
    model = {"name": recording.workload, "values": recording.values, "tensors": len(recording.shapes)}
    results = {
        "oscar": __version__,
        "schema": FORMS["allreduce"].schema,
        "config": config.model_dump(mode="json"),
        "quantiser": quantiser.name,
        "clock": config.link.clock_text(),
        "rtl_clock": config.link.rtl().clock_text(),
        "nic": {
            "clock": config.link.nic().model_dump(mode="json"),
            "rtl": config.link.rtl().nic().model_dump(mode="json"),
        },
        "quantiser_bits": quantiser.bits,
        "model": model,
        "nodes": config.nodes,
        "iterations": config.iterations,
        "rtl_iterations": min(RTL_ITERATIONS, config.iterations - _skipped(config.iterations)),
        "trained": warmup_of(config),
        "warm_up": _skipped(config.iterations),
        "loss": [None if math.isnan(loss) else loss for loss in recording.losses],
        "evaluation": recording.evaluation,
        "ok": all(row["wrong"] == 0 for row in rows),
        "methods": rows,
    }
    return results, recording


def _reduce_all(
    configs: Sequence[Config], gradients: list[Gradients], *, workers: int | None, progress: Progress | None
) -> list[list[Stats]]:
    """Return for each configuration the statistics of its AllReduces of all iterations' gradients."""
    rank = {codec: at for at, codec in enumerate(SLOW_FIRST)}
    order = sorted(range(len(configs)), key=lambda i: rank.get(configs[i].method, len(rank)))
    done = run_tasks(
        [partial(_reduce, configs[i], gradients) for i in order],
        stage="comparing", total=len(configs) * len(gradients), workers=workers, progress=progress,
    )  # fmt: skip
    return [done[order.index(i)] for i in range(len(configs))]


def _reduce(config: Config, gradients: list[Gradients], tick: Tick) -> list[Stats]:
    cluster, stats = LocalCluster(config), []
    for iteration in gradients:
        stats.append(cluster.allreduce(iteration).stats)
        tick()
    return stats


def _skipped(iterations: int) -> int:
    return min(WARM_UP, iterations - 1)


def _row(
    method: Method, plan: str, stats: Sequence[Stats], config: Config, schedule: Schedule
) -> dict[str, Any]:
    """Return one row: means over the AllReduces after the warm-up; checks are over all of them.

    The plan of a scheme that sends no coded message is "-": nothing is dealt to chunks by it.
    """
    counted = stats[_skipped(len(stats)) :]
    info = method_info(method.method)
    scheme = info.codec is None
    dealt = not scheme or any(one.coded for s in stats for one in s.moved)
    identical = all(s.identical for s in stats)
    wrong = sum(not (s.exact if info.lossless else s.identical) for s in stats)

    last = stats[-1]
    return {
        "name": method.name,
        "plan": plan if dealt else "-",
        "codec": method.method,
        "schedule": schedule.name,
        "lossless": info.lossless,
        "coded": info.codec is not None and info.codec.coded,
        **{name: float(np.mean([getattr(s, name) for s in counted])) for name in MEANS},
        "rtl_time_s": _rtl_time(schedule, info, method, counted, config),
        "exact": info.lossless and wrong == 0,
        "identical": identical,
        "wrong": wrong,
        "step_bits": [] if scheme else _step_bits(counted, config.nodes),
        "clocks": _clocks(counted),
        "frames": last.frames.tree(),
    }


def _rtl_time(
    schedule: Schedule, info: MethodInfo, method: Method, stats: Sequence[Stats], config: Config
) -> float | None:
    """Return the mean time of the last AllReduces with the clock of the RTL; None for what no RTL does.

    That is schemes, other codecs, and sums that are kept apart.
    """
    if info.codec is None:
        return None
    if not info.codec.coded or config.nodes == 1:
        return float(np.mean([s.time_s for s in stats]))
    if method.method not in ASC or schedule.apart:
        return None
    link = config.link.rtl().model(block_log2=method.asc.get("block_log2", config.asc.block_log2))
    return float(np.mean([time_of(schedule, s.frames, link) for s in stats[-RTL_ITERATIONS:]]))


def _clocks(stats: Sequence[Stats]) -> dict[str, list[float]] | None:
    """Clocks that the slowest node's simulated NIC took in each step, and its values; else None.

    Frames that are passed on are not encoded: their steps have 0 encoding clocks.
    """
    if any(s.clocks is None for s in stats) or not stats[0].values or stats[0].nodes == 1:
        return None
    nodes = stats[0].nodes
    steps = np.unique(stats[0].frames.rows[["phase", "step"]])
    every = [[_slowest(s, step, nodes) for step in steps] for s in stats]
    encode, decode, values = np.mean(every, axis=0).T.tolist()
    return {"encode": encode, "decode": decode, "values": values}


def _slowest(stats: Stats, step: Any, nodes: int) -> list[float]:
    """Return the clocks of the slowest encoder and decoder in a step, and the most values of a sender."""

    def most(rows: Array, rank: str, weight: str) -> float:
        mine = rows[(rows["phase"] == step["phase"]) & (rows["step"] == step["step"])]
        return float(np.bincount(mine[rank], mine[weight], minlength=nodes).max())

    clocks = stats.clocks
    assert clocks is not None
    kinds = [most(clocks[clocks["encodes"] == kind], "rank", "clocks") for kind in (True, False)]
    return [*kinds, most(stats.frames.rows, "sender", "count")]


def _step_bits(stats: Sequence[Stats], nodes: int) -> list[float]:
    """Mean bits per value in each step of both phases, headers included."""
    if nodes == 1 or not stats[0].values:
        return []
    sent = np.mean([s.frames.by_step(nodes).sum(axis=1) for s in stats], axis=0)
    return [float(bits) for bits in 8 * sent / stats[0].values]


def _relate(rows: Sequence[dict[str, Any]], config: Config, values: int) -> None:
    """Add what needs more than one row: gains over fp32, and the best plan of each method."""
    reference = next((row for row in rows if row["codec"] == "fp32" and row["plan"] == "equal"), None)
    if reference is not None:
        time_s, sync = reference["time_s"], reference["step_sync_bytes"]
    else:
        ring = Ring(config.nodes, config.schedule.subframes)
        time_s = equal_time(ring, values, config.link.model(), header_bytes=HEADER_BYTES, coded=False)
        largest = -(-values // config.nodes)
        sync = 2 * (config.nodes - 1) * (4 * largest + HEADER_BYTES * config.schedule.subframes)
    for row in rows:
        rivals = [other for other in rows if other["name"] == row["name"]]
        row["speedup_vs_fp32"] = time_s / row["time_s"] if row["time_s"] else 1.0
        rtl = row["rtl_time_s"]
        row["rtl_speedup_vs_fp32"] = None if rtl is None else time_s / rtl if rtl else 1.0
        row["ratio_vs_fp32"] = sync / row["step_sync_bytes"] if row["step_sync_bytes"] else 1.0
        row["best"] = row is min(rivals, key=lambda other: (other["time_s"], other["step_sync_bytes"]))
