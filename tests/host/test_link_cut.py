"""A link cut in the middle of an AllReduce: both sides report it and name a rank across the cut."""

from __future__ import annotations

import argparse

import pytest

from needs import TRANSPORTS, needs
from oscar_lab.trials import transport_faults


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    transport_faults.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("transport", ["mpi", "tcp"])
def test_a_cut_is_told_on_both_sides(alone: None, transport: str) -> None:
    needs(TRANSPORTS[transport])
    words = ("--transport", transport, "--kinds", "cut", "--points", "1", "--ranks", "3", "--timeout-s", "3")
    result = transport_faults.run(arguments(*words))
    assert result["ok"], result["wrong"]
    (row,) = result["rows"]
    assert (row["told"], row["wrong"], row["hung"]) == (1, 0, 0)
    assert row["slowest_s"] > 1  # the deadline had to pass: a cut is no reset
