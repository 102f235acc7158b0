"""Transports by themselves, and whole trainings and real faults in processes of their own."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from oscar.bench import transport_faults
from oscar.errors import MissingExtraError
from oscar.transports.base import CONTROL_TAG, Notice, TransportError
from oscar.transports.launch import Ended, launch
from oscar.transports.threads import local_transports

TRAINING = """
iterations: 6
workload: {options: {vocabulary: 200, dimension: 8, hidden: 16, outputs: 50, batch: 16, text_bytes: 20000}}
ring: {subframes: 2}
plan: {name: splitter, granule: 64}
quantiser: {error_feedback: true}
"""
LIMIT_S = 120.0  # the two cores may be busy


def needs(transport: str) -> str:
    module = {"mpi": "mpi4py", "gloo": "torch"}[transport]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    return transport


# ------------------------------------------------------------------------------------- in one process


def test_messages_of_a_tag_come_in_order_and_tags_do_not_mix() -> None:
    one, two = local_transports(2)
    for text in (b"first", b"second"):
        one.post_send(1, 7, text)
    one.post_send(1, 8, b"other")
    came = []
    for tag in (8, 7, 7):
        two.post_recv(0, tag, 10)
        came.append(bytes(two.wait(0, tag, time.monotonic() + 5)))
    assert came == [b"other", b"first", b"second"]


def test_a_gather_gives_everyone_everything_even_nothing() -> None:
    transports = local_transports(5)
    texts = [b"", b"abc", b"\0" * 64, b"x", b"yz"]
    results: dict[int, Any] = {}

    def gather(rank: int) -> None:
        deadline = time.monotonic() + 20
        results[rank] = [transports[rank].gather(texts[rank], 64, deadline, "texts") for _ in range(3)]

    threads = [threading.Thread(target=gather, args=(rank,)) for rank in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {rank: [texts] * 3 for rank in range(5)}
    with pytest.raises(ValueError, match="at most 64 bytes to gather, got 65"):
        transports[0].gather(b"x" * 65, 64, 0.0, "too much")


def test_silence_ends_early_and_a_sign_of_life_buys_time() -> None:
    one, two = local_transports(2)
    for sign, least, most in ((False, 0.8, 1.0), (True, 1.0, 1.2)):
        if sign:
            timer = threading.Timer(0.1, two.post_send, (0, CONTROL_TAG, b'{"waiting": "a sign"}'))
            timer.start()
        begin = time.monotonic()
        with pytest.raises(TransportError, match="rank 1 was silent") as caught:
            one.wait(1, 5, begin + 1.0)
        assert caught.value.kind == "silent"
        assert ("itself waits for a sign" in str(caught.value)) == sign
        assert least <= time.monotonic() - begin < most + 1.0


def test_a_notice_goes_before_the_death_of_its_sender() -> None:
    one, two = local_transports(2)
    notice = Notice(rank=1, peer=0, step=3, chunk=2, reason="a bad frame")
    two.abort(notice)
    two.close()
    with pytest.raises(TransportError, match="rank 1 gave up: a bad frame") as caught:
        one.wait(1, 5, time.monotonic() + 5)
    assert caught.value.notice == notice
    with pytest.raises(TransportError, match=r"rank 1 died \(its thread"):
        one.wait(1, 5, time.monotonic() + 5)


@pytest.mark.parametrize(("transport", "module"), [("mpi", "mpi4py"), ("gloo", "torch")])
def test_a_missing_package_is_named_with_its_extra(
    transport: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oscar.transports.registry import TRANSPORTS

    monkeypatch.setitem(sys.modules, module, None)
    extra = {"mpi": "mpi", "gloo": "torch"}[transport]
    with pytest.raises(MissingExtraError, match=rf"oscar-allreduce\[{extra}\]"):
        TRANSPORTS[transport]()


# ------------------------------------------------------------------------------------- real processes


@pytest.mark.parametrize("transport", ["mpi", "gloo"])
def test_a_training_between_processes_is_the_one_in_one_process(transport: str, tmp_path: Path) -> None:
    config, report = tmp_path / "c.yaml", tmp_path / "report.json"
    config.write_text(TRAINING)
    program = ["-m", "oscar", "worker", str(config), "--transport", needs(transport), "--check", "6"]
    ended = launch(
        transport, 3, [*program, "--json", str(report)], limit_s=LIMIT_S, token=str(config)
    )  # fmt: skip
    assert ended.status == 0, ended.output
    assert not ended.orphans
    result = json.loads(report.read_text())
    assert result["ok"]
    assert (result["ranks"], result["checked"], result["wrong"]) == (3, 6, [])
    assert all(row["identical"] and row["sent_bytes"] > 0 for row in result["iterations"])


DEATH = """
import os, signal, sys
from oscar.allreduce.peer import Communicator
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
    program = [str(script), "worker", str(config), "--transport", needs("mpi"), "--json", str(report)]
    ended = launch("mpi", 4, program, limit_s=LIMIT_S, token=str(config))
    assert ended.status == 0, ended.output
    assert not ended.orphans
    result = json.loads(report.read_text())
    assert (result["ok"], result["ranks"], result["lost"]) == (True, 3, 1)
    assert [row["identical"] for row in result["iterations"]] == [True] * 6


@pytest.mark.parametrize(("transport", "kind"), [("mpi", "kill"), ("mpi", "version"), ("gloo", "stop")])
def test_a_real_fault_is_told_by_all_survivors(transport: str, kind: str) -> None:
    parser = argparse.ArgumentParser()
    transport_faults.add_arguments(parser)
    words = ["--transport", needs(transport), "--kinds", kind, "--points", "1", "--timeout-s", "4"]
    result = transport_faults.run(parser.parse_args(words))
    assert result["ok"], result["wrong"]


def test_the_bench_sees_what_is_not_told() -> None:
    case = {"kind": "kill", "victim": 1, "timeout_s": 2.0}
    text = "peer 1 died while its frame of step 0, chunk 1 was due"
    good = {
        "rank": 0, "type": "PeerError", "text": text, "peer": 1, "step": 0, "chunk": 1, "at": 6.0,
        "untouched": True,
    }  # fmt: skip

    def judged(status: int = 75, hung: bool = False, orphans: int = 0, **changes: Any) -> str:
        lines = [{"struck": 5.0}, good | changes]
        output = "\n".join(json.dumps(line) for line in lines)
        return transport_faults.judge(case, Ended(status, (status,), output, hung, orphans), ranks=2)[1]

    assert judged() == ""
    for wrong, why in (
        ({"hung": True}, "hung"),
        ({"orphans": 1}, "processes left: 1"),
        ({"status": 0}, "exit status"),
        ({"rank": 1}, "said nothing"),
        ({"at": 9.5}, "4.5 s after"),
        ({"untouched": False}, "were changed"),
        ({"peer": 0}, "blames rank 0"),
        ({"type": "RuntimeError"}, "RuntimeError blames"),
        ({"chunk": 0}, "names no step"),
    ):
        assert why in judged(**wrong)


def test_a_launch_ends_what_hangs_and_what_is_stopped() -> None:
    begin = time.monotonic()
    sleeping = launch("gloo", 2, ["-c", "import time; time.sleep(60)", "token-a"], limit_s=1, token="token-a")
    assert sleeping.hung
    assert sleeping.status == 128 + 9
    stopping = "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGSTOP)"
    stopped = launch("gloo", 2, ["-c", stopping, "token-b"], limit_s=20, token="token-b")
    assert (stopped.hung, stopped.statuses, stopped.orphans) == (False, (0, -9), 0)
    assert time.monotonic() - begin < 20
