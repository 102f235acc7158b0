"""Benches of sparsifiers: figures follow from what was chosen, and bars are told apart."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from needs import needs
from oscar_lab.bench import select, sparsifiers

pytestmark = pytest.mark.filterwarnings("ignore:scheme .*:oscar.errors.CautionWarning")

needs("torch")


def run(module: Any, *words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    result: dict[str, Any] = module.run(parser.parse_args(words))
    return result


def test_choosing_is_timed_by_stage_against_four_ways(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--workloads", "cnn", "--nodes", "2", "--iterations", "2", "--turns", "2", "--rules"]
    rules = ["topk", "micro", "micro released"]
    monkeypatch.setattr(select, "BARS", {"micro": 0.0, "micro released": 1e9})
    result = run(select, *words, *rules)
    rows = {row["rule"]: row for row in result["table"]}
    assert list(rows) == [select.HISTOGRAMS, "torch.topk", "argpartition", *rules]
    for row in rows.values():
        assert row["times"] == min(rows[way]["select"] for way in select.WAYS) / row["select"] > 0
    assert rows["topk"]["own"] == 1
    for rule in rules:
        assert sum(rows[rule][stage] for stage in ("select", "index", "reduce", "apply")) > 0
        assert rows[rule]["total"] >= rows[rule]["index"] > 0
    assert not result["ok"]
    text = capsys.readouterr().out
    assert "micro released" in text
    assert text.count("MISSED") == 1


def test_densities_are_measured_while_a_model_trains() -> None:
    words = ["--workloads", "cnn", "--nodes", "2", "--iterations", "60", "--densities", ".05", "--rules"]
    result = run(sparsifiers, *words, "topk", "micro", "exdyna", "clt-k")
    rows = {row["rule"]: row for row in result["table"]}
    assert rows["clt-k"]["union"] == rows["clt-k"]["within"] == 1
    assert rows["clt-k"]["inefficiency"] == 1
    assert rows["topk"]["inefficiency"] == 0
    assert 1.1 < rows["topk"]["union"] <= 2
    assert abs(rows["micro"]["union"] - 1) < 0.1
    assert len(rows["micro"]["unions"]) == 60
    assert result["ok"]
    (balance,) = result["balance"]
    assert balance["share"] == rows["exdyna"]["inefficiency"] / rows["micro"]["inefficiency"]


def test_too_short_a_training_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 60 iterations at least, got 59"):
        run(sparsifiers, "--iterations", "59")
    with pytest.raises(ValueError, match="1 turn, 1 iteration and 1 node at least, got 0, 20 and 8"):
        run(select, "--turns", "0")
