"""event_counters: every event is counted, from zero on after each reset."""

from __future__ import annotations

from oscar_hdl.nic.event_counters import COUNTERS, event_counters
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice


def test_counters_count_every_event_and_start_at_zero() -> None:
    rng = dice("event_counters")
    clk, rst = bit(), bit()
    events, rd_index, rd_count = word(COUNTERS), word(4), word(32)
    simulator = CycleSimulator(event_counters(clk, rst, events, rd_index, rd_count), clk, lambda: None)

    def clock_of(bits: int) -> None:
        events.next = bits
        simulator.run(1)

    for _ in range(2):
        rst.next = True
        simulator.run(rng.randrange(2, 5))
        rst.next = False
        simulator.run(1)
        counts = [0] * COUNTERS
        for n in range(300):
            bits = 0xFFFF if n < 100 else rng.getrandbits(16) & rng.getrandbits(16)
            rd_index.next = rng.randrange(COUNTERS)
            clock_of(bits)
            assert n > 16 or int(rd_count) == 0  # nothing of before the reset is shown
            counts = [c + (bits >> i & 1) for i, c in enumerate(counts)]
        clock_of(0)
        simulator.run(20)
        for i in range(COUNTERS):
            rd_index.next = i
            simulator.run(3)
            assert int(rd_count) == counts[i]
