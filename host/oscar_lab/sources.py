"""Where measurements take gradients from: a recorded trace or a workload; and packages to compare with."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from pathlib import Path
from typing import Any

from oscar.errors import MissingExtraError, install
from oscar.workloads import Workload, make_workload
from oscar.workloads.trace import load


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
