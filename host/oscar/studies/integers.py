"""Real gradients as the integers that go over links: what the benchmarks of the coder alone measure on."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oscar.array import sizes_of
from oscar.errors import MissingExtraError, install
from oscar.numerics.position import PositionState
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.steps import StepTracker, summarise
from oscar.numerics.tensors import check_tensors
from oscar.workloads import Workload, exact_mean, make_workload
from oscar.workloads.trace import load


@dataclass(frozen=True)
class IntegerGradients:
    """Each node's integers (int32, flat), and the position classes that all nodes code them with."""

    values: list[np.ndarray]
    classes: np.ndarray


def default_model(preferred: str) -> str:
    """Return `preferred`, or the workload that needs NumPy alone where torch is not installed."""
    return preferred if importlib.util.find_spec("torch") else "numpy-lm"


def peer(package: str, *, extra: str = install("peers")) -> Any:
    """Import a package that OSCAR is measured against; raises MissingExtraError where it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(
            f"a peer of this benchmark is the package {package}, which is not installed; "
            f"install it with: {extra}"
        ) from None


def add_source(parser: argparse.ArgumentParser) -> None:
    """Declare where gradients come from."""
    parser.add_argument("--trace", type=Path, default=None, metavar="FILE.npz", help="a recorded trace")
    parser.add_argument("--nodes", type=int, default=8, help="nodes (a trace has its own)")
    parser.add_argument("--seed", type=int, default=0)


def open_source(args: argparse.Namespace, model: str) -> Workload:
    """Return the trace asked for, else the workload `model`; raises ConfigError on a bad one."""
    return load(args.trace) if args.trace else make_workload(model, nodes=args.nodes, seed=args.seed)


def integers(workload: Workload, iterations: int) -> Iterator[IntegerGradients]:
    """Train with the exact mean and yield what the quantiser 8s makes of every iteration's gradients."""
    params = QuantiserParams(bits=8)
    sizes = sizes_of(workload.tensor_shapes)
    steps = StepTracker(params, sizes, workload.nodes)
    workers = [WorkerQuantiser(params, rank) for rank in range(workload.nodes)]
    position = PositionState(sum(sizes))
    for _ in range(iterations):
        gradients = workload.gradients()
        tensors = [check_tensors(node, rank) for rank, node in enumerate(gradients)]
        if unset := steps.unset:
            steps.agree([summarise([node[t] for t in unset], params) for node in tensors])
        values = [w.quantise(t, steps.exponents) for w, t in zip(workers, tensors, strict=True)]
        yield IntegerGradients(values, position.classes.copy())
        sums = np.add.reduce(values, dtype=np.int32)
        rises = steps.observe(sums)
        position.observe(sums)
        position.rescale(steps.offsets, rises)
        for worker in workers:
            worker.commit()
        workload.apply(exact_mean(gradients))
