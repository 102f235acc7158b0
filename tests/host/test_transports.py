"""Transports alone, whole trainings between processes, and real faults."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from needs import TRANSPORTS, needs
from oscar.errors import MissingExtraError
from oscar.signals import stops_raise
from oscar.transports.base import CONTROL_TAG, TransportError
from oscar.transports.threads import local_transports
from oscar_lab.lab import launch as launching
from oscar_lab.lab.launch import Ended, launch
from oscar_lab.trials import transport_faults

TRAINING = """
iterations: 6
workload: {options: {vocabulary: 200, dimension: 8, hidden: 16, outputs: 50, batch: 16, text_bytes: 20000}}
schedule: {subframes: 2}
plan: {name: splitter, granule: 64}
quantiser: {error_feedback: true}
"""
LIMIT_S = 120.0  # the two cores may be busy


# ------------------------------------------------------------------------------------- in one process


def test_silence_ends_early_and_a_sign_of_life_buys_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on as the rank naps, however busy the machine is."""
    for sign, least, most in ((False, 1.6, 2.0), (True, 2.0, 3.0)):
        (one, two), now = local_transports(2), [50.0]

        def nap(tries: int, sign: bool = sign, two: Any = two, now: list[float] = now) -> None:
            now[0] += 1 / 64
            if sign and now[0] == 50.125:
                two.post_send(0, CONTROL_TAG, b'{"waiting": "a sign"}')

        with monkeypatch.context() as patch:
            patch.setattr(time, "monotonic", lambda now=now: now[0])
            patch.setattr(one, "_pause", nap)
            with pytest.raises(TransportError, match="rank 1 was silent") as caught:
                one.wait(1, 5, 52.0)
        assert caught.value.kind == "silent"
        assert ("itself waits for a sign" in str(caught.value)) == sign
        assert least <= now[0] - 50 < most


@pytest.mark.parametrize(
    "message",
    [
        b"\xff not json",
        b"[" * 4000,
        b"[]",
        b"{}",
        b'{"abort": []}',
        b'{"abort": {"rank": 1, "peer": [0], "step": 0, "chunk": 0, "reason": ""}}',
        b'{"abort": {"rank": 1, "peer": 0, "step": 0, "chunk": 0, "reason": null}}',
        b'{"abort": {"rank": 1, "peer": 0, "step": 0, "chunk": 0, "reason": "", "more": 1}}',
    ],
    ids=lambda message: repr(message[:60]),
)
def test_a_control_message_that_is_none_is_told_as_that(message: bytes) -> None:
    one, two = local_transports(2)
    two.post_send(0, CONTROL_TAG, message)
    with pytest.raises(TransportError, match="rank 1 sent an unreadable control message"):
        one.wait(1, 5, time.monotonic() + 20)


