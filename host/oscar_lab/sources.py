"""Where measurements take gradients from: a recorded trace or a workload; and packages to compare with."""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from pathlib import Path

from oscar.errors import needed
from oscar_studies.workloads import Workload, make_workload
from oscar_studies.workloads.trace import load

peer = partial(needed, purpose="this comparison", extra="peers")  # imports a package to compare with


def default_model(preferred: str) -> str:
    """Return `preferred`, or the workload that needs NumPy alone where torch is not installed."""
    return preferred if importlib.util.find_spec("torch") else "numpy-lm"


def add_source(parser: argparse.ArgumentParser) -> None:
    """Declare where gradients come from."""
    parser.add_argument("--trace", type=Path, default=None, metavar="FILE.npz", help="a recorded trace")
    parser.add_argument("--nodes", type=int, default=8, help="nodes (a trace has its own)")
    parser.add_argument("--seed", type=int, default=0)


def open_source(args: argparse.Namespace, model: str) -> Workload:
    """Return the trace asked for, else the workload `model`; raises ConfigError on a bad one."""
    return load(args.trace) if args.trace else make_workload(model, nodes=args.nodes, seed=args.seed)
