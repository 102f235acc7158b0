"""The lab: networks are made and removed whole, links have their rates, untrue figures are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from needs import needs
from oscar.cli import main
from oscar.config import Config, load_config
from oscar.errors import ConfigError, OscarError
from oscar.results import write_results
from oscar_lab.lab import network as networks
from oscar_lab.lab.hold import PREFIX
from oscar_lab.lab.network import HostNetwork
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
    "a case has 3 hosts": {"cases": [{"hosts": 3, "mbps": [1.0]}]},
    "method 'asc': unknown key 'schedule.subframe'": {
        "methods": [{"name": "asc", "change": {"schedule": {"subframe": 1}}}]
    },
    "`of` must name a method of kind oscar": {"methods": [{"name": "NIC", "kind": "replay", "of": "fp32"}]},
    "unknown key 'lab.cases.0.los'; did you mean 'loss'? valid keys here: hosts": {
        "cases": [{"hosts": 2, "mbps": [1.0], "los": 0.1}]
    },
    "lab.cases.0.mbps.1: expected more than 0, got 0": {"cases": [{"hosts": 2, "mbps": [1, 0]}]},
}


@pytest.mark.parametrize("text", REFUSED)
def test_refuses(text: str) -> None:
    change = REFUSED[text]
    lab = {**SMALL["lab"], **change}
    with pytest.raises(ConfigError) as caught:
        parse_settings(Config.model_validate({**SMALL, "lab": lab}))
    assert text in str(caught.value)


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


@pytest.fixture
def small(tmp_path: Path) -> Path:
    needs("torch")
    path = tmp_path / "lab.yaml"
    path.write_text(json.dumps({**SMALL, "output": str(tmp_path / "out")}))
    return path


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
    assert case["message_us"] >= 0  # of software
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
    assert late["latency_us"] >= 20e3
    assert late["methods"][0]["time_s"] > 2 * 0.02  # two steps
    assert [case["methods"][0]["wrong"] for case in (lossy, late)] == [0, 0]


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
