"""What coarser steps cost in accuracy and save in bytes, over several seeds (docs/measuring.md).

Every run trains data-parallel with the very means that the AllReduce gives. Sums of integers are exact, so
between two measurements the ring may be left out (`--ring-every`) without changing a single weight; the
quantiser, its error feedback and the position state always run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from oscar.bench.ratios import CLOCK, LARGE, modelled_times
from oscar.collective.stats import Stats
from oscar.config import BURST, Config
from oscar.errors import ConfigError, OscarError
from oscar.files import write_json
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.sampled import SparseRing
from oscar.workloads import Workload, exact_mean, make_workload

TAIL = 5  # evaluations that are averaged at the end of a run, `TAIL_GAP` iterations apart
TAIL_GAP = 5
COARSENESS = ("fp32", "1/8", "1/2", "1", "2", "4", "8")

# Iterations, the metric that decides, whether more of it is better, and options of the workload.
MODELS: dict[str, dict[str, Any]] = {
    "cnn": {"iterations": 400, "metric": "accuracy", "better": 1, "options": {}},
    "transformer": {"iterations": 200, "metric": "loss", "better": -1, "options": {"d": 96, "layers": 2}},
    "embedding": {"iterations": 300, "metric": "loss", "better": -1, "options": {}},
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--model", choices=list(MODELS), default="cnn", help="workload to train")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--coarseness",
        nargs="+",
        default=list(COARSENESS),
        help='step / sigma as a fraction, or "fp32"',
    )
    parser.add_argument(
        "--feedback", choices=["auto", "yes", "no"], default="auto", help="error feedback (auto: above 1/8)"
    )
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=None, help="of training (default: the model's own)")
    parser.add_argument(
        "--ring-every", type=int, default=50, help=f"iterations per {BURST} with the ring; {BURST}: always"
    )
    parser.add_argument(
        "--json", type=Path, default=None, help="add finished runs here, and skip those that it holds"
    )
    parser.add_argument(
        "--summary",
        nargs="+",
        type=Path,
        default=None,
        metavar="JSON",
        help="only print what these files hold",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train (or read) all runs, print them and the summary, and return both."""
    runs = [entry for path in args.summary for entry in _read(path)] if args.summary else _train_all(args)
    summary = summarise_runs(runs)
    print(
        "# rule: a setting holds its accuracy when its mean over the seeds is not worse than that of fp32\n"
        "# by more than the standard deviation of fp32 over the same seeds (a seed: weights and batches)\n"
        f"# speed-up: modelled, {CLOCK}"
    )
    print(
        f"{'model':<12} {'step':<5} {'feedback':<8} {'seeds':>5} {'metric':<8} {'mean':>7} {'spread':>7} "
        f"{'worse by':>8} {'holds':<5} {'bits/value':>10} {'sync b/v':>8} {'speed-up':>8} {'at 64 M':>8}"
    )
    for s in summary:
        rates = [f"{s[key]:.3f}" for key in ("bits", "step_sync_bits", "speedup", "large_speedup")]
        print(
            f"{s['model']:<12} {s['coarseness']:<5} {'yes' if s['feedback'] else 'no':<8} {s['seeds']:>5} "
            f"{s['metric']:<8} {s['mean']:>7.4f} {s['spread']:>7.4f} {s['worse_by']:>8.4f} "
            f"{'yes' if s['holds'] else 'no':<5} {rates[0]:>10} {rates[1]:>8} {rates[2]:>8} {rates[3]:>8}"
        )
    for model, best in coarsest(summary).items():
        print(
            f"# (d) {model}: coarsest step that holds is {best['coarseness']} sigma: {best['bits']:.2f} "
            f"bits/value, AllReduce {best['speedup']:.1f}x fp32, at {LARGE / 1e6:g} M values "
            f"{best['large_speedup']:.1f}x"
        )
    return {"runs": runs, "summary": summary}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path}: expected the JSON of an accuracy benchmark ({error!r}); remove it"
        ) from error
    return list(runs)


