"""A test bench of `row_bank`: a plain memory of rows, and units, loader and reader that ask at random."""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import Any

from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.coder.unit.ports import BEATS, WIDTH
from oscar_hdl.nic.memory.ports import GROUPS, BankAdds, BankLoads, BankTop, GroupRead, GroupWrite, SideWrite
from oscar_hdl.nic.memory.row_bank import row_bank
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.compiled import copy_of
from support.bank_units import BLOCK_BITS, GROUP, ROW_BITS, ROWS, Rows, UnitsModel, packed


class BankBench:
    """The bank and all that asks it, each with a chance of a turn."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.rows = rng, Rows()
        self.clk, self.rst, self.phase = bit(), bit(), word(4, rng.randrange(16))
        self.units = UnitsModel(rng, self.rows)
        self.position, self.sums, self.source = self.units.position, self.units.sums, self.units.source
        self.blocks, self.begin = self.units.blocks, self.units.begin
        self.values, self.side = GroupWrite(word(ROW_BITS)), SideWrite(word(ROW_BITS), word(8))
        self.loads_in = BankLoads(self.values, self.side, BankAdds(word(ROW_BITS), None))
        self.read, self.top = GroupRead(word(ROW_BITS)), BankTop(word(ROW_BITS), word(ROW_BITS - 2))
        self.sim = self.make()
        self.loads: deque[tuple[int, int, list[int]]] = deque()  # row, word, words
        self.sides: deque[tuple[str, int, int, int]] = deque()  # what, row, data, header
        self.reads: deque[int] = deque()
        self.got: list[list[int]] = []
        self.shown: dict[int, list[tuple[str, list[int]]]] = {}

    @property
    def busy(self) -> float:
        """The chance of a turn."""
        return self.units.busy

    @busy.setter
    def busy(self, chance: float) -> None:
        self.units.busy = chance

    def make(self) -> Any:
        """Return a simulator of what is tested."""
        made = partial(
            row_bank, self.clk, self.rst, self.phase, self.position, self.blocks["position"], self.sums,
            self.source, self.blocks["source"], self.loads_in, self.read, self.top,
            block_bits=BLOCK_BITS,
        )  # fmt: skip
        ports = [
            self.rst, self.phase, self.position, self.sums, self.source, self.blocks, self.values, self.side,
            self.loads_in, self.read, self.top,
        ]  # fmt: skip
        return copy_of("bank bench", made, self.clk, self.each, ports)

    def each(self) -> None:
        """Do what happens beside the bank in a clock."""
        now, phase = self.sim.clocks, int(self.phase) % BEATS
        self.phase.next = (int(self.phase) + 1) % 16
        self.units.step(now, phase, bool(self.rst))
        self.load(phase)
        self.reader(now, phase)

    def load(self, phase: int) -> None:
        """Give values word by word, and side rows in phase 1."""
        values, side, rng = self.values, self.side, self.rng
        values.enable.next = False
        values.data.next, values.row.next = rng.getrandbits(128), rng.randrange(ROWS)
        if self.loads:
            row, at, words = self.loads[0]
            values.row.next = row
            if phase == at and rng.random() < self.busy:
                values.enable.next, values.data.next = True, words[at]
                self.loads.popleft()
                if at < GROUPS - 1:
                    self.loads.appendleft((row, at + 1, words))
        for name in ("distances", "header", "clear"):
            getattr(side, name).next = False
        side.row.next, side.data.next = rng.randrange(ROWS), rng.getrandbits(96)
        side.header_data.next, side.lanes.next = rng.getrandbits(15), rng.getrandbits(8)
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
        self.units.forget()
        for left in (self.loads, self.sides, self.reads, self.got):
            left.clear()
        self.shown.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)

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
            if self.units.idle and not (self.shown or self.loads or self.sides or self.reads):
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
