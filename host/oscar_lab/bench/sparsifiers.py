"""Density, union and balance of sparsifiers while a model trains.

A sparsifier is asked for k = density * values, of all workers together. What counts, from iteration 50 on:
how many values are really sent (the union of what workers chose) in relation to k; how often the mean of ten
iterations is within a tenth of it; how unequal the workers' counts are: inefficiency max k' N / sum k' - 1.
Every worker of topk, sidco and thresholds over whole gradients chooses k by itself: their unions grow.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from oscar.cores import one_blas_thread
from oscar.tables import Row, Table
from oscar_lab.bench._sparse import RULES, SparseTraining, sparsifier_of

SETTLED = 50  # iterations that do not count
SPAN = 10  # iterations of a mean
WORKLOADS = "cnn", "embedding"
CORRECTED = "micro", "exdyna", "exdyna one block", "deft"  # whose density is to hold
BAR = 0.1  # of the density
LEARNT, EQUAL, BALANCE_BAR = "exdyna", "micro", 0.6  # inefficiency of the first in that of the second

TABLE = Table(
    "workload <10", "density >7g", "rule <18", "union:union / k >10.3f", "spread:sd >6.3f",
    "within:means within .1 >17.2f", "inefficiency:inefficiency >13.3f", "bits:bits/value >11.3f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    parser.add_argument("--densities", nargs="+", type=float, default=[0.01, 0.05, 0.1])
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=200, help=f"of training, {SETTLED + SPAN} at least")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train with all rules, print a row for each; ok: densities hold, learnt ranges are the better ones."""
    if args.iterations < SETTLED + SPAN:
        raise ValueError(f"expected {SETTLED + SPAN} iterations at least, got {args.iterations}")
    one_blas_thread()
    print(f"# {args.nodes} ranks, {args.iterations} iterations; from iteration {SETTLED} on")
    print(TABLE.heading)
    rows: list[Row] = []
    for workload in args.workloads:
        for density in args.densities:
            for rule in args.rules:
                rows.append(_measure(rule, workload, density, args))
                print(TABLE.line(rows[-1]), flush=True)
    off = [row for row in rows if row["rule"] in CORRECTED and not abs(row["union"] - 1) < BAR]
    for row in off:
        print(f"# {row['workload']} at {row['density']:g}, {row['rule']}: {row['union']:.2f} k: MISSED")
    given = {key: value for key, value in vars(args).items() if key != "json"}
    return {"arguments": given, "table": rows, "balance": _balance(rows), "ok": not off}


def _measure(rule: str, workload: str, density: float, args: argparse.Namespace) -> Row:
    training = SparseTraining(rule, workload, nodes=args.nodes, seed=args.seed, density=density)
    unions, unequal, bits = [], [], []
    for result in training.run(args.iterations):
        scheme = sparsifier_of(training.cluster)
        unions.append(scheme.united / scheme.count)
        unequal.append(float(scheme.counts.max() * args.nodes / max(1, scheme.counts.sum()) - 1))
        bits.append(result.stats.bits_per_value)
    counted = np.array(unions[SETTLED:])
    means = counted[: counted.size // SPAN * SPAN].reshape(-1, SPAN).mean(axis=1)
    return {
        "workload": workload,
        "density": density,
        "rule": rule,
        "union": float(counted.mean()),
        "spread": float(counted.std()),
        "within": float(np.mean(np.abs(means - 1) < BAR)),
        "inefficiency": float(np.mean(unequal[SETTLED:])),
        "bits": float(np.mean(bits[SETTLED:])),
        "unions": [round(one, 4) for one in unions],
        "final": training.workload.evaluate(),
    }


def _balance(rows: list[Row]) -> list[Row]:
    """Print, and return, what learnt ranges leave of the inefficiency of equal ones."""
    result: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        result.setdefault((row["workload"], row["density"]), {})[row["rule"]] = row["inefficiency"]
    out = []
    for (workload, density), by_rule in result.items():
        if not {LEARNT, EQUAL} <= set(by_rule):
            continue
        share = by_rule[LEARNT] / by_rule[EQUAL]
        verdict = "met" if share <= BALANCE_BAR else "MISSED"
        print(
            f"# {workload} at {density:g}, learnt in equal ranges: {share:.2f}, bar {BALANCE_BAR}: {verdict}"
        )
        out.append({"workload": workload, "density": density, "share": share})
    return out
