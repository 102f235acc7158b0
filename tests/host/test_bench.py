"""The benchmarks of the coder run, check what they time, and return results of one form."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.cli import main
from oscar.coding.asc import AscParams
from oscar.coding.asc.lanes import raw_steps
from oscar.coding.asc.model import frequencies, low_bits
from oscar.coding.asc.reference import ReferenceCoder, _class_step, _value_step
from oscar.coding.asc.state import TableState
from oscar.collective.schedules import make_schedule
from oscar.errors import ConfigError, MissingExtraError, OscarError
from oscar_lab.bench import overlap, rate, speed, synthesis, units
from oscar_lab.trials import mutate
from oscar_lab.trials._hunt import Chunk
from oscar_studies.integers import integers
from oscar_studies.workloads import make_workload


def run(module: Any, *words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    result: dict[str, Any] = module.run(parser.parse_args(words))
    return result


def test_speed_times_every_coder_on_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "numpy-digits", "--iterations", "4", "--turns", "1"]
    result = run(speed, *words)
    assert set(result["bars"]) <= set(result["ratios"])
    assert all(row["best"] >= row["median"] > 0 for row in result["rows"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("asc encode")]
    assert sum(line.startswith("#") for line in lines) == 3 + len(result["bars"])


def test_the_timed_frame_is_new_to_asc_in_every_turn() -> None:
    """Tables that have learnt from the very frame make it smaller, as no training does."""
    samples = speed.samples(make_workload("numpy-digits", nodes=8, seed=0), 4, 1 << 21)
    asc = speed._Asc(samples[:-1], samples[-1])
    operation, link, sizes = asc.operations()["asc encode"], asc.links[0], []
    for _ in range(3):
        speed.take_turns({"asc encode": operation}, 1)
        sizes.append(len(link.frame))
    link.encode()
    assert sizes == [asc.size] * 3 > [len(link.frame)] * 3


def test_speed_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "constriction", None)
    with pytest.raises(MissingExtraError, match=r"\[peers\]"):
        run(speed, "--model", "numpy-digits")


def test_a_failed_check_is_an_error() -> None:
    broken = {"broken": speed.Operation(lambda: 1, 1, check=lambda _: False)}
    with pytest.raises(OscarError, match="broken: expected the values that were coded"):
        speed.take_turns(broken, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory; `python -m oscar_sim.allreduce --driver list"),
        ('{"rows": [{}]}', "expected a table as `python -m oscar_sim.allreduce .* got another file"),
        (
            '{"rows": [{"iteration": 0, "driver": "list", "options": {"order": "plain", "asks": false}}]}',
            "expected a table as .* got another file",
        ),
        ('{"rows": []}', "expected an AllReduce by a list"),
    ],
)
def test_overlap_says_what_its_files_are(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "list.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=f"list.json: {said}"):
        run(overlap, "--rtl", str(file))


def test_overlap_leaves_out_what_its_model_has_not(tmp_path: Path) -> None:
    rows = [
        {"iteration": 0, "driver": driver, "options": {"order": order, "asks": asks, "make": make}}
        for driver in ("registers", "list", "triggered", "adding")
        for order in ("plain", "pieces") for asks in (False, True) for make in (0.0, 1.0)
    ]  # fmt: skip
    (tmp_path / "list.json").write_text(json.dumps({"rows": rows}))
    kept = [(told["driver"], *told["options"].values()) for told in overlap._told(tmp_path / "list.json")]
    assert {driver for driver, _, asks, _ in kept if not asks} == {"list", "triggered"}
    triggered = [own for driver, *own in kept if driver == "triggered"]
    assert triggered == [["plain", False, 0.0], ["plain", False, 1.0], ["pieces", True, 0.0]]


def test_what_triggers_gain_is_what_their_page_says() -> None:
    """Two figures of a model, which are equal on every machine."""
    page = (Path(__file__).parents[2] / "docs" / "results" / "overlap.md").read_text()
    schedule = make_schedule("ring", 4, subframes=4)
    sums = overlap.gains(schedule, 4 << 15, overlap.links()["lane"], 1.0, "rotated", sums=True)
    assert f"lane, 4 nodes | 1:1 | {sums['listed']:.2f} | {sums['triggered']:.2f} |" in page
    whole = [row["triggered"] for row in overlap._whole([2, 4, 8])]
    assert f"| | | {np.exp(np.mean(np.log(whole))):.2f} |" in page


def test_rate_counts_whole_frames_against_the_ideal() -> None:
    words = ["--models", "numpy-digits", "--nodes", "4", "--iterations", "3", "--learning", "1"]
    result = run(rate, *words, "--links", "1")
    rows = result["rows"]
    assert [(row["block"], row["step"]) for row in rows] == [(b, s) for b in rate.BLOCKS for s in (0, 1, 3)]
    for row in rows:
        assert row["frames"] == 2
        parts = sum(row[f"{part}_bits"] for part in rate.PARTS)
        assert (
            row["ideal_bits"] < row["coded_bits"] < parts
        )  # a flush carries rows, so it costs less than its bits
        assert parts - row["flush_bits"] < row["coded_bits"] + 0.01
    assert result["loss_percent"].keys() == {"numpy-digits"}
    with pytest.raises(ValueError, match="expected learning below 2"):
        run(rate, "--iterations", "2", "--learning", "2")


def test_the_ideal_is_what_the_reference_codes(seed: int) -> None:
    random = np.random.default_rng(seed)
    for scale, shift in ((0.05, 0), (9, 0), (9, 3), (300, 0), (1e5, 2), (1e8, 0)):
        values = np.rint(random.laplace(0, scale, 1024 + 40)).astype(np.int32)
        classes = random.integers(0, 16, values.size).astype(np.uint8)
        groups = ReferenceCoder(AscParams())._groups(values.tolist(), classes.tolist(), shift)
        freq = [frequencies(row, q, 15) for q, row in enumerate(TableState.initial().hist.tolist())]
        expected = 0.0
        for row in (row for group in groups for row in group):
            steps = [_class_step(row, freq)]
            for lane, value in enumerate(row.values):
                steps += [_value_step(row, lane, freq, shift)] if row.row_class else []
                steps += raw_steps(value, low_bits(row.row_class, shift))
            expected += sum(np.log2(1024 / f) + size for f, _, _, size in steps)
        bits = rate.code_length(values, classes, shift, np.log2(1024 / np.maximum(freq, 1)))
        assert bits == pytest.approx(expected)


def test_partial_sums_follow_the_ring() -> None:
    for iteration in integers(make_workload("numpy-digits", nodes=3, seed=0), 1):
        total = np.sum(iteration.values, axis=0)
        count = total.size
        full, _ = rate.partial_sum(iteration, 1, 2)
        np.testing.assert_array_equal(full, total[2 * count // 3 :])
        own, _ = rate.partial_sum(iteration, 1, 0)
        np.testing.assert_array_equal(own, iteration.values[1][count // 3 : 2 * count // 3])


@pytest.mark.parametrize(("crashes", "status"), [(0, 0), (1, 1)])
def test_a_crash_found_by_mutate_is_exit_status_1(
    crashes: int, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = Chunk(Counter(crashes=crashes)), 1.0
    monkeypatch.setattr(mutate, "hunt", lambda *_, **__: found)
    out = tmp_path / "new" / "mutate.json"
    assert main(["trial", "mutate", "--count", "1", "--json", str(out)]) == status
    assert json.loads(out.read_text())["ok"] is (crashes == 0)


def test_mutated_configurations_are_read_or_refused_in_one_line(seed: int) -> None:
    configs = Path(__file__).parents[2] / "configs"
    words = ["--count", "120", "--seed", str(seed), "--configs", str(configs)]
    assert main(["trial", "mutate_yaml", *words]) == 0


def test_schedules_made_for_a_network_meet_their_bars(capsys: pytest.CaptureFixture[str]) -> None:
    needs("schedule")
    result = run(synthesis, "--figures", "f", "h", "--values", "250000", "--limit", "1")
    assert result["ok"]
    assert {(row["figure"], row["bar"]) for row in result["rows"]} == {("f", 1.45), ("h", 1.4), ("h", None)}
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["other_s"] / row["time_s"])
        assert row["time_s"] >= (row["bound_s"] or 0)
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(result["rows"])


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("units", "0", "1, 2, 4 or 8, as the RTL has them, got 0"),
        ("units", "3", "1, 2, 4 or 8, as the RTL has them, got 3"),
        ("slices", "0", "1 to 256, got 0"),
        ("nodes", "1", "2 to 256, got 1"),
        ("values", "0", "1 to 1e+12, got 0"),
        ("mhz", "0", "1 to 10,000, got 0"),
        ("gbps", "nan", "0.001 to 1e+06, got nan"),
        ("block-log2", "18", "10 to 17, got 18"),
    ],
)
def test_units_that_no_nic_has_are_refused(
    option: str, given: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "units", f"--{option}", given]) == 2
    assert f"--{option}: expected {said}" in capsys.readouterr().err


def test_chunks_that_no_schedule_cuts_are_refused() -> None:
    assert units.fewest_frames(64 * units.MOST_VALUES, 1) == 64
    with pytest.raises(ValueError, match="expected 64 frames a chunk at most, got 65"):
        units.fewest_frames(64 * units.MOST_VALUES + 1, 1)
