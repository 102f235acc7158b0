"""`oscar train`: a run that is cut anywhere goes on bit for bit; its numbers are those of its AllReduces."""

from __future__ import annotations

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar import checkpoint
from oscar.cli import main
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.reducers.cluster import LocalCluster
from oscar.results import read_results
from oscar_studies.training import Run, Trainer, checkpoint_path, train, train_seeds
from oscar_studies.training_results import make_results, smoothed, text_table
from oscar_studies.workloads import make_workload

SMALL = {"vocabulary": 300, "dimension": 8, "hidden": 16, "outputs": 100, "batch": 16, "text_bytes": 200_000}
ITERATIONS = 12


def config(**changes: Any) -> Config:
    """A small language model with ASC, error feedback and boomerang; compute is given, so runs compare."""
    base: dict[str, Any] = {
        "nodes": 3,
        "iterations": ITERATIONS,
        "workload": {"name": "numpy-lm", "options": SMALL},
        "quantiser": {"coarseness": 1.0, "error_feedback": True},
        "plan": {"name": "splitter", "granule": 64},
        "train": {"compute_ms": 1.0, "evaluate_every": 4, "checkpoint_every": 1},
    }
    return Config.model_validate(base | changes)


METHODS: dict[str, dict[str, Any]] = {
    "asc": {},
    "fp32": {"method": "fp32", "schedule": {"name": "ring"}},
    "bursts": {"train": {"compute_ms": 1.0, "ring_every": 5}},
    "stochastic": {"quantiser": {"rounding": "stochastic"}, "schedule": {"name": "duplex"}},
    **{name: {"method": name} for name in ("oscar-sw", "zen", "powersgd", "demo")},
}


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")  # narrow lanes and cells clip
@pytest.mark.parametrize(("name", "cut"), [*((name, 7) for name in METHODS), ("asc", 1), ("oscar-sw", 1)])
def test_a_run_resumed_from_any_iteration_ends_bit_for_bit_the_same(
    tmp_path: Path, name: str, cut: int
) -> None:
    settings, path = config(**METHODS[name]), tmp_path / "run"
    whole = train(settings)
    first = Trainer(settings)
    for _ in range(cut):
        first.step()
    first.save(path)
    first.step()  # lost
    ticks: list[int] = []
    assert train(settings, path=path, resume=True, tick=lambda: ticks.append(1)) == whole
    assert len(ticks) == ITERATIONS
    assert train(settings, path=path, resume=True) == whole  # finished: nothing is left to do


def test_a_run_may_be_made_longer(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train(config(), path=path)
    longer = config(iterations=ITERATIONS + 3)
    resumed, whole = train(longer, path=path, resume=True), train(longer)
    assert resumed.series == whole.series
    assert resumed.state_sha256 == whole.state_sha256
    with pytest.raises(ConfigError, match="at most 2 iterations, it holds 15; raise iterations"):
        train(config(iterations=2), path=path, resume=True)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (
            {"quantiser": {"coarseness": 2.0, "error_feedback": True}},
            "quantiser.coarseness: state was saved under 1.0, this is 2.0",
        ),
        ({"seed": 5}, "seed: state was saved under 0, this is 5"),
        ({"nodes": 4}, "nodes: state was saved under 3"),
        ({"train": {"buckets": 2}}, "train.buckets: state was saved under 4"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_with_the_key_that_differs(
    tmp_path: Path, changes: dict[str, Any], key: str
) -> None:
    trainer = Trainer(config())
    trainer.step()
    trainer.save(tmp_path / "run")
    with pytest.raises(ConfigError, match=f"run.fingerprint.{key}.*leave out --resume.*--checkpoint FILE"):
        train(config(**changes), path=tmp_path / "run", resume=True)


def test_without_resume_an_old_checkpoint_is_not_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ConfigError, match="got a file of another kind"):
        train(config(iterations=2), path=path, resume=True)
    train(config(iterations=2), path=path)
    assert checkpoint.load(path)["done"] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="kills as Linux does")
def test_a_run_killed_at_a_random_moment_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """kill -9 of the command at two random moments, also within a checkpoint; then --resume to the end."""
    settings = config(iterations=60, output=str(tmp_path))
    file = tmp_path / "train.yaml"
    file.write_text(json.dumps(settings.model_dump(mode="json")))  # JSON is YAML
    command = [sys.executable, "-m", "oscar", "train", str(file), "--resume"]
    saved = tmp_path / "checkpoint.seed0"
    seen: list[int] = []
    for _ in range(2):
        before = saved.stat().st_mtime_ns if saved.exists() else 0
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and (not saved.exists() or saved.stat().st_mtime_ns == before):
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.2))
        process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        seen.append(checkpoint.load(saved)["done"])  # whole, whenever the kill came
    assert seen == sorted(seen)
    assert 0 < seen[0] < 60  # the first kill did interrupt it
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"# seed 0 goes on from {saved}" in done.stdout
    whole = train(settings)
    (row,) = read_results(tmp_path / "train.json", "train")["rows"]
    assert row["state"] == whole.state_sha256
    assert read_results(tmp_path / "train.json", "train")["runs"][0]["series"] == whole.series


