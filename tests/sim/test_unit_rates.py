"""Values a clock of units, and that a wrong one is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.errors import OscarError
from oscar_hdl.flow.placement.report import VALUES_PER_CLOCK
from oscar_sim import step_clocks, unit_rates
from oscar_sim.blocks import Coder
from oscar_sim.units import Unit


def test_dense_blocks_are_decoded_as_fast_as_the_report_says(capsys: pytest.CaptureFixture[str]) -> None:
    needs("verilator", "g++", "make")
    assert unit_rates.main(["--unit", "barrel_decoder", "--models", "dense", "--frames", "3"]) == 0
    (line,) = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert float(line[-1]) > 0.9 * VALUES_PER_CLOCK


def test_what_differs_is_an_error(seed: int) -> None:
    needs("verilator", "g++", "make")
    coder = Coder(log2=11)
    frames = unit_rates.coded_frames("dense", 1, coder, seed % 1000)
    at = int(frames[0].entries[0]["at"])
    frames[0].payload[at : at + 200] ^= np.uint8(0x5A)
    with pytest.raises(OscarError, match="decoder: block 0"):
        unit_rates.rate(Unit("barrel_decoder"), frames, coder, 1)


@pytest.mark.parametrize(
    ("tool", "words", "told"),
    [
        *(
            (tool, words, told)
            for tool in (step_clocks, unit_rates)
            for words, told in (
                (["--frames", "0"], "expected 1 to 16 frames and a seed of 0 or more, got --frames 0"),
                (["--seed", "-1"], "expected 1 to 16 frames and a seed of 0 or more, got --frames"),
                (["--models", "cnm"], "--models: invalid choice: 'cnm'"),
            )
        ),
        (unit_rates, ["--block-log2", "9"], "--block-log2: invalid choice: 9"),
    ],
)
def test_options_out_of_range_are_told_before_anything_is_compiled(
    tool: Any, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        tool.main([*(["nic.json"] if tool is step_clocks else []), *words])
    assert told in capsys.readouterr().err
