"""Blocks have equal phases, are reset at once, and are released one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.passed_on import first_phase, next_phase, next_reset
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

NUMBER, CLOCKS = 5, 64


def test_phases_are_equal_and_count() -> None:
    clk, phases = bit(), [word(4) for _ in range(NUMBER)]
    blocks = [first_phase(clk, phases[0]), *(next_phase(clk, *two) for two in pairwise(phases))]
    simulator = CycleSimulator(blocks, clk, lambda: None)
    for n in range(40):
        assert [int(phase) for phase in phases] == [n % 16] * NUMBER
        simulator.run(1)


def test_blocks_are_reset_at_once_and_released_in_turn() -> None:
    rng, clk = dice("next_reset"), bit()
    resets = [bit() for _ in range(NUMBER)]
    blocks = [next_reset(clk, resets[0], *two) for two in pairwise(resets)]
    simulator = CycleSimulator(blocks, clk, lambda: None)
    past = [0] * NUMBER  # levels of resets[0], the newest first
    for _ in range(20):
        for level in [True] * rng.choice([1, 2, CLOCKS]) + [False] * rng.randrange(1, 2 * NUMBER):
            resets[0].next = level
            simulator.run(1)
            assert [int(one) for one in resets[1:]] == [int(any(past[:n])) for n in range(1, NUMBER)]
            past = [int(resets[0]), *past]
