"""Compiles every kernel ahead of its first use: `python -m oscar.warm`, run once by `make setup`."""

from __future__ import annotations

import json
import warnings
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

TINY = {"vocabulary": 200, "dimension": 8, "hidden": 16, "outputs": 50, "batch": 16, "text_bytes": 20000}
CODECS = {  # and a schedule whose kernels are run with it
    "asc": "boomerang",
    "asc-paper": "ring",
    "atalanta": "ring",
    "atalanta-dp": "ring",
    "rans0": "ring",
    "zstd": "ring",
}


def main() -> None:
    """Do a little of what commands do: compare all methods on a tiny model, tune, predict, code an array."""
    from oscar.errors import OscarWarning
    from oscar.numerics.integers import extremes
    from oscar.numerics.meanwhile import Meanwhile
    from oscar.numerics.plans import in_order
    from oscar.schemes.grid import Grid
    from oscar.schemes.registry import scheme_names

    grid = Grid((0,), np.array([0, 1]), coarseness=1.0, limit=1, nominal=1)
    grid.quantise(np.full(1, 9, np.float32), indices=np.zeros(1, np.int64))  # a value that saturates
    extremes(np.zeros(1, np.int16))  # what narrow quantisers give; wide ones are below
    waiting = Meanwhile(in_order(1), lambda _, end: end)  # what large calls do between frames
    waiting.final(np.zeros(1, np.int16), 0, 1)
    while waiting.work():
        pass
    warnings.simplefilter("ignore", OscarWarning)  # nothing is to be learnt here
    # Where `tune` finds coding slow, it tries floats in plan order.
    plain = [{"name": name, "method": name, "plans": ["snake"]} for name in ("fp32", "bf16")]
    _compare({}, plain)
    codecs = [
        {"name": name, "method": name, "schedule": schedule, "plans": ["snake"]}
        for name, schedule in CODECS.items()
    ]
    direct = [{"name": "direct", "method": "asc", "plans": ["splitter"]}]
    schemes = [{"name": name, "method": name} for name in scheme_names()]
    coded = [{"name": "coded", "method": "oscar-sw", "scheme": {"coded": True}}]
    _compare({"nodes": 2}, direct)  # sums of 2, 4, 8 nodes become means by a kernel of their own
    _compare({"quantiser": {"error_feedback": True}}, codecs + direct)  # feedback has kernels of its own
    _compare({"quantiser": {"step": "value", "error_feedback": True}}, direct)
    _compare({}, [*schemes, *coded])
    _change_weights()
    _renew_steps()
    _tune()
    # Commands have kernels of their own: run them on little data.
    rtl = ["predict", "--values", "100k", "--nodes", "4", "--codec", "rtl", "--gbps"]
    with TemporaryDirectory() as folder:
        floats = str(Path(folder) / "floats.npy")
        np.save(floats, np.linspace(-1, 1, 5000, dtype=np.float32))
        _run(["codec", floats, "--all"])
    for rest in (["10"], ["100"], ["100", "--schedule", "ring"]):
        _run([*rtl, *rest])


def _compare(changes: dict[str, Any], methods: list[dict[str, Any]]) -> None:
    """Run an `oscar allreduce`, and drop what it prints and writes."""
    with TemporaryDirectory() as folder:
        own = {"nodes": 3, "iterations": 4, "workload": {"options": TINY, "warmup": 0}, "methods": methods}
        path = Path(folder) / "tiny.yaml"
        path.write_text(json.dumps({**own, "output": folder, **changes}))  # which is YAML, too
        _run(["allreduce", str(path), "--workers", "1"])


def _run(words: list[str]) -> None:
    """Run a command, and drop what it prints. Raises OscarError where it fails."""
    from oscar.cli import main as oscar
    from oscar.errors import OscarError

    printed = StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        status = oscar(words)
    if status not in (0, 3):  # 3: what was asked about does not pay
        raise OscarError(
            f"expected `oscar {words[0]}` to run, it ended with status {status}: {printed.getvalue()}"
        )


def _change_weights() -> None:
    """Code words of each size as changes from a base, few and many."""
    from oscar import delta

    base = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    for share in (100, 2):
        new = base.copy()
        new[::share] *= np.float32(1.01)
        for dtype in ("u1", "u2", "u4"):
            delta.decode(delta.encode(new.view(dtype), base.view(dtype)), base.view(dtype))
        delta.decode(delta.encode(-new, base), base)


def _renew_steps() -> None:
    """Reduce gradients that grow and fall at once, whose steps are renewed within the call."""
    from oscar.config import Config
    from oscar.reducers.cluster import LocalCluster

    gradient = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    quantisers: list[dict[str, Any]] = [{"quantiser": {"error_feedback": on}} for on in (False, True)]
    for changes in (*quantisers, {"method": "oscar-sw-best"}):
        cluster = LocalCluster(Config.model_validate({"nodes": 2, **changes}))
        for factor in (1, 1, 1e4, 1):
            cluster.allreduce([[gradient * np.float32(factor)]] * 2)


def _tune() -> None:
    """Choose a policy of made-up prices: nothing is measured."""
    from oscar.coding.costs import Cost, FrameCost
    from oscar.planning.tuning.options import FP32, MethodPrice, options
    from oscar.planning.tuning.policy import Policy, PolicyProblem
    from oscar.planning.tuning.select import select
    from oscar.timeline.link import LinkModel

    price = MethodPrice("asc", 6.0, FrameCost(Cost(1e-9, 1e-6), Cost(1e-9, 1e-6)))
    own = options([FP32, price], 4, LinkModel.of(gbps=1))
    problem = PolicyProblem((1000, 100_000), np.array([1e-3, 2e-3]), tuple(own))
    select(problem)
    problem.timeline(Policy.uniform(2, 0))


if __name__ == "__main__":
    main()
