"""tracker against a dict: entries fire when their last event or value has come, once and in that order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import pytest

from oscar_hdl.nic.control.list_ports import (
    ARM_RECEIVE,
    ARM_SEND,
    ARMED,
    BACK,
    COUNT,
    END,
    ENDED,
    MADE,
    MAY,
    START,
    UNDER_WAY,
    FiredEntry,
    ListRun,
    TrackerLook,
    TrackerStatus,
    TrackerUpdate,
)
from oscar_hdl.nic.control.tracker import tracker
from oscar_hdl.nic.ports import MadeRows
from oscar_hdl.streams.bundles import bit
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")


@dataclass
class Entry:
    """An entry as it should be."""

    sends: bool
    events: int
    values: int = 0
    state: int = ARMED


class Reference:
    """What updates do, in plain Python; fired: entries in their order."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.fired: deque[int] = deque()
        self.wrong: int | None = None

    def update(self, what: int, number: int, events: int, values: int) -> bool:
        """Change an entry, or note the first that was not in the state for it; return whether it was."""
        if what in (ARM_SEND, ARM_RECEIVE):
            sends = what == ARM_SEND
            self.entries[number] = entry = Entry(sends, events if sends else 0, values if sends else 0)
            self._fire(number, entry)
            return True
        entry = self.entries.get(number, Entry(False, 0, state=0))
        if what in (MADE, MAY) and entry.state == ARMED and entry.values >= values:
            if what == MADE:
                entry.values -= values
                self._fire(number, entry)
        elif what == COUNT and entry.state == ARMED and entry.events:
            entry.events -= 1
            self._fire(number, entry)
        elif what == START and entry.state == ARMED and not entry.events and not entry.values:
            entry.state = UNDER_WAY
        elif what in (END, BACK) and entry.state == UNDER_WAY:
            entry.state = ENDED if what == END else ARMED
        else:
            if self.wrong is None and what != MAY:
                self.wrong = number
            return False
        return True

    def _fire(self, number: int, entry: Entry) -> None:
        if entry.sends and not entry.events and not entry.values:
            entry.state = UNDER_WAY
            self.fired.append(number)


