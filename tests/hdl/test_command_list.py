"""command_list against plain Python: lists that are right are armed and given whole, all others refused."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from oscar_hdl.nic.control.command_list import command_list
from oscar_hdl.nic.control.list_ports import (
    ARM_RECEIVE,
    ARM_SEND,
    BAD_COMMAND,
    BAD_TRIGGER,
    COUNT,
    START,
    ArmedReceive,
    FiredEntry,
    FoundEntry,
    ListedCommand,
    ListRun,
    StartedEntry,
    TrackerUpdate,
)
from oscar_hdl.streams.bundles import Stream, bit
from oscar_sim.cycles import CycleSimulator
from oscar_sim.driver.lists import FIELDS
from oscar_sim.seeds import dice
from support.bench import run_until

pytestmark = pytest.mark.usefixtures("seed")


@dataclass
class Entry:
    """An entry of a list; refused: command_port will not take it. stray: bits without a field."""

    kind: int
    events: int
    gate: int
    next: int
    need: int
    registers: tuple[int, int, int, int]
    values: int = 0
    refused: bool = False
    stray: int = 0

    @property
    def words(self) -> list[int]:
        frame, shape, tables, command = self.registers
        names = ("kind", "events", "gate", "next", "need", "values")
        trigger = sum(FIELDS[name].put(getattr(self, name)) for name in names) | self.stray
        return [shape << 32 | frame, command << 32 | tables, trigger]

    @property
    def name(self) -> int:
        """Peer, sub, chunk, step."""
        frame, shape, _, command = self.registers
        return (command >> 20 & 255) << 40 | shape >> 24 << 32 | frame


def random_list(rng: Random, size: int) -> list[Entry]:
    """Return a list that is right, with as many events as anything says."""
    kinds = [rng.getrandbits(1) for _ in range(size)]
    sends = [n for n, kind in enumerate(kinds) if kind]
    made = []
    for n, kind in enumerate(kinds):
        registers = tuple(rng.getrandbits(32) for _ in range(4))
        later = [s for s in sends if s > n]
        need = rng.randrange(4) if sends else 3
        made.append(
            Entry(
                kind, rng.getrandbits(6) if kind else 0,
                rng.choice(sends) if not kind and need != 3 else 0,
                (rng.choice([n, rng.choice(later)]) if later else n) if kind else 0,
                0 if kind else need, registers, rng.getrandbits(19) if kind else 0,
            )
        )  # fmt: skip
    return made


def spoil(rng: Random, made: list[Entry]) -> tuple[int, int]:
    """Make an entry wrong; return the error and its number. Another before it may not be."""
    n = rng.randrange(len(made))
    entry, receives = made[n], [m for m, other in enumerate(made) if not other.kind]
    wrong = [replace(entry, refused=True), replace(entry, stray=1 << rng.choice([19, 23, 30, 50, 62]))]
    if entry.kind:
        wrong.append(replace(entry, need=rng.randrange(1, 4)))
        wrong += [replace(entry, next=m) for m in (*receives, *range(n), len(made)) if m != n and m < 256]
    else:
        wrong.append(replace(entry, events=1))
        wrong.append(replace(entry, values=1 << rng.randrange(19)))
        wrong += [replace(entry, need=rng.randrange(3), gate=m) for m in (*receives, len(made)) if m < 256]
        wrong.append(replace(entry, need=3, gate=1))
    made[n] = rng.choice([*wrong[:2], rng.choice(wrong)])
    return (BAD_COMMAND if made[n].refused else BAD_TRIGGER), n


@dataclass
class Seen:
    """What the block did with a list."""

    tried: list[int] = field(default_factory=list)
    armed: list[int] = field(default_factory=list)
    given: list[int] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)


class Bench:
    """A list between a stream, two ports, a tracker and a finder in Python."""

    def __init__(self, name: str, pause: float) -> None:
        self.rng, self.pause = dice(name), pause
        self.clk, self.rst, self.bad, self.run = bit(), bit(), bit(), ListRun()
        self.stream, self.command, self.update = Stream(64), ListedCommand(), TrackerUpdate(arms=True)
        self.armed, self.fire, self.found = ArmedReceive(), FiredEntry(), FoundEntry()
        self.receives, self.sends = StartedEntry(receive=True), StartedEntry(receive=False)
        dut = command_list(
            self.clk, self.rst, self.stream, self.bad, self.run, self.command, self.update, self.armed,
            self.fire, self.found, self.receives, self.sends,
        )  # fmt: skip
        self.sim = CycleSimulator(dut, self.clk, self._each)
        self.words: deque[tuple[int, bool]] = deque()
        self.entries: list[Entry] = []
        self.fires: deque[int] = deque()
        self.early: list[int] = []
        self.finds: deque[int] = deque()
        self.busy = {"RECEIVE": 0, "SEND": 0}
        self.judging, self.told, self.bads, self.seen = 0, "", 0, Seen()
        self.sim.run(3)

    def _issued(self, name: str) -> None:
        """A command came to a port: it is the entry's."""
        command, number = self.command, int(self.run.entry)
        entry = self.entries[number]
        assert ("SEND" if entry.kind else "RECEIVE") == name
        assert [int(command.first), int(command.second)] == entry.words[:2]
        if command.trial:
            self.seen.tried.append(number)
            self.judging = self.rng.randrange(5, 9)
            self.verdict = entry.refused
        else:
            assert not self.busy[name]
            self.seen.given.append(number)
            self.busy[name] = self.rng.choice([8, 20, 90])

    def _ports(self) -> None:
        command = self.command
        for name, issue in (("RECEIVE", command.issue_receive), ("SEND", command.issue_send)):
            if issue:
                self._issued(name)
            elif self.busy[name]:
                self.busy[name] -= 1
        command.receive_open.next = not self.busy["RECEIVE"]
        command.send_open.next = not self.busy["SEND"]
        self.judging -= 1
        command.judged.next = self.judging == 0
        if self.judging == 0:
            command.bad.next = self.verdict

    def _others(self) -> None:
        """Tracker, finder, list_ends."""
        update, seen = self.update, self.seen
        update.taken.next = False
        if update.valid and not update.taken and self.rng.random() > self.pause:
            update.taken.next = True
            number, what = int(update.entry), int(update.what)
            if what in (ARM_SEND, ARM_RECEIVE):
                entry = self.entries[number]
                assert what == (ARM_SEND if entry.kind else ARM_RECEIVE)
                assert (int(update.events), int(update.values)) == (
                    entry.events,
                    entry.values,
                ) or not entry.kind
                seen.armed.append(number)
                if entry.kind and self.rng.random() < 0.2:  # it waits for nothing
                    self.fires.append(number)
                    self.early.append(number)
            elif what == COUNT:
                seen.counted.append(number)
            else:
                assert what == START
                assert number == seen.given[-1]
        if self.armed.put:
            entry = self.entries[int(self.armed.entry)]
            assert self.armed.open == (not entry.kind)
            if self.armed.open:
                assert (int(self.armed.name), int(self.armed.gate), int(self.armed.need)) == (
                    entry.name, entry.gate, entry.need
                )  # fmt: skip
        self.fire.put.next = bool(self.fires) and self.rng.random() > self.pause
        if self.fire.put.next:
            self.fire.entry.next = self.fires.popleft()
        if self.found.given:
            self.finds.popleft()
        self.found.valid.next = bool(self.finds)
        if self.finds:
            self.found.entry.next = self.finds[0]
        for started, kind in ((self.receives, 0), (self.sends, 1)):
            if started.put:
                entry = self.entries[int(started.entry)]
                assert entry.kind == kind
                if not kind:
                    assert (int(started.gate), bool(started.counts)) == (entry.gate, entry.need < 2)

    def _each(self) -> None:
        stream, run = self.stream, self.run
        if stream.tvalid and stream.tready:
            self.words.popleft()
        held = bool(stream.tvalid and not stream.tready)
        offer = bool(self.words) and (held or self.rng.random() > self.pause)
        stream.tvalid.next = offer
        if offer:
            stream.tdata.next, stream.tlast.next = self.words[0]
        self.bads += int(self.bad)
        for name in ("started", "refused", "wrong"):
            if getattr(run, name):
                self.told = name
                self.error = int(run.error), int(run.entry)
        self._ports()
        self._others()

    def load(self, words: list[int], last: int | None = None) -> None:
        """Let a packet come; last: its length, if words behind it come, too."""
        ends = len(words) if last is None else last
        self.words.extend((word, n + 1 == ends) for n, word in enumerate(words))
        run_until(self.sim, lambda: not self.words)
        self.sim.run(3)

    def go(self, entries: int) -> str:
        """Run a list; return what is said first."""
        self.told, self.seen = "", Seen()
        self.run.entries.next, self.run.go.next = entries, True
        self.sim.run(1)
        self.run.go.next = False
        self.sim.run(4)
        return self.told

    def stop(self) -> None:
        """Let nothing else be given, and wait."""
        self.run.stop.next = True
        run_until(self.sim, lambda: self.run.idle)
        self.run.stop.next = False
        self.sim.run(100)


