"""A test bench of senders: commands, tables, memory of raw rows, a taker of frames; units are given."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from oscar_hdl.coder.ports import SourcePort, TablesPort, banks_of
from oscar_hdl.nic.ports import FrameCommand, TopPort, frames_out
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.compiled import copy_of
from support.bench import run_until
from support.sent_frames import ROW_BITS, Frame, Part, checksum


class UnitModel(Protocol):
    """What codes blocks."""

    def clock(self, bench: Any) -> None:
        """Do what is done in a clock."""

    def reset(self) -> None:
        """Forget all."""

    def busy(self, bank: int) -> bool:
        """Return whether a block of a bank is coded."""


class SenderBench:
    """A sender with models around it; `units` are its encoders, `make` returns the block."""

    units: Sequence[UnitModel]

    def __init__(
        self, rng: random.Random, key: Hashable, make: Callable[[SenderBench], Callable[[], Any]],
        ports: Sequence[Any], *, bus_bits: int, pressure: float,
    ) -> None:  # fmt: skip
        self.rng, self.pressure = rng, pressure
        self.clk, self.rst, self.row = bit(), bit(), word(ROW_BITS)
        self.tx = frames_out(bus_bits)
        self.command, self.top, self.tables = FrameCommand(), TopPort(), TablesPort()
        self.source, self.raw_row = SourcePort(), word(ROW_BITS)
        self.under_way: deque[Frame] = deque()
        self.flight = banks_of(len(self.units))  # frames under way at most
        self.ended = self.most = 0  # most: frames that were under way at once
        self.saves: dict[int, int] = {}  # of a bank that was built, before it is learnt
        self.drained = self.learning = -1  # the bank that is, and its set
        self.early = 0  # builds while blocks are coded
        self.ahead = 0  # blocks that are dealt while the frame before is collected
        self.done: list[int] = []  # blocks that are coded
        self.starts: list[tuple[int, int]] = []  # blocks as they were dealt, and how many were coded then
        self.table_clocks = range(1, 60)  # that a build or a learn may take
        self.taken = bytearray()
        self.frames: list[bytes] = []
        self.errors: list[int] = []
        self.learns: list[tuple[int, ...]] = []
        self.builds: list[tuple[int, ...]] = []
        self.read: deque[int] = deque([0] * 3)
        self.events: dict[str, int] = {}
        self.lasts: list[int] = []  # symbols of builds
        self.rebuilt = 0  # builds for another last symbol
        self.built: dict[int, tuple[int, int]] = {}  # of a bank: last symbol, clock
        self.searching = 0  # clocks until the last symbol is known
        self.query: deque[tuple[int, bool]] = deque([(0, False)] * 2)
        self.waiting: tuple[int, int, bool, int] | None = None
        self.goes: list[int] = []  # to whom frames
        own = [self.clk, self.rst, self.tx, self.command, self.row, self.tables, self.source, self.top]
        self.simulator = copy_of(key, make(self), self.clk, self.clock, [*own, self.raw_row, *ports])

    @property
    def frame(self) -> Frame:
        """The frame whose blocks are collected."""
        return self.under_way[0]

    def frame_of(self, bank: int) -> Frame:
        """The frame under way that has a bank."""
        return self.under_way[(bank - self.ended) % self.flight]

    def block_at(self, frame: Frame, base: int, values: int) -> tuple[int, Part]:
        """The block of a job."""
        log2 = frame.block_log2
        rows = (base - frame.row) % (1 << ROW_BITS)
        index = rows >> (log2 - 5)
        assert rows == index << (log2 - 5)
        part = frame.parts[index]
        assert values == len(part.values)
        return index, part

    def clock(self) -> None:
        """All models' clock."""
        if self.rst:
            for unit in self.units:
                unit.reset()
            self.tables.built.next = self.tables.learnt.next = False
            self.events.clear(), self.taken.clear()
            self.searching, self.top.known.next = 0, False
            self.read = deque([0] * 3)
            self.waiting, self.ended, self.drained, self.learning = None, 0, -1, -1
            self.saves.clear(), self.under_way.clear()
            return
        for unit in self.units:
            unit.clock(self)
        self._memory()
        self._largest()
        self._tables()
        self._sink()
        if self.command.done:
            assert not any(unit.busy(self.ended % self.flight) for unit in self.units)
            self.errors.append(int(self.command.error))
            self.under_way.popleft()
            self.ended += 1

    def _memory(self) -> None:
        source = self.source
        if source.take:
            assert len(self.read) <= 3, "rows are 32 clocks apart"
            _, part = self.block_at(
                self.frame, int(self.raw_row), len(self.block_of(int(self.raw_row)).values)
            )
            row = part.values[32 * int(source.row) : 32 * int(source.row) + 32]
            assert row
            noise = self.rng.randrange(8)
            self.read = deque([0] * 3 + [(v & 0xFFFF) | noise << 16 for v in row] + [0] * (32 - len(row)))
        source.data.next = self.read.popleft() if self.read else self.rng.getrandbits(16)
        source.ok.next = self.rng.random() < 0.7

    def _largest(self) -> None:
        """Memory finds a frame's last symbol."""
        self.top.known.next = self.searching == 1
        if self.top.ask:
            assert not self.searching
            self.searching = self.rng.randrange(2, 50)
            assert self.under_way[-1].parts
        elif self.searching:
            self.searching -= 1
        if self.searching:
            self.top.symbol.next = self.under_way[-1].last if self.searching == 1 else self.rng.randrange(16)

    def block_of(self, base: int) -> Part:
        """The block that begins at a row."""
        rows = (base - self.frame.row) % (1 << ROW_BITS)
        return self.frame.parts[rows >> (self.frame.block_log2 - 5)]

    def _tables(self) -> None:
        tables = self.tables
        for ask, answer in (("build", "built"), ("learn", "learnt")):
            getattr(tables, answer).next = False
            if getattr(tables, ask):
                anew = (
                    ask == "build" and int(tables.bank) in self.saves
                )  # that before was of another last symbol
                assert anew or ask not in self.events
                self.events[ask] = self.rng.choice(self.table_clocks)
                if ask == "build":
                    told = int(tables.load), int(tables.fresh), int(tables.save), int(tables.bank)
                    if anew:
                        assert self.builds.pop() == (*told[:2], self.lasts[-1], told[3]), (
                            "that one is not learnt"
                        )
                        assert tables.last != self.lasts[-1]
                        assert self.saves.pop(told[3]) == told[2]
                        self.rebuilt += 1
                    self.lasts.append(int(tables.last))
                    assert told[1] or told[0] not in (*self.saves.values(), self.learning)
                    self.builds.append((*told[:2], int(tables.last), told[3]))
                    self.saves[told[3]] = told[2]
                    self.early += any(unit.busy(bank) for unit in self.units for bank in range(self.flight))
                else:
                    self.drained = int(tables.count_bank)
                    self.learning = self.saves.pop(self.drained)
                    self.learns.append((self.learning, self.drained, int(tables.forget)))
            elif ask in self.events:
                self.events[ask] -= 1
                if not self.events[ask]:
                    del self.events[ask]
                    getattr(tables, answer).next = True
                    if ask == "build":
                        self.built[self.builds[-1][3]] = self.lasts[-1], self.simulator.clocks
                    if ask == "learn":
                        self.drained = self.learning = -1
        load, fresh = int(tables.query), int(tables.query_fresh)
        steady = bool(fresh) or load not in (*self.saves.values(), self.learning)
        self.query.append((checksum(load, fresh) if steady else 0, steady))
        tables.checksum.next, tables.steady.next = self.query.popleft()

    def _sink(self) -> None:
        tx = self.tx
        now = (int(tx.tdata), int(tx.tkeep), bool(tx.tlast), int(tx.tdest))
        if self.waiting is not None:
            assert tx.tvalid
            assert now == self.waiting
        self.waiting = now if tx.tvalid and not tx.tready else None
        size = len(tx.tkeep)
        if self.taken and tx.tready:
            assert tx.tvalid, "a frame leaves without a pause"
        if tx.tvalid and tx.tready:
            kept = now[1].bit_length()
            assert now[1] == (1 << kept) - 1
            assert kept == size or tx.tlast
            if self.taken:
                assert now[3] == self.goes[-1], "a frame is for one peer"
            else:
                self.goes.append(now[3])
            self.taken += now[0].to_bytes(size, "little")[:kept]
            if tx.tlast:
                self.frames.append(bytes(self.taken))
                self.taken.clear()
        tx.tready.next = self.rng.random() >= self.pressure

    def start(self, frame: Frame) -> None:
        """Give a command."""
        assert self.command.idle
        self.under_way.append(frame)
        assert len(self.under_way) <= self.flight
        self.most = max(self.most, len(self.under_way))
        command, header = self.command, frame.header
        for name in ("step", "chunk", "sub", "width", "sequence", "count"):
            getattr(command, name).next = getattr(header, name)
        for name in ("load", "save", "fresh"):
            getattr(command, name).next = getattr(frame, name)
        command.peer.next = frame.peer
        self.row.next = frame.row
        command.start.next = True
        self.simulator.run(1)
        command.start.next = False
        self.simulator.run(1)

    def until(self, condition: Callable[[], bool], *, limit: int = 60_000) -> None:
        """Run until it is so."""
        run_until(self.simulator, condition, limit=limit)

    def reset(self) -> None:
        """Reset sender and models, and forget what came."""
        self.rst.next = True
        self.simulator.run(1)
        self.rst.next = False
        self.simulator.run(2)
        for came in (self.errors, self.frames, self.goes, self.builds, self.learns):
            came.clear()

    def check(self, frames: list[Frame], pauses: float = 0.2) -> None:
        """Send frames, good or not; compare all that comes of them."""
        for frame in frames:
            self.until(lambda: bool(self.command.idle))
            self.start(frame)
            if self.rng.random() < pauses:
                self.until(lambda: not self.under_way)
        good = [frame for frame in frames if not frame.error]
        self.until(lambda: not self.under_way and len(self.frames) >= len(good))
        self.until(lambda: not self.saves and self.drained < 0)
        assert self.errors == [frame.error for frame in frames]
        assert [len(f) for f in self.frames] == [len(frame.bytes()) for frame in good]
        assert self.frames == [frame.bytes() for frame in good]
        assert self.goes == [frame.peer for frame in good]
        self.goes.clear()
        full = [(n, frame) for n, frame in enumerate(frames) if frame.parts]
        assert self.builds == [(f.load, f.fresh, f.last, n % self.flight) for n, f in full]
        assert self.learns == [(f.save, n % self.flight, bool(f.error)) for n, f in full]