@pytest.mark.parametrize(("transport", "module"), [("mpi", "mpi4py"), ("tcp", "torch")])
def test_a_missing_package_is_named_with_its_extra(
    transport: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oscar.transports.registry import TRANSPORTS

    monkeypatch.setitem(sys.modules, module, None)
    extra = {"mpi": "mpi", "tcp": "torch"}[transport]
    with pytest.raises(MissingExtraError, match=rf"pip install -e '\.\[{extra}\]' in the checkout"):
        TRANSPORTS[transport]()


# ------------------------------------------------------------------------------------- real processes


def run_here(transport: str, ranks: int, code: str, *, limit_s: float) -> Ended:
    """Launch ranks of this code; no other run on this machine has their token."""
    token = f"oscar-{time.monotonic_ns()}"
    return launch(transport, ranks, ["-c", code, token], limit_s=limit_s, token=token)


@pytest.mark.parametrize("transport", ["mpi", "tcp"])
def test_a_training_between_processes_is_the_one_in_one_process(transport: str, tmp_path: Path) -> None:
    config, report = tmp_path / "c.yaml", tmp_path / "report.json"
    config.write_text(TRAINING)
    needs(TRANSPORTS[transport])
    program = ["-m", "oscar", "worker", str(config), "--transport", transport, "--check", "6"]
    ended = launch(
        transport, 3, [*program, "--json", str(report)], limit_s=LIMIT_S, token=str(config)
    )  # fmt: skip
    assert ended.status == 0, ended.output
    assert not ended.orphans
    result = json.loads(report.read_text())
    assert result["ok"]
    assert (result["ranks"], result["checked"], result["wrong"]) == (3, 6, [])
    assert all(row["identical"] and row["sent_bytes"] > 0 for row in result["iterations"])


INTERRUPT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
from oscar.cli import main
from oscar_studies.ranks import RankRun
gradients, calls = RankRun._gradients, []
def struck(self):
    calls.append(0)
    if len(calls) == 3 and self.worker == 1:
        os.kill(os.getpid(), signal.SIGINT)
    return gradients(self)
RankRun._gradients = struck
sys.exit(main(sys.argv[1:]))
"""


def test_rows_come_with_their_iterations_and_an_interruption_is_told(tmp_path: Path) -> None:
    config, script = tmp_path / "c.yaml", tmp_path / "interrupt.py"
    config.write_text(TRAINING)
    script.write_text(INTERRUPT)
    needs("torch")
    program = [str(script), "worker", str(config), "--transport", "tcp"]
    ended = launch("tcp", 2, program, limit_s=LIMIT_S, token=str(config))
    assert ended.statuses == (75, 130), ended.output
    assert "oscar: interrupted" in ended.output
    assert "Traceback" not in ended.output
    rows = [line.split()[0] for line in ended.output.splitlines() if line.endswith(" yes")]
    assert rows in (["0"], ["0", "1"])  # the notice may overtake the last one
    assert "survive" not in ended.output


def test_what_cannot_be_survived_is_said_at_the_start(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(TRAINING + "transport: {survive: true}\n")
    needs("torch")
    program = ["-m", "oscar", "worker", str(config), "--transport", "tcp"]
    ended = launch("tcp", 2, program, limit_s=LIMIT_S, token=str(config))
    assert (ended.status, ended.output.count("survive needs MPI and mpirun --with-ft ulfm")) == (0, 1)


DEATH = """
import os, signal, sys
from oscar.reducers.communicator import Communicator
from oscar.cli import main
allreduce, calls = Communicator.allreduce, []
def struck(self, tensors, **how):
    calls.append(0)
    if len(calls) == 3 and self.rank == 1 and self.nodes == 4:
        self.transport.post_send = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
    return allreduce(self, tensors, **how)
Communicator.allreduce = struck
sys.exit(main(sys.argv[1:]))
"""


def test_a_death_is_survived_where_that_is_asked_for(tmp_path: Path) -> None:
    config, report, script = tmp_path / "c.yaml", tmp_path / "report.json", tmp_path / "death.py"
    config.write_text(TRAINING + "transport: {survive: true, timeout_s: 20}\n")
    script.write_text(DEATH)
    needs("mpi")
    program = [str(script), "worker", str(config), "--transport", "mpi", "--json", str(report)]
    ended = launch("mpi", 4, program, limit_s=LIMIT_S, token=str(config))
    assert ended.status == 0, ended.output
    assert not ended.orphans
    result = json.loads(report.read_text())
    assert "warning" not in ended.output
    assert (result["ok"], result["ranks"], result["lost"]) == (True, 3, 1)
    assert [row["identical"] for row in result["iterations"]] == [True] * 6


TOO_LONG = """
import time
from oscar.transports.base import TransportError
from oscar.transports.mpi import MpiTransport
end = MpiTransport()
if end.rank == 1:
    end.post_recv(0, 5, 10)
    try:
        end.wait(0, 5, time.monotonic() + 20)
    except TransportError as error:
        print(error.kind, error.peer, end.dead, error, flush=True)
else:
    end.post_send(1, 5, bytes(100))
    end.flush(time.monotonic() + 20)
end.close()
"""


def test_what_mpi_refuses_is_no_death() -> None:
    needs("mpi")
    ended = run_here("mpi", 2, TOO_LONG, limit_s=LIMIT_S)
    assert ended.status == 0, ended.output
    assert "aborted 0 {} MPI failed between this rank and rank 0 (MPI_ERR_TRUNCATE" in ended.output


ALONE = """
import os, sys
from oscar.cli import main
from oscar.transports import keyed
if os.environ["RANK"] == "1" and sys.argv[1] == "key":
    sys.argv += ["--set", "transport.key=/nowhere"]
if os.environ["RANK"] == "1" and sys.argv[1] == "workload":
    sys.argv += ["--set", "workload.trace=/nowhere"]
if os.environ["RANK"] == "1" and sys.argv[1] == "death":
    keyed.read_key = lambda path: os._exit(9)
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("key", 2, "rank 1 gave up: ConfigError: /nowhere: expected a file with a key"),
        ("workload", 2, "rank 1 gave up: ConfigError: /nowhere"),
        ("death", 9, "rank 1 died"),
    ],
)
def test_what_one_rank_alone_finds_at_the_start_ends_all(
    fault: str, status: int, said: str, tmp_path: Path
) -> None:
    config, script, key = tmp_path / "c.yaml", tmp_path / "alone.py", tmp_path / "key"
    key.write_text("0f" * 32)
    config.write_text(TRAINING + f"transport: {{security: aes-gcm, key: {key}, timeout_s: 300}}\n")
    script.write_text(ALONE)
    needs("torch")
    program = [str(script), fault, "worker", str(config), "--transport", "tcp"]
    ended = launch("tcp", 2, program, limit_s=LIMIT_S, token=str(config))  # before anyone's timeout
    assert ended.statuses == (75, status), ended.output
    assert said in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("transport", "kind", "ranks"),
    [("mpi", "kill", 2), ("mpi", "version", 4), ("tcp", "stop", 4)],
)
def test_a_real_fault_is_told_by_all_survivors(transport: str, kind: str, ranks: int) -> None:
    parser = argparse.ArgumentParser()
    transport_faults.add_arguments(parser)
    needs(TRANSPORTS[transport])
    words = ["--transport", transport, "--kinds", kind, "--points", "1", "--timeout-s", "4"]
    result = transport_faults.run(parser.parse_args([*words, "--ranks", str(ranks)]))
    assert result["ok"], result["wrong"]


def test_a_launch_ends_what_hangs_and_what_is_stopped() -> None:
    sleeping = run_here("tcp", 2, "import time; time.sleep(60)", limit_s=1)
    assert sleeping.hung
    assert sleeping.status == 128 + 9
    stopping = "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGSTOP)"
    stopped = run_here("tcp", 2, stopping, limit_s=20)
    assert (stopped.hung, stopped.statuses, stopped.orphans) == (False, (0, -9), 0)


UP = "import time; print('up', flush=True); time.sleep(60)"


@pytest.mark.parametrize("transport", ["mpi", "tcp"])
def test_an_interrupted_launch_leaves_nothing_behind(transport: str) -> None:
    token = f"oscar-{time.monotonic_ns()}"

    def interrupt(heard: bytes) -> None:
        if b"up" in heard:
            raise KeyboardInterrupt

    needs(TRANSPORTS[transport])
    with pytest.raises(KeyboardInterrupt):
        launch(transport, 2, ["-c", UP, token], limit_s=LIMIT_S, token=token, hear=interrupt)
    assert launching._named(token) == set()


def test_sigterm_has_its_handler_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, stops_raise():
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
