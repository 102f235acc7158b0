"""drop_counts: dropped frames by who made them, a clock after another too, from none on after each reset."""

from __future__ import annotations

import pytest

from oscar_hdl.nic.control.registers import BY_NAME, PEERS_LOG2
from oscar_hdl.nic.receive.drop_counts import KEPT_BITS, drop_counts
from oscar_hdl.nic.receive.ports import Dropped
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")


def test_drops_are_counted_by_peer() -> None:
    rng = dice("drop_counts")
    clk, rst, dropped = bit(), bit(), Dropped()
    show, shown = word(PEERS_LOG2), word(KEPT_BITS)
    simulator = CycleSimulator(drop_counts(clk, rst, dropped, show, shown), clk, lambda: None)
    for _ in range(2):
        rst.next = True
        simulator.run(rng.randrange(2, 5))
        rst.next = False
        counts = dict.fromkeys(range(16), (0, 0))
        for _ in range(300):
            dropped.bad.next = bad = rng.random() < 0.6
            dropped.peer.next = peer = rng.choice([2, 3, 15, rng.randrange(256)])
            dropped.reason.next = reason = rng.randrange(1, 13)
            if bad and peer < 16:
                counts[peer] = counts[peer][0] + 1, reason
            simulator.run(1)
        dropped.bad.next = False
        simulator.run(3)
        for peer, (frames, reason) in counts.items():
            show.next = peer
            simulator.run(3)
            assert BY_NAME["PEER_DROPS"].unpack(int(shown)) == {"frames": frames, "reason": reason}
