"""rans_encoder: the blocks of a link's frames, with and without bubbles, on alternating banks."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from oscar_sim.cosim.common import PARAMS, high, link, rows, start
from oscar_sim.seeds import dice
from oscar_sim.tables_model import reciprocal
from oscar_sim.vectors import Block, blocks

INPUTS = "tw_en tw_addr tw_f tw_c tw_rcp in_valid in_bank in_ctx in_sym in_first in_final"
DRAIN = 20  # clocks until the last state is out


class Bench:
    """Drives one clock at a time and keeps what comes out."""

    def __init__(self, dut: Any, seed: int) -> None:
        self.dut, self.rng = dut, dice(seed)
        self.words: list[int] = []
        self.states: dict[int, int] = {}
        self.ends = 0

    async def clock(self, **inputs: int) -> None:
        """One clock: take outputs, set inputs (enables not given are 0)."""
        dut = self.dut
        for name, value in {"in_valid": 0, "tw_en": 0, **inputs}.items():
            getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        if high(dut.word_valid):
            self.words.append(int(dut.word_out.value))
        self.ends += high(dut.word_end)
        if high(dut.state_valid):
            self.states[int(dut.state_lane.value)] = int(dut.state.value)

    async def code(self, block: Block, bank: int, bubbles: float) -> None:
        """Write the block's tables and code it; check its words and states."""
        for addr, f, c in rows(block.table):
            await self.clock(tw_en=1, tw_addr=bank << 8 | addr, tw_f=f, tw_c=c, tw_rcp=reciprocal(f))
        n = len(block.symbols)
        self.words, self.states, self.ends = [], {}, 0
        for i in reversed(range(n)):
            while int(self.dut.slot.value) != i % 12 or self.rng.random() < bubbles:
                await self.clock()
            q, s = block.symbols[i]
            await self.clock(
                in_valid=1, in_bank=bank, in_ctx=q, in_sym=s, in_first=i >= n - 12, in_final=i < 12
            )
        for _ in range(DRAIN):
            await self.clock()
        assert self.words[::-1] == block.words
        assert self.states == {lane: block.states[lane] for lane in range(min(n, 12))}
        assert self.ends == 1


@cocotb.test()
@cocotb.parametrize(bubbles=[0.0, 0.3])
async def frames_of_a_link(dut: Any, bubbles: float) -> None:
    """Words and states of every coded block are the reference's; a reset in between changes nothing."""
    await start(dut, INPUTS.split())
    bench, bank = Bench(dut, 1), 0
    for frame in link():
        for block in blocks(frame, PARAMS):
            await bench.code(block, bank, bubbles)
            bank ^= 1
        if frame.name == "escapes":
            dut.rst.value = 1
            await bench.clock(in_valid=1, in_final=1)
            dut.rst.value = 0
            await bench.clock()
