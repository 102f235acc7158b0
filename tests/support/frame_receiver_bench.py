"""A receiver with link_tables and barrel decoders that are models: they keep what they get."""

from __future__ import annotations

import random
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oscar.coding.asc.reference import _plain_block, _Reader
from oscar.coding.frame import HEADER_BYTES, peek
from oscar_hdl.coder.decode.ports import DecoderJob, FeedPort
from oscar_hdl.coder.ports import TablesPort, banks_of
from oscar_hdl.coder.unit.ports import THREADS, WORD_BYTES
from oscar_hdl.nic.ports import BankBlock, FrameCommand, frames_in
from oscar_hdl.nic.receive.deframer import REASONS
from oscar_hdl.nic.receive.frame_receiver import frame_receiver
from oscar_hdl.nic.receive.ports import ClearPort, DecodeUnits, Dropped, HeldFrame, OldestFrame
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.compiled import copy_of
from support.decoder_block import raw_data


@dataclass
class ReceivedBlock:
    """What a unit was given."""

    raw: bool  # or constant: its values come as they are
    values: int
    base: int
    data: bytes = b""
    fields: dict[str, int] = field(default_factory=dict)
    frame: int = field(default=0, compare=False, repr=False)  # the number of its command


def blocks_of(frame: bytes) -> tuple[dict[str, Any], list[ReceivedBlock]]:
    """Return what the tables are built of, and what units are given, in the order of the directory."""
    count, payload = peek(frame).count, frame[HEADER_BYTES:]
    prefix, at = int.from_bytes(payload[:2], "little"), 2
    size = 1 << (prefix & 31)
    entries = [int.from_bytes(payload[at + 6 * i :][:6], "little") for i in range(-(-count // size))]
    place, blocks = at + 6 * len(entries), []
    for n, entry in enumerate(entries):
        values, base, kind = min(size, count - n * size), n * size // 32, entry & 3
        data = b"" if kind == 2 else payload[place : place + (entry >> 24)]
        place += len(data)
        if kind:
            plain = raw_data(_plain_block(entry, _Reader(data), values, 16))
            if kind == 1 or any(plain):
                blocks.append(ReceivedBlock(True, values, base, plain, {"bytes": len(plain)}))
        else:
            fields = {"seeds": entry >> 2 & 7, "first": entry >> 5 & 127, "last": entry >> 12 & 127}
            blocks.append(ReceivedBlock(False, values, base, data, {**fields, "bytes": len(data)}))
    return {"last": prefix >> 11 & 15}, blocks


def peer_of(frame: bytes) -> int:
    """Return who made a frame, unless told: any number that goes with its step, chunk and sub-frame."""
    return zlib.crc32(frame[2:7]) & 255


class Doer:
    """Who works on blocks: a thread."""

    block: ReceivedBlock | None = None

    def __init__(self, bench: ReceiverBench) -> None:
        self.bench = bench

    def begin(self, block: ReceivedBlock, shared: int) -> None:
        """Take a block, which no other may spoil."""
        bench, frame = self.bench, block.frame
        assert self.block is None
        assert shared != bench.drained
        assert frame in bench.wiped or not bench.adopts[frame]
        self.block, self.rest, self.shared = block, bench.dice.randrange(1, 30), shared
        bench.given.append(block)
        bench.shared.append((frame, shared))
        others = [u for u in bench.doers if u.block is not None and u.block.frame != frame]
        bench.both += bool(others)
        for doer in others:
            bench.twins += bool(
                set(bench.rows_of_block(doer.block)) & set(bench.rows_of_block(block))
            )  # memory orders them

    def end(self) -> None:
        """Give the block back."""
        assert self.block is not None
        assert (self.block.frame, self.shared) in self.bench.shared
        self.bench.finished.append(self.block)
        self.block = None


class Thread(Doer):
    """A thread, whose buffer of bytes must never be too full."""

    def take(self, block: ReceivedBlock, offset: int, shared: int) -> None:
        """Begin."""
        self.begin(block, shared)
        size = block.fields["bytes"]
        self.words: list[int] = []
        self.offset, self.number = offset, -(-(size + offset) // WORD_BYTES)
        self.pad = self.number * WORD_BYTES - size - offset
        self.used, self.level, self.past = 0, -self.pad, deque([-self.pad] * ROOM_CLOCKS)
        self.began = self.bench.sim.clocks

    def word(self, data: int) -> None:
        """Take a word."""
        assert self.block is not None, "a word for a thread without a block"
        assert len(self.words) < self.number, "more words than the block has"
        assert self.bench.sim.clocks >= self.began + 6
        self.words.append(data)
        self.level += WORD_BYTES
        assert self.level <= BUFFER, "the buffer is too full"

    def clock(self) -> bool:
        """Use bytes; return whether the block is over."""
        dice, whole = self.bench.dice, len(self.words) == self.number
        if (whole or self.level >= 128) and dice.random() < self.bench.speed / 16:
            used = min(self.level, dice.randrange(1, 65))
            self.level -= used
            self.used += used
        self.past.append(self.level)
        self.past.popleft()
        if whole and self.level <= self.offset:
            self.rest -= 1
        return self.rest < 0

    def room(self) -> bool:
        """Say whether there was room some clocks ago."""
        return self.block is None or self.past[0] < BUFFER - 8 * WORD_BYTES

    def finish(self) -> None:
        """Keep the bytes."""
        data = b"".join(data.to_bytes(WORD_BYTES, "little") for data in self.words)
        self.block.data = data[self.pad : len(data) - self.offset][::-1]
        self.end()


class UnitModel:
    """A barrel decoder, that takes the bytes of its blocks."""

    def __init__(self, bench: ReceiverBench, number: int, job: Any, feed: FeedPort, place: BankBlock) -> None:
        self.bench, self.number, self.job, self.feed, self.place = bench, number, job, feed, place
        self.threads = [Thread(bench) for _ in range(THREADS)]
        self.fed_at = self.started_at = 0

    def reset(self) -> None:
        for thread in self.threads:
            thread.block = None
        self.job.idle.next, self.job.done.next = (1 << THREADS) - 1, False
        self.feed.room.next = self.bench.dice.getrandbits(THREADS)

    def clock(self) -> None:
        job, feed, bench, now = self.job, self.feed, self.bench, self.bench.sim.clocks
        job.done.next, job.bad.next = False, bench.dice.random() < 0.5
        job.done_thread.next = bench.dice.randrange(THREADS)
        if feed.valid:
            assert now >= self.fed_at + 2, "words come every second clock"
            self.fed_at = now
            self.threads[int(feed.thread)].word(int(feed.data))
            bench.words += 1
        over = [t for t in self.threads if t.block is not None and t.clock()]
        if over:
            thread = bench.dice.choice(over)
            number = self.threads.index(thread)
            frame = thread.block.frame
            job.done.next, job.done_thread.next = True, number
            job.bad.next = bench.spoil == 0 or frame in bench.spoiled
            job.idle.next = int(job.idle) | 1 << number
            bench.spoil -= 1
            bench.spoiled.discard(frame)
            thread.finish()
        assert bool(job.start) == bool(self.place.start)
        if job.start:
            self.start(now)
        for n, thread in enumerate(self.threads):
            feed.room.next[n] = thread.room() and not bench.jam()

    def start(self, now: int) -> None:
        """Take a block."""
        job, place, bench, thread = self.job, self.place, self.bench, int(self.job.thread)
        assert now >= self.started_at + 4
        assert int(job.idle) >> thread & 1
        assert int(place.thread) == thread
        self.started_at = now
        raw = bool(job.raw)
        names = ("bytes",) if raw else ("seeds", "first", "last", "bytes")
        fields = {name: int(getattr(job, name)) for name in names}
        frame, low, first = bench.frame_of(int(job.bank)), bench.block_rows_log2, int(place.first)
        row = (first >> low) * bench.units + self.number << low | first & (1 << low) - 1
        block = ReceivedBlock(raw, int(job.values), row - bench.first_rows[frame], b"", fields, frame)
        self.threads[thread].take(block, int(job.offset), int(job.bank))
        job.idle.next = (int(job.idle.next) if job.done.next else int(job.idle)) & ~(1 << thread)


ROOM_CLOCKS, BUFFER = 14, 512  # how late room is known, at most; bytes of a thread


@dataclass
class Done:
    """How a command ended, and what units were given since the one before."""

    error: int
    given: list[ReceivedBlock]
    finished: list[ReceivedBlock]
    shared: list[int]
    row: int


class ReceiverBench:
    """A receiver and everything around it; frames go in as they come, commands as it takes them."""

    def __init__(
        self, dice: random.Random, *, units: int = 1, bus_bits: int = 64, store_log2: int = 10,
        gaps: float = 0.0, speed: float = 1.0, block_log2: int = 10,
    ) -> None:  # fmt: skip
        self.banks = banks_of(units)
        self.dice, self.units, self.size, self.gaps, self.speed = dice, units, bus_bits // 8, gaps, speed
        self.clk, self.rst, self.bad, self.reason = bit(), bit(), bit(), word(4)
        self.rx = frames_in(bus_bits)
        self.oldest = OldestFrame()
        self.command, self.tables = FrameCommand(), TablesPort()
        self.block_rows_log2 = block_log2 - 5
        jobs, feeds = [DecoderJob() for _ in range(units)], [FeedPort() for _ in range(units)]
        places = [BankBlock(18 - units.bit_length()) for _ in range(units)]
        self.row, self.clear, self.cleared, self.clear_rows = word(17), bit(), bit(), word(14)
        dropped, clear = Dropped(), ClearPort()
        dropped.bad, dropped.reason = self.bad, self.reason
        clear.start, clear.done, clear.rows = self.clear, self.cleared, self.clear_rows
        decoders = DecodeUnits(jobs, feeds, places)
        make, units = self.build(
            partial(
                frame_receiver, self.clk, self.rst, self.rx, self.command, self.row, dropped, self.oldest,
                HeldFrame(), self.tables, decoders, clear, bus_bits=bus_bits,
                store_log2=store_log2, block_log2=block_log2,
            ),
            decoders,
        )  # fmt: skip
        self.doers = [thread for unit in self.models for thread in unit.threads]
        self.words = 0  # given to units
        self.twins = 0  # blocks that began while another frame's had their rows
        self.queue: deque[tuple[int, int, bool, int]] = deque()
        self.given: list[ReceivedBlock] = []
        self.finished: list[ReceivedBlock] = []
        self.shared: list[tuple[int, int]] = []  # with the number of the command
        self.both = 0  # blocks that began while one of another frame was worked on
        self.most = 0  # commands under way at once
        self.spoiled: set[int] = set()  # commands of which a block is found bad
        self.bads: list[str] = []
        self.dones: deque[Done] = deque()
        self.first_rows: list[int] = []  # of commands since a reset
        self.ended = 0  # how many of them
        self.built: list[dict[str, Any]] = []
        self.learns: list[tuple[int, ...]] = []  # set, count_bank, forget
        self.saves: dict[int, int] = {}  # of a bank that was built, before it is learnt
        self.drained = self.learning = -1  # the bank that is, and its set
        self.early = 0  # builds while blocks were dealt
        self.learn_clocks = 60
        self.checksums: dict[tuple[int, int], int] = {}
        self.spoil = -1
        self.asked: deque[tuple[int, int]] = deque([(0, 0)] * 2)
        self.building, self.timer = False, -1
        self.timer_learn = 0
        self.adopts: list[int] = []  # of commands since a reset: how many rows, 0 where they are added to
        self.wiped: list[int] = []  # commands whose rows are cleared
        self.counts: list[int] = []  # values of commands since a reset
        self.timer_clear = 0
        self.beside = 0  # rows that were cleared while blocks were worked on
        ports = [self.clk, self.rst, self.rx, self.command, self.row, self.bad, self.reason, self.tables]
        ports += [self.clear, self.cleared, self.clear_rows]
        ports += [self.oldest, units]
        key = type(self), len(jobs), bus_bits, store_log2, block_log2
        self.sim = copy_of(key, make, self.clk, self.clock, ports)
        self.reset()

    def build(self, made: Callable[[], Any], units: DecodeUnits) -> tuple[Callable[[], Any], Any]:
        """Return what makes the receiver, and the bundles between it and units; make the models of these."""
        each = list(zip(units.jobs, units.feeds, units.places, strict=True))
        self.models = [UnitModel(self, n, *bundles) for n, bundles in enumerate(each)]
        return made, each

    def jam(self) -> bool:
        return self.dice.random() < self.gaps

    def send(self, frame: bytes, peer: int | None = None) -> None:
        """Queue a frame; peer: who made it (peer_of)."""
        peer = peer_of(frame) if peer is None else peer
        for at in range(0, len(frame), self.size):
            part = frame[at : at + self.size]
            last = at + self.size >= len(frame)
            self.queue.append((int.from_bytes(part, "little"), (1 << len(part)) - 1, last, peer))

    def clock(self) -> None:
        if self.rst:
            self._rest()
            return
        self._send()
        self._tables()
        self._clear()
        for unit in self.models:
            unit.clock()
        if self.bad:
            self.bads.append(REASONS[int(self.reason)])
        if self.command.done:
            own = self.ended
            assert all(unit.block is None or unit.block.frame != own for unit in self.doers)
            given, finished = ([b for b in of if b.frame == own] for of in (self.given, self.finished))
            shared = [fields for frame, fields in self.shared if frame == own]
            self.dones.append(Done(int(self.command.error), given, finished, shared, self.first_rows[own]))
            for of in (self.given, self.finished):
                of[:] = [block for block in of if block.frame != own]
            self.shared[:] = [pair for pair in self.shared if pair[0] != own]
            self.ended += 1

    def frame_of(self, bank: int) -> int:
        """Return the number of the command under way that has this bank."""
        frame = self.ended + (bank - self.ended) % self.banks
        assert frame < len(self.first_rows)
        return frame

    def _send(self) -> None:
        rx = self.rx
        if rx.tvalid and not rx.tready:
            return
        rx.tvalid.next = False
        if self.queue and self.dice.random() >= self.gaps:
            rx.tdata.next, rx.tkeep.next, rx.tlast.next, rx.tid.next = self.queue.popleft()
            rx.tvalid.next = True

    def _tables(self) -> None:
        tables = self.tables
        query = int(tables.query), int(tables.query_fresh)
        steady = bool(query[1]) or query[0] not in (*self.saves.values(), self.learning)
        self.asked.append((self.checksums.get(query, 0) if steady else 0, steady))
        tables.checksum.next, tables.steady.next = self.asked.popleft()
        tables.built.next = tables.learnt.next = False
        if tables.build:
            assert not self.building
            self.building = True
            told = {n: int(getattr(tables, n)) for n in ("last", "bank", "load", "fresh", "save")}
            assert told["bank"] not in self.saves, "that one is not learnt"
            assert told["fresh"] or told["load"] not in (*self.saves.values(), self.learning), (
                "the set is going to change"
            )
            self.saves[told["bank"]] = told["save"]
            self.built.append(told)
            self.early += bool(self.given)
            self.timer = self.dice.randrange(1, 60)
        elif self.building:
            self.timer -= 1
            if self.timer < 0:
                tables.built.next = True
                self.building = False
        if tables.learn:
            assert self.drained < 0
            self.drained = int(tables.count_bank)
            self.learning = self.saves.pop(self.drained)
            self.learns.append((self.learning, self.drained, int(tables.forget)))
            self.timer_learn = self.dice.randrange(1, self.learn_clocks)
        elif self.drained >= 0:
            self.timer_learn -= 1
            if self.timer_learn < 0:
                tables.learnt.next = True
                self.drained = self.learning = -1

    def _clear(self) -> None:
        """Rows are cleared once, of the newest command, while no block of a frame with one is worked on."""
        own = len(self.first_rows) - 1
        if self.clear:
            assert not self.timer_clear
            assert own not in self.wiped
            self.timer_clear = self.dice.randrange(2, 40)
        self.cleared.next = self.timer_clear == 1
        if self.timer_clear:
            assert (self.clear_rows, self.row) == (self.adopts[own], self.first_rows[own])
            others = {unit.block.frame for unit in self.doers if unit.block is not None}
            assert not any(set(self.rows_of(own)) & set(self.rows_of(other)) for other in others)
            self.beside += bool(others and self.clear)
            self.timer_clear -= 1
            if not self.timer_clear:
                self.wiped.append(own)

    def rows_of_block(self, block: ReceivedBlock) -> range:
        """Return the rows of a block in memory."""
        first = self.first_rows[block.frame] + block.base
        return range(first, first - (-block.values // 32))

    def rows_of(self, frame: int) -> range:
        """Return the rows of a command's frame."""
        return range(self.first_rows[frame], self.first_rows[frame] - (-self.counts[frame] // 32))

    def start(
        self, frame: bytes, *, load: int = 1, save: int = 2, fresh: int = 0,
        where: tuple[int, bool] | None = None, **wrong: int,
    ) -> None:  # fmt: skip
        """Start the command for a frame, `where`: into these rows, adopted or not; `wrong` fields differ."""
        head, command = peek(frame), self.command
        assert command.idle
        self.checksums[load, fresh] = head.checksum
        fields = {
            name: getattr(head, name) for name in ("step", "chunk", "sub", "width", "sequence", "count")
        }
        fields |= {"peer": peer_of(frame), "load": load, "save": save, "fresh": fresh} | wrong
        for name, value in fields.items():
            getattr(command, name).next = value
        adopt, row = self.dice.random() < 0.4, self.dice.getrandbits(15)
        if self.first_rows and self.dice.random() < 0.5:
            row = max(0, self.first_rows[-1] + self.dice.choice((0, 1, -1)) * self.dice.randrange(100))
        row = row >> self.block_rows_log2 << self.block_rows_log2
        row, adopt = where or (row, adopt)
        command.adopt.next = adopt
        self.adopts.append(-(-head.count // 32) if adopt else 0)
        self.counts.append(head.count)
        self.first_rows.append(row)
        assert len(self.first_rows) - self.ended <= self.banks
        self.row.next = self.first_rows[-1]
        command.start.next = True
        self.sim.run(1)
        command.start.next = False
        self.sim.run(1)

    def until_idle(self, limit: int = 60_000) -> None:
        """Run until the next command can be given."""
        for _ in range(limit):
            if self.command.idle:
                return
            self.sim.run(1)
        raise AssertionError(f"no command is taken within {limit} clocks")

    def wait(self, limit: int = 60_000) -> int:
        """Run until the oldest command is done, and return its error; `done` is how it ended."""
        for _ in range(limit):
            if self.dones:
                self.done = self.dones.popleft()
                return self.done.error
            self.sim.run(1)
        raise AssertionError(f"a command is not done after {limit} clocks")

    def receive(self, frame: bytes, **fields: int) -> int:
        """Start a command and wait for it."""
        self.until_idle()
        self.start(frame, **fields)
        return self.wait()

    def reset(self) -> None:
        """Reset everything, and forget what was to come."""
        self.rst.next = True
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)

    def _rest(self) -> None:
        """Be reset, too: what stayed high would run through pipelines without a reset until its end."""
        self.queue.clear()
        self.building, self.drained, self.learning = False, -1, -1
        self.saves.clear()
        ends = self.tables.built, self.tables.learnt, self.cleared
        for signal in (self.rx.tvalid, self.command.start, self.command.abort, *ends):
            signal.next = False
        for unit in self.models:
            unit.reset()
        self.forget()

    def forget(self) -> None:
        """Forget what units and tables were given."""
        self.spoil, self.ended, self.both, self.twins = -1, 0, 0, 0
        self.spoiled.clear()
        lists = (self.given, self.finished, self.shared, self.bads, self.built, self.learns)
        for kept in (*lists, self.dones, self.first_rows, self.adopts, self.counts, self.wiped):
            kept.clear()
        self.timer_clear = 0
