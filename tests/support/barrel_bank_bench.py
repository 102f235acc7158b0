"""A test bench of `barrel_bank`: a plain memory of rows, and units, loader and reader that ask at random."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar_hdl.coder.barrel.ports import BEATS, THREADS, WIDTH
from oscar_hdl.coder.barrel_decode.ports import BarrelPosition, BarrelSums
from oscar_hdl.coder.barrel_encode.ports import BarrelSource
from oscar_hdl.coder.rows import FrameRows, descriptors
from oscar_hdl.nic.memory.bank_ports import SideWrite
from oscar_hdl.nic.memory.barrel_bank import barrel_bank
from oscar_hdl.nic.memory.barrel_ports import GROUPS, BankTop, GroupRead, GroupWrite
from oscar_hdl.nic.ports import BankBlock
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.compiled import copies_of
from oscar_sim.cycles import elaborated

ROW_BITS, BLOCK_BITS = 8, 5
ROWS, BLOCK, GROUP = 1 << ROW_BITS, 1 << BLOCK_BITS, 32
DATA_AT, SUMS_AT, DESCRIBED_AT = 2, 30, 42  # clocks behind an answer: data, sums, descriptor
AGAIN, AFTER_HEADER = 16, 20  # least clocks from an answer to the thread's next request


def packed(lanes: list[int], bits: int) -> int:
    """Return lanes as a word, the first one lowest."""
    return sum(lane << bits * i for i, lane in enumerate(lanes))


class Rows:
    """What the bank should hold."""

    def __init__(self) -> None:
        self.values = np.zeros((ROWS, 32), np.int64)
        self.distances = np.zeros((ROWS, 32), np.int64)
        self.means, self.kinds = np.zeros(ROWS, np.int64), np.zeros(ROWS, np.int64)

    def load(self, first: int, rows: FrameRows) -> None:
        """Hold rows of a frame from row `first` on; headers are 0 from there to the end of the group."""
        number = rows.means.size
        place, end = slice(first, first + number), -(-(first + number) // GROUP) * GROUP
        self.means[place], self.kinds[place] = rows.means, descriptors(rows.values)
        self.values[place], self.distances[place] = rows.values & 0xFFFF, rows.distances
        self.means[first + number : end] = self.kinds[first + number : end] = 0
        self.values[first + number : end] = 0

    def add(self, row: int, values: np.ndarray) -> None:
        """Put sums, 0..0xFFFF, into a row."""
        self.values[row] = values
        self.kinds[row] = int(descriptors(signed(values)[None])[0])


def signed(values: np.ndarray) -> np.ndarray:
    """Return 16 bits as numbers."""
    return ((values + 0x8000) & 0xFFFF) - 0x8000


@dataclass
class Asker:
    """A thread: its block and the rows it is still to ask for; header, read of each."""

    first: int = 0
    adopt: bool = False
    todo: deque[tuple[int, bool, bool]] = field(default_factory=deque)
    open: tuple[int, bool, bool] | None = None
    next_at: int = 0


class BankBench:
    """The bank and all that asks it, each with a chance of a turn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.rows = rng, Rows()
        self.clk, self.rst, self.phase = bit(), bit(), word(4, rng.randrange(16))
        self.position, self.sums, self.source = BarrelPosition(), BarrelSums(), BarrelSource()
        self.blocks = {"position": BankBlock(ROW_BITS), "source": BankBlock(ROW_BITS)}
        self.values, self.side = GroupWrite(1, ROW_BITS), SideWrite(1, ROW_BITS)
        self.read, self.top = GroupRead(ROW_BITS), BankTop(ROW_BITS)
        self.sim = self.make()
        self.askers = {name: [Asker() for _ in range(THREADS)] for name in ("position", "source")}
        self.starts: dict[str, deque[tuple[int, int, bool]]] = {"position": deque(), "source": deque()}
        self.plan: dict[int, list[tuple[Any, ...]]] = {}  # by clock: what is shown then, or looked at
        self.loads: deque[tuple[int, int, list[int]]] = deque()  # row, word, words
        self.sides: deque[tuple[str, int, int, int]] = deque()  # what, row, data, header
        self.reads: deque[int] = deque()
        self.got: list[list[int]] = []
        self.shown: dict[int, list[tuple[str, list[int]]]] = {}
        self.busy = 0.8

    def make(self) -> Any:
        """Return a simulator of what is tested."""
        made = elaborated(
            lambda: barrel_bank(
                self.clk, self.rst, self.phase, self.position, self.blocks["position"], self.sums,
                self.source, self.blocks["source"], self.values, self.side, self.read, self.top,
                block_bits=BLOCK_BITS,
            )
        )  # fmt: skip
        ports = [
            self.rst, self.phase, self.position, self.sums, self.source, self.blocks, self.values, self.side,
            self.read, self.top,
        ]  # fmt: skip
        return copies_of(made, self.clk, self.each, [ports])

    def each(self) -> None:
        """Do what happens beside the bank in a clock."""
        now, phase = self.sim.clocks, int(self.phase) % BEATS
        self.phase.next = (int(self.phase) + 1) % 16
        for name in ("position", "source"):
            self.answer(name, now, phase)
            self.ask(name, now, phase)
        self.sums.valid.next = self.sums.described.next = False
        self.sums.thread.next, self.sums.row.next = self.rng.randrange(8), self.rng.randrange(4096)
        self.sums.total.next = self.rng.getrandbits(128)
        for entry in self.plan.pop(now, ()):
            self.do(now, *entry)
        self.load(phase)
        self.reader(now, phase)

    def answer(self, name: str, now: int, phase: int) -> None:
        port = getattr(self, name)
        if not port.given or self.rst:
            return
        assert phase == 0
        thread = int(port.given_thread)
        asker = self.askers[name][thread]
        assert asker.open is not None, "an answer to no request"
        row, header, read = asker.open
        asker.open = None
        asker.next_at = now + (AFTER_HEADER if header else AGAIN) + 4 * self.rng.choice((0, 0, 1, 9))
        if not read:
            return
        at = asker.first + row
        if header:
            kinds, means = self.rows.kinds[at : at + GROUP], self.rows.means[at : at + GROUP]
            lanes = means if name == "position" else kinds & 0x7F | means << 7
            self.expect(name, now, lanes.tolist(), 0x7FF if name == "source" else 0xF)
            return
        assert int(port.mean) == self.rows.means[at]
        if name == "source":
            assert int(port.row_class) == self.rows.kinds[at] & 15
            wide = self.rows.values[at] | self.rows.distances[at] << 16
            self.expect(name, now, wide.tolist(), 0x7FFFF)
            return
        self.expect(name, now, self.rows.distances[at].tolist(), 0xF)
        local = self.rows.values[at] * (not asker.adopt)
        self.expect("local", now, local.tolist(), 0xFFFF)
        more = np.array([self.rng.choice((0, 1, 0xFFFF, 77, 0xFF00)) for _ in range(32)])
        if self.rng.random() < 0.3:
            more = -local
        total = (local + more) & 0xFFFF
        self.rows.add(at, total)
        kind = int(self.rows.kinds[at])
        for beat in range(BEATS):
            self.at(
                now + SUMS_AT + beat - 1,
                "sums",
                thread,
                row,
                total[32 - WIDTH * (beat + 1) :][:WIDTH].tolist(),
            )
        self.at(now + DESCRIBED_AT - 1, "described", thread, row, kind)

    def expect(self, name: str, now: int, lanes: list[int], mask: int) -> None:
        for beat in range(BEATS):
            part = WIDTH * (beat if name == "source" else BEATS - 1 - beat)
            self.at(now + DATA_AT + beat, "look", name, lanes[part : part + WIDTH], mask)

    def at(self, clock: int, *entry: Any) -> None:
        self.plan.setdefault(clock, []).append(entry)

    def do(self, now: int, what: str, *rest: Any) -> None:
        if what == "look":
            name, lanes, mask = rest
            port, bits = (
                (self.position.local, 16)
                if name == "local"
                else (getattr(self, name).data, 19 if name == "source" else 4)
            )
            assert [int(port) >> bits * i & mask for i in range(WIDTH)] == lanes, (name, now)
        elif what == "sums":
            thread, row, lanes = rest
            self.sums.valid.next, self.sums.thread.next, self.sums.row.next = True, thread, row
            self.sums.total.next = packed(lanes, 16)
        else:
            thread, row, kind = rest
            self.sums.described.next, self.sums.described_thread.next = True, thread
            self.sums.described_row.next = row
            self.sums.row_class.next, self.sums.row_size.next, self.sums.row_top.next = (
                kind & 15,
                kind >> 4 & 7,
                kind >> 7,
            )

    def ask(self, name: str, now: int, phase: int) -> None:
        port, blocks = getattr(self, name), self.blocks[name]
        blocks.start.next = False
        blocks.thread.next, blocks.first.next = self.rng.randrange(8), self.rng.randrange(ROWS)
        port.take.next = False
        port.thread.next, port.row.next = self.rng.randrange(8), self.rng.randrange(4096)
        port.header.next, port.read.next = self.rng.random() < 0.5, self.rng.random() < 0.5
        if self.rst:
            return
        if self.starts[name] and self.rng.random() < 0.3:
            thread, first, adopt = self.starts[name].popleft()
            blocks.start.next, blocks.thread.next, blocks.first.next, blocks.adopt.next = (
                True,
                thread,
                first,
                adopt,
            )
            self.askers[name][thread].next_at = now + 8
        waiting = {thread for thread, _, _ in self.starts[name]}
        may = [
            t for t, a in enumerate(self.askers[name])
            if a.open is None and a.todo and a.next_at <= now + 1 and t not in waiting
        ]  # fmt: skip
        if phase == BEATS - 1 and may and self.rng.random() < self.busy:
            thread = self.rng.choice(may)
            asker = self.askers[name][thread]
            asker.open = row, header, read = asker.todo.popleft()
            port.take.next, port.thread.next, port.row.next = True, thread, row
            port.header.next, port.read.next = header, read

    def load(self, phase: int) -> None:
        """Give values word by word, and side rows in phase 1."""
        values, side, rng = self.values, self.side, self.rng
        values.enable.next = False
        values.data.next, values.row.next = rng.getrandbits(128), rng.randrange(ROWS)
        if self.loads:
            row, at, words = self.loads[0]
            values.row.next = row
            if (phase + 2) % GROUPS == at and rng.random() < self.busy:
                values.enable.next, values.data.next = True, words[at]
                self.loads.popleft()
                if at < GROUPS - 1:
                    self.loads.appendleft((row, at + 1, words))
        for name in ("distances", "header", "clear"):
            getattr(side, name).next = False
        side.row.next, side.data.next = rng.randrange(ROWS), rng.getrandbits(96)
        side.header_data.next, side.lanes.next = rng.getrandbits(15), rng.getrandbits(32)
        if phase == 0 and self.sides and rng.random() < self.busy:
            what, row, data, header = self.sides.popleft()
            side.row.next = row
            if what == "clear":
                side.clear.next, side.lanes.next = True, header
            else:
                side.header.next, side.header_data.next = True, header
                side.distances.next, side.data.next = what == "row", data

    def reader(self, now: int, phase: int) -> None:
        """Ask for a row a turn, and keep what comes: its descriptor, and four words."""
        if phase == 3:
            row = self.reads.popleft() if self.reads and self.rng.random() < self.busy else None
            self.read.row.next = self.rng.randrange(ROWS) if row is None else row
            if row is not None:
                self.got.append([row])
                self.at_read(now, self.got[-1])
        for what, kept in self.shown.pop(now, ()):
            kept.append(int(self.read.descriptor if what == "descriptor" else self.read.data))

    def at_read(self, now: int, kept: list[int]) -> None:
        """The row holds from clock now + 1 on."""
        self.shown.setdefault(now + 1 + 4 + self.rng.randrange(4), []).append(("descriptor", kept))
        for word_at in range(GROUPS):
            self.shown.setdefault(now + 1 + 8 + word_at, []).append(("data", kept))

    def reset(self) -> None:
        self.rst.next = True
        self.sim.run(2)
        for askers in self.askers.values():
            for thread in range(THREADS):
                askers[thread] = Asker()
        for left in (*self.starts.values(), self.plan, self.loads, self.sides, self.reads, self.got):
            left.clear()
        self.shown.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)

    def begin(
        self, name: str, thread: int, first: int, todo: list[tuple[int, bool, bool]], *, adopt: bool = False
    ) -> None:
        """Have a thread ask for rows of a block: row in the block, header, read."""
        self.askers[name][thread] = Asker(first, adopt, deque(todo))
        self.starts[name].append((thread, first, adopt))

    def give(self, first: int, rows: FrameRows) -> None:
        """Load rows."""
        number = rows.means.size
        for row in range(number):
            lanes = (rows.values[row] & 0xFFFF).tolist()
            self.loads.append((first + row, 0, [packed(lanes[8 * g : 8 * g + 8], 16) for g in range(GROUPS)]))
            data = packed(rows.distances[row].tolist(), 3)
            self.sides.append(("row", first + row, data, int(rows.headers[row])))
        for row in range(first + number, -(-(first + number) // GROUP) * GROUP):
            self.sides.append(("header", row, 0, 0))
        self.rows.load(first, rows)

    def clear(self, first: int, number: int) -> None:
        """Clear rows, eight at a time."""
        for row in range(first, first + number, WIDTH):
            lanes = (1 << min(WIDTH, first + number - row)) - 1
            self.sides.append(("clear", row, 0, lanes | self.rng.getrandbits(24) << 8))
        self.rows.kinds[first : first + number] = 0
        self.rows.values[first : first + number] = 0

    def wait(self, limit: int = 40_000) -> None:
        """Wait until all that was asked for is there."""
        for _ in range(limit):
            self.sim.run(1)
            if any(a.open or a.todo for askers in self.askers.values() for a in askers):
                continue
            if not (
                self.plan or self.shown or self.loads or self.sides or self.reads or any(self.starts.values())
            ):
                self.sim.run(16)
                return
        raise AssertionError("no end")

    def check_read(self) -> None:
        """Compare what was read."""
        for row, *kept in self.got:
            wanted = self.rows.values[row].tolist()
            words = [packed(wanted[8 * g : 8 * g + 8], 16) for g in range(GROUPS)]
            assert kept == [int(self.rows.kinds[row]), *words], row
        self.got.clear()

    def largest(self, first: int, words: int) -> int:
        """Return the largest symbol of `words` times eight rows."""
        self.top.ask.next, self.top.row.next, self.top.words.next = True, first, words
        self.sim.run(1)
        self.top.ask.next = False
        for _ in range(2000):
            self.sim.run(1)
            if self.top.known:
                return int(self.top.symbol)
        raise AssertionError("no end")
