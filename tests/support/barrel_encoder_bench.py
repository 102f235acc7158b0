"""A test bench of `barrel_encoder`: memory that answers when it likes, tables, jobs, a taker of bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from oscar.coding.asc.params import CODED, CONSTANT, SAMPLE, SYMBOLS, TABLE_ROWS
from oscar_hdl.coder.encode.barrel_encoder import barrel_encoder
from oscar_hdl.coder.encode.ports import CodedSource, DrainPort, EncoderJob
from oscar_hdl.coder.ports import BANKS, TableWrites
from oscar_hdl.coder.unit.ports import BEATS, SAMPLED, THREADS, WIDTH, WORD_BYTES, CountedLanes
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.blocks import table_words
from oscar_sim.compiled import copy_of
from support.encoder_block import SentBlock, Table

DATA_AT = 2  # clocks from an answer to its first lanes


@dataclass
class Coded:
    """What the unit gave for a block."""

    block: SentBlock
    thread: int
    constant: bool = False
    value: int = 0
    bits: int = 0
    seeds: int = 0
    first: int = 0
    last: int = 0
    size: int = 0
    bad: bool = False
    done: bool = False
    started_at: int = 0
    done_at: int = 0
    data: bytes | None = None


class EncoderBench:
    """The unit and its surroundings; each probability is of a clock, or of a turn that memory could answer.

    A block's bytes are drained from its start on, the oldest block's first; a thread has its next block when
    they are taken.
    """

    def __init__(
        self, rng: random.Random, *, no_memory: float = 0.0, no_ready: float = 0.0, threads: int = THREADS
    ) -> None:
        self.rng, self.no_memory, self.no_ready, self.threads = rng, no_memory, no_ready, threads
        self.clk, self.rst, self.phase = bit(), bit(), word(4, rng.randrange(16))
        self.job, self.tables, self.source = EncoderJob(), TableWrites(), CodedSource()
        self.counts, self.drain, self.stream = CountedLanes(), DrainPort(), Stream(128, keep=WORD_BYTES)
        ports = [
            self.rst, self.phase, self.job, self.tables, self.source, self.counts, self.drain, self.stream
        ]  # fmt: skip
        self.sim = copy_of(
            "encoder bench", partial(barrel_encoder, self.clk, *ports), self.clk, self.each, ports
        )
        self.writes: list[tuple[int, int]] = []
        self.counted = [[[0] * SYMBOLS for _ in range(TABLE_ROWS)] for _ in range(BANKS)]
        self.queue: list[SentBlock] = []
        self.coded: list[Coded] = []  # in the order of their starts
        self.running: dict[int, Coded] = {}
        self.undrained: list[Coded] = []
        self.draining: Coded | None = None
        self.requests: list[tuple[int, int, bool, bool, int]] = []  # clock, thread, header, read, row
        self.answers: list[tuple[int, SentBlock, bool, int]] = []  # clock 0, block, header, row
        self.bytes = bytearray()
        self.watch: Callable[[EncoderBench], None] | None = None  # called in each clock

    def each(self) -> None:
        """Do what happens beside the unit in a clock."""
        if self.watch is not None:
            self.watch(self)
        now = self.sim.clocks
        self.phase.next = (int(self.phase) + 1) % 16
        self.write_tables()
        self.serve(now)
        self.count()
        self.take_bytes()
        self.jobs(now)

    def write_tables(self) -> None:
        self.tables.enable.next = bool(self.writes)
        if self.writes:
            self.tables.address.next, self.tables.data.next = self.writes.pop()

    def serve(self, now: int) -> None:
        """Answer a request in a later turn, in any order."""
        rng, source = self.rng, self.source
        if source.take:
            assert int(self.phase) % BEATS == 0
            thread = int(source.thread)
            assert all(r[1] != thread for r in self.requests), "a thread asked twice"
            assert thread in self.running, "a request for no block"
            self.requests.append((now, thread, bool(source.header), bool(source.read), int(source.row)))
        source.given.next = False
        source.given_thread.next = rng.randrange(THREADS)
        source.row_class.next, source.mean.next = rng.randrange(16), rng.randrange(16)
        source.data.next = rng.getrandbits(19 * WIDTH)
        phase = int(self.phase) % BEATS
        if phase == BEATS - 1 and self.requests and rng.random() >= self.no_memory:
            at = rng.randrange(len(self.requests)) if self.no_memory else 0
            _, thread, header, read, row = self.requests.pop(at)
            block = self.running[thread].block
            source.given.next, source.given_thread.next = True, thread
            if read:
                self.answers.append((now + 1, block, header, row))
            if read and not header:
                source.row_class.next = block.rows[row].row_class
                source.mean.next = block.rows[row].mean
        self.answers = [a for a in self.answers if now + 1 - a[0] - DATA_AT < BEATS]
        for begin, block, header, row in self.answers:
            beat = now + 1 - begin - DATA_AT
            if 0 <= beat < BEATS:
                lanes = [self.lane(block, header, row, WIDTH * beat + lane) for lane in range(WIDTH)]
                source.data.next = sum(value << (19 * lane) for lane, value in enumerate(lanes))

    def lane(self, block: SentBlock, header: bool, row: int, lane: int) -> int:
        """Return what memory gives for a lane; of rows behind the block whatever is there."""
        if header and row + lane >= len(block.rows):
            return self.rng.getrandbits(19)
        return block.data(header, row, lane)

    def count(self) -> None:
        valid, address = int(self.counts.valid), int(self.counts.address)
        for lane in range(SAMPLED):
            if valid >> lane & 1:
                place = address >> (9 * lane) & 511
                counted = self.counted[int(self.counts.bank)]
                counted[place >> 4][place & 15] += SAMPLE

    def take_bytes(self) -> None:
        stream, now = self.stream, self.draining
        if stream.tvalid and stream.tready:
            assert now is not None, "bytes of no block"
            keep, last = int(stream.tkeep), bool(stream.tlast)
            number = keep.bit_length()
            assert keep == (1 << number) - 1
            assert number == WORD_BYTES or last
            self.bytes += int(stream.tdata).to_bytes(WORD_BYTES, "little")[:number]
            if last:
                now.data = bytes(self.bytes)
                self.bytes.clear()
                self.draining = None
        elif now is not None and self.drain.idle and not self.drain.start and now.done and now.constant:
            self.draining = None  # nothing but zeros, of which there are no bytes
        stream.tready.next = self.rng.random() >= self.no_ready
        self.drain.start.next = False
        if self.draining is None and self.drain.idle and not self.drain.start and self.undrained:
            self.draining = self.undrained.pop(0)
            self.drain.start.next, self.drain.thread.next = True, self.draining.thread

    def jobs(self, now: int) -> None:
        """Keep results, and start a block on a thread that is free and whose bytes were taken."""
        job = self.job
        if job.done:
            entry = self.running.pop(int(job.done_thread))
            entry.constant, entry.value, entry.bits = bool(job.constant), int(job.value), int(job.bits)
            entry.seeds, entry.first, entry.last = int(job.seeds), int(job.first), int(job.last)
            entry.size, entry.bad, entry.done, entry.done_at = int(job.bytes), bool(job.bad), True, now
        if job.start:
            job.start.next = False
            return
        busy = set(self.running) | {c.thread for c in self.undrained}
        busy |= set() if self.draining is None else {self.draining.thread}
        free = [t for t in range(self.threads) if t not in busy and int(job.idle) >> t & 1]
        job.start.next = False
        job.thread.next = self.rng.randrange(THREADS)
        if free and self.queue and not self.writes and not self.rst:
            block = self.queue.pop(0)
            thread = self.rng.choice(free)
            job.start.next, job.thread.next, job.values.next = True, thread, len(block.values)
            job.bank.next = block.bank
            self.running[thread] = Coded(block, thread, started_at=now)
            self.coded.append(self.running[thread])
            self.undrained.append(self.running[thread])

    def load(self, table: Table, bank: int) -> None:
        """Write a bank."""
        self.writes += table_words(table, bank)
        self.sim.run(len(self.writes) + 2)

    def code(self, blocks: list[SentBlock], *, limit: int = 1 << 18) -> None:
        """Code blocks, as many at once as there are threads, and wait for results and bytes."""
        self.queue += blocks
        end = self.sim.clocks + limit
        while self.queue or self.running or self.undrained or self.draining is not None:
            assert self.sim.clocks < end, "the unit hangs"
            self.sim.run(16)

    def reset(self) -> None:
        """Reset the unit; what it gave before does not count."""
        self.rst.next = True
        self.sim.run(2)  # what the unit gave before the reset reached it is forgotten with the rest
        for left in (self.queue, self.requests, self.undrained, self.coded):
            left.clear()
        self.running.clear()
        self.bytes.clear()
        self.answers.clear()
        self.draining = None
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)
        assert int(self.job.idle) == (1 << THREADS) - 1
        assert self.drain.idle
        for signal in (self.stream.tvalid, self.source.take, self.job.done, self.counts.valid):
            assert not signal
        self.counted = [[[0] * SYMBOLS for _ in range(TABLE_ROWS)] for _ in range(BANKS)]


def check(coded: Coded) -> None:
    """Compare a block with the reference."""
    entry, data = coded.block.expected()
    assert not coded.bad
    assert coded.bits == max((v ^ (v >> 31)).bit_length() for v in coded.block.values)
    assert coded.constant == (entry & 3 == CONSTANT)
    if coded.constant:
        assert coded.value == coded.block.values[0] & 0xFFFF
        return
    assert coded.data is not None
    assert len(coded.data) == coded.size
    mine = CODED | coded.seeds << 2 | coded.first << 5 | coded.last << 12 | coded.size << 24
    assert (hex(mine), coded.data.hex()) == (hex(entry), data.hex())
