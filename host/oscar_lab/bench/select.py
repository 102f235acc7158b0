"""Seconds that sparsifiers need to choose positions, a rank: against Top-k, and by stage.

A model trains for a while under each rule, so that residuals are there. Then the same gradients are reduced
again and again, from the same state, and every rank's own work is timed: select (find the positions), index
(code, decode and unite them), reduce (gather and add values, without the wire), apply (residual, mean). Shown
is the busiest rank, each stage at its best of all turns. Select is timed in turns of its own, one rank after
the other, as all ways to Top-k are; what all ranks compute alike is charged to each.

Top-k runs in four ways over the same values: as the scheme does it (the threshold of a sample's candidates),
by two histograms of 16 bits, by torch.topk and by numpy's argpartition; magnitudes are taken in each of them.
A rule that is "released" moves its threshold by a factor in each iteration and needs no quantile. It begins
at the threshold that the corrected rule has found: its own way there takes hundreds of iterations.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.cores import one_blas_thread
from oscar.errors import needed
from oscar.schemes.selection import largest
from oscar.schemes.sparse.sparsifier import Sparsifier
from oscar.tables import Row, Table
from oscar_lab.bench._sparse import RULES, SparseTraining, sparsifier_of
from oscar_lab.bench._stages import STAGES, Stages

WORKLOADS = "embedding", "cnn"
BARS = {"micro released": 20.0, "micro": 6.0}  # times the speed of the fastest known way to Top-k
TOP_K = "topk"
WAYS = HISTOGRAMS, TORCH, ARGPARTITION = "two histograms", "torch.topk", "argpartition"
TIMED = "topk", "clt-k", "deft", "micro", "micro released", "exdyna", "exdyna released", "sidco"

TABLE = Table(
    "workload <10", "rule <18", *(f"{stage}:{stage} us >10.1f" for stage in STAGES), "total:total us >10.1f",
    "times:select, times faster >22", "own:than topk >9",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(TIMED))
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--density", type=float, default=0.01, help="share of the values that are chosen")
    parser.add_argument("--index", default="gaps", help="how positions travel")
    parser.add_argument("--iterations", type=int, default=20, help="of training before the clock starts")
    parser.add_argument("--turns", type=int, default=15, help="times everything is timed")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Time all rules, print the table, and return it; ok: the bars are met where their rules were timed."""
    if min(args.turns, args.iterations, args.nodes) < 1:
        raise ValueError(
            f"expected 1 turn, 1 iteration and 1 node at least, got {args.turns}, {args.iterations} and "
            f"{args.nodes}"
        )
    one_blas_thread()
    print(f"# {args.nodes} ranks, density {args.density:g}, index {args.index}, best of {args.turns} turns,")
    print("# the busiest rank; times faster: than the fastest known way to Top-k, and than the scheme topk")
    print(TABLE.heading)
    rows: list[Row] = []
    for workload in args.workloads:
        mine = [*_ways(workload, args), *(_profile(rule, workload, args) for rule in args.rules)]
        slow = {row["rule"]: row["select"] for row in mine}
        fastest = min(slow[way] for way in WAYS)
        for row in mine:
            row["times"] = fastest / row["select"]
            row["own"] = slow[TOP_K] / row["select"] if TOP_K in slow else None
            own = None if row["own"] is None else f"{row['own']:.1f}x"
            print(TABLE.line(row, times=f"{row['times']:.1f}x", own=own), flush=True)
        rows += mine
    missed = [row for row in rows if row["times"] < BARS.get(row["rule"], 0)]
    for row in rows:
        if row["rule"] in BARS:
            verdict = "MISSED" if row in missed else "met"
            bar = BARS[row["rule"]]
            print(f"# {row['workload']}, {row['rule']}: {row['times']:.1f}x, bar {bar:g}: {verdict}")
    given = {key: value for key, value in vars(args).items() if key != "json"}
    return {"arguments": given, "table": rows, "ok": not missed}


