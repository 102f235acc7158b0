"""list_ends against queues: each end becomes the updates of its entry, in order; others' ends do nothing."""

from __future__ import annotations

from collections import deque

import pytest

from oscar_hdl.nic.control.list_ends import list_ends
from oscar_hdl.nic.control.list_ports import BACK, COUNT, END, EndedEntries, StartedEntry, TrackerUpdate
from oscar_hdl.nic.control.registers import ERROR_ABORTED
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")


@pytest.mark.parametrize("receive", [False, True])
def test_ends_become_updates(receive: bool) -> None:
    rng = dice(f"list_ends {receive}")
    clk, rst, done, error = bit(), bit(), bit(), word(5)
    started, update, ended = StartedEntry(receive=receive), TrackerUpdate(), EndedEntries()
    under_way: deque[tuple[int, int, int]] = deque()  # entry, gate, whether it counts
    updates: deque[tuple[int, int]] = deque()
    told: deque[tuple[str, int]] = deque()
    seen = dict.fromkeys((0, 3, ERROR_ABORTED, "other"), 0)
    recent = [False, False]  # whether an end was told in the clocks before, which `quiet` cannot know

    def each() -> None:
        if ended.quiet and not any(recent):
            assert not updates
        recent[:] = recent[1], False
        if update.valid and update.taken:
            assert (int(update.what), int(update.entry)) == updates.popleft()
        update.taken.next = bool(update.valid and not update.taken and rng.random() < 0.3)
        for name in ("failed", "returned"):
            if getattr(ended, name):
                expected, entry = told.popleft()
                assert name == expected
                if name == "failed":
                    assert int(ended.entry) == entry
        started.put.next = done.next = False
        # Updates take longer than a command; no more ends wait than the queue holds.
        if len(updates) + len(told) > 2:
            return
        if len(under_way) < 3 and rng.random() < 0.1:
            entry, gate, counts = rng.randrange(256), rng.randrange(256), rng.getrandbits(1)
            started.put.next, started.entry.next = True, entry
            if receive:
                started.gate.next, started.counts.next = gate, counts
            under_way.append((entry, gate, counts if receive else 0))
        elif under_way and rng.random() < 0.1:
            entry, gate, counts = under_way.popleft()
            code = rng.choice([0, 0, 3, ERROR_ABORTED] if receive else [0, 0, 3])
            done.next, error.next, recent[1] = True, code, True
            seen[code] += 1
            if code == 0:
                updates.append((END, entry))
                updates.extend([(COUNT, gate)] * counts)
            elif code == ERROR_ABORTED:
                updates.append((BACK, entry))
                told.append(("returned", entry))
            else:
                told.append(("failed", entry))
        elif not under_way and not started.put and rng.random() < 0.1:
            done.next, error.next = True, 0  # of a command that no list gave
            seen["other"] += 1

    dut = list_ends(clk, rst, started, done, error, update, ended, receive=receive)
    simulator = CycleSimulator(dut, clk, each)
    simulator.run(6000)
    assert all(count for what, count in seen.items() if receive or what != ERROR_ABORTED), seen
