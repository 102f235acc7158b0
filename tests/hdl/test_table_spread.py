"""table_spread: of a bank's quads come the entries that barrel encoders keep."""

from __future__ import annotations

import numpy as np
import pytest

from oscar_hdl.coder.barrel_encode.ports import BarrelTables
from oscar_hdl.coder.barrel_encode.table_spread import EARLY, table_spread
from oscar_hdl.coder.ports import TableWrites
from oscar_hdl.streams.bundles import bit
from oscar_sim.blocks import ENTRY_BITS, entry_writes, table_words
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.encoder_block import random_table

pytestmark = pytest.mark.usefixtures("seed")


def test_quads_become_entries() -> None:
    rng = dice("table spread")
    clk, rst, built, quads, entries = bit(), bit(), bit(), TableWrites(), BarrelTables()
    found: dict[int, int] = {}
    builts: list[int] = []
    last = clocks = 0

    def each() -> None:
        nonlocal clocks, last
        clocks += 1
        if entries.enable:
            found[int(entries.address)] = int(entries.data)
            last = clocks
        if built:
            builts.append(clocks)

    simulator = CycleSimulator(table_spread(clk, rst, quads, entries, built), clk, each)
    for frame in range(4):
        table, bank = random_table(rng), frame % 2
        pauses = rng.choice((1, 2, 4))
        begin = clocks
        for address, data in table_words(table, bank):
            quads.enable.next, quads.address.next, quads.data.next = True, address, data
            simulator.run(1)
            quads.enable.next = False
            simulator.run(rng.randrange(pauses))
        while len(builts) == frame:
            simulator.run(1)
        assert builts[-1] - begin < 512
        simulator.run(EARLY + 7)
        assert last == clocks
        simulator.run(rng.randrange(3))
        mask = (1 << ENTRY_BITS) - 1
        for write in entry_writes(np.array(table), bank).tolist():
            assert found[write >> ENTRY_BITS] == write & mask
