"""frame_finder against a dict: a frame's entry is found just if it waits, and starts behind its gate."""

from __future__ import annotations

from collections import deque

import pytest

from oscar_hdl.nic.control.list_ports import (
    ENDED,
    UNDER_WAY,
    ArmedReceive,
    FoundEntry,
    ListRun,
    TrackerLook,
)
from oscar_hdl.nic.receive.frame_finder import frame_finder
from oscar_hdl.nic.receive.ports import HeldFrame, OldestFrame
from oscar_hdl.streams.bundles import bit
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.bench import run_until

pytestmark = pytest.mark.usefixtures("seed")

Name = tuple[int, int, int, int]  # peer, sub, chunk, step
LATE = 9  # clocks in which a gate's state shows


class Bench:
    """A finder between a store of frames, command_list and a tracker in Python."""

    def __init__(self, name: str, wrong: float) -> None:
        self.rng, self.wrong = dice(name), wrong
        self.clk, self.rst = bit(), bit()
        self.oldest, self.held, self.armed, self.run = OldestFrame(), HeldFrame(), ArmedReceive(), ListRun()
        self.found, self.gate = FoundEntry(), TrackerLook()
        dut = frame_finder(
            self.clk, self.rst, self.oldest, self.held, self.armed, self.run, self.found, self.gate
        )  # fmt: skip
        self.sim = CycleSimulator(dut, self.clk, self._each)
        self.frames: deque[Name] = deque()
        self.waiting: dict[Name, int] = {}
        self.gates: dict[int, int] = {}  # of an entry
        self.needs: dict[int, int] = {}
        self.states: dict[int, int] = {}  # of gates
        self.left: dict[int, int] = {}  # their values that are still to be made
        self.seen = {"found": 0, "dropped": 0, "aborted": 0, "late": 0, "made": 0}
        self.using: int | None = None
        self.leaves = self.back = self.shown = self.asked = self.idle = 0
        self.refuse = self.closed = False

    def arm(self, names: list[Name | None]) -> None:
        """Begin a list whose entry n waits for names[n], a SEND where None; some wait for a gate's end."""
        rng = self.rng
        self.run.entries.next, self.run.running.next, self.run.started.next = len(names), True, True
        self.run.idle.next = False
        self.sim.run(1)
        self.run.started.next = False
        armed = self.armed
        self.waiting.clear()
        for n, name in enumerate(names):
            peer, sub, chunk, step = name or [rng.randrange(4) for _ in range(4)]
            self.gates[n], self.needs[n] = rng.randrange(256), rng.randrange(4)
            armed.entry.next, armed.gate.next, armed.need.next = n, self.gates[n], self.needs[n]
            armed.name.next = peer << 40 | sub << 32 | chunk << 16 | step
            armed.put.next, armed.open.next = True, name is not None
            self.sim.run(1)
            armed.put.next = False
            self.sim.run(rng.randrange(3))
            if name is not None:
                self.waiting[name] = n
        self.states = {gate: rng.choice([UNDER_WAY, ENDED]) for gate in self.gates.values()}
        self.left = {gate: state == UNDER_WAY and rng.randrange(2) for gate, state in self.states.items()}
        self.run.active.next = True

    def end(self) -> None:
        """End the list."""
        self.run.active.next, self.run.idle.next = False, True
        self.sim.run(4)
        assert not self.run.looking
        self.run.running.next = False
        self.sim.run(2)
        assert not self.held.hold

    def _given(self) -> None:
        """command_list takes what is found, when it pleases."""
        found = self.found
        found.given.next = False
        if found.valid and not found.given and not self.closed and self.rng.random() < 0.2:
            found.given.next = True
            entry, name = int(found.entry), self.frames[0]
            assert self.using is None
            assert self.waiting.pop(name) == entry
            assert self.needs[entry] != 2 or self.states[self.gates[entry]] == ENDED
            assert self.needs[entry] != 1 or not self.left[self.gates[entry]]
            self.seen["found"] += 1
            self.using = entry
            self.leaves, self.refuse = self.rng.randrange(5, 60), self.rng.random() < self.wrong

    def _store(self) -> None:
        """The oldest frame, and how it leaves."""
        rng, held, oldest = self.rng, self.held, self.oldest
        if held.gone:
            self.shown = 0
        held.gone.next = held.refused.next = False
        if held.discard and not self.leaves and self.shown and not held.gone:
            assert self.frames[0] not in self.waiting
            assert self.using is None
            self.leaves, self.refuse = rng.randrange(5, 60), True
            self.seen["dropped"] += 1
        if self.leaves and self.shown and (held.discard or not held.hold):
            self.leaves -= 1
            held.refused.next = self.leaves == 2 and self.refuse
            if not self.leaves:
                held.gone.next = True
                self.frames.popleft()
                self.using_lost = self.using if self.refuse else None
                self.lost_name, self.using = self.last, None
        elif not self.leaves and not held.gone:
            self.shown += bool(self.frames)
        oldest.there.next = self.shown > 3 and not (self.leaves == 0 and held.gone.next)
        if self.frames:
            self.last = self.frames[0]
            oldest.peer.next, oldest.sub.next, oldest.chunk.next, oldest.step.next = self.frames[0]

    def _each(self) -> None:
        self._given()
        self._store()
        self.found.returned.next = False
        if self.found.aborts:
            assert self.using_lost is not None
            self.back = self.rng.randrange(2, 50)
        elif self.back:
            self.back -= 1
            if not self.back:
                self.found.returned.next = True
                self.waiting[self.lost_name] = self.using_lost
                self.seen["aborted"] += 1
        if self.gate.at != self.asked:
            self.asked, self.idle = int(self.gate.at), 0
        self.idle += 1
        if self.idle == LATE or (self.idle > LATE and self.rng.random() < 0.2):
            self.gate.state.next = self.states.get(self.asked, 0)
            self.gate.left.next = self.left.get(self.asked, 0)
            if self.states.get(self.asked) == UNDER_WAY and self.rng.random() < 0.05:
                if self.left[self.asked]:
                    self.left[self.asked] = 0
                    self.seen["made"] += 1
                else:
                    self.states[self.asked] = ENDED
                    self.seen["late"] += 1


