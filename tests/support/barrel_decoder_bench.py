"""A test bench of `barrel_decoder`: memory that answers when it likes, tables, jobs, a feeder of bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from oscar.coding.asc.model import Rows, class_of, symbol_of
from oscar.coding.asc.params import LIMIT, SAMPLE, SYMBOLS, TABLE_ROWS
from oscar.coding.asc.reference import _signed
from oscar_hdl.coder.decode.barrel_decoder import barrel_decoder
from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums, DecoderJob, FeedPort
from oscar_hdl.coder.ports import BANKS, TableWrites
from oscar_hdl.coder.unit.ports import BEATS, SAMPLED, THREADS, WIDTH, WORD_BYTES, CountedLanes
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.blocks import table_words
from oscar_sim.compiled import copy_of
from support.decoder_block import SIZES, DecodedBlock

Trace = list[tuple[list[int], list[int]]]  # inputs and outputs of each clock
DATA_AT = 2  # clocks from an answer to its first lanes
LAST_LANES = 24  # the first clock of a turn has lanes 24 to 31


@dataclass
class Decoding:
    """A block on its way, and what the unit gave of it."""

    block: DecodedBlock
    data: bytes
    local: dict[tuple[int, int], int] = field(default_factory=dict)
    thread: int = 0
    bad: bool = False
    done: bool = False
    started_at: int = 0
    done_at: int = 0
    order: list[int] = field(default_factory=list)
    totals: dict[tuple[int, int], int] = field(default_factory=dict)
    described: list[tuple[int, int, int, int]] = field(default_factory=list)

    def words(self, offset: int, filler: int) -> list[int]:
        """Return the bytes from the end to the begin, sixteen a word, `offset` others above the last ones."""
        data = self.data[::-1] + bytes([filler] * offset)
        data = bytes([filler] * (-len(data) % WORD_BYTES)) + data
        return [int.from_bytes(data[i : i + WORD_BYTES], "little") for i in range(0, len(data), WORD_BYTES)]


class DecoderBench:
    """The unit and its surroundings; chances are of a clock, or of a turn that memory could answer."""

    def __init__(
        self, rng: random.Random, *, no_memory: float = 0.0, no_bytes: float = 0.0, threads: int = THREADS
    ) -> None:
        self.rng, self.no_memory, self.no_bytes, self.threads = rng, no_memory, no_bytes, threads
        self.clk, self.rst, self.phase = bit(), bit(), word(4, rng.randrange(16))
        self.job, self.tables, self.feed = DecoderJob(), TableWrites(), FeedPort()
        self.position, self.sums, self.counts = CodedPosition(), CodedSums(), CountedLanes()
        bundles = tuple(self.bundles().values())
        self.sim = copy_of(
            "decoder bench", partial(barrel_decoder, self.clk, self.rst, self.phase, *bundles), self.clk,
            self.each, [self.rst, self.phase, *bundles],
        )  # fmt: skip
        self.writes: list[tuple[int, int]] = []
        self.counted = [[[0] * SYMBOLS for _ in range(TABLE_ROWS)] for _ in range(BANKS)]
        self.queue: list[Decoding] = []
        self.decoded: list[Decoding] = []  # in the order of their starts
        self.running: dict[int, Decoding] = {}
        self.left: dict[int, list[int]] = {}  # words that threads are to be given
        self.requests: list[tuple[int, bool, bool, int]] = []  # thread, header, read, row
        self.answers: list[tuple[int, Decoding, bool, int]] = []  # clock 0, block, header, row
        self.way: list[tuple[int, int]] = []  # clocks and threads of the words of the last clocks, or to come
        self.held: Decoding | None = None  # is given no words
        self.delay = 1 + rng.randrange(12)  # clocks from the look at `room` until a word leaves
        self.trace: Trace | None = None
        self.watch: Callable[[DecoderBench], None] | None = None  # called in each clock

    def bundles(self) -> dict[str, Any]:
        """Return the bundles by the names of the unit's ports."""
        return {
            "job": self.job,
            "tables": self.tables,
            "feed": self.feed,
            "position": self.position,
            "sums": self.sums,
            "counts": self.counts,
        }

    def ports(self) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
        """Return inputs and outputs with their names after conversion."""
        out = {
            "job": ("idle", "done", "done_thread", "bad"),
            "tables": (),
            "feed": ("room",),
            "position": ("take", "thread", "row", "header", "read"),
            "sums": tuple(vars(self.sums)),
            "counts": tuple(vars(self.counts)),
        }
        inputs, outputs = [("rst", self.rst), ("phase", self.phase)], []
        for prefix, bundle in self.bundles().items():
            for name, signal in vars(bundle).items():
                (outputs if name in out[prefix] else inputs).append((f"{prefix}_{name}", signal))
        return inputs, outputs

    def each(self) -> None:
        """Do what happens beside the unit in a clock."""
        if self.watch is not None:
            self.watch(self)
        if self.trace is not None:
            inputs, outputs = self.ports()
            self.trace.append(([int(s) for _, s in inputs], [int(s) for _, s in outputs]))
        now = self.sim.clocks
        self.phase.next = (int(self.phase) + 1) % 16
        self.write_tables()
        self.serve(now)
        if not self.rst:
            self.take_sums()
            self.count()
        self.give_bytes()
        self.jobs(now)

    def write_tables(self) -> None:
        self.tables.enable.next = bool(self.writes)
        self.tables.address.next, self.tables.data.next = self.rng.randrange(256), self.rng.getrandbits(50)
        if self.writes:
            self.tables.address.next, self.tables.data.next = self.writes.pop(0)

    def serve(self, now: int) -> None:
        """Answer a request in a later turn, in any order."""
        rng, position = self.rng, self.position
        if position.take and not self.rst:
            assert int(self.phase) % BEATS == 0
            thread = int(position.thread)
            assert all(r[0] != thread for r in self.requests), "a thread asked twice"
            assert thread in self.running, "a request for no block"
            self.requests.append((thread, bool(position.header), bool(position.read), int(position.row)))
        position.given.next = False
        position.given_thread.next, position.mean.next = rng.randrange(THREADS), rng.randrange(16)
        position.data.next, position.local.next = (
            rng.getrandbits(4 * WIDTH), rng.getrandbits(16 * WIDTH)
        )  # fmt: skip
        if int(self.phase) % BEATS == BEATS - 1 and self.requests and rng.random() >= self.no_memory:
            at = rng.randrange(len(self.requests)) if self.no_memory else 0
            thread, header, read, row = self.requests.pop(at)
            entry = self.running[thread]
            position.given.next, position.given_thread.next = True, thread
            if read:
                self.answers.append((now + 1, entry, header, row))
                if not header:
                    position.mean.next = entry.block.row(row).mean
        self.answers = [a for a in self.answers if now + 1 - a[0] - DATA_AT < BEATS]
        for begin, entry, header, row in self.answers:
            beat = now + 1 - begin - DATA_AT
            if beat < 0:
                continue
            data = local = 0
            for i in range(WIDTH):
                lane = LAST_LANES - WIDTH * beat + i
                data |= entry.block.position(header, row, lane) << 4 * i
                local |= entry.local.get((row, lane), 0) << 16 * i
            position.data.next, position.local.next = data, local

    def take_sums(self) -> None:
        sums, beat = self.sums, (int(self.phase) - 2) % BEATS
        if sums.valid:
            entry, row = self.running[int(sums.thread)], int(sums.row)
            if beat == 0:
                entry.order.append(row)
            for i in range(WIDTH):
                key = (row, LAST_LANES - WIDTH * beat + i)
                assert key not in entry.totals
                entry.totals[key] = int(sums.total) >> 16 * i & 0xFFFF
        if sums.described:
            kind = (int(sums.described_row), int(sums.row_class), int(sums.row_size), int(sums.row_top))
            self.running[int(sums.described_thread)].described.append(kind)

    def count(self) -> None:
        valid, address = int(self.counts.valid), int(self.counts.address)
        for lane in range(SAMPLED):
            if valid >> lane & 1:
                place = address >> (9 * lane) & 511
                counted = self.counted[int(self.counts.bank)]
                counted[place >> 4][place & 15] += SAMPLE

    def give_bytes(self) -> None:
        """Choose a thread that has room, and give it a word some clocks later."""
        feed, rng, now = self.feed, self.rng, self.sim.clocks
        feed.valid.next = False
        feed.thread.next, feed.data.next = rng.randrange(THREADS), rng.getrandbits(128)
        if self.rst:
            self.way.clear()
            return
        for thread in [t for clock, t in self.way if clock == now]:
            feed.valid.next, feed.thread.next, feed.data.next = True, thread, self.left[thread].pop(0)
        self.way = [each for each in self.way if each[0] >= now - 13]
        sent = [t for _, t in self.way]
        coming = [t for clock, t in self.way if clock > now]
        may = [
            t
            for t, words in self.left.items()
            if len(words) > coming.count(t)
            and self.running[t].started_at + 6 <= now
            and self.running[t] is not self.held
            and int(feed.room) >> t & 1
            and sent.count(t) < 8
        ]
        last = max((clock for clock, _ in self.way), default=0)
        if may and rng.random() >= self.no_bytes and last <= now + self.delay - 2:
            self.way.append((now + self.delay, rng.choice(may)))

    def jobs(self, now: int) -> None:
        """Keep results, and start a block on a thread that is free."""
        job, rng = self.job, self.rng
        if job.done and not self.rst:
            thread = int(job.done_thread)
            assert not self.left.pop(thread), "words are left"
            assert all(r[0] != thread for r in self.requests)
            entry = self.running.pop(thread)
            entry.bad, entry.done, entry.done_at = bool(job.bad), True, now
        job.start.next = False
        for name, bits in (("thread", 3), ("values", 18), ("bytes", 19), ("offset", 4), ("last", 7)):
            getattr(job, name).next = rng.getrandbits(bits)
        if self.rst or (self.decoded and now < self.decoded[-1].started_at + 4):
            return
        free = [t for t in range(self.threads) if t not in self.running and int(job.idle) >> t & 1]
        if free and self.queue and not self.writes:
            entry = self.queue.pop(0)
            entry.thread, entry.started_at = rng.choice(free), now
            block = entry.block
            job.start.next, job.thread.next, job.values.next = True, entry.thread, len(block.values)
            for name in ("bank", "raw", "seeds", "first", "last"):
                getattr(job, name).next = getattr(block, name)
            offset = 0 if block.raw else rng.randrange(WORD_BYTES)
            job.bytes.next, job.offset.next = len(entry.data), offset
            self.running[entry.thread] = entry
            self.left[entry.thread] = entry.words(offset, rng.randrange(256))
            self.decoded.append(entry)

    def load(self, table: Rows, bank: int) -> None:
        """Write a bank."""
        self.writes += table_words(table, bank)
        self.sim.run(len(self.writes) + 4)

    def decode(self, blocks: list[Decoding], *, limit: int = 1 << 18) -> None:
        """Decode blocks, as many at once as there are threads."""
        self.queue += blocks
        end = self.sim.clocks + limit
        while self.queue or self.running:
            assert self.sim.clocks < end, "the unit hangs"
            self.sim.run(16)

    def reset(self) -> None:
        """Reset the unit; what it gave before does not count."""
        self.rst.next = True
        self.sim.run(1)
        for left in (self.queue, self.requests, self.decoded, self.answers, self.running, self.left):
            left.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)
        assert int(self.job.idle) == (1 << THREADS) - 1
        for signal in (self.position.take, self.job.done, self.counts.valid, self.sums.valid):
            assert not signal
        assert not self.sums.described
        self.counted = [[[0] * SYMBOLS for _ in range(TABLE_ROWS)] for _ in range(BANKS)]


def check(decoding: Decoding) -> None:
    """Compare all that came out of a good block, but for its counts."""
    block = decoding.block
    assert not decoding.bad
    assert decoding.order == block.order()
    described = []
    for r in decoding.order:
        values = block.row(r).values
        sums = [_signed(v + decoding.local.get((r, i), 0) & 0xFFFF, 16) for i, v in enumerate(values)]
        got = [decoding.totals[r, lane] for lane in range(32)]
        assert got == [s & 0xFFFF for s in sums] + [0] * (32 - len(sums)), (r, block.row(r))
        size = next(i for i, n in enumerate(SIZES, 1) if all(-(1 << n - 1) <= s < 1 << n - 1 for s in sums))
        row_class = class_of(sums, 0, 0)
        top = symbol_of(min(max(map(abs, sums)), LIMIT - 1), 0)[0]
        described.append((r, row_class, size if row_class else 0, top))
    assert decoding.described == described
