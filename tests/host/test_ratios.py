"""The benchmarks of rates and accuracy: rows from small runs, and the figures drawn from rows."""

from __future__ import annotations

import argparse
import json

import pytest

from oscar.bench import accuracy, ratios
from oscar.errors import ConfigError
from oscar.workloads import make_workload


def arguments(bench, *texts: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(texts)


def test_rows_of_a_small_model_and_their_figures(tmp_path, capsys):
    report = tmp_path / "rows.json"
    small = ["--models", "numpy-digits", "--nodes", "2", "3", "--warmup-training", "2"]
    short = ["--learning", "1", "--iterations", "1", "--plans", "equal", "splitter:64", "--json", str(report)]
    result = ratios.run(arguments(ratios, *small, *short, "--methods", "atalanta", "asc-paper", "asc"))
    rows = {(r["nodes"], r["method"], r["plan"]): r for r in result["rows"]}
    assert len(rows) == len(result["rows"]) == 2 * 4 * 2
    for r in rows.values():
        assert 0 < r["bits"] <= r["step_sync_bits"] < 16
        assert 0 < r["efficiency"] <= 1
        assert 0 < r["latency_share"] < 1
        assert r["large_latency_share"] < 0.01
        assert r["large_speedup"] > r["speedup"]
    boomerang, duplex = rows[3, "asc", "equal"], rows[3, "asc-duplex", "equal"]
    assert boomerang["step_sync_bytes"] == duplex["step_sync_bytes"]
    assert duplex["time_s"] < 0.6 * boomerang["time_s"]
    out = capsys.readouterr().out
    for figure in ("(a)", "(b)", "(c)", "(e)"):
        assert f"# {figure} " in out
    again = ratios.run(arguments(ratios, "--summary", str(report)))
    assert again == json.loads(report.read_text(encoding="utf-8"))


def entry(coarseness: str, seed: int, accuracy: float, bits: float) -> dict:
    rates = {
        "bits": bits,
        "step_sync_bits": bits,
        "speedup": 2.0,
        "large_speedup": 3.0,
        "feedback": coarseness != "fp32",
    }
    place = {"model": "cnn", "coarseness": coarseness, "seed": seed, "nodes": 8, "iterations": 400}
    return place | rates | {"metric": "accuracy", "better": 1, "accuracy": accuracy}


def test_the_coarsest_step_is_the_last_that_holds_with_all_finer_ones():
    fp32 = [entry("fp32", seed, 0.9 + 0.01 * seed, 32) for seed in range(3)]
    runs = [*fp32, *(entry("1/2", s, 0.895 + 0.01 * s, 3) for s in range(3))]
    runs += [entry("2", s, 0.85, 1) for s in range(3)] + [entry("4", s, 0.91, 0.5) for s in range(3)]
    runs += [entry("8", 9, 0.99, 0.2)]  # a seed that fp32 did not run says nothing
    summary = accuracy.summarise_runs(runs)
    assert [s["coarseness"] for s in summary] == ["fp32", "1/2", "2", "4"]
    assert [s["holds"] for s in summary] == [True, True, False, True]
    assert summary[0]["spread"] == pytest.approx(0.01)
    assert summary[1]["worse_by"] == pytest.approx(0.005)
    assert accuracy.coarsest(summary)["cnn"]["coarseness"] == "1/2"


def test_leaving_the_ring_out_changes_no_weight():
    def losses(every: int) -> dict:
        workload = make_workload("numpy-digits", nodes=3, seed=1)
        return accuracy.train(workload, "2", 40, feedback=True, ring_every=every, seed=1)

    always, seldom = losses(accuracy.BURST), losses(20)
    assert {k: always[k] for k in ("loss", "accuracy")} == {k: seldom[k] for k in ("loss", "accuracy")}
    assert seldom["bits"] == pytest.approx(always["bits"], rel=0.2)


def test_foreign_results_are_refused(tmp_path):
    path = tmp_path / "runs.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"runs\.json: expected the JSON of an accuracy benchmark"):
        accuracy.run(arguments(accuracy, "--summary", str(path)))
