"""The stages of a call: all of its time is somewhere, and the rank's wait for others is not in it."""

from __future__ import annotations

import argparse

import pytest

from oscar.cli import main
from oscar_lab.bench import call


def test_the_stages_of_a_call_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "call", "--values", "20000", "--turns", "1", "--nodes", "3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    for who in ("cluster", "rank"):
        mine = [line for line in lines if line[0] == who]
        *stages, whole, _ = [float(line[-3]) for line in mine]  # the last is without a profile
        assert sum(stages) == pytest.approx(whole, abs=0.001 * len(mine))
        names = {" ".join(line[1:-3]) for line in mine}
        assert {"coder", "quantise", "add", "mean, steps, position", "CRC-32"} <= names
    with pytest.raises(ValueError, match="at least"):
        call.run(call_options("--values", "0"))


def call_options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    call.add_arguments(parser)
    return parser.parse_args(words)


def test_what_a_library_takes_is_its_callers() -> None:
    quantise = (f"{call.HOUSE}numerics/quantiser.py", 1, "quantise")
    finish = (f"{call.HOUSE}numerics/steps.py", 1, "settle")
    library, builtin, again = ("numpy/a.py", 1, "a"), ("~", 0, "copy"), ("~", 0, "again")
    stages = call.stages_of(
        {
            quantise: (1, 1, 1.0, 9.0, {}),
            finish: (1, 1, 2.0, 9.0, {}),
            library: (1, 1, 4.0, 9.0, {quantise: (1, 1, 1.0, 1.0), finish: (1, 1, 3.0, 3.0)}),
            builtin: (1, 1, 8.0, 8.0, {library: (1, 1, 8.0, 8.0)}),
            again: (1, 1, 0.5, 0.5, {again: (1, 1, 0.5, 0.5)}),
        }
    )
    assert stages == pytest.approx({"quantise": 4.0, "mean, steps, position": 11.0, "rest": 0.5})
