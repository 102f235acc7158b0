"""Warming up: after it, commands compile nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import contextlib, gc, io, json, sys
from numba.core.dispatcher import Dispatcher
from oscar import warm
from oscar.cli import main

def known():
    # What was loaded from numba's cache counts as what was compiled: the cache's state does not matter.
    own = (one for one in gc.get_objects() if isinstance(one, Dispatcher))
    return {f"{one.py_func.__module__}.{one.py_func.__name__}{each}"
            for one in own if one.py_func.__module__.startswith("oscar.") for each in one.signatures}

warm.main()
before, missing = known(), {}
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(words)
    missing[words[0]] = [status, sorted(known() - before)]
print(json.dumps(missing))
"""


def test_commands_compile_nothing_after_warming_up(tmp_path: Path) -> None:
    from oscar.warm import TINY

    tiny = ["--set", f"workload.options={json.dumps(TINY)}", "--set", "nodes=2", "--set", "iterations=3"]
    tiny += ["--set", f"output={tmp_path}"]
    contenders = ", ".join(f"{{name: {name}, method: {name}}}" for name in ("asc", "zen", "powersgd"))
    commands = [
        ["allreduce", "default", "--workers", "1", *tiny],
        ["compare", "default", "--workers", "1", *tiny, "--set", f"compare.contenders=[{contenders}]",
         "--set", "compare.seeds=[0]"],
        ["tune", "default", "--compute-ms", "1", *tiny],
    ]  # fmt: skip
    fresh = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}  # or what coding costs may be known, not measured
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        capture_output=True, text=True, timeout=600, env=fresh,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: new for name, (_, new) in found.items()} == {"allreduce": [], "compare": [], "tune": []}
    assert {name: status for name, (status, _) in found.items()} == {"allreduce": 0, "compare": 0, "tune": 3}