def _train_all(args: argparse.Namespace) -> list[dict[str, Any]]:
    model = MODELS[args.model]
    iterations = args.iterations or model["iterations"]
    if args.ring_every < BURST or iterations < max(args.ring_every, TAIL * TAIL_GAP):
        raise ConfigError(
            f"expected {BURST} <= --ring-every <= --iterations and at least {TAIL * TAIL_GAP} iterations, "
            f"got {args.ring_every} and {iterations}"
        )
    print(
        f"# {args.model} {model['options'] or 'as it is'}, {args.nodes} nodes, {iterations} iterations; 8-bit"
    )
    print("# integers, a step per tensor (8s); ASC, boomerang, interleave 256, rates measured with the ring")
    print(f"# in the last {BURST} of every {args.ring_every} iterations; 100 Gb/s, 2 us, codec at line rate")
    runs = _read(args.json) if args.json is not None and args.json.exists() else []
    for seed in args.seeds:
        for coarseness in args.coarseness:
            feedback = _feedback(coarseness, args.feedback)
            key = {
                "model": args.model,
                "feedback": feedback,
                "coarseness": coarseness,
                "seed": seed,
                "nodes": args.nodes,
                "iterations": iterations,
            }
            if any(all(entry[name] == value for name, value in key.items()) for entry in runs):
                continue
            started = time.perf_counter()
            workload = make_workload(args.model, nodes=args.nodes, seed=seed, **model["options"])
            result = train(
                workload, coarseness, iterations, feedback=feedback, ring_every=args.ring_every, seed=seed
            )
            runs.append(key | {"metric": model["metric"], "better": model["better"]} | result)
            print(
                f"# {args.model} seed {seed} step {coarseness}: {model['metric']} "
                f"{result[model['metric']]:.4f}, {result['bits']:.3f} bits/value, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
            if args.json is not None:
                write_json(args.json, {"runs": runs})
    return runs


def _feedback(coarseness: str, choice: str) -> bool:
    if choice == "auto" or coarseness == "fp32":
        return coarseness != "fp32" and Fraction(coarseness) > Fraction(1, 8)
    return choice == "yes"


def train(
    workload: Workload, coarseness: str, iterations: int, *, feedback: bool, ring_every: int, seed: int
) -> dict[str, Any]:
    """Train with the fp32 mean, or with the quantised one at `coarseness`; return metrics and rates."""
    cluster = None if coarseness == "fp32" else _cluster(Fraction(coarseness), feedback, ring_every, seed)
    measured: list[Stats] = []
    evaluations: list[dict[str, float]] = []
    for iteration in range(iterations):
        gradients = workload.gradients()
        if cluster is None:
            workload.apply(exact_mean(gradients))
        else:
            result = cluster.allreduce(gradients)
            if not result.stats.exact:
                raise OscarError(f"iteration {iteration}: expected the exact sum, got another: this is a bug")
            if cluster.measured(iteration):
                measured.append(result.stats)
            workload.apply(result.mean)
        left = iterations - 1 - iteration
        if left % TAIL_GAP == 0 and left < TAIL * TAIL_GAP:
            evaluations.append(workload.evaluate())
    out = {name: statistics.fmean(e[name] for e in evaluations) for name in evaluations[0]}
    return out | _rates(measured, cluster)


def _cluster(coarseness: Fraction, feedback: bool, every: int, seed: int) -> SparseRing:
    quantiser = {"bits": 8, "coarseness": float(coarseness), "error_feedback": feedback}  # as published
    return SparseRing(Config.model_validate({"quantiser": quantiser, "seed": seed}), every=every)


def _rates(measured: Sequence[Stats], cluster: LocalCluster | None) -> dict[str, float]:
    if cluster is None:
        return {"bits": 32.0, "step_sync_bits": 32.0, "speedup": 1.0, "large_speedup": 1.0}
    times = np.array([modelled_times(stats, cluster) for stats in measured]).sum(axis=0)
    return {
        "bits": statistics.fmean(s.bits_per_value for s in measured),
        "step_sync_bits": statistics.fmean(s.step_sync_bits for s in measured),
        "speedup": float(times[0] / times[1]),
        "large_speedup": float(times[2] / times[3]),
    }


def summarise_runs(runs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per model and step: mean and spread over the seeds that fp32 ran too, and rates."""
    groups: dict[tuple[str, int], dict[tuple[Fraction, bool], dict[int, dict[str, Any]]]]
    groups = defaultdict(lambda: defaultdict(dict))
    for entry in runs:
        step = (_order(entry["coarseness"]), entry["feedback"])
        groups[entry["model"], entry["iterations"]][step][entry["seed"]] = entry
    summary = []
    for (model, iterations), steps in groups.items():
        base = steps.get((_order("fp32"), False), {})
        for _, all_seeds in sorted(steps.items()):
            seeds = sorted(all_seeds.keys() & base.keys())
            if not seeds:
                continue
            mine, theirs = [all_seeds[s] for s in seeds], [base[s] for s in seeds]
            metric, better = mine[0]["metric"], mine[0]["better"]
            worse = better * (_mean(theirs, metric) - _mean(mine, metric))
            summary.append(
                {
                    "model": model,
                    "iterations": iterations,
                    "coarseness": mine[0]["coarseness"],
                    "feedback": mine[0]["feedback"],
                    "seeds": len(seeds),
                    "metric": metric,
                    "mean": _mean(mine, metric),
                    "spread": _spread(mine, metric),
                    "worse_by": worse,
                    "holds": worse <= _spread(theirs, metric),
                    **{k: _mean(mine, k) for k in ("bits", "step_sync_bits", "speedup", "large_speedup")},
                }
            )
    return summary


def coarsest(summary: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for every model the coarsest step that holds, with feedback or without, as all finer ones do."""
    steps: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for entry in summary:
        steps[entry["model"]][entry["coarseness"]].append(entry)
    best = {}
    for model, by_step in steps.items():
        for coarseness, entries in by_step.items():
            holding = [entry for entry in entries if entry["holds"]]
            if not holding:
                break
            if coarseness != "fp32":
                best[model] = min(holding, key=lambda entry: entry["step_sync_bits"])
    return best


def _order(coarseness: str) -> Fraction:
    return Fraction(0) if coarseness == "fp32" else Fraction(coarseness)


def _mean(runs: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.fmean(entry[key] for entry in runs)


def _spread(runs: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.stdev(entry[key] for entry in runs) if len(runs) > 1 else 0.0
