"""`oscar compare`: what is trained, what is kept, and what is concluded from points."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from oscar.cli import main
from oscar.config import Config, load_config
from oscar.errors import ConfigError
from oscar.timeline.link import LinkModel
from oscar_studies.contest import (
    TrainingTask,
    fewest_bits,
    large_time,
    metric_at,
    speedups,
    summarise,
    tasks_of,
)
from oscar_studies.contest_report import answers, draw, table
from oscar_studies.training import ring_every, train

SMALL: dict[str, Any] = {
    "nodes": 2,
    "iterations": 6,
    "workload": {"name": "numpy-digits", "options": {"hidden": 8}},
    "train": {"evaluate_every": 0, "checkpoint_every": 0, "compute_ms": 1.0},
    "compare": {
        "seeds": [0, 1],
        "contenders": [
            {"name": "fp32", "method": "fp32"},
            {"name": "sketch", "method": "count-sketch", "points": [{"scheme": {"ratio": 0.5}}]},
            {
                "name": "asc",
                "method": "asc",
                "schedule": "boomerang",
                "points": [
                    {"quantiser": {"coarseness": 0.5}},
                    {"quantiser": {"coarseness": 2.0, "error_feedback": True}},
                ],
            },
        ],
    },
}


def row(contender: str, bits: float, mean: float) -> dict[str, Any]:
    return {"contender": contender, "bits": bits, "mean": mean}


def test_every_shipped_comparison_is_valid() -> None:
    paths = sorted((Path(__file__).parents[2] / "configs").glob("compare_*.yaml"))
    assert len(paths) >= 3
    for path in paths:
        config = load_config(path)
        one = config.compare.model_copy(update={"seeds": config.compare.seeds[:1]})  # all are alike
        names = {task.contender for task in tasks_of(config.model_copy(update={"compare": one}))}
        assert "fp32" in names, path


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")  # clipping, divergence
def test_runs_are_kept_and_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "output": str(tmp_path / "out")}))
    assert main(["compare", str(path), "--workers", "1"]) == 0
    first = capsys.readouterr().out
    files = sorted((tmp_path / "out" / "runs").glob("*.json"))
    assert len(files) == 2 * 4  # seeds x points
    stamps = [file.stat().st_mtime_ns for file in files]
    assert main(["compare", str(path), "--report"]) == 0
    assert capsys.readouterr().out == first
    assert [file.stat().st_mtime_ns for file in files] == stamps
    results = json.loads((tmp_path / "out" / "compare.json").read_text())
    bits = {(r["contender"], r["point"]): r["bits"] for r in results["rows"]}
    assert bits["fp32", 0] > 32  # headers count
    assert bits["sketch", 0] > 8  # half a cell of 16 bits a value, and a little that is sent once
    assert bits["asc", 1] < bits["asc", 0] < 12
    for file, revision in zip(files, ("theirs", None), strict=False):  # as copied from elsewhere, and old
        run = json.loads(file.read_text())
        there = run.pop("provenance")
        assert there["revision"] == results["provenance"][0]["revision"]
        kept = {} if revision is None else {"provenance": there | {"revision": revision}}
        file.write_text(json.dumps(run | kept))
    assert main(["compare", str(path), "--report"]) == 0
    results = json.loads((tmp_path / "out" / "compare.json").read_text())
    found = {one["revision"] for one in results["provenance"]}
    assert found == {"theirs", "not kept by some runs", there["revision"]}
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "out" / "compare.json"), "--html", str(page)]) == 0
    assert "equal accuracy" in page.read_text()
    assert "theirs" in page.read_text()
    assert (tmp_path / "out" / "compare.png").stat().st_size > 10_000


def test_a_damaged_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump({**SMALL, "output": str(tmp_path / "out")}))
    task = tasks_of(load_config(path))[0]
    (tmp_path / "out" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs" / f"{task.key}.json").write_text("{")
    assert main(["compare", str(path), "--report"]) == 2
    assert "remove the file" in capsys.readouterr().err
    assert main(["compare", str(path), "--only", "zip"]) == 2
    assert "no such contender; there are asc, fp32, sketch" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"schedule": "duplex"}, {"topology": {"kind": "ring"}}])
def test_a_run_of_another_schedule_or_network_is_not_taken_for_this_one(change: dict[str, Any]) -> None:
    """Kept runs are found by their key; bytes and modelled times are of one schedule and network."""
    task = TrainingTask("asc", 0, "asc", Config.model_validate(SMALL))
    other = replace(task, config=task.config.variant(**change))
    assert other.key != task.key


def test_a_run_that_is_shorter_than_the_distance_of_rings_has_them_at_its_end() -> None:
    config = Config.model_validate({**SMALL, "iterations": 6, "train": {"ring_every": 25}})
    assert ring_every(config) == 6
    assert ring_every(config.variant(iterations=3)) == 1
    assert train(config).series["wire_bytes"][-1] > 0


def test_fewest_bits_lie_between_the_points_around_the_target() -> None:
    rows = [row("a", 1, 0.6), row("a", 4, 0.8), row("b", 2, 0.9), row("c", 8, 0.1)]
    assert fewest_bits(rows, 0.7, better=1) == {"a": pytest.approx(2.0), "b": 2}
    losses = [row("a", 1, 3.0), row("a", 4, 2.0)]
    assert fewest_bits(losses, 2.5, better=-1) == {"a": pytest.approx(2.0)}


def test_a_coarser_point_that_is_better_replaces_a_finer_one() -> None:
    rows = [row("a", 1, 0.8), row("a", 4, 0.7)]
    assert fewest_bits(rows, 0.75, better=1) == {"a": 1}


def test_the_metric_between_points_is_linear_in_log_bits_and_never_below_a_coarser_point() -> None:
    rows = [row("a", 1, 0.6), row("a", 4, 0.8), row("a", 16, 0.7), row("a", 16, 0.5), row("b", 2, 0.1)]
    assert metric_at(rows, "a", 2, better=1) == pytest.approx(0.7)
    assert metric_at(rows, "a", 8, better=1) == 0.8
    assert metric_at(rows, "a", 16, better=1) == 0.8
    assert metric_at(rows, "a", 16, better=-1) == 0.5
    assert metric_at(rows, "a", 0.5, better=1) is metric_at(rows, "a", 17, better=1) is None
    assert metric_at(rows, "c", 1, better=1) is None


def ran(score: float | None, bits: float) -> dict[str, Any]:
    """What a run leaves; only score and bits matter here."""
    names = ("bits_per_value", "step_sync_bits", "communication_s", "iteration_s")
    final = {} if score is None else {"accuracy": score}
    return {"final": final, "diverged": score is None, **dict.fromkeys(names, bits)}


def test_what_holds_who_is_in_front_and_what_diverged(tmp_path: Path) -> None:
    points = [{"scheme": {"ratio": r}} for r in (0.5, 0.4, 0.3, 0.2)]
    contenders = [
        {"name": "fp32", "method": "fp32"},
        {"name": "sketch", "method": "count-sketch", "points": points},
    ]
    config = Config.model_validate({"compare": {"seeds": [0, 1], "contenders": contenders}})
    scores = {0: (0.80, 0.84), 1: (0.80, 0.79), 2: (0.78, 0.78), 3: (0.81, 0.80), 4: (0.9, None)}
    bits = {0: 32.0, 1: 16.0, 2: 16.0, 3: 16.0, 4: 4.0}
    runs = [ran(scores[i % 5][i // 5], bits[i % 5]) for i in range(10)]
    rows = summarise(config, tasks_of(config), runs)
    assert [r["mean"] for r in rows] == pytest.approx([0.82, 0.795, 0.78, 0.805, 0.45])
    assert rows[0]["spread"] == pytest.approx(0.04 / 2**0.5)
    assert [r["holds"] for r in rows] == [True, True, False, True, False]
    assert [r["front"] for r in rows] == [True, False, False, True, True]
    assert [r["diverged"] for r in rows] == [0, 0, 0, 0, 1]
    assert ["(1 diverged) ratio=0.2" in line for line in table(rows)[1:]] == [False] * 4 + [True]
    results = {"rows": rows, "metric": "accuracy", "title": "some"}
    assert f"#   {'sketch':<22} 1.33x  (ratio=0.5)" in answers(results)
    results["rows"][1]["contender"] = r"$\frac$ $"  # matplotlib must not take it for a formula
    draw(results, tmp_path / "some.png")
    assert (tmp_path / "some.png").stat().st_size > 10_000


def test_a_metric_that_the_workload_lacks_is_refused() -> None:
    contenders = [{"name": "fp32", "method": "fp32"}]
    config = Config.model_validate({"compare": {"metric": "loss", "seeds": [0], "contenders": contenders}})
    with pytest.raises(ConfigError, match=r"one that the workload has \(accuracy\), got loss"):
        summarise(config, tasks_of(config), [ran(0.5, 32.0)])


def test_half_the_bits_where_all_is_communication_is_twice_the_speed() -> None:
    link = LinkModel.of(latency_us=0.0)
    base, other = ({"large_s": large_time(bits, 8, link)} for bits in (32.0, 16.0))
    assert speedups(other, base, [1.0, 0.5]) == pytest.approx([2.0, 4 / 3])


def test_a_point_of_an_unknown_section_is_refused(tmp_path: Path) -> None:
    bad = {"compare": {"contenders": [{"name": "x", "method": "asc", "points": [{"quantisr": {}}]}]}}
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(bad))
    with pytest.raises(ConfigError, match="did you mean 'quantiser'"):
        load_config(path)
    with pytest.raises(ConfigError, match="contenders is empty"):
        tasks_of(Config())