def _trained(rule: str, workload: str, args: argparse.Namespace) -> SparseTraining:
    options = {"density": args.density, "index": args.index}
    if rule.endswith("released"):
        options["controller"] = "corrected"
    training = SparseTraining(rule, workload, nodes=args.nodes, seed=args.seed, **options)
    for _ in training.run(args.iterations):
        pass
    if rule.endswith("released"):
        scheme = sparsifier_of(training.cluster)
        scheme.options = replace(scheme.options, controller="released")
    return training


def _profile(rule: str, workload: str, args: argparse.Namespace) -> Row:
    """Return the microseconds of each stage on the busiest rank."""
    training = _trained(rule, workload, args)
    gradients = training.workload.gradients()
    state = training.cluster.states[0]
    every = _accumulated(state.workers, gradients)
    select = _chosen(sparsifier_of(training.cluster), state.workers, every, args.turns)
    token, best = state.snapshot(), np.full((args.nodes, len(STAGES)), np.inf)
    for _ in range(args.turns):
        with Stages(sparsifier_of(training.cluster), state.workers) as stages:
            training.cluster.allreduce(gradients)
        best = np.minimum(best, stages.seconds)
        state.restore(token)
    best[:, STAGES.index("select")] = select
    busiest = best[best.sum(axis=1).argmax()]
    row: Row = {"workload": workload, "rule": rule}
    row |= {stage: 1e6 * float(took) for stage, took in zip(STAGES, busiest, strict=True)}
    return row | {"select": 1e6 * float(select.max()), "total": 1e6 * float(busiest.sum())}


def _accumulated(workers: Sequence[Any], gradients: Sequence[Sequence[Array]]) -> list[Array]:
    """Return what each worker chooses from: its gradient and its residual."""
    flat = [np.concatenate([np.ravel(tensor) for tensor in own]) for own in gradients]
    return [worker.accumulate(own, 0.0) for worker, own in zip(workers, flat, strict=True)]


def _chosen(scheme: Sparsifier, workers: Sequence[Any], every: Sequence[Array], turns: int) -> Array:
    """Return the seconds that each worker needs to choose, at its best; only what it asks for is sent."""
    best = np.full(len(workers), np.inf)
    for _ in range(turns):
        with Stages(scheme, workers) as stages:
            running = [scheme.choose(worker, acc) for worker, acc in zip(workers, every, strict=True)]
            answer: Any = None
            while True:
                messages = []
                for one in running:
                    with suppress(StopIteration):
                        messages.append(one.send(answer))
                if not messages:
                    break
                answer = [message.data for message in messages]
        scheme.forget()
        best = np.minimum(best, stages.seconds[:, STAGES.index("select")])
    return best


def _ways(workload: str, args: argparse.Namespace) -> list[Row]:
    """Return a row for each other way to Top-k, over what workers have to choose from."""
    training = _trained(TOP_K, workload, args)
    every = _accumulated(training.cluster.states[0].workers, training.workload.gradients())
    count = sparsifier_of(training.cluster).count
    torch = needed("torch", "this comparison", "torch", target="torch")
    ways: dict[str, Callable[[Array], Any]] = {
        HISTOGRAMS: lambda acc: largest(np.abs(acc), count),
        TORCH: partial(_torch_topk, torch, count),
        ARGPARTITION: lambda acc: np.argpartition(np.abs(acc), acc.size - count)[acc.size - count :],
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [
            {"workload": workload, "rule": name, "select": _best(way, every, args.turns)}
            | dict.fromkeys((*STAGES[1:], "total"))
            for name, way in ways.items()
        ]
    finally:
        torch.set_num_threads(threads)


def _torch_topk(torch: Any, count: int, acc: Array) -> Any:
    return torch.topk(torch.from_numpy(acc).abs(), count, sorted=False).indices


def _best(way: Callable[[Array], Any], every: list[Array], turns: int) -> float:
    """Return the microseconds of the busiest rank, each at its best; ranks take turns."""
    best = np.full(len(every), np.inf)
    for _ in range(turns):
        for rank, acc in enumerate(every):
            begin = time.perf_counter()
            way(acc)
            best[rank] = min(best[rank], time.perf_counter() - begin)
    return 1e6 * float(best.max())
