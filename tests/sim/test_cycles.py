"""The cycle simulator against MyHDL's own."""

from __future__ import annotations

import pytest
from myhdl import always, always_comb, block, instance

from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.word_stack import word_stack
from oscar_sim.bench import clock, simulate
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice


def ports() -> dict:
    return {
        "clk": bit(), "rst": bit(), "flush": bit(), "push_valid": bit(), "push_word": word(12),
        "push_end": bit(), "hold": bit(), "hold_start": bit(),
        "blk_valid": bit(), "blk_words": word(13), "blk_drop": bit(),
        "m_axis": Stream(12),
    }  # fmt: skip


class Driver:
    """Pushes blocks of random words and takes them back; the same in both simulators."""

    def __init__(self, p: dict) -> None:
        self.p, self.rng, self.left, self.seen = p, dice(5), 0, []
        self.open = False

    def tick(self) -> None:
        p, rng = self.p, self.rng
        m = p["m_axis"]
        self.seen.append(
            (bool(p["blk_valid"]), int(p["blk_words"]), bool(m.tvalid), int(m.tdata), bool(m.tlast))
        )
        p["push_valid"].next = p["push_end"].next = p["blk_drop"].next = False
        if not self.open and not p["hold_start"] and not p["blk_valid"]:
            self.left, self.open = rng.randrange(1, 60), True
        elif self.open and self.left and not p["hold"] and rng.random() < 0.7:
            p["push_valid"].next, p["push_word"].next = True, rng.randrange(4096)
            self.left -= 1
            if not self.left:
                p["push_end"].next = True
        m.tready.next = rng.random() < 0.6
        if m.tvalid and m.tready and m.tlast:
            p["blk_drop"].next, self.open = True, False


def test_it_does_what_myhdl_does() -> None:
    a, b = ports(), ports()
    driver = Driver(a)
    simulator = CycleSimulator(word_stack(**a), a["clk"], driver.tick)
    ran = simulator.run(3000)
    other, clk = Driver(b), b["clk"]

    @block
    def bench():
        @always(clk.posedge)
        def drive():
            other.tick()

        return clock(clk), word_stack(**b), drive

    simulate(bench, clk, until=lambda: len(other.seen) >= 3000, limit=4000)
    assert driver.seen == other.seen[:3000]
    assert any(valid for _, _, valid, _, _ in driver.seen)
    assert ran < 3000 * len(simulator._clocked)  # something was left out


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
