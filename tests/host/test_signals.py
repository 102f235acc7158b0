"""Signals: a command and its workers end soon, with one line, and no process stays behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oscar.errors import OscarError
from oscar.signals import Stopped, stops_raise
from oscar_studies.parallel import run_tasks

AIM_S = 2.0  # until a command that was asked to end has ended
SLACK = 3  # and as many times what Python takes to start here and now: machines of tests are shared
FOREVER_S = 120.0
LONG: dict[str, Any] = {
    "nodes": 4,
    "iterations": 1_000_000,
    "workload": {"name": "numpy-lm", "options": {"text_bytes": 200_000}},
    "train": {"evaluate_every": 0, "compute_ms": 1.0, "checkpoint_every": 0},
    "compare": {
        "metric": "loss",
        "contenders": [{"name": "fp32", "method": "fp32"}, {"name": "asc", "method": "asc"}],
    },
}
SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


def heed() -> None:
    """Undo what the background of a shell or nohup ignores."""
    for number in SAID:
        signal.signal(number, signal.SIG_DFL)


def soon() -> float:
    """Return the seconds within which a command has to end: two, and what this machine's load adds."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import numpy"], check=True)
    return AIM_S + SLACK * (time.monotonic() - began)


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def spent(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("compare", signal.SIGINT),
        ("compare", signal.SIGHUP),
        ("train", signal.SIGTERM),
        ("seeds", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_command_and_its_workers(command: str, number: int, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(json.dumps({**LONG, "output": str(tmp_path / "out")}))
    words = {"seeds": ["train", "--seeds", "0", "1"]}.get(command, [command])
    words = [sys.executable, "-m", "oscar", *words[:1], str(path), *words[1:]]
    run = subprocess.Popen(
        words if command == "train" else [*words, "--workers", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed,
    )  # fmt: skip
    workers: list[int] = []
    try:
        stop = time.monotonic() + FOREVER_S
        while time.monotonic() < stop and run.poll() is None:
            workers = [run.pid] if command == "train" else children(run.pid)
            busy = [pid for pid in workers if spent(pid) > (3 if command == "train" else 1)]
            if len(busy) == (1 if command == "train" else 2):
                break
            time.sleep(0.1)
        assert run.poll() is None
        bound = soon()
        run.send_signal(number)
        began = time.monotonic()
        _, said = run.communicate(timeout=FOREVER_S)
        assert time.monotonic() - began < bound
        assert run.returncode == 128 + number
        assert said.splitlines()[-1:] == [f"oscar: {SAID[signal.Signals(number)]}"]
        assert "Traceback" not in said
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
        assert not (tmp_path / "out" / ".oscar-lock").exists()
    finally:
        run.kill()
        run.communicate()


def fail(tick: Callable[[], None]) -> None:
    raise ValueError("no such thing")


def sleep(tick: Callable[[], None]) -> None:
    time.sleep(FOREVER_S)


def die(tick: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize(
    ("task", "kind", "said"),
    [(fail, ValueError, "no such thing"), (die, OscarError, r"a worker process died \(signal 15\)")],
)
def test_what_fails_does_not_wait_for_the_others(task: Any, kind: type[Exception], said: str) -> None:
    bound = soon()
    began = time.monotonic()
    with pytest.raises(kind, match=said):
        run_tasks([sleep, task, sleep], stage="testing", total=3, workers=2)
    assert time.monotonic() - began < bound


FAILING = """
import os, signal, sys, threading, time
from oscar_studies.cli import train
from oscar.cli import main
from oscar_studies.parallel import run_tasks

def fail(tick):
    print(time.monotonic(), flush=True)
    threading.Timer({delay}, os.kill, (os.getppid(), signal.SIGINT)).start()
    raise ValueError("no such thing")

def run(args):
    run_tasks([fail, lambda tick: time.sleep(120)], stage="testing", total=2, workers=2)
    return 0

train.run = run
sys.exit(main(["train"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize("delay", [0.0, 0.001, 0.003, 0.01])
def test_an_interrupt_just_after_a_worker_failed_leaves_nobody(delay: float) -> None:
    """Whichever comes first, the run ends soon, with its workers, and prints one line."""
    bound = soon()
    run = subprocess.Popen(
        [sys.executable, "-c", FAILING.replace("{delay}", str(delay))],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed, start_new_session=True,
    )  # fmt: skip
    try:
        # Workers hold the pipes, which close with the last of them.
        failed, said = run.communicate(timeout=FOREVER_S)
        assert time.monotonic() - float(failed) < bound
        assert "Traceback" not in said
        assert (run.returncode, said.splitlines()[-1:]) in [
            (130, ["oscar: interrupted"]),
            (2, ["oscar train: error: no such thing"]),
        ]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def test_a_stop_that_a_callback_loses_is_raised_again() -> None:
    """As in llvmlite, which calls back while it compiles: ctypes drops exceptions of callbacks."""
    lost = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))
    before = sys.unraisablehook

    def compile_for_long() -> None:
        lost()
        time.sleep(FOREVER_S)

    with pytest.raises(Stopped) as caught, stops_raise() as came:
        compile_for_long()
    assert caught.value.code == 143
    assert came == [signal.SIGTERM, signal.SIGTERM]
    assert sys.unraisablehook is before


def test_an_alarm_of_somebody_else_is_a_stop_unless_it_is_ignored() -> None:
    with pytest.raises(Stopped) as caught, stops_raise() as came:
        signal.raise_signal(signal.SIGALRM)
    assert (caught.value.code, came) == (142, [signal.SIGALRM])
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with stops_raise() as came:
            signal.raise_signal(signal.SIGALRM)
        assert came == []
    finally:
        signal.signal(signal.SIGALRM, before)


def test_cleaning_up_is_not_interrupted_by_the_same_signal() -> None:
    done = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            time.sleep(1.0)
            done.append(True)

    with pytest.raises(Stopped), stops_raise() as came:
        work()
    assert done
    assert came == [signal.SIGTERM]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stops_raise() as came:
            signal.raise_signal(signal.SIGHUP)
        assert came == []
    finally:
        signal.signal(signal.SIGHUP, before)