@pytest.mark.parametrize("pause", [0.0, 0.6])
def test_lists_are_judged_armed_and_given(pause: float) -> None:
    bench = Bench(f"command_list {pause}", pause)
    rng = bench.rng
    for size in (1, 3, 256, rng.randrange(2, 60), rng.randrange(2, 60)):
        bench.entries = made = random_list(rng, size)
        bench.early.clear()
        bench.load([word for entry in made for word in entry.words])
        assert bench.go(size) == "started"
        run_until(bench.sim, lambda: bench.run.active or bench.seen.given)
        assert bench.run.active
        assert bench.seen.tried == list(range(size))
        assert bench.seen.armed == list(range(size))
        fires = [n for n, entry in enumerate(made) if entry.kind and n not in bench.early]
        finds = [n for n, entry in enumerate(made) if not entry.kind]
        rng.shuffle(fires)
        rng.shuffle(finds)
        bench.fires.extend(fires)
        fires = bench.early + fires
        bench.finds.extend(finds)
        run_until(bench.sim, lambda size=size: len(bench.seen.given) >= size)
        bench.sim.run(150)
        assert [n for n in bench.seen.given if made[n].kind] == fires
        assert [n for n in bench.seen.given if not made[n].kind] == finds
        assert bench.seen.counted == [made[n].next for n in fires if made[n].next != n]
        assert not bench.stream.tready
        bench.stop()
        assert bench.stream.tready
    assert not bench.bads


