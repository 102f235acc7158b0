"""splitter: boundaries of several iterations, segments in any order, against the host's plans."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from oscar_sim.cosim.agents import sink, source, words
from oscar_sim.cosim.common import high, start
from oscar_sim.seeds import dice
from oscar_sim.vectors import plans

INPUTS = "clear_smoothing nodes blocks seg_start s_axis_tdata s_axis_tvalid s_axis_tlast finish m_axis_tready"
GRANULE = 256


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.3])
async def iterations_of_a_gradient(dut: Any, share: float) -> None:
    """Boundaries, or that chunks are equal, are the host's."""
    await start(dut, INPUTS.split())
    rng = dice(1)
    sums, bounds = source(dut, "s_axis", share, 1), sink(dut, "m_axis", share, 2)

    async def strobe(name: str) -> None:
        getattr(dut, name).value = 1
        await FallingEdge(dut.clk)
        getattr(dut, name).value = 0

    await strobe("clear_smoothing")
    for plan in plans(GRANULE):
        size = plan.values.size
        cuts = sorted({0, size, *(rng.randrange(size) for _ in range(4))})
        segments = list(pairwise(cuts))
        rng.shuffle(segments)
        for first, end in segments:
            dut.seg_start.value = first
            await sums.send(words([int(v) & 0xFFFF for v in plan.values[first:end]]))
            await sums.wait()
            await FallingEdge(dut.clk)
        dut.nodes.value, dut.blocks.value = plan.nodes, -(-size // GRANULE)
        await strobe("finish")
        for _ in range(100 * size):
            if high(dut.done):
                break
            await FallingEdge(dut.clk)
        else:
            raise AssertionError("the splitter is not done")
        found = None if high(dut.equal) else list(bounds.recv_nowait().tdata) if plan.nodes > 1 else []
        assert found == plan.edges
        assert bounds.empty()
        await FallingEdge(dut.clk)
