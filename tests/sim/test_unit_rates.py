"""Values a clock of units: what the table says of a barrel is more than of an engine's unit."""

from __future__ import annotations

import numpy as np
import pytest

from needs import needs
from oscar.errors import OscarError
from oscar_sim import unit_rates
from oscar_sim.blocks import Coder
from oscar_sim.units import Unit


def test_a_barrel_decodes_dense_blocks_six_times_as_fast(capsys: pytest.CaptureFixture[str]) -> None:
    needs("verilator", "g++", "make")
    units = ("decoder", "barrel_decoder")
    assert unit_rates.main(["--unit", *units, "--models", "dense", "--frames", "3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    rates = {line[0]: float(line[-1]) for line in lines}
    assert rates["decoder"] > 0.85
    assert rates["barrel_decoder"] > 6 * rates["decoder"]


def test_what_differs_is_an_error(seed: int) -> None:
    needs("verilator", "g++", "make")
    coder = Coder(log2=11)
    frames = unit_rates.coded_frames("dense", 1, coder, seed % 1000)
    at = int(frames[0].entries[0]["at"])
    frames[0].payload[at : at + 200] ^= np.uint8(0x5A)
    with pytest.raises(OscarError, match="decoder: block 0"):
        unit_rates.rate(Unit("decoder", "decoder"), frames, coder, 1)
