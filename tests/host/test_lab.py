"""The lab: networks are made and removed whole, links have their rates, untrue figures are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from needs import needs
from oscar.cli import main
from oscar.config import Config, load_config
from oscar.errors import ConfigError, OscarError
from oscar.results import write_results
from oscar_lab.lab import hold
from oscar_lab.lab import measure as measuring
from oscar_lab.lab import network as networks
from oscar_lab.lab.calibrate import calibrate, check_delay, check_loss, check_wire, pour
from oscar_lab.lab.hold import PREFIX
from oscar_lab.lab.hosts import Hosts
from oscar_lab.lab.listing import minutes
from oscar_lab.lab.network import HostNetwork, LinkUse, cut
from oscar_lab.lab.report import text_report
from oscar_lab.lab.settings import parse_settings

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "nodes": 2,
    "workload": {"name": "numpy-digits"},
    "schedule": {"subframes": 2},
    "lab": {
        "steps": 2,
        "warmup": 1,
        "repetitions": 2,
        "tolerance": 0.5,  # tests share the machine
        "cases": [{"hosts": 2, "mbps": [200.0], "pin": True}],
        "methods": [
            {"name": "fp32", "kind": "gloo"},
            {"name": "int8", "kind": "gloo", "dtype": "int8"},
            {"name": "bf16", "kind": "gloo", "dtype": "bfloat16"},
            {"name": "asc", "change": {"quantiser": {"error_feedback": True}}},
            {"name": "ring", "change": {"method": "zstd", "schedule": {"name": "ring"}}},
            {"name": "sealed", "change": {"transport": {"security": "aes-gcm"}}},
            {"name": "NIC", "kind": "replay", "of": "asc"},
        ],
    },
}


ROW = {
    "name": "fp32", "kind": "gloo", "type": "float32", "time_s": 2.0, "quartiles_s": [1.9, 2.1],
    "times_s": [2.0], "model_s": None, "wrong": 0, "wire_bytes": 10.0, "payload_bytes": 9.0,
    "bits_per_value": 32.0, "cpu_s": 0.1, "dropped": 0,
}  # fmt: skip
OTHER = {**ROW, "name": "asc", "kind": "oscar", "time_s": 0.5, "model_s": 0.4, "wrong": 3}
CASE = {
    "hosts": 2, "mbps": 100.0, "goodput_mbps": [95.6], "expected_mbps": 95.64, "latency_us": 100.0,
    "message_us": 150.0,
    "pin": False, "methods": [ROW, OTHER],
}  # fmt: skip
RESULTS = {
    "schema": 1,
    "source": "lm", "values": 1_000_000, "cases": [CASE, {**CASE, "hosts": 4, "mbps": 1000.0}],
    "machine": {"cores": 2, "kernel": "6", "congestion": "reno", "processor": "x"},
}  # fmt: skip


def namespaces() -> list[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)]


@pytest.fixture
def lossy(alone: None) -> None:
    """Let a test lose packets, or skip it."""
    needs("nft")
    try:
        with HostNetwork(2) as network:
            network.lose(0.01)
    except OscarError as error:
        pytest.skip(f"no packet can be lost: {error}")


def test_the_shipped_configuration_says_what_is_measured() -> None:
    settings = parse_settings(load_config(ROOT / "configs" / "lab.yaml"))
    assert settings.repetitions >= 10
    assert {method.dtype for method in settings.methods if method.kind == "gloo"} == {
        "float32", "bfloat16", "int8",
    }  # fmt: skip
    assert settings.methods[0].dtype == "float32"


REFUSED: dict[str, dict[str, Any]] = {
    "no section lab": {"lab": {}},
    "a case has 3 hosts": {"cases": [{"hosts": 3, "mbps": [1.0]}]},
    "method 'asc': unknown key 'schedule.subframe'": {
        "methods": [{"name": "asc", "change": {"schedule": {"subframe": 1}}}]
    },
    "method 'asc': configuration: the key codec is called method now": {
        "methods": [{"name": "asc", "change": {"codec": "zstd"}}]
    },
    "`of` must name a method of kind oscar": {"methods": [{"name": "NIC", "kind": "replay", "of": "fp32"}]},
    "a name of its own": {"methods": [{"name": "a"}, {"name": "a"}]},
    "lab: unknown method 'NICC'; did you mean 'NIC'? there are fp32": {
        "cases": [{"hosts": 2, "mbps": [1.0], "methods": ["NICC"]}]
    },
    "unknown key 'lab.repetitons'; did you mean 'repetitions'? valid keys here: steps": {"repetitons": 3},
    "unknown key 'lab.cases.0.los'; did you mean 'loss'? valid keys here: hosts": {
        "cases": [{"hosts": 2, "mbps": [1.0], "los": 0.1}]
    },
    "lab.cases: ": {"cases": []},
    "lab.cases.0.mbps.0: expected more than 0, got -5": {"cases": [{"hosts": 2, "mbps": [-5]}]},
    "lab.cases.0.mbps.1: expected more than 0, got 0": {"cases": [{"hosts": 2, "mbps": [1, 0]}]},
    "loss and delay_ms are separate cases": {
        "cases": [{"hosts": 2, "mbps": [1.0], "loss": 0.01, "delay_ms": 1.0}]
    },
}


@pytest.mark.parametrize("text", REFUSED)
def test_refuses(text: str) -> None:
    change = REFUSED[text]
    lab = change.get("lab", {**SMALL["lab"], **change})
    with pytest.raises(ConfigError) as caught:
        parse_settings(Config.model_validate({**SMALL, "lab": lab}))
    assert text in str(caught.value)


def test_a_wrong_entry_is_not_called_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(json.dumps({**SMALL, "lab": {**SMALL["lab"], "cases": [{"hosts": 300, "mbps": [1.0]}]}}))
    monkeypatch.setattr(networks, "require_root", lambda: None)
    assert main(["lab", str(path)]) == 2
    said = "lab.cases.0.hosts: Input should be less than or equal to 64, got 300"
    assert capsys.readouterr().err == f"oscar lab: error: {path}: {said}\n"


def test_results_of_something_else_are_not_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.json"
    for text, said in (
        (None, "no such file; `oscar lab CONFIG` writes one"),
        ("{", "expected results of `oscar lab`, got "),
        ("[" * 100_000, "expected results of `oscar lab`, got "),
        ('{"schema": 1, "values": 9}', "expected results of `oscar lab`, source, machine, cases is missing"),
        (json.dumps({**RESULTS, "schema": 0}), "written as schema 0, this version reads 1"),
    ):
        if text is not None:
            path.write_text(text)
        assert main(["lab", "--redraw", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"oscar lab: error: {path}: {said}")


def test_without_root_or_tools_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["lab", str(ROOT / "configs" / "lab.yaml")]) == 2
    assert "takes root: run it with sudo" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(networks.shutil, "which", lambda tool: None)
    with pytest.raises(OscarError, match="needs ip and tc: apt-get install -y iproute2"):
        networks.require_root()
    monkeypatch.setattr(networks.shutil, "which", lambda tool: None if tool == "nft" else tool)
    networks.require_root()
    with pytest.raises(OscarError, match=r"needs nft: apt-get install -y nftables$"):
        networks.require_root("nft")


def test_bytes_that_do_not_fit_what_was_sent_are_refused() -> None:
    sent, received = 10_000_000, 8_000_000
    exact = sent * 1514 // 1448
    for good in (exact, exact + received * 66 // 1448, int(exact * 1.009)):
        check_wire(sent, received, LinkUse(good, 0, 0), messages=10, what="a run")
    for bad in (0, sent, exact - 5, int(exact * 1.1), 2 * exact):
        with pytest.raises(OscarError, match=r"a run: .* did not go over this wire alone"):
            check_wire(sent, received, LinkUse(bad, 0, 0), messages=10, what="a run")
    check_wire(sent, received, LinkUse(int(exact * 1.1), 0, 0), messages=10, what="a run", again=500)
    most = int((sent + 256 * 1000) * 1.01 * 1514 / 1448 + received * 66 / 1448) + 8192  # as lab.md says
    check_wire(sent, received, LinkUse(most, 0, 0), messages=1000, what="a run")
    with pytest.raises(OscarError, match="did not go over this wire alone"):
        check_wire(sent, received, LinkUse(most + 2, 0, 0), messages=1000, what="a run")


def test_loss_and_delay_other_than_asked_for_are_refused() -> None:
    check_loss(100_000, 93, 0.001)
    for lost in (0, 20, 200):
        with pytest.raises(OscarError, match=r"dropped \d+ of 100,000 packets, expected about 100"):
            check_loss(100_000, lost, 0.001)
    check_delay(0.0103, 0.01)
    for latency in (0.0002, 0.0099, 0.013):
        with pytest.raises(OscarError, match="expected 10 ms and little more"):
            check_delay(latency, 0.01)


def test_links_have_their_rate_and_are_cut(alone: None) -> None:
    with HostNetwork(3) as network:
        assert len(namespaces()) == 4
        network.shape(50e6)
        flows = calibrate(network, 50e6, tolerance=0.2)
        assert [flow.host for flow in flows] == [0, 1, 2]
        with pytest.raises(OscarError, match=r"host 0: one flow reaches .* expected 23"):
            calibrate(network, 25e6, tolerance=0.2)  # the links are twice as fast
        with pytest.raises(OscarError, match="another oscar lab is running"), HostNetwork(2):
            pass
        assert len(namespaces()) == 4
        cut(1)
        before = time.monotonic()
        networks_timeout = pytest.MonkeyPatch()
        networks_timeout.setattr("oscar_lab.lab.calibrate.TIMEOUT_S", 1.0)
        with networks_timeout.context(), pytest.raises(OSError, match="timed out"):
            pour(network, 0, 50e6)
        networks_timeout.undo()
        assert time.monotonic() - before < 10


def test_packets_are_lost_one_by_one_or_delayed(lossy: None) -> None:
    with HostNetwork(2) as network:
        network.shape(50e6)
        network.segment()
        network.lose(0.01)
        before = network.wires()
        flow = pour(network, 0, 50e6)
        seen, lost = network.losses()
        check_loss(seen, lost, 0.01)
        sent = sum((after - b).packets for after, b in zip(network.wires(), before, strict=True))
        assert abs(seen - sent) <= 10  # what the switch sees is what left, but for ARP
        assert network.resent()[0] >= flow.payload // 1448 // 200  # half of the packets lost on the way
        network.lose(0)
        assert network.losses() == (0, 0)
        network.delay(30)
        took = []
        for _ in range(4):  # the first one with an ARP request; a busy machine may hold one up
            with network.socket(1) as server, network.socket(0) as client:
                server.bind(("10.77.0.2", 0))
                server.listen(1)
                begin = time.monotonic()
                client.connect(server.getsockname())
                took.append(time.monotonic() - begin)
        assert 0.06 <= min(took) < 0.9  # after 1 s it would be asked again
        assert pour(network, 1, 50e6).wire.sent > 1 << 20


def test_nothing_is_left_after_an_error_or_a_kill(alone: None) -> None:
    with pytest.raises(RuntimeError, match="mine"), HostNetwork(2):
        raise RuntimeError("mine")
    assert namespaces() == []
    script = (
        "import time; from oscar_lab.lab.network import HostNetwork; import subprocess\n"
        "with HostNetwork(2) as n:\n"
        "    subprocess.Popen(n.command(1, ['sh', '-c', 'echo up; exec sleep 1000'])); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == "up\n"  # printed by the program on the host
        (sleeper,) = subprocess.run(
            ["ip", "netns", "pids", f"{PREFIX}1"], capture_output=True, text=True, check=True
        ).stdout.split()
        process.kill()
        process.wait()
    assert len(namespaces()) == 3
    with HostNetwork(2):
        deadline = time.monotonic() + 10  # a killed process may take its time on a busy machine
        while Path(f"/proc/{sleeper}").exists() and Path(f"/proc/{sleeper}/cmdline").read_bytes():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert namespaces() == []


def test_what_a_killed_lab_left_in_the_folder_goes_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hold.tempfile, "tempdir", str(tmp_path))
    for name in (f"{PREFIX}dead/gradients-0.npy", f"{PREFIX}notes/read.me", "other/gradients-0.npy"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "other")
    kept = {f"{PREFIX}notes", f"{PREFIX}link", "other"}
    with hold.gradient_folder() as folder:
        (folder / "gradients-0.npy").touch()
        assert {path.name for path in tmp_path.iterdir()} == {*kept, folder.name}
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert (tmp_path / "other" / "gradients-0.npy").exists()


def test_a_second_interrupt_waits_until_all_is_taken_down() -> None:
    done = []

    def take_down() -> None:
        with hold.undisturbed():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    # A shell starts what runs in its background with SIGINT ignored, these tests too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            take_down()
        assert done
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_lab_without_a_name_lists_its_cases_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `oscar bench` and `oscar trial`, too: a command that takes hours runs when it is named."""
    started: list[str] = []
    monkeypatch.setattr(measuring, "measure", lambda *_: started.append("measure"))
    for command, listed in (("lab", "lab_short: about"), ("bench", "speed "), ("trial", "faults ")):
        assert main([command]) == 0
        assert listed in capsys.readouterr().out
    assert not started
    settings = parse_settings(load_config("lab"))
    assert main(["lab"]) == 0
    said = capsys.readouterr().out
    assert said.count(" minutes\n") == sum(
        len(load_config(name).lab["cases"]) for name in ("lab", "lab_short", "lab_sparse")
    )
    short = parse_settings(load_config("lab_short"))
    assert minutes(settings, settings.cases[0]) > 2 * minutes(short, short.cases[0]) > 3
    assert said.splitlines()[-1].startswith("# choose one: oscar lab NAME")