def test_series_are_what_the_allreduces_said() -> None:
    settings = config()
    run, workload = train(settings), make_workload("numpy-lm", nodes=3, seed=0, **SMALL)
    cluster, clipped = LocalCluster(settings), []
    for iteration in range(ITERATIONS):
        stats = (result := cluster.allreduce(workload.gradients())).stats
        workload.apply(result.mean)
        measured = {name: series[iteration] for name, series in run.series.items()}
        clipped.append((stats.clipped, stats.clipped_energy))
        assert measured["loss"] == workload.loss
        assert measured["wire_bytes"] == stats.wire_bytes
        assert measured["bits_per_value"] == stats.bits_per_value
        assert measured["step_sync_bits"] == stats.step_sync_bits
        assert measured["communication_s"] == stats.time_s
        assert 1e-3 < measured["iteration_s"] < 1e-3 + 4 * stats.time_s
    assert run.exact
    assert run.clipped == sum(values for values, _ in clipped)
    assert run.clipped_energy == max(energy for _, energy in clipped)
    assert run.state_sha256 == checkpoint.digest(workload.state_dict())
    assert [e["iteration"] for e in run.evaluations] == [2, 4, 7, 8, 12]
    assert run.evaluations[-1] == {"iteration": 12, **workload.evaluate()}
    tail = [e["loss"] for e in run.evaluations if e["iteration"] in (2, 7, 12)]
    assert run.final["loss"] == pytest.approx(np.mean(tail))


def test_buckets_take_their_time_on_the_configured_network() -> None:
    """A network so slow that bytes alone count: two buckets together take what the whole one takes."""
    slow = {"topology": {"kind": "switch", "gbps": 1e-4}, "train": {"compute_ms": 1.0, "buckets": 2}}
    trainer = Trainer(config(iterations=1, **slow))
    trainer.step()
    whole, *buckets = trainer.measured[0][4:]
    assert len(buckets) == 2
    assert sum(buckets) == pytest.approx(whole, rel=0.1)  # headers are sent once a bucket


def test_leaving_the_ring_out_changes_bytes_alone() -> None:
    always = train(config())
    seldom = train(config(train={"compute_ms": 1.0, "evaluate_every": 4, "ring_every": 5}))
    assert seldom.state_sha256 == always.state_sha256
    assert seldom.evaluations == always.evaluations
    sent = seldom.series["wire_bytes"]
    assert len(set(sent[:9])) == 1  # measured at iteration 4, which stands for those before it too
    assert len(set(sent[9:])) == 1
    assert sent[0] != sent[9]


def test_the_ring_is_left_out_only_where_sums_are_exact() -> None:
    for changes, text in (
        ({"method": "fp32", "schedule": {"name": "ring"}}, "fp32 is not one; set train.ring_every to 1"),
        ({"method": "oscar-sw"}, "expected 1, as oscar-sw is a scheme"),
    ):
        with pytest.raises(ConfigError, match=text):
            Trainer(config(train={"ring_every": 5}, **changes))
    with pytest.raises(ValueError, match=r"expected 1 \(every iteration has its ring\) or 4 and more"):
        config(train={"ring_every": 3})


def test_seeds_side_by_side_are_each_alone(tmp_path: Path) -> None:
    runs = train_seeds(config(), [3, 1], path=tmp_path / "run", workers=2)
    assert [run.seed for run in runs] == [3, 1]
    assert runs == [train(config(seed=3)), train(config(seed=1))]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.seed1", "run.seed3"]
    assert train_seeds(config(), [1, 3], path=tmp_path / "run", resume=True, workers=1) == runs[::-1]
    assert checkpoint_path(None, 3) is None
    with pytest.raises(ConfigError, match=r"each once, got \[1, 1\]"):
        train_seeds(config(), [1, 1])


def poisoned(monkeypatch: pytest.MonkeyPatch, after: int) -> Run:
    """A run whose gradients are NaN after so many iterations."""
    real = Trainer.step

    def step(trainer: Trainer) -> None:
        if trainer.done == after:
            bad = trainer.workload.gradients()
            bad[1][0][:] = np.nan
            monkeypatch.setattr(trainer.workload, "gradients", lambda: bad, raising=True)
        real(trainer)

    monkeypatch.setattr(Trainer, "step", step)
    return train(config())


