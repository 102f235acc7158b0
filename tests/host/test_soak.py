"""A small soak passes; a flipped bit, other frames, touched inputs and growing memory are found."""

from __future__ import annotations

import argparse

from needs import needs
from oscar_lab.trials import soak

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
