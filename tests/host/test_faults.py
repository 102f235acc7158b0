"""Every fault at every action of a small ring, through the benchmark that reports them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oscar.cli import main
from oscar.collective.local import Fault
from oscar.reducers.cluster import LocalCluster


def test_every_fault_is_told_or_harmless(tmp_path, capsys):
    report = tmp_path / "faults.json"
    assert main(["trial", "faults", "--nodes", "2", "--json", str(report)]) == 0
    result = json.loads(report.read_text())
    assert result["ok"]
    assert result["wrong"] == []
    assert result["cases"] == sum(row["error"] + row["exact"] for row in result["rows"])
    for row in result["rows"]:
        assert row["cases"] > 0
        if row["fault"] in ("kill", "stall"):
            assert row["error"] == row["cases"]
        if row["fault"] == "delay":
            assert row["exact"] == row["cases"]
        if row["fault"] == "corrupt":
            assert row["error"] > row["exact"] > 0
    assert "none hung" in capsys.readouterr().out


def test_a_fault_that_is_not_handled_is_exit_status_1(monkeypatch, tmp_path, capsys):
    def inexact(cluster, gradients, faults=()):
        result = reduce(cluster, gradients, faults=faults)
        return replace(result, sums=result.sums + 1) if faults else result

    reduce = LocalCluster.allreduce
    monkeypatch.setattr(LocalCluster, "allreduce", inexact)
    report = tmp_path / "faults.json"
    words = ["--nodes", "2", "--kinds", "delay", "--schedules", "ring", "--json", str(report)]
    assert main(["trial", "faults", *words]) == 1
    out = capsys.readouterr().out
    assert "# wrong: ring Fault(kind='delay'" in out
    assert "sums differ" in out
    assert json.loads(report.read_text())["ok"] is False


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="fault must be kill, stall, corrupt or delay, got 'drop'"):
        Fault("drop", 0, 0)
