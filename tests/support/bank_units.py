"""A plain memory of a bank's rows, and a model of barrel units that ask for them at random."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
from oscar_hdl.coder.encode.ports import CodedSource
from oscar_hdl.coder.rows import FrameRows, descriptors
from oscar_hdl.coder.unit.ports import BEATS, THREADS, WIDTH
from oscar_hdl.nic.memory.ports import BankBlock

ROW_BITS, BLOCK_BITS = 8, 5  # of a bank
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
    todo: deque[tuple[int, bool, bool]] = field(default_factory=deque)
    open: tuple[int, bool, bool] | None = None
    next_at: int = 0


class UnitsModel:
    """Both units of a bank: threads that ask for rows, check what they are given, and add to it."""

    def __init__(self, rng: random.Random, rows: Rows) -> None:
        self.rng, self.rows, self.busy = rng, rows, 0.8
        self.shared: set[int] = set()  # rows to which others add meanwhile, so they may hold anything
        self.position, self.sums, self.source = CodedPosition(), CodedSums(), CodedSource()
        self.blocks = {"position": BankBlock(ROW_BITS), "source": BankBlock(ROW_BITS)}
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.askers = {name: [Asker() for _ in range(THREADS)] for name in ("position", "source")}
        self.starts: dict[str, deque[tuple[int, int]]] = {"position": deque(), "source": deque()}
        self.plan: dict[int, list[tuple[Any, ...]]] = {}  # by clock: what is shown then, or looked at

    @property
    def idle(self) -> bool:
        """Whether all that was asked for is there."""
        open_ = any(a.open or a.todo for askers in self.askers.values() for a in askers)
        return not (open_ or self.plan or any(self.starts.values()))

    def step(self, now: int, phase: int, rst: bool) -> None:
        """Do what units do in a clock."""
        for name in ("position", "source"):
            if not rst:
                self.answer(name, now, phase)
            self.ask(name, now, phase, rst)
        self.sums.valid.next = self.sums.described.next = False
        self.sums.thread.next, self.sums.row.next = self.rng.randrange(8), self.rng.randrange(4096)
        self.sums.total.next = self.rng.getrandbits(128)
        for entry in self.plan.pop(now, ()):
            self.do(now, *entry)

    def answer(self, name: str, now: int, phase: int) -> None:
        port = getattr(self, name)
        if not port.given:
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
        local = self.rows.values[at]
        more = np.array([self.rng.choice((0, 1, 0xFFFF, 77, 0xFF00)) for _ in range(32)])
        if at in self.shared:
            total = more.copy()
            for beat in range(BEATS):
                self.at(now + DATA_AT + beat, "add", total[32 - WIDTH * (beat + 1) :][:WIDTH])
        else:
            self.expect("local", now, local.tolist(), 0xFFFF)
            if self.rng.random() < 0.3:
                more = -local
            total = (local + more) & 0xFFFF
        self.rows.add(at, (local + more) & 0xFFFF)
        for beat in range(BEATS):
            self.at(now + SUMS_AT + beat - 1, "sums", thread, row, total[32 - WIDTH * (beat + 1) :][:WIDTH])
        self.at(now + DESCRIBED_AT - 1, "described", thread, row, total)

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
        elif what == "add":
            local = int(self.position.local)
            rest[0][:] = [int(more) + (local >> 16 * i) & 0xFFFF for i, more in enumerate(rest[0])]
        elif what == "sums":
            thread, row, lanes = rest
            self.sums.valid.next, self.sums.thread.next, self.sums.row.next = True, thread, row
            self.sums.total.next = packed(lanes.tolist(), 16)
        else:
            thread, row, total = rest
            kind = int(descriptors(signed(total)[None])[0])
            self.sums.described.next, self.sums.described_thread.next = True, thread
            self.sums.described_row.next = row
            self.sums.row_class.next, self.sums.row_size.next, self.sums.row_top.next = (
                kind & 15,
                kind >> 4 & 7,
                kind >> 7,
            )

    def ask(self, name: str, now: int, phase: int, rst: bool) -> None:
        port, blocks = getattr(self, name), self.blocks[name]
        blocks.start.next = False
        blocks.thread.next, blocks.first.next = self.rng.randrange(8), self.rng.randrange(ROWS)
        port.take.next = False
        port.thread.next, port.row.next = self.rng.randrange(8), self.rng.randrange(4096)
        port.header.next, port.read.next = self.rng.random() < 0.5, self.rng.random() < 0.5
        if rst:
            return
        if self.starts[name] and self.rng.random() < 0.3:
            thread, first = self.starts[name].popleft()
            blocks.start.next, blocks.thread.next, blocks.first.next = True, thread, first
            self.askers[name][thread].next_at = now + 8
        waiting = {thread for thread, _ in self.starts[name]}
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

    def begin(self, name: str, thread: int, first: int, todo: list[tuple[int, bool, bool]]) -> None:
        """Have a thread ask for rows of a block: row in the block, header, read."""
        self.askers[name][thread] = Asker(first, deque(todo))
        self.starts[name].append((thread, first))