class Bench:
    """A tracker with four sources of updates that pause, and a sink of what fires."""

    def __init__(self, name: str, wrongs: float) -> None:
        self.rng, self.wrongs = dice(name), wrongs
        self.clk, self.rst = bit(), bit()
        self.updates = [TrackerUpdate(arms=n == 0) for n in range(3)]
        self.fire, self.show, self.gate = FiredEntry(), TrackerLook(), TrackerLook()
        self.status, self.made, self.run = TrackerStatus(), MadeRows(), ListRun()
        dut = tracker(
            self.clk, self.rst, *self.updates, self.made, self.run, self.fire, self.show, self.gate,
            self.status,
        )  # fmt: skip
        self.sim = CycleSimulator(dut, self.clk, self._each)
        self.reference, self.arming, self.taken = Reference(), deque(), 0
        self.slow, self.changed, self.looked, self.resets, self.quiet = 0.5, 0, 0, 0, False
        self.refused = 0
        self.started: set[int] = set()
        self.since = {id(self.show): 0, id(self.gate): 0}

    def arm(self, sizes: list[tuple[bool, int, int]]) -> None:
        """Begin a list of (is a SEND, events, values)."""
        self.reference, self.started = Reference(), set()
        self.run.active.next, self.run.entries.next = False, len(sizes)
        self.status.clear.next = True
        self.sim.run(1)
        self.status.clear.next = False
        self.sim.run(1)
        assert not self.status.wrong
        self.arming.extend((ARM_SEND if sends else ARM_RECEIVE, n, *k) for n, (sends, *k) in enumerate(sizes))

    def _choose(self) -> tuple[int, int, int, int] | None:
        """Return an update that may come next."""
        rng, entries = self.rng, self.reference.entries
        if self.arming:
            return self.arming.popleft()
        if entries and rng.random() < self.wrongs:
            what = rng.choice([COUNT, START, END, BACK, MADE, MAY, MAY])
            return what, rng.choice([*entries, len(entries) & 255]), 0, rng.choice([1, 5, 1 << 18])
        may = [(COUNT, n, 0, 0) for n, e in entries.items() if e.sends and e.events]
        may += [
            (rng.choice([MADE, MAY]), n, 0, rng.choice([e.values, rng.randint(1, e.values)]))
            for n, e in entries.items() if e.values
        ]  # fmt: skip
        may += [(START, n, 0, 0) for n, e in entries.items() if not e.sends and e.state == ARMED]
        may += [(END, n, 0, 0) for n in self.started if entries[n].state == UNDER_WAY]
        may += [
            (what, n, 0, 0) for n, e in entries.items() if not e.sends and e.state == UNDER_WAY
            for what in (END, END, BACK)
        ]  # fmt: skip
        return rng.choice(may) if may else None

    def _each(self) -> None:
        rng, updates, reference = self.rng, self.updates, self.reference
        if self.quiet:
            return
        for update in updates:
            if update.taken:
                known = (int(getattr(update, name, 0)) for name in ("events", "values"))
                reference.update(int(update.what), int(update.entry), *known)
                self.changed = 0
                update.valid.next = False
        made = self.made
        if made.taken:
            what, number = MADE if made.ends else MAY, int(made.entry)
            right = self.run.active and number in reference.entries
            right = right and reference.update(what, number, 0, int(made.values))
            assert made.refused == (not right)
            self.refused += int(made.refused)
            made.valid.next = False
            self.changed = 0
        if self.fire.put:
            self.taken += 1
            self.started.add(int(self.fire.entry))
            assert int(self.fire.entry) == reference.fired.popleft()
        # One at a time, and values beside it: the next is chosen by what the one before made of its entry.
        may = not any(update.valid for update in updates) and rng.random() > self.slow
        arms = updates[0].valid and updates[0].what in (ARM_SEND, ARM_RECEIVE)
        self.run.active.next = not self.arming and not arms
        if may and (chosen := self._choose()) is not None and chosen[0] in (MADE, MAY):
            if not made.valid:
                made.valid.next, made.ends.next = True, chosen[0] == MADE
                _, made.entry.next, _, made.values.next = chosen
        elif may and chosen is not None:
            update = rng.choice(updates[:1] if chosen[0] in (ARM_SEND, ARM_RECEIVE) else updates)
            update.valid.next = True
            update.what.next, update.entry.next, events, values = chosen
            if update is updates[0]:
                update.events.next, update.values.next = events, values
        self.changed += 1
        for look in (self.show, self.gate):
            if self.changed > 16 and self.since[id(look)] > 12 and int(look.at) in reference.entries:
                entry = reference.entries[int(look.at)]
                shown = int(look.state), int(look.events), int(look.left)
                assert shown == (entry.state, entry.events, entry.values)
                self.looked += 1
            self.since[id(look)] += 1
            if rng.random() < 0.05:
                look.at.next = rng.randrange(len(reference.entries) or 1)
                self.since[id(look)] = 0

    def done(self) -> bool:
        """Whether all entries have ended."""
        entries = self.reference.entries.values()
        return not self.arming and bool(entries) and all(entry.state == ENDED for entry in entries)

    def reset(self) -> None:
        """Reset it, and forget what is under way."""
        self.rst.next, self.quiet = True, True
        for update in (*self.updates, self.made):
            update.valid.next = False
        self.arming.clear()
        self.sim.run(2)
        self.rst.next = False
        self.sim.run(1)
        self.quiet = False
        self.resets += 1


@pytest.mark.parametrize("slow", [0.0, 0.6])
def test_entries_fire_when_complete_and_once(slow: float) -> None:
    bench = Bench(f"tracker {slow}", 0.0)
    bench.slow = slow
    rng = bench.rng
    for entries in (1, 256, rng.randrange(2, 40)):
        for whole in (False, True):
            bench.arm([
                (rng.random() < 0.5, rng.choice([0, 0, 1, 2, 6, 63]), rng.choice([0, 0, 1, 77, 0x7FFFF]))
                for _ in range(entries)
            ])  # fmt: skip
            if not whole:
                bench.sim.run(rng.randrange(1, 600))
                bench.reset()
                continue
            fires = bench.taken
            for _ in range(6000):
                bench.sim.run(20)
                if bench.done() and not bench.reference.fired:
                    break
            sends = sum(entry.sends for entry in bench.reference.entries.values())
            bench.sim.run(40)
            assert bench.done()
            assert bench.taken - fires == sends
            assert bench.status.over
            assert not bench.status.wrong
    assert bench.looked > 50
    assert bench.resets == 3
    assert not bench.refused


def test_an_update_that_cannot_be_is_an_error_and_changes_nothing() -> None:
    bench = Bench("tracker wrong", 0.3)
    seen = 0
    for _ in range(8):
        bench.arm([(True, 1, 0), (True, 2, 9), (False, 0, 0), (True, 0, 0), (True, 0, 6)])
        for _ in range(60):
            bench.sim.run(10)
        bench.slow, slow = 1.0, bench.slow  # what waits is taken, and nothing more comes
        bench.sim.run(30)
        bench.slow = slow
        assert not bench.made.valid
        assert bool(bench.status.wrong) == (bench.reference.wrong is not None)
        if bench.status.wrong:
            seen += 1
            assert int(bench.status.entry) == bench.reference.wrong
        bench.reset()
    assert seen > 3
    assert bench.refused > 3
