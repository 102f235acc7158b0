"""event_counters and row_counter: every event and every row is counted, from zero on after each reset."""

from __future__ import annotations

import pytest

from oscar_hdl.nic.control.event_counters import COUNTERS, event_counters, row_counter
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

TURN = 4  # clocks


def test_counters_count_every_event_and_start_at_zero() -> None:
    rng = dice("event_counters")
    clk, rst = bit(), bit()
    events = [word(COUNTERS) for _ in range(3)]
    rd_index, rd_count = word(4), word(32)
    simulator = CycleSimulator(event_counters(clk, rst, *events, rd_index, rd_count), clk, lambda: None)

    def clock_of(*bits: int) -> None:
        for signal, value in zip(events, bits, strict=True):
            signal.next = value
        simulator.run(1)

    for _ in range(2):
        rst.next = True
        simulator.run(rng.randrange(2, 5))
        rst.next = False
        simulator.run(1)
        counts = [0] * COUNTERS
        for n in range(300):
            bits = [0xFFFF if n < 100 else rng.getrandbits(16) & rng.getrandbits(16) for _ in events]
            rd_index.next = rng.randrange(COUNTERS)
            clock_of(*bits)
            assert n > 16 or int(rd_count) == 0  # nothing of before the reset is shown
            counts = [c + sum(b >> i & 1 for b in bits) for i, c in enumerate(counts)]
        clock_of(0, 0, 0)
        simulator.run(20)
        for i in range(COUNTERS):
            rd_index.next = i
            simulator.run(3)
            assert int(rd_count) == counts[i]


@pytest.mark.parametrize("units", [2, 9, 12])
def test_rows_of_all_units_are_counted(units: int) -> None:
    rng = dice(f"row_counter {units}")
    clk, phase, takes, rows = bit(), word(4), word(units), word(3)
    found = 0

    def each() -> None:
        nonlocal found
        phase.next = (int(phase) + 1) % 16
        found += int(rows).bit_count()

    simulator = CycleSimulator(row_counter(clk, phase, takes, rows), clk, each)
    own = [rng.randrange(TURN) for _ in range(units)]  # the phase in which a unit takes rows
    given = 0
    for slot in range(20):
        busy = [slot < 2 or rng.random() < 0.7 for _ in range(units)]
        for n in range(TURN):
            bits = sum(1 << i for i in range(units) if own[i] == n and busy[i])
            takes.next = bits
            given += bits.bit_count()
            simulator.run(1)
    takes.next = 0
    simulator.run(3 * TURN)
    assert found == given
