"""Whether every scheme's defaults converge where fp32 does: five small models, two optimisers, several seeds.

The band is that of fp32 over its seeds. A scheme holds a case when it is not worse than fp32, under the same
seeds, by more than fp32's worst seed is worse than fp32's mean. One that does not has to say so itself, by
the caution that training warns of (Scheme.caution).
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

from oscar.config import Config
from oscar.cores import one_blas_thread
from oscar.errors import CautionWarning, ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.registry import scheme_names
from oscar.tables import Table
from oscar_studies.training import TAIL, TAIL_GAP, Trainer

MODELS = "mlp", "cnn", "lstm", "transformer", "embedding"
OPTIMISERS = "sgd", "adamw"

# Every scheme at its defaults, the method that `Config()` takes, and what OSCAR-SW is without its safeguards.
METHODS: dict[str, dict[str, Any]] = {
    "fp32": {"method": "fp32", "schedule": {"name": "ring"}},
    "asc": {},
    **{name: {"method": name} for name in scheme_names()},
    "oscar-sw, paper": {
        "method": "oscar-sw",
        "scheme": {"paper": True, "share": 0.1, "rows": 3, "ratio": 0.1},
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--optimisers", nargs="+", choices=OPTIMISERS, default=list(OPTIMISERS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS)[1:], default=list(METHODS)[1:])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=200, help="of training, 25 at least")
    parser.add_argument("--seeds", type=int, default=3, help="of every method: weights and batches")
    parser.add_argument("--band-seeds", type=int, default=8, help="of fp32, whose spread is the band")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Train all cases, print a line per method, and return runs, band and verdicts."""
    if args.iterations < TAIL * TAIL_GAP or args.seeds < 1 or args.band_seeds < max(2, args.seeds):
        raise ConfigError(
            f"expected at least {TAIL * TAIL_GAP} iterations, 1 seed, and for the band as many seeds and 2, "
            f"got {args.iterations}, {args.seeds} and {args.band_seeds}"
        )
    one_blas_thread()
    cases = [f"{model} {optimiser}" for model in args.models for optimiser in args.optimisers]
    print(
        f"# {args.nodes} nodes, {args.iterations} iterations, {args.seeds} seeds, fp32 {args.band_seeds}; "
        "held-out loss at the end"
    )
    print("# columns: worse than fp32 under the same seeds, in standard deviations of fp32 over its seeds;")
    print("# !: by more than fp32's worst seed is worse than its mean; bits: sent, per value and link")
    columns = (f"{case}:{model[:5]} {optimiser} >12" for case in cases for model, optimiser in [case.split()])
    table = Table("method:  <18", "bits >5.2f", *columns, "holds >6", "caution: caution <")
    print(table.heading)
    band = _band(cases, args, table)
    methods = {name: _method(name, cases, band, args, table) for name in args.methods}
    bad = [
        f"{name} in {case}"
        for name, method in methods.items()
        for case, row in method["cases"].items()
        if not row["holds"] and not row["caution"]
    ]
    print(f"# outside the band without a caution: {', '.join(bad) or 'none'}")
    return {
        "arguments": {key: value for key, value in vars(args).items() if key != "json"},
        "band": band,
        "methods": methods,
        "ok": not bad,
    }


def _runs(case: str, method: str, seeds: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a method in a case, once with each seed."""
    (model, optimiser), how = case.split(), {"nodes": args.nodes, "iterations": args.iterations}
    return [train(model, optimiser, METHODS[method], seed=seed, **how) for seed in range(seeds)]


def _band(cases: Sequence[str], args: argparse.Namespace, table: Table) -> dict[str, Any]:
    """Train fp32 and return, for each case, its losses, mean, spread, and the worst one's distance."""
    band = {}
    for case in cases:
        losses = [run["loss"] for run in _runs(case, "fp32", args.band_seeds, args)]
        mean, spread = statistics.fmean(losses), statistics.stdev(losses)
        band[case] = {"losses": losses, "mean": mean, "spread": spread, "limit": max(losses) - mean}
    for what in ("mean", "spread", "limit"):
        cells = {case: f"{row[what]:.4f} " for case, row in band.items()}
        bits = 32.0 if what == "mean" else ""
        print(table.line(cells, method=f"fp32 {what}", bits=bits, holds="", caution=""), flush=True)
    return band


def _method(
    name: str, cases: Sequence[str], band: dict[str, Any], args: argparse.Namespace, table: Table
) -> dict[str, Any]:
    """Train one method in all cases, print its line and return what it holds."""
    begin, cells, rows, bits = time.perf_counter(), {}, {}, []
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CautionWarning)  # the table says so
            runs = _runs(case, name, args.seeds, args)
        worse = statistics.fmean(r["loss"] - f for r, f in zip(runs, band[case]["losses"], strict=False))
        holds = worse <= band[case]["limit"]
        rows[case] = {
            "losses": [r["loss"] for r in runs],
            "worse_by": worse,
            "holds": holds,
            "caution": next((r["caution"] for r in runs if r["caution"]), None),
        }
        cells[case] = f"{worse / band[case]['spread']:.1f}{' ' if holds else '!'}"
        bits += [r["bits"] for r in runs]
    cautions = sum(row["caution"] is not None for row in rows.values())
    held = sum(row["holds"] for row in rows.values())
    seconds, mean_bits = time.perf_counter() - begin, statistics.fmean(bits)
    said = {"holds": f"{held}/{len(cases)}", "caution": f" {cautions or 'no'}  ({seconds:.0f} s)"}
    print(table.line(cells, method=name, bits=mean_bits, **said), flush=True)
    return {"bits": mean_bits, "cases": rows, "holds": held, "seconds": seconds}


def train(
    model: str, optimiser: str, method: dict[str, Any], *, nodes: int, seed: int, iterations: int
) -> dict[str, Any]:
    """Train with the mean of a configuration.

    Returns "loss", held out, the mean of the last evaluations, infinite where training diverged; "bits" per
    value; "caution", what the scheme said of itself, or None.
    """
    from oscar_lab.trials._small_models import SmallWorkload  # imports torch

    common = {"nodes": nodes, "seed": seed, "iterations": iterations, "train": {"evaluate_every": 0}}
    workload = SmallWorkload(model, optimiser, nodes=nodes, seed=seed)
    trainer = Trainer(Config.model_validate(common | method), workload)
    while trainer.done < iterations and not trainer.diverged:
        trainer.step()
    run = trainer.finish()
    assert isinstance(trainer.cluster, LocalCluster)  # no policy is asked for
    scheme = trainer.cluster.scheme
    return {
        "loss": math.inf if run.diverged else run.final["loss"],
        "bits": statistics.fmean(run.series["bits_per_value"] or [32.0]),
        "caution": None if scheme is None else scheme.caution(),
    }
