"""frame_plan: counts are cut into blocks as division does."""

from __future__ import annotations

import pytest

from oscar_hdl.nic.send.frame_plan import frame_plan
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

MOST = 1 << 18


def test_counts_are_cut_into_blocks() -> None:
    rng = dice("frame_plan")
    clk, rst, start, ready = (bit() for _ in range(4))
    count, block_log2 = word(19), word(5)
    last_block, size, last_size = word(8), word(18), word(18)
    plan = frame_plan(clk, rst, start, count, block_log2, ready, last_block, size, last_size)
    simulator = CycleSimulator(plan, clk, lambda: None)
    for _ in range(300):
        log2 = rng.randrange(10, 18)
        most = min(MOST, 256 << log2)
        near = (rng.randrange(1, 256) << log2) + rng.choice((-1, 0, 1))
        values = min(most, rng.choice((near, rng.randrange(1, most + 1), most, 1)))
        count.next, block_log2.next, start.next = values, log2, True
        simulator.run(1)
        start.next = False
        simulator.run(21)
        blocks = -(-values >> log2)
        assert ready
        assert (int(last_block), int(size)) == (blocks - 1, 1 << log2), (values, log2)
        assert int(last_size) == values - (blocks - 1 << log2), (values, log2)
