"""The bandit against every fixed coarseness, on a link that slows down half-way.

Each arm trains a real model, with ASC, error feedback and the schedule direct at a switch. The time of an
iteration is modelled: computing time, coding as measured on this machine, and the link. A run costs the sum
of its iterations' seconds times 1 + c^2 / 12, the bound on how many more of them rounding asks for. The best
fixed arm is known in hindsight alone; `switching` takes the best one of each half.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.cores import one_blas_thread
from oscar.numerics.bandit import ARMS, loss_factor
from oscar.planning.costs import method_cost
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.local_wire import LocalWire
from oscar.tables import Row, Table
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import core
from oscar.timeline.replay import Clock, time_of
from oscar_lab.sources import default_model
from oscar_studies.workloads import make_workload

BAR = 1.05  # times the best fixed arm
TABLE = Table(
    "model <13", "seed >5", "halves <12", "cost_s:bandit s >9.3f", "best_s:best fixed s >12.3f",
    "best_arm:arm >6.3g", "ratio >6.3f", "switching_s:switching s >12.3f", "loss >7.3f",
    "best_loss:fixed >7.3f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    models = list(dict.fromkeys([default_model("cnn"), "numpy-lm"]))
    parser.add_argument("--models", nargs="+", default=models)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--mbps", type=float, nargs=2, default=[1000.0, 100.0], help="of the two halves")
    parser.add_argument("--compute-ms", type=float, default=5.0, help="of an iteration")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train with the bandit and with every fixed arm; a row for each model and seed, ok: all within BAR."""
    if args.iterations < 2 or args.seeds < 1 or min(args.mbps) <= 0:
        raise ValueError("expected 2 iterations or more, a seed, and rates above 0")
    one_blas_thread()
    print(f"# {args.nodes} nodes, {args.iterations} iterations, compute {args.compute_ms:g} ms")
    print(TABLE.heading, flush=True)
    rows: list[Row] = []
    for model in args.models:
        for seed in range(args.seeds):
            fixed = {arm: _train(args, model, seed, {"coarseness": arm}) for arm in ARMS}
            for rates in (args.mbps, [args.mbps[0]] * 2) if seed == 0 else (args.mbps,):
                rows.append(_row(args, model, seed, rates, fixed))
                print(TABLE.line(rows[-1]), flush=True)
    ratios = [float(row["ratio"]) for row in rows]
    print(f"over the best fixed arm: median {np.median(ratios):.3f}, worst {max(ratios):.3f} (bar {BAR:g})")
    return {"rows": rows, "worst": max(ratios), "ok": max(ratios) <= BAR}


def _row(
    args: argparse.Namespace, model: str, seed: int, rates: list[float], fixed: dict[float, _Run]
) -> Row:
    bandit = _train(args, model, seed, {"controller": "bandit"}, rates)
    halves = {arm: own.costs(rates) for arm, own in fixed.items()}
    best = min(halves, key=lambda arm: sum(halves[arm]))
    cost = sum(bandit.costs(rates))
    return {
        "model": model,
        "seed": seed,
        "halves": "/".join(f"{rate:g}" for rate in rates),
        "cost_s": cost,
        "best_s": sum(halves[best]),
        "best_arm": best,
        "ratio": cost / sum(halves[best]),
        "switching_s": sum(min(own[half] for own in halves.values()) for half in (0, 1)),
        "loss": bandit.loss,
        "best_loss": fixed[best].loss,
        "arms": bandit.arms,
    }


class _Run:
    """What a training did: seconds of every iteration by rate, its arm, and the held-out loss at the end."""

    def __init__(self) -> None:
        self.seconds: list[dict[float, float]] = []
        self.arms: list[float] = []
        self.loss = float("nan")

    def costs(self, rates: list[float]) -> tuple[float, float]:
        """Return what each half costs where it has these rates."""
        half = len(self.arms) // 2
        every = [
            took[rates[at >= half]] * loss_factor(arm)
            for at, (took, arm) in enumerate(zip(self.seconds, self.arms, strict=True))
        ]
        return sum(every[:half]), sum(every[half:])


def _train(
    args: argparse.Namespace,
    model: str,
    seed: int,
    quantiser: dict[str, Any],
    rates: list[float] | None = None,
) -> _Run:
    """Return a training whose link has these rates in its halves; without them it is timed at all rates."""
    config = Config.model_validate(
        {
            "nodes": args.nodes,
            "seed": seed,
            "schedule": {"name": "direct"},
            "quantiser": {"error_feedback": True, **quantiser},
            "train": {"compute_ms": args.compute_ms},
        }
    )
    cluster, workload = LocalCluster(config), make_workload(model, nodes=args.nodes, seed=seed)
    frame = method_cost(config.variant(quantiser={"coarseness": 1.0})).frame
    coder = None if frame is None else core("asc", frame).model()
    links = {rate: LinkModel(rate * 1e6, 100e-6, coder=coder) for rate in args.mbps}
    found = _Run()
    for at in range(args.iterations):
        arm = config.quantiser.coarseness if cluster.bandit is None else cluster.bandit.coarseness
        now = links if rates is None else {rate: links[rate] for rate in [rates[2 * at >= args.iterations]]}
        if cluster.state is not None and isinstance(cluster.state.wire, LocalWire):
            cluster.state.wire.clock = Clock(next(iter(now.values())))
        result = cluster.allreduce(workload.gradients())
        workload.apply(result.mean)
        found.arms.append(arm)
        moved = result.stats.moved
        took = {
            rate: sum(time_of(one.schedule, one.frames, link) for one in moved) for rate, link in now.items()
        }
        found.seconds.append({rate: cluster.compute_s + seconds for rate, seconds in took.items()})
    found.loss = float(workload.evaluate()["loss"])
    return found
