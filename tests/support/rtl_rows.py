"""Memory behind the ports of decoders and encoders, for the CycleSimulator: call step() in each clock.

They hold units to docs/develop/engine.md, "Ports of memory" and "Counting": a breach raises ProtocolError.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import numpy as np

from oscar.coding.asc.params import SAMPLE
from oscar_hdl.coder.ports import LANES, READ_CLOCKS
from oscar_hdl.coder.rows import FrameRows, describe, top_symbols

SUM_CLOCKS = 6  # from a SumPort's take to the first total
SLOT = 32


class ProtocolError(AssertionError):
    """A unit did what the contract forbids."""


def need(true: bool, message: str) -> None:
    """Raise ProtocolError unless `true`."""
    if not true:
        raise ProtocolError(message)


class _Takes:
    """Takes of a port: a slot or more apart, all at one phase."""

    def __init__(self, name: str, phase: Any) -> None:
        self.name, self.phase, self.at, self.last = name, phase, None, -SLOT
        self.clock = 0

    def check(self) -> None:
        at = int(self.phase)
        need(self.at in (None, at), f"{self.name}: take at phase {at}, before that at {self.at}")
        need(self.clock - self.last >= SLOT, f"{self.name}: two takes in {self.clock - self.last} clocks")
        self.at, self.last = at, self.clock


class _ReadPort:
    """What PositionPort and SourcePort have in common: data from the fourth clock on, junk otherwise.

    ok: chance that a slot may be asked for; it changes in phases 1 to 8 of a slot.
    """

    def __init__(self, port: Any, phase: Any, rows: FrameRows, rng: Random, ok: float) -> None:
        self.port, self.phase, self.rows, self.rng, self.chance = port, phase, rows, rng, ok
        self.takes = _Takes(type(self).__name__, phase)
        self.data: dict[int, int] = {}
        self.means: dict[int, int] = {}
        self.taken: list[tuple[bool, int]] = []  # header, row
        self.shown = True  # in phase 31 of the slot before
        self.change = 1

    def words(self, header: bool, row: int) -> list[int]:
        """Return the data of a slot, in the order in which they are given."""
        raise NotImplementedError

    def headers_at(self, row: int, words: np.ndarray) -> list[int]:
        """Return one word for each row of a group, 0 where there is no row."""
        need(row % LANES == 0, f"{self.takes.name}: header of row {row}, which begins no group")
        part = words[row : row + LANES].tolist()
        return part + [0] * (LANES - len(part))

    def step(self) -> None:
        """Do what memory does at a rising edge."""
        now, port = self.takes.clock, self.port
        if port.take:
            self.takes.check()
            header, row = bool(port.header), int(port.row)
            need(self.shown, f"{self.takes.name}: take without ok in phase 31 before")
            need(row < self.rows.values.shape[0], f"{self.takes.name}: row {row} of {self.rows.means.size}")
            self.taken.append((header, row))
            for k, data in enumerate(self.words(header, row), now + READ_CLOCKS):
                self.data[k] = data
                if not header:
                    self.means[k] = int(self.rows.means[row])
        if int(self.phase) == SLOT - 1:
            self.shown = bool(port.ok)
            self.change = self.rng.randrange(1, 9)
        if int(self.phase) == self.change:
            port.ok.next = self.rng.random() < self.chance
        port.data.next = self.data.pop(now + 1, self.rng.getrandbits(len(port.data)))
        port.mean.next = self.means.pop(now + 1, self.rng.getrandbits(4))
        self.takes.clock += 1


class PositionMemory(_ReadPort):
    """Distances and means of a block for a decoder; `rows` may be exchanged between blocks."""

    def __init__(self, port: Any, phase: Any, rows: FrameRows, rng: Random, *, ok: float = 1) -> None:
        super().__init__(port, phase, rows, rng, ok)

    def words(self, header: bool, row: int) -> list[int]:
        words = self.headers_at(row, self.rows.means) if header else self.rows.distances[row].tolist()
        return words[::-1]


class SumMemory:
    """Where a decoder adds a block: `values` (rows, 32) holds local values, then sums.

    count: values of the block; lanes behind them must get a total of 0. exact: totals come in the
    sixth clock from take on, not later.
    """

    def __init__(
        self, port: Any, phase: Any, values: np.ndarray, count: int, rng: Random, *, exact: bool = True
    ) -> None:
        self.port, self.rng, self.exact = port, rng, exact
        self.takes = _Takes("SumMemory", phase)
        self.begin(values, count)

    def begin(self, values: np.ndarray, count: int) -> None:
        """Hold another block, once the one before is done."""
        self.count, self.given = count, values.astype(np.int32)
        self.values = self.given.copy()
        self.classes, self.sizes = (part.astype(int) for part in describe(self.values))
        self.local: dict[int, int] = {}
        self.open: deque[tuple[int, int]] = deque()  # row, clock of its take; totals are missing
        self.lane = LANES - 1
        self.closed: deque[int] = deque()  # rows without their descriptor
        self.taken: list[int] = []

    @property
    def complete(self) -> bool:
        """Whether every row taken was given totals and a descriptor."""
        return not self.open and not self.closed

    def step(self) -> None:
        """Do what memory does at a rising edge."""
        now, port = self.takes.clock, self.port
        if port.described:
            self._describe()
        if port.take:
            self.takes.check()
            row = int(port.row)
            need(row < len(self.values), f"SumMemory: row {row} of {len(self.values)}")
            need(row not in self.taken, f"SumMemory: row {row} again")
            self.taken.append(row)
            self.open.append((row, now))
            for k, value in enumerate(self.given[row, ::-1].tolist(), now + READ_CLOCKS):
                self.local[k] = value & 0xFFFF
        if self.exact and self.open:
            due = now == self.open[0][1] + SUM_CLOCKS + LANES - 1 - self.lane
            need(bool(port.valid) == due, f"SumMemory: lane {self.lane} of {self.open[0]} in clock {now}")
        if port.valid:
            self._add(now)
        port.local.next = self.local.pop(now + 1, self.rng.getrandbits(16))
        self.takes.clock += 1

    def _add(self, now: int) -> None:
        need(bool(self.open), "SumMemory: valid without take")
        row, at = self.open[0]
        need(now >= at + SUM_CLOCKS, f"SumMemory: row {row} {now - at} clocks after its take")
        total = int(self.port.total)
        if row * LANES + self.lane < self.count:
            self.values[row, self.lane] = total - (total >> 15 << 16)
        else:
            need(not total, f"SumMemory: total {total} behind the last value")
        self.lane = (self.lane - 1) % LANES
        if self.lane == LANES - 1:
            self.open.popleft()
            self.closed.append(row)

    def _describe(self) -> None:
        port = self.port
        need(bool(self.closed), "SumMemory: descriptor before a row's last total")
        row = self.closed.popleft()
        need(int(port.described_row) == row, f"SumMemory: descriptor of row {port.described_row}, not {row}")
        own = self.values[row : row + 1]
        expected = tuple(int(part[0]) for part in (*describe(own), top_symbols(own)))
        found = int(port.row_class), int(port.row_size), int(port.row_top)
        need(found == expected, f"SumMemory: row {row} described as {found}, is {expected}")
        self.classes[row], self.sizes[row] = found[:2]


class CountMemory:
    """What one unit counts in its jobs. `counts`: 512 integers."""

    def __init__(self, port: Any, job: Any) -> None:
        self.port, self.job = port, job
        self.counts = [0] * 512

    def step(self) -> None:
        """Do what symbol_counts does at a rising edge."""
        port = self.port
        if port.valid:
            need(not self.job.idle, "CountMemory: symbols behind done")
            self.counts[int(port.address)] += SAMPLE
