"""symbol_counts: nothing is lost, whatever is counted in what order, and the chain gets and clears it."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from myhdl import block
from myhdl._block import _Block

from oscar_hdl.coder.ports import BANK_BITS, BANKS, COUNT_BITS, CountChain, CountPort
from oscar_hdl.coder.tables.symbol_counts import symbol_counts
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

LAG = 5
REQUEST = 4  # clocks from the last symbol to the chain's first address


class Unit:
    """A decoder or encoder that counts what it likes, some slots later."""

    def __init__(self, port: CountPort, rng: random.Random, delay: int) -> None:
        self.port, self.rng, self.delay = port, rng, delay
        self.bank, self.bank_signal, self.share = 0, word(BANK_BITS), 0.0
        self.places: list[int] = [0]
        self.way: deque[tuple[bool, int]] = deque([(False, 0)] * delay)
        self.counted = [[0] * 512 for _ in range(BANKS)]
        self.active, self.slots = False, 0

    def each(self, phase: int) -> None:
        """Do what a unit does in a clock."""
        port, rng = self.port, self.rng
        if phase == 31:
            self.active = rng.random() < self.share
            self.slots += self.active
        elif self.active and rng.random() < 0.9:
            place = rng.choice(self.places)
            self.way.append((True, place))
            self.counted[self.bank][place] += 1
        if len(self.way) == self.delay:
            self.way.append((False, rng.randrange(512)))
        valid, address = self.way.popleft()
        port.valid.next, port.address.next = valid, address
        self.bank_signal.next = self.bank


class Bench:
    """Units with a symbol_counts each, in one chain."""

    def __init__(self, rng: random.Random, units: int) -> None:
        self.rng, self.clk, self.rst, self.phase = rng, bit(), bit(), 0
        delay = rng.randrange(60)
        self.units = [Unit(CountPort(), rng, delay) for _ in range(units)]
        links = [CountChain() for _ in range(units + 1)]
        self.request, self.answer = links[0], links[-1]

        @block
        def top() -> Any:
            return [
                symbol_counts(self.clk, self.rst, unit.port, unit.bank_signal, *links[n : n + 2])
                for n, unit in enumerate(self.units)
            ]

        self.pipe: deque[tuple[bool, int]] = deque([(False, 0)] * LAG)
        self.taken: dict[int, int] = {}
        self.next_request: tuple[bool, int, int] = (False, 0, 0)
        instance = top()
        self.banks = [
            [
                bank.symdict["memory"]
                for bank in part.subs
                if isinstance(bank, _Block) and bank.func.__name__ == "count_bank"
            ]
            for part in instance.subs
        ]
        self.simulator = CycleSimulator(instance, self.clk, self.each)

    def each(self) -> None:
        for unit in self.units:
            unit.each(self.phase)
        self.phase = (self.phase + 1) % 32
        valid, address, bank = self.next_request
        self.request.valid.next, self.request.address.next = valid, address
        self.request.bank.next = bank
        self.pipe.append((bool(self.answer.valid), int(self.answer.address)))
        valid, address = self.pipe.popleft()
        if valid:
            for lane in range(2):
                count = int(self.answer.totals) >> COUNT_BITS * lane & (1 << COUNT_BITS) - 1
                self.taken[2 * address + lane] = count

    def drain(self, bank: int) -> list[int]:
        """Take the counts of a bank as link_tables does."""
        for address in range(256):
            self.next_request = (True, address, bank)
            self.simulator.run(1)
        self.next_request = (False, 0, bank)
        self.simulator.run(len(self.units) + 10)
        taken, self.taken = [self.taken[address] for address in range(512)], {}
        return taken

    def settle(self) -> None:
        """Let units come to an end."""
        for unit in self.units:
            unit.share = 0
        self.simulator.run(160)


@pytest.mark.parametrize("units", [1, 5])
def test_counts_of_all_banks(units: int):
    rng = dice(f"counts {units}")
    bench = Bench(rng, units)
    for frame in range(6):
        bank = frame % BANKS
        for unit in bench.units:
            unit.share = rng.choice((1, 1, 0.5, 0))
            # In few places those that are the same come in all distances.
            unit.places = rng.sample(range(512), rng.choice((1, 2, 3, 5, 100)))
            unit.bank = bank
        bench.simulator.run(rng.randrange(600, 1200))
        bench.settle()
        for unit in bench.units[: rng.randrange(len(bench.units) + 1)]:  # they go on in another bank
            unit.bank, unit.share = (bank + 1) % BANKS, 1
        bench.simulator.run(rng.randrange(100))
        last = rng.choice(bench.units)  # that is still to count comes as late as it may
        if last.bank == bank:
            place = rng.choice((0, 0, rng.randrange(512)))
            last.counted[bank][place] += 1
            last.way.appendleft((True, place))
            bench.simulator.run(REQUEST)
        before = [unit.slots for unit in bench.units]
        expected = [sum(unit.counted[bank][at] for unit in bench.units) for at in range(512)]
        for unit in bench.units:
            unit.counted[bank] = [0] * 512
        assert bench.drain(bank) == expected, frame
        for unit, slots in zip(bench.units, before, strict=True):  # counting goes on beside
            assert unit.bank == bank or unit.slots >= slots + 3
        assert bench.drain(bank) == [0] * 512
        bench.settle()
    for bank in range(BANKS):
        expected = [sum(unit.counted[bank][at] for unit in bench.units) for at in range(512)]
        assert bench.drain(bank) == expected


def test_the_largest_count_fits():
    bench = Bench(dice("largest"), 1)
    unit = bench.units[0]
    unit.delay, unit.way = 0, deque()
    for bank in range(BANKS):
        place = bench.rng.randrange(384)
        unit.bank = bank
        bench.simulator.run(1)
        bench.banks[0][bank][place >> 1].next = (1 << 16) - 1 << 18 * (place & 1)
        bench.simulator.run(3)
        unit.way.append((True, place))
        bench.simulator.run(8)
        taken = bench.drain(bank)
        assert taken[place] == 1 << 16
        assert sum(taken) == 1 << 16
        assert not any(bench.drain(bank))


def test_reset_in_the_middle():
    rng = dice("reset")
    bench = Bench(rng, 2)
    for _ in range(8):
        for unit in bench.units:
            unit.share, unit.places = 1, [rng.randrange(512) for _ in range(4)]
        bench.simulator.run(rng.randrange(300))
        if rng.random() < 0.5:
            bench.next_request = (rng.random() < 0.5, 1, 0)
            bench.simulator.run(rng.randrange(1, 40))
        bench.next_request = (False, 0, 0)
        bench.rst.next = True
        for unit in bench.units:
            unit.share, unit.active, unit.counted = 0, False, [[0] * 512 for _ in range(BANKS)]
            unit.way = deque([(False, 0)] * unit.delay)
            unit.port.valid.next = False
        bench.simulator.run(1)
        bench.rst.next = False
        bench.simulator.run(LAG + 5)
        bench.taken.clear()
        for bank in range(BANKS):
            bench.drain(bank)  # link_tables does this after a reset
        for bank in range(BANKS):
            assert not any(bench.drain(bank))
