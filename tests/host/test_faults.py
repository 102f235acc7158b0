"""Every fault at every action of a small ring, through the benchmark that reports them."""

from __future__ import annotations

import json

import pytest

from oscar.cli import main
from oscar.collective.local import Fault


def test_every_fault_is_told_or_harmless(tmp_path, capsys):
    report = tmp_path / "faults.json"
    assert (
        main(
            [
                "trial",
                "faults",
                "--nodes",
                "2",
                "--schedules",
                "ring",
                "duplex",
                "direct",
                "--json",
                str(report),
            ]
        )
        == 0
    )
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


def test_an_unknown_fault_is_refused():
    with pytest.raises(ValueError, match="fault must be kill, stall, corrupt or delay, got 'drop'"):
        Fault("drop", 0, 0)
