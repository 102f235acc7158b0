"""A small soak passes; a flipped bit, other frames, touched inputs and growing memory are found."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

import numpy as np

from needs import needs
from oscar.collective.frames import Frames
from oscar.reducers.cluster import LocalCluster
from oscar_lab.lab.launch import Ended
from oscar_lab.trials import soak
from oscar_lab.trials._soak_rank import TOUCHED, differs, draw_config, draw_gradient, draw_shapes, verdict_of

TINY = ["--ranks", "2", "--iterations", "12", "--segment", "4", "--values", "500", "--memory-mib", "64"]


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    soak.add_arguments(parser)
    return parser.parse_args([*TINY, *words])


def test_a_soak_passes_and_stops_in_good_order_when_its_time_is_up() -> None:
    words = ["--iterations", "100000", "--segment", "10000", "--seconds-limit", "0.3"]
    needs("mpi")
    result = soak.run(options("--transport", "mpi", *words))
    assert result["ok"], result["why"]
    assert 0 < result["iterations"] < result["asked"]
    assert result["iterations"] == sum(row["iterations"] for row in result["segments"])
    assert [memory["samples"][-1][0] for memory in result["memory"]] == [result["iterations"]] * 2


def test_a_soak_finds_the_one_bit_that_is_wrong() -> None:
    needs("torch")
    result = soak.run(options("--transport", "tcp", "--spoil", "5"))
    assert result["why"] == ["mismatches: 1"], result["output"]
    assert (result["ok"], result["iterations"], len(result["segments"])) == (False, 12, 3)
    assert [(line["rank"], line["mismatch"]) for line in result["kept"]] == [(1, "mean or sums")]


def test_a_verdict_holds_values_frames_and_inputs() -> None:
    shapes = [(40, 9), (), (3,)]
    gradients = [draw_gradient(0, 0, rank, shapes) for rank in range(3)]
    expected = LocalCluster(draw_config(0, 0)).allreduce(gradients)
    frames = Frames.of(expected.stats.frames.of_sender(1).rows).tree()
    other = frames | {"bytes": [size + 1 for size in frames["bytes"]]}

    def said(means: list[np.ndarray], sizes: dict[str, list[int]], flags: int = 0, rank: int = 1) -> str:
        return differs(verdict_of(means, expected.sums, sizes, flags), expected, rank, lossless=True)

    assert said(expected.mean, frames) == ""
    assert said([-expected.mean[0], *expected.mean[1:]], frames) == "mean or sums"
    assert said(expected.mean, other) == "sizes of frames"
    assert said(expected.mean, frames, TOUCHED) == "inputs were written to"


def test_what_is_drawn_covers_what_it_should() -> None:
    configs = [draw_config(0, segment) for segment in range(80)]
    for values in (
        {c.method for c in configs},
        {c.plan.name for c in configs},
        {c.schedule.name for c in configs},
    ):
        assert len(values) >= 3
    drawn, changes = [], 0
    for segment in range(20):
        before: dict[int, Any] = {}
        for key, shapes in islice(draw_shapes(0, segment, nodes=4, values=40_000), 25):
            changes += before.setdefault(key, shapes) != shapes
            before[key] = shapes
            drawn.append(sum(int(np.prod(shape)) for shape in shapes))
        assert set(before) <= {0, 1, 2}
    assert sum(size > 10_000 for size in drawn) > 40
    assert sum(size < 4 for size in drawn) > 5
    assert 20 < changes < 100  # of 500: shapes stay long enough to be learnt


def test_memory_that_grows_hangs_and_deaths_are_not_ok() -> None:
    def judged(slope: int, ended: Ended | None = None, **report: Any) -> dict[str, Any]:
        heard = soak._Heard(2000)
        samples = [
            [at, 100_000 + (5000 if at > 100 else 0) + slope * at // 1000] for at in range(50, 2001, 50)
        ]
        if report or ended is None:
            heard.report = {"done": 2000, "seconds": 1.0, "mismatches": 0, "memory": [samples]} | report
        return soak.judge(options("--memory-mib", "4"), heard, ended or Ended(0, (0,), "", False, 0))

    flat, grown = judged(100), judged(4000)
    assert flat["ok"]
    assert (flat["memory"][0]["grown_kib"], round(flat["memory"][0]["slope_kib"])) == (160, 100)
    assert grown["why"] == ["a rank's memory grew by 6.2 MiB, 4 are allowed"]
    assert judged(0, mismatches=3)["why"] == ["mismatches: 3"]
    assert not judged(0, Ended(75, (75,), "", False, 0))["ok"]
    assert not judged(0, Ended(0, (0,), "", True, 0), done=2000)["ok"]