def test_a_wrong_entry_is_named_and_nothing_is_armed() -> None:
    bench = Bench("command_list wrong", 0.2)
    rng = bench.rng
    for _ in range(40):
        bench.entries = made = random_list(rng, rng.choice([1, 2, 9]))
        expected = spoil(rng, made)
        bench.load([word for entry in made for word in entry.words])
        assert bench.go(len(made)) == "started"
        run_until(bench.sim, lambda: bench.told == "wrong")
        assert bench.error == expected
        bench.sim.run(50)
        assert bench.run.idle
        assert bench.seen.tried == list(range(expected[1] + 1))
        assert not bench.seen.armed
        assert not bench.seen.given


def test_packets_that_are_no_list_are_refused() -> None:
    """Inside an entry, too many, none, another number than was said; the next one is taken as it is."""
    bench = Bench("command_list packets", 0.2)
    rng = bench.rng
    right = random_list(rng, 4)
    words = [word for entry in right for word in entry.words]
    wrongs = words[:-1], words[:1], words * 65, words * 64 + words[:1]
    for bads, wrong in enumerate(wrongs, 1):
        bench.load(wrong)
        assert bench.bads == bads
        assert bench.go(4) == "refused"
        bench.entries = right
        bench.load(words)
        for size in (0, 3, 5, 260, 256):
            assert bench.go(size) == "refused"
        assert bench.go(4) == "started"
        bench.sim.run(rng.randrange(400))
        bench.stop()
    bench.load(words, last=30)  # another has begun
    assert bench.go(4) == "refused"
    bench.rst.next = True
    bench.sim.run(2)
    bench.rst.next = False
    bench.sim.run(2)
    assert bench.go(4) == "refused"
    bench.load(words)
    assert bench.go(4) == "started"
