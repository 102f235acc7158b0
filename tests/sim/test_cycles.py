"""The cycle simulator against MyHDL's own."""

from __future__ import annotations

import pytest
from myhdl import always, always_comb, block, instance

from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.pair_fifo import pair_fifo
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.bench import clock, simulate


def ports() -> dict:
    return {
        "clk": bit(), "rst": bit(), "push": bit(), "pair": word(16), "two": bit(), "last": bit(),
        "m_axis": Stream(16, keep=2), "empty": bit(),
    }  # fmt: skip


class Driver:
    """Pushes random pairs and takes them back; the same in both simulators."""

    def __init__(self, p: dict) -> None:
        self.p, self.rng, self.seen, self.kept = p, dice(5), [], 0

    def tick(self) -> None:
        p, rng, m = self.p, self.rng, self.p["m_axis"]
        self.seen.append((bool(p["empty"]), bool(m.tvalid), int(m.tdata), int(m.tkeep), bool(m.tlast)))
        self.kept += bool(p["push"]) - (bool(m.tvalid) and bool(m.tready))
        p["push"].next = self.kept < 12 and rng.random() < 0.5
        p["pair"].next, p["two"].next, p["last"].next = rng.randrange(1 << 16), rng.random() < 0.5, False
        m.tready.next = rng.random() < 0.4


@pytest.mark.usefixtures("seed")
def test_it_does_what_myhdl_does() -> None:
    a, b = ports(), ports()
    driver = Driver(a)
    simulator = CycleSimulator(pair_fifo(**a), a["clk"], driver.tick)
    simulator.run(3000)
    other, clk = Driver(b), b["clk"]

    @block
    def bench():
        @always(clk.posedge)
        def drive():
            other.tick()

        return clock(clk), pair_fifo(**b), drive

    simulate(bench, clk, until=lambda: len(other.seen) >= 3000, limit=4000)
    assert driver.seen == other.seen[:3000]
    assert any(valid for _, valid, *_ in driver.seen)


def test_slices_follow_their_signals() -> None:
    clk, counter, low, out = bit(), word(8), None, word(4)
    low = counter(4, 0)

    @block
    def dut():
        @always(clk.posedge)
        def count():
            counter.next = counter + 1

        @always_comb
        def show():
            out.next = low

        return count, show

    seen: list[int] = []
    CycleSimulator(dut(), clk, lambda: seen.append(int(out))).run(40)
    assert seen == [i % 16 for i in range(40)]


def test_other_processes_are_refused() -> None:
    clk = bit()

    @block
    def dut():
        @instance
        def free():
            yield clk.posedge

        return free

    with pytest.raises(TypeError, match="simulate it with MyHDL"):
        CycleSimulator(dut(), clk, lambda: None)