def names_of(bench: Bench, size: int) -> list[Name]:
    """Return different names, most of them alike but in a field."""
    rng, found = bench.rng, {}
    base = [rng.randrange(256), rng.randrange(256), rng.randrange(1 << 16), rng.randrange(1 << 16)]
    while len(found) < size:
        name = list(base)
        field = rng.randrange(4)
        name[field] = rng.randrange((256, 256, 1 << 16, 1 << 16)[field])
        found[tuple(name)] = None
    return list(found)


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_each_frame_finds_its_entry(wrong: float) -> None:
    bench = Bench(f"frame_finder {wrong}", wrong)
    rng = bench.rng
    kinds = ("dropped", "late", "made", *(["aborted"] if wrong else []))
    sizes = [1, 30]
    for size in sizes:
        names = names_of(bench, size)
        bench.arm(names)
        strangers = names_of(bench, 3)
        end = bench.sim.clocks + 60_000
        while bench.waiting or bench.run.looking:
            assert bench.sim.clocks < end, f"{len(bench.waiting)} of {size} frames are not found"
            if not bench.frames and not bench.back and not bench.leaves:
                again = [name for name in names if name not in bench.waiting]
                bench.frames.append(rng.choice([*list(bench.waiting) * 3, *again[:1], *strangers]))
            bench.sim.run(3)
        assert bench.seen["found"] >= size
        bench.sim.run(60)
        for name in (*names[:2], strangers[0]):  # no entry waits: it stays
            bench.frames.append(name)
        dropped, stays = bench.seen["dropped"], len(bench.frames)
        bench.sim.run(600)
        assert len(bench.frames) == stays
        assert bench.held.hold
        assert bench.seen["dropped"] == dropped
        bench.end()
        bench.frames.clear()
        bench.shown = 0
        bench.sim.run(5)
        if size == sizes[-1] and len(sizes) < 40 and not all(bench.seen[kind] for kind in kinds):
            sizes.append(30)  # chance has left out a kind
    names, found = names_of(bench, 256), bench.seen["found"]  # the longest list: its last, and its first
    bench.arm(names)
    bench.frames.extend([names[255], names[0]])
    run_until(bench.sim, lambda: not bench.frames)
    bench.sim.run(9)
    assert bench.seen["found"] >= found + 2
    assert all(bench.seen[kind] for kind in kinds), bench.seen
    assert wrong or not bench.seen["aborted"]


def test_a_list_that_stops_gives_nothing_more() -> None:
    """At any clock; a frame that was not given stays, and the next list finds it, or drops it.

    Where an entry of the list before waited there may be a SEND: it is not found.
    """
    bench = Bench("frame_finder stop", 0.2)
    rng = bench.rng
    for _ in range(40):
        names = names_of(bench, 12)
        bench.arm([name if rng.random() < 0.7 else None for name in names])
        if bench.frames and rng.random() < 0.5:
            bench.frames[0] = rng.choice(names)
        for name in rng.sample(names, 6):
            if name not in bench.frames:
                bench.frames.append(name)
        bench.sim.run(rng.randrange(400))
        bench.run.stop.next = True
        bench.sim.run(1)
        bench.sim.run(rng.randrange(30))
        bench.closed = True
        bench.sim.run(2)
        run_until(bench.sim, lambda: bench.using is None and not bench.back)
        bench.run.idle.next = True
        bench.run.active.next = False
        bench.sim.run(70)
        found, left = bench.seen["found"], len(bench.frames)
        bench.sim.run(300)
        assert (bench.seen["found"], len(bench.frames)) == (found, left)
        bench.run.stop.next = False
        bench.end()
        bench.waiting.clear()
        bench.closed = False
    assert bench.seen["found"] > 3
    assert bench.seen["dropped"] > 3
