"""Attacks on ranks, through the trial that reports them: bounded memory, and an error that says why."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from needs import needs
from oscar_lab.trials import attacks

ROW = {
    "ended": True,
    "wrong": 0,
    "slowest_s": 1.0,
    "first_mb": 50.0,
    "most_mb": 60.0,
    "errors": 0,
    "texts": [],
}


def test_a_head_that_nobody_awaits_ends_each_call_and_takes_no_memory() -> None:
    needs("torch")
    case = argparse.Namespace(seconds=0.2, ranks=2, callers=10, timeout_s=60.0)
    row, output = attacks.attack("head", case)
    assert not attacks.fault(row, case.timeout_s), output
    assert row["meetings"] == row["errors"] > 0
    assert any("which nobody awaits" in text for text in row["texts"])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"attack": "silent"}, ""),
        ({"attack": "head", "errors": 2}, ""),
        ({"attack": "head"}, "did not arrive"),
        ({"attack": "silent", "errors": 1}, "did not go on"),
        ({"attack": "silent", "ended": False}, "did not end"),
        ({"attack": "silent", "wrong": 1}, "a mean was wrong"),
        ({"attack": "silent", "slowest_s": 30.0}, "took longer"),
        ({"attack": "silent", "most_mb": 7500.0}, "memory grew"),
    ],
)
def test_a_row_says_what_it_should_not_show(change: dict[str, Any], text: str) -> None:
    fault = attacks.fault(ROW | change, 20.0)
    assert text in fault
    assert bool(text) == bool(fault)
