"""The benchmarks of the coder run, check what they time, and say what they say in one shape."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar.bench import rate, speed
from oscar.bench._integers import integers
from oscar.cli import main
from oscar.errors import MissingExtraError, OscarError
from oscar.trials import mutate
from oscar.trials._hunt import Chunk
from oscar.workloads import make_workload


def run(module: Any, *words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    result: dict[str, Any] = module.run(parser.parse_args(words))
    return result


def test_speed_times_every_coder_on_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "numpy-digits", "--iterations", "2", "--turns", "1"]
    result = run(speed, *words)
    assert set(result["bars"]) <= set(result["ratios"])
    assert all(row["best"] >= row["median"] > 0 for row in result["rows"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("asc encode")]
    assert sum(line.startswith("#") for line in lines) == 3 + len(result["bars"])


def test_speed_names_the_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "constriction", None)
    with pytest.raises(MissingExtraError, match=r"\[peers\]"):
        run(speed, "--model", "numpy-digits")


def test_a_failed_check_is_an_error() -> None:
    broken = {"broken": speed.Operation(lambda: 1, 1, check=lambda _: False)}
    with pytest.raises(OscarError, match="broken: expected the values that were coded"):
        speed.take_turns(broken, 1)


def test_rate_counts_whole_frames_against_the_ideal() -> None:
    words = ["--models", "numpy-digits", "--nodes", "4", "--iterations", "3", "--learning", "1"]
    result = run(rate, *words, "--links", "1")
    rows = result["rows"]
    assert [row["step"] for row in rows] == [0, 1, 3]
    for row in rows:
        assert row["frames"] == 2
        assert row["coded_bits"] == pytest.approx(row["ideal_bits"], rel=0.3)  # small frames
    assert result["loss_percent"].keys() == {"numpy-digits"}
    with pytest.raises(ValueError, match="expected learning below 2"):
        run(rate, "--iterations", "2", "--learning", "2")


def test_code_length_of_one_symbol_is_what_the_counts_say() -> None:
    counts = np.full((16, 16), 1.0)
    zeros, cmap = np.zeros(3, np.int32), np.zeros(256, np.uint8)
    bits = rate.code_length(zeros, zeros.astype(np.uint8), cmap, 0, 16, 1 << 16, counts)
    assert bits == pytest.approx(np.log2(16 / 1) + np.log2(17 / 2) + np.log2(18 / 3))
    assert counts[0, 0] == 4


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


def test_mutated_configurations_are_read_or_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = Path(__file__).parents[2] / "configs"
    assert main(["trial", "mutate_yaml", "--count", "120", "--configs", str(configs)]) == 0
    print(capsys.readouterr().out)  # with the seed, a new one each time


def test_boundscheck_covers_accesses_to_several_items() -> None:
    from numba import njit

    from oscar.coding.asc.kernels import load64

    checked = mutate._checked(load64, 8, takes_value=False)

    @njit
    def word(array: Any, offset: int) -> int:
        return checked(array, np.uint64(offset))

    data = np.arange(16, dtype=np.uint8)
    assert word(data, 8) == int.from_bytes(range(8, 16), "little")
    for offset in (9, 16, 17, 1 << 63, -1):
        with pytest.raises(IndexError, match="beyond the array"):
            word(data, np.uint64(offset & 0xFFFFFFFFFFFFFFFF))
