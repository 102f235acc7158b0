"""Attacks on ranks, through the trial that reports them: bounded memory, and an error that says why."""

from __future__ import annotations

import argparse

from needs import needs
from oscar_lab.trials import attacks


def test_a_head_that_nobody_awaits_ends_each_call_and_takes_no_memory() -> None:
    needs("torch")
    case = argparse.Namespace(seconds=0.2, ranks=2, callers=10, timeout_s=60.0)
    row, output = attacks.attack("head", case)
    assert not attacks.fault(row, case.timeout_s), output
    assert row["meetings"] == row["errors"] > 0
    assert any("which nobody awaits" in text for text in row["texts"])
