"""The benchmark of rates: rows of a small run, and the figures drawn from them."""

from __future__ import annotations

import json

from oscar.cli import main


def test_rows_of_a_small_model_and_their_figures(tmp_path, capsys):
    report = tmp_path / "rows.json"
    small = ["--models", "numpy-digits", "--nodes", "2", "3", "--warmup-training", "2"]
    short = ["--learning", "1", "--iterations", "1", "--plans", "equal", "splitter:64", "--json", str(report)]
    assert main(["bench", "ratios", *small, *short, "--methods", "atalanta", "asc-paper", "asc"]) == 0
    result = json.loads(report.read_text(encoding="utf-8"))
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
    again = tmp_path / "again.json"
    assert main(["bench", "ratios", "--summary", str(report), "--json", str(again)]) == 0
    once_more = json.loads(again.read_text(encoding="utf-8"))
    del result["provenance"], once_more["provenance"]  # of another time
    assert once_more == result
