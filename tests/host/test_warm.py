"""Warming up: after it, commands compile nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = """
import contextlib, gc, io, json, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
from oscar import Config, LocalCluster, delta, warm
from oscar.cli import main

def known():
    # What was loaded from numba's cache counts as what was compiled: the cache's state does not matter.
    own = (one for one in gc.get_objects() if isinstance(one, Dispatcher))
    return {f"{one.py_func.__module__}.{one.py_func.__name__}{each}"
            for one in own if one.py_func.__module__.startswith("oscar") for each in one.signatures}

warm.main()
before, missing = known(), []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    missing.append([words[0], status, sorted(known() - before)])
own = np.random.default_rng(1).normal(size=9000).astype(np.float32)
cluster = LocalCluster(Config(nodes=2))
for factor in (1, 1, 1e4, 1):
    cluster.allreduce([[own * np.float32(factor)]] * 2)
missing.append(["a spike", 0, sorted(known() - before)])
weights = {"half": own.astype(np.float16), "whole": own, "wide": own.astype(float), "flags": own > 0}
for change in (weights["whole"], own[::-1].copy()):
    new = {**weights, "half": weights["half"] * 2, "whole": change, "flags": own < 0.1}
    delta.decode(delta.encode(new, weights), weights)
missing.append(["delta", 0, sorted(known() - before)])
print(json.dumps(missing))
"""


def test_commands_compile_nothing_after_warming_up(tmp_path: Path) -> None:
    from oscar.warm import TINY

    tiny = ["--set", f"workload.options={json.dumps(TINY)}", "--set", "nodes=2", "--set", "iterations=3"]
    tiny += ["--set", f"output={tmp_path}"]
    array = tmp_path / "array.npy"
    np.save(array, np.linspace(-1, 1, 50_000, dtype=np.float32))
    contenders = ", ".join(f"{{name: {name}, method: {name}}}" for name in ("asc", "zen", "powersgd"))
    commands = [
        ["allreduce", "default", "--workers", "1", *tiny],
        ["compare", "default", "--workers", "1", *tiny, "--set", f"compare.contenders=[{contenders}]",
         "--set", "compare.seeds=[0]"],
        ["tune", "default", "--compute-ms", "1", *tiny],
        ["predict", "--values", "1M", "--nodes", "8", "--gbps", "1"],
        ["predict", "--values", "1M", "--nodes", "4", "--gbps", "1", "--method", "oscar-sw-best"],
        ["predict", "--values", "100k", "--nodes", "4", "--gbps", "100", "--codec", "rtl"],
        ["schedule", "draw", "ring", "--nodes", "4", "-o", str(tmp_path / "ring.png")],
        ["codec", str(array), "--all"],
        ["train", "default", "--workers", "1", *tiny],
    ]  # fmt: skip
    if importlib.util.find_spec("mpi4py"):
        commands.append(["worker", *tiny])
    fresh = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}  # or what coding costs may be known, not measured
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        capture_output=True, text=True, timeout=600, env=fresh,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert [new for _, _, new in found] == [[]] * (len(commands) + 2), found
    assert not any(status for name, status, _ in found if name not in ("tune", "predict")), found
    assert all(status in (0, 3) for _, status, _ in found)  # 3: does not pay