def test_another_lab_is_refused_before_it_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(hold, "LOCK", str(tmp_path / "lock"))
    monkeypatch.setattr(measuring, "_check_needs", lambda *_: None)
    monkeypatch.setattr(measuring, "_gradients", lambda *_: pytest.fail("it trained"))
    with hold.one_lab(), pytest.raises(OscarError, match="another oscar lab is running"):
        measuring.measure(Config.model_validate(SMALL), print, print)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    needs("torch")
    path = tmp_path / "lab.yaml"
    path.write_text(json.dumps({**SMALL, "output": str(tmp_path / "out")}))
    return path


def test_sigterm_takes_the_network_down(alone: None, small: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "oscar", "lab", str(small)], stdout=subprocess.DEVNULL)
    stop = time.monotonic() + 60
    try:
        while len(namespaces()) < 3 and process.poll() is None and time.monotonic() < stop:
            time.sleep(0.1)
        assert len(namespaces()) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()


def test_methods_are_measured_and_their_sums_are_right(
    alone: None, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", str(small)]) == 0
    (case,) = json.loads((small.parent / "out" / "results.json").read_text())["cases"]
    rows = {row["name"]: row for row in case["methods"]}
    assert [row["wrong"] for row in rows.values()] == [0] * 7
    assert rows["fp32"]["bits_per_value"] == pytest.approx(32, rel=1e-3)
    assert rows["int8"]["bits_per_value"] == pytest.approx(8, rel=1e-2)
    assert 0 < rows["asc"]["bits_per_value"] < 8
    assert rows["NIC"]["payload_bytes"] == pytest.approx(rows["asc"]["payload_bytes"], rel=0.2)
    assert all(len(row["times_s"]) + row["left_out"] == 2 for row in rows.values())
    assert all(row["wire_bytes"] > row["payload_bytes"] for row in rows.values())
    assert rows["NIC"]["model_s"] > 0
    assert 0 <= case["message_us"] < 20_000  # of software; the fit gives 0 where the machine is busy enough
    assert "quartiles(us)" in capsys.readouterr().out


def test_loss_and_delay_are_measured_as_cases(
    lossy: None, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oscar_lab.lab.calibrate.LATE", (2.0, 0.0))  # tests share the machine
    cases = [
        {"hosts": 2, "mbps": [200.0], **how, "methods": ["fp32"]}
        for how in ({"loss": 0.03}, {"delay_ms": 20.0})
    ]
    # Some 450 packets with data, of which 13 are lost: none is, of 1 in a million runs at most.
    change = {**SMALL["lab"], "cases": cases, "repetitions": 4}
    small.write_text(json.dumps({**SMALL, "lab": change, "output": str(small.parent)}))
    assert main(["lab", str(small)]) == 0
    lossy, late = json.loads((small.parent / "results.json").read_text())["cases"]
    assert lossy["lost"] > 0
    assert lossy["methods"][0]["resent"] > 0
    assert 20e3 <= late["latency_us"] < 40e3
    assert late["methods"][0]["time_s"] > 2 * 0.02  # two steps
    assert [case["methods"][0]["wrong"] for case in (lossy, late)] == [0, 0]


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A configuration of three rates whose cases come to CASE, a refusal and Ctrl-C, without a network."""

    def come_to(case: Any, say: Any) -> dict[str, Any]:
        if case.mbps == 300:
            raise KeyboardInterrupt
        if case.mbps == 200:
            raise OscarError("host 0: too slow")
        return {**CASE, **case.conditions}

    monkeypatch.setattr(measuring, "_check_needs", lambda *_: None)
    monkeypatch.setattr(measuring, "_gradients", lambda *_: ("lm", [(3,)], [tmp_path] * 2))
    monkeypatch.setattr(measuring, "HostNetwork", lambda *_, **__: nullcontext())
    monkeypatch.setattr(measuring, "one_lab", nullcontext)
    monkeypatch.setattr(measuring, "gradient_folder", lambda: nullcontext(tmp_path))
    monkeypatch.setattr(measuring._Case, "measure", come_to)
    monkeypatch.setattr(networks, "require_root", lambda: None)
    cases = [{"hosts": 2, "mbps": [200.0, 100.0, 300.0], "methods": ["fp32"]}]
    path = tmp_path / "lab.yaml"
    path.write_text(json.dumps({**SMALL, "lab": {**SMALL["lab"], "cases": cases}, "output": str(tmp_path)}))
    return path


def test_a_case_that_is_refused_or_interrupted_takes_no_other_with_it(
    pretended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", str(pretended)]) == 130
    written = json.loads((pretended.parent / "results.json").read_text())
    assert [case["mbps"] for case in written["cases"]] == [100.0]
    assert [(case["mbps"], case["why"]) for case in written["refused"]] == [(200.0, "host 0: too slow")]
    pretended.write_text(pretended.read_text().replace("300.0", "400.0"))
    assert main(["lab", str(pretended)]) == 1
    assert "# 2 hosts, 200 Mb/s: refused: host 0: too slow" in capsys.readouterr().out
    pretended.write_text(pretended.read_text().replace("200.0, 100.0, 400.0", "200.0"))
    assert main(["lab", str(pretended)]) == 1  # nothing to draw


def test_what_a_case_needs_is_asked_for_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(measuring, "require_root", lambda *tools: asked.extend(tools))
    monkeypatch.setattr(measuring, "load_torch", lambda: asked.append("torch"))
    monkeypatch.setattr(measuring, "find_spec", lambda name: asked.append(name))
    config = Config.model_validate(SMALL)
    with pytest.raises(OscarError, match=r"method 'sealed' needs cryptography: .*\[secure\]"):
        measuring.measure(config, print, print)
    assert asked[:1] == ["torch"]
    lossy = {"cases": [{"hosts": 2, "mbps": [1.0], "loss": 0.01}]}
    with pytest.raises(OscarError, match="cryptography"):
        measuring.measure(config.variant(lab={**SMALL["lab"], **lossy}), print, print)
    assert "nft" in asked


def test_runs_that_began_later_than_usual_are_left_out(tmp_path: Path) -> None:
    config = Config.model_validate(SMALL)
    settings = parse_settings(config)
    case = measuring._Case(config, settings, settings.cases[0], None, 200.0, [tmp_path] * 2, [(3,)], tmp_path)
    run = {"counts_as": True, "wrong": 0, "wire": [1], "payload": [1], "cpu_s": [1.0], "dropped": 0}
    run |= {"resent": 0, "frames": [None]}
    for late, times, left_out, said in (
        (
            [0.0, 0.001, 0.02, 0.0],
            [1.0, 2.0, 4.0],
            1,
            "# fp32: 1 of 4 runs began later than usual and are left out",
        ),
        (
            [0.0, 0.018, 0.02, 0.019],
            [1.0, 2.0, 3.0, 4.0],
            0,
            "# fp32: hosts began up to 20 ms after the start",
        ),
        ([0.0] * 4, [1.0, 2.0, 3.0, 4.0], 0, ""),
    ):
        case.runs["fp32"] = [run | {"late_s": s, "time_s": float(i)} for i, s in enumerate(late, 1)]
        row = case._summary(case.specs[0], 1e6)
        assert (row["times_s"], row["left_out"]) == (times, left_out)
        assert row["late_s"] == max(s for s in late if left_out == 0 or s <= 0.005)
        report = text_report({**RESULTS, "cases": [{**CASE, "methods": [row]}]})
        assert said in report
        assert ("began" in report) == bool(said)


def test_a_rank_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Two:
        def command(self, host: int, words: list[str]) -> list[str]:
            return ["sh", "-c", "echo {}; exec sleep 100" if host == 0 else "exec sleep 100"]

    monkeypatch.setattr("oscar_lab.lab.hosts.START_S", 0.5)
    with pytest.raises(OscarError, match=r"rank 1 of the lab did not answer 'start' within 0\.5 s"):
        Hosts(Two(), [{}, {}]).__enter__()


def test_report_is_drawn_from_results_alone(tmp_path: Path) -> None:
    lines = [line for line in text_report(RESULTS).splitlines() if line.startswith("asc")]
    # method size count type redop root time(us) algbw busbw #wrong wire_B bits/val ratio
    assert lines[0].split()[:10] == [
        "asc", "4000000", "1000000", "float32", "sum", "-1", "500000", "0.0080", "0.0080", "3",
    ]  # fmt: skip
    assert lines[0].split()[12] == "4.00"
    assert "latency 100 us, 150 us a message\n" in text_report(RESULTS)
    source = tmp_path / "results.json"
    write_results(source, RESULTS)
    written = json.loads(source.read_text())
    assert written.pop("provenance")["methods"].startswith("asc ")
    assert written == RESULTS
    source.write_text(json.dumps(RESULTS))
    before = source.read_bytes(), source.stat().st_mtime_ns
    assert main(["lab", "--redraw", str(source)]) == 0
    assert (source.read_bytes(), source.stat().st_mtime_ns) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lab.png", "results.json", "table.txt"]
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())
    assert main(["report", str(source), "--html", str(tmp_path / "page.html")]) == 0
    assert "asc" in (tmp_path / "page.html").read_text()
