"""unit_counts: of two symbols a clock none is lost, whatever their places, and the chain gets them all."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from myhdl import block

from oscar_hdl.coder.ports import BANKS, COUNT_BITS, CountChain
from oscar_hdl.coder.unit.ports import SAMPLED, CountedLanes
from oscar_hdl.coder.unit.unit_counts import unit_counts
from oscar_hdl.streams.bundles import bit
from oscar_sim.compiled import copy_of
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

LAG = 5  # clocks from an address of the chain to its totals


class Bench:
    """A unit that counts what it likes, and who drains."""

    def __init__(self, units: int) -> None:
        self.rng = dice(f"unit counts {units}")
        self.clk, self.rst, self.links = bit(), bit(), [CountChain() for _ in range(units + 1)]
        self.units = [CountedLanes() for _ in range(units)]
        self.counted = [[0] * 512 for _ in range(BANKS)]
        self.share, self.bank, self.places = 0.0, 0, [0]
        self.way: deque[tuple[bool, int]] = deque([(False, 0)] * LAG)
        self.taken: dict[int, int] = {}

        @block
        def top() -> Any:
            return [
                unit_counts(self.clk, self.rst, unit, *self.links[n : n + 2])
                for n, unit in enumerate(self.units)
            ]

        ports = [self.rst, self.links[0], self.links[-1], *self.units]
        self.simulator = copy_of(("unit counts", units), top, self.clk, self.each, ports)

    def each(self) -> None:
        """Count, and keep what the chain gives."""
        for unit in self.units:
            symbols = [self.rng.choice(self.places) for _ in range(SAMPLED)]
            valid = self.rng.getrandbits(SAMPLED)
            if self.rng.random() >= self.share:
                valid = 0
            unit.valid.next, unit.bank.next = valid, self.bank
            unit.address.next = sum(place << 9 * lane for lane, place in enumerate(symbols))
            for lane, place in enumerate(symbols):
                self.counted[self.bank][place] += valid >> lane & 1
        self.way.append((bool(self.links[-1].valid), int(self.links[-1].address)))
        valid, address = self.way.popleft()
        for lane in range(2 if valid else 0):
            count = int(self.links[-1].totals) >> COUNT_BITS * lane & (1 << COUNT_BITS) - 1
            self.taken[2 * address + lane] = count

    def drain(self, bank: int) -> list[int]:
        """Take a bank's counts as link_tables does."""
        request = self.links[0]
        request.bank.next = bank
        for address in range(256):
            request.valid.next, request.address.next = True, address
            self.simulator.run(1)
        request.valid.next = False
        self.simulator.run(SAMPLED * len(self.units) + LAG + 2)
        taken, self.taken = [self.taken[place] for place in range(512)], {}
        return taken


@pytest.mark.parametrize("units", [1, 3])
def test_nothing_is_lost(units: int) -> None:
    bench = Bench(units)
    for frame in range(6):
        bench.places = [bench.rng.randrange(512) for _ in range(bench.rng.choice((1, 2, 9, 400)))]
        bench.bank, bench.share = frame % BANKS, bench.rng.choice((0.3, 1.0))
        bench.simulator.run(bench.rng.randrange(1, 200))
        bench.share = 0.0
        bench.simulator.run(8)
        bench.bank = (bench.bank + 1) % BANKS  # while a bank is drained, the unit may count in another
        wanted, bench.counted[frame % BANKS] = bench.counted[frame % BANKS], [0] * 512
        bench.share = bench.rng.choice((0, 1.0))
        assert bench.drain(frame % BANKS) == wanted
