"""rans_decoder: the blocks of a link's frames, at full speed and with words and values coming late."""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from oscar_sim.cosim.common import PARAMS, high, link, rows, settled, start
from oscar_sim.seeds import dice
from oscar_sim.vectors import Block, blocks

INPUTS = (
    "tw_en tw_addr tw_f tw_c push_valid push_word words_end start start_bank start_zero in_valid in_class"
)
LIMIT = 40  # clocks for each value


def halves(states: list[int]) -> list[int]:
    """Return the start states as the payload has them: lane by lane, the lower half first."""
    return [half for x in states for half in (x & 0xFFF, x >> 12)]


class Bench:
    """Drives words and values of a block, each with its own gaps, and keeps what comes out."""

    def __init__(self, dut: Any, gaps: float) -> None:
        self.dut, self.gaps, self.rng = dut, gaps, dice(1)

    async def write(self, block: Block, bank: int) -> None:
        """Write a bank of tables, a row a clock."""
        dut = self.dut
        dut.tw_en.value = 1
        for addr, f, c in rows(block.table):
            dut.tw_addr.value, dut.tw_f.value, dut.tw_c.value = bank << 8 | addr, f, c
            await FallingEdge(dut.clk)
        dut.tw_en.value = 0

    async def decode(self, block: Block, bank: int) -> None:
        """Write the block's tables and decode it; check symbols, contexts and the end."""
        dut, n = self.dut, len(block.symbols)
        await self.write(block, bank)
        dut.start.value, dut.start_bank.value, dut.start_zero.value = 1, bank, block.zero
        dut.words_end.value = 0
        await FallingEdge(dut.clk)
        dut.start.value = 0
        words, value = deque(halves(block.states) + block.words), 0
        found: list[tuple[int, int]] = []
        pushing = asking = False
        for _ in range(LIMIT * n + 200):
            pushing = bool(words) and (pushing or self.rng.random() >= self.gaps)
            asking = value < n and (asking or self.rng.random() >= self.gaps)
            dut.push_valid.value, dut.in_valid.value, dut.words_end.value = pushing, asking, not words
            if pushing:
                dut.push_word.value = words[0]
            if asking:
                dut.in_class.value = block.classes[value]
                dut.in_final.value, dut.in_end.value = value >= n - 12, value == n - 1
            await settled()
            if pushing and high(dut.push_ready):
                words.popleft()
                pushing = False
            if asking and high(dut.in_ready):
                value += 1
                asking = False
            await FallingEdge(dut.clk)
            if high(dut.out_valid):
                assert int(dut.out_lane.value) == len(found) % 12
                found.append((int(dut.out_ctx.value), int(dut.out_sym.value)))
            if high(dut.end_valid):
                assert (int(dut.end_words.value), high(dut.end_ok)) == (len(block.words), True)
                assert found == block.symbols
                return
        raise AssertionError(
            f"{value} of {n} values taken, {len(words)} words left, {len(found)} symbols out"
        )


@cocotb.test()
@cocotb.parametrize(gaps=[0.0, 0.3])
async def frames_of_a_link(dut: Any, gaps: float) -> None:
    """Symbols and contexts of every coded block are the reference's; so is the number of words."""
    await start(dut, [*INPUTS.split(), "in_final", "in_end"])
    bench, bank = Bench(dut, gaps), 0
    for frame in link():
        for block in blocks(frame, PARAMS):
            await bench.decode(block, bank)
            bank ^= 1


@cocotb.test()
async def damaged_blocks(dut: Any) -> None:
    """A wrong word shows in the final states or in the number of words; after a reset all is well again."""
    await start(dut, [*INPUTS.split(), "in_final", "in_end"])
    bench, rng = Bench(dut, 0.1), dice(2)
    block = blocks(next(link()), PARAMS)[0]
    for _ in range(5):
        words = list(block.words)
        words[rng.randrange(len(words))] ^= 1 << rng.randrange(12)
        forged = Block(block.table, block.classes, block.zero, block.symbols, words, block.states)
        try:
            await bench.decode(forged, 0)
        except AssertionError:
            dut.rst.value = 1
            await FallingEdge(dut.clk)
            dut.rst.value = 0
            await FallingEdge(dut.clk)
        else:
            raise AssertionError("a forged block was accepted")
        await bench.decode(block, 0)