@pytest.mark.parametrize("after", [0, 5])
def test_a_run_that_diverges_ends_and_says_so(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    calm, run = train(config()), poisoned(monkeypatch, after)
    assert run.diverged
    assert run.final == {}
    assert {name: series[:after] for name, series in calm.series.items()} == run.series
    results = make_results(config(), [calm, run])
    json.dumps(results["runs"], allow_nan=False)
    lines = text_table(results).splitlines()
    assert lines[-3].endswith("diverged")
    assert lines[-2].split()[:2] == ["mean", "-"]


@pytest.mark.parametrize("what", ["loss", "metrics"])
def test_a_loss_or_metric_that_is_no_number_is_divergence(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from oscar_studies.workloads.numpy_lm import NumpyLm

    if what == "metrics":
        monkeypatch.setattr(NumpyLm, "evaluate", lambda _: {"loss": math.nan})
    else:
        monkeypatch.setattr(NumpyLm, "loss", property(lambda _: math.inf, lambda *_: None), raising=False)
    run = train(config())
    assert run.diverged
    assert run.final == {}
    assert len(run.series["loss"]) == (2 if what == "metrics" else 0)


def test_a_training_that_diverges_is_exit_status_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps({**config().model_dump(mode="json"), "output": str(tmp_path / "out")}))
    monkeypatch.setattr("oscar_studies.workloads.numpy_lm.NumpyLm.evaluate", lambda _: {"loss": math.nan})
    assert main(["train", str(path), "--seeds", "3", "--workers", "1"]) == 4
    assert "# DIVERGED: seed 3: loss" in capsys.readouterr().out


def test_gradients_that_do_not_fit_are_not_called_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(config())
    monkeypatch.setattr(trainer.workload, "gradients", lambda: [[np.zeros(3, "f4")], [np.zeros(2, "f4")]])
    with pytest.raises(GradientError, match="has shape"):
        trainer.step()


def test_the_table_holds_mean_and_spread_of_the_seeds() -> None:
    run = train(config())
    other = replace(run, seed=1, final={"loss": run.final["loss"] + 2, "accuracy": 0.5})
    results = make_results(config(), [run, other])
    assert results["mean"]["loss"] == pytest.approx(run.final["loss"] + 1)
    assert results["spread"]["loss"] == pytest.approx(2**0.5)
    assert results["rows"][0]["sent_mb"] == pytest.approx(sum(run.series["wire_bytes"]) / 1e6)
    assert 0 < results["rows"][0]["exposed"] < 1
    text = text_table(results)
    assert "method asc step 1 sigma feedback; schedule direct, plan splitter" in text
    chosen = text_table(make_results(config(schedule="auto"), [run]))  # by the time model, for three nodes
    assert re.search(r"method asc\+(\w+) step 1 sigma feedback; schedule \1, plan splitter", chosen)
    assert "auto" not in chosen
    assert [line.split()[0] for line in text.splitlines() if not line.startswith("#")] == [
        "0", "1", "mean", "spread",
    ]  # fmt: skip
    assert asdict(run)["series"] == results["runs"][0]["series"]


def test_the_command_writes_and_shows_one_run_beside_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))
    file = tmp_path / "train.yaml"
    file.write_text(json.dumps(config(iterations=3).model_dump(mode="json")))
    first, second = tmp_path / "a", tmp_path / "b"
    assert main(["train", str(file), "--set", f"output={first}", "--resume"]) == 0
    assert f"# seed 0 starts anew, there is no {first / 'checkpoint.seed0'}" in capsys.readouterr().out
    words = ["train", str(file), "--set", f"output={second}", "--beside", str(first / "train.json")]
    assert main([*words, "--seeds", "0", "2", "--workers", "1"]) == 0
    assert {path.name for path in second.iterdir()} == {
        "train.json", "train.png", "checkpoint.seed0", "checkpoint.seed2",
    }  # fmt: skip
    assert [row["seed"] for row in read_results(second / "train.json", "train")["rows"]] == [0, 2]
    assert main(["report", str(second / "train.json"), "--html", str(tmp_path / "page.html")]) == 0
    assert "checkpoint" in (tmp_path / "page.html").read_text()  # its configuration
    assert main([*words, "--seeds", "-1"]) == 2
    assert main([*words, "--workers", "0"]) == 2
    assert main(["train", str(file), "--beside", str(file)]) == 2
    assert "expected results of `oscar train`" in capsys.readouterr().err
    damaged, results = tmp_path / "damaged.json", json.loads((first / "train.json").read_text())
    results["runs"][0]["evaluations"] = [{"loss": 1.0}]
    damaged.write_text(json.dumps(results))
    for arguments in (["report", str(damaged)], ["train", str(file), "--beside", str(damaged)]):
        capsys.readouterr()
        assert main(arguments) == 2
        assert f"{damaged}: expected results as `oscar train`" in (error := capsys.readouterr().err)
        assert "'iteration' is missing" in error
    (tmp_path / "nested.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="expected results of `oscar train`, got"):
        read_results(tmp_path / "nested.json", "train")


def test_the_running_mean_starts_with_the_first_loss() -> None:
    assert smoothed(np.arange(40.0))[:4].tolist() == [0, 0.5, 1.5, 2.5]
