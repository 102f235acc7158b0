"""A test bench of `encoder`: memory, tables, grants, a taker of bytes; and the reference's blocks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from oscar.coding.asc.model import Row, class_of, count_group, frequencies, live, low_bits, symbol_of
from oscar.coding.asc.params import CODED, CONSTANT, GROUP_ROWS, LANES, LIMIT, RAW, SYMBOLS, TABLE_ROWS
from oscar.coding.asc.reference import _encode_block, _most_seeds, _nothing, _push_groups
from oscar_hdl.coder.encode.encoder import encoder
from oscar_hdl.coder.ports import READ_CLOCKS, CountPort, EncoderJob, SourcePort, TableWrites
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.blocks import table_words
from oscar_sim.cycles import CycleSimulator

FRAME_VALUES = (1, 1 << 16, 1 << 19)  # a frame for each thinning
FIRST_BYTE = 64  # clocks from the start of a block to its first byte are more
Table = list[list[int]]


def size_of(values: list[int]) -> int:
    """Return the size of a descriptor."""
    if not any(values):
        return 0
    fits = (
        s for s, b in enumerate((3, 4, 5, 8), 1) if all(-(1 << b >> 1) <= v < 1 << b >> 1 for v in values)
    )
    return next(fits, 5)


@dataclass
class SentBlock:
    """Values of a block, their position classes, and what they are coded with."""

    values: list[int]
    positions: list[int]
    table: Table
    thinning: int = 0
    bank: int = 0
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        for at in range(0, len(self.values), LANES):
            row = self.values[at : at + LANES]
            self.rows.append(Row(row, self.positions[at : at + LANES], class_of(row, 0, 0)))

    @property
    def groups(self) -> list[list[Row]]:
        return [self.rows[at : at + GROUP_ROWS] for at in range(0, len(self.rows), GROUP_ROWS)]

    def expected(self) -> tuple[int, bytes]:
        """Return entry and bytes, as if no block were raw."""
        entry, data = _encode_block(self.groups, self.table, 0)
        if entry & 3 != RAW:
            return entry, data
        used = [i for i, group in enumerate(self.groups) if live(group)]
        seeds = _most_seeds(self.groups[used[0]])
        data = _push_groups(self.groups[used[0] : used[-1] + 1], self.table, 0, seeds)
        assert len(data) >= entry >> 24
        return CODED | seeds << 2 | used[0] << 5 | used[-1] << 12 | len(data) << 24, data

    def counts(self) -> Table:
        """Return what is counted."""
        counts = _nothing()
        for group in self.groups:
            count_group(group, FRAME_VALUES[self.thinning], 0, counts)
        return counts

    def impossible(self, seeds: int) -> bool:
        """Return whether a symbol is asked for that is not there; `seeds` rows are not coded."""
        at = next((i for i, group in enumerate(self.groups) if live(group)), 0) * GROUP_ROWS
        riding = [j for j in range(at, len(self.rows)) if self.rows[j].row_class][:seeds]
        for j, row in enumerate(self.rows):
            for lane, value in enumerate(row.values if row.row_class else ()):
                high = value >> low_bits(row.row_class, 0)
                if abs(high) >= LIMIT:
                    return True
                symbol, _ = symbol_of(high, 0)
                if j not in riding and not self.table[row.context(lane)][symbol]:
                    return True
        return False

    def data(self, header: bool, row: int, lane: int) -> int:
        """Return what memory gives for a lane."""
        if header:
            at = row + lane
            if at >= len(self.rows):
                return 0
            line = self.rows[at]
            return line.row_class | size_of(line.values) << 4 | line.mean << 7
        line = self.rows[row]
        if lane >= len(line.values):
            return lane << 16 & 7 << 16
        distance = min(4, max(-3, line.positions[lane] - line.mean)) + 3
        return (line.values[lane] & 0xFFFF) | distance << 16


def random_table(rng: random.Random, last: int = SYMBOLS - 1) -> Table:
    """Return the frequencies of random histograms."""
    rows = []
    for q in range(TABLE_ROWS):
        top = rng.choice((1, 4, 60, 2000))
        hist = [rng.randrange(top) if rng.random() < 0.7 else 0 for _ in range(SYMBOLS)]
        rows.append(frequencies(hist, q, last))
    return rows


@dataclass
class Result:
    """What the unit gave for a block."""

    constant: bool
    value: int
    bits: int
    seeds: int
    first: int
    last: int
    size: int
    bad: bool
    clocks: int


class EncoderBench:
    """The unit and its surroundings; each probability is of a clock."""

    def __init__(self, rng: random.Random, *, no_memory: float = 0.0, no_ready: float = 0.0) -> None:
        self.rng, self.no_memory, self.no_ready = rng, no_memory, no_ready
        self.clk, self.rst, self.phase = bit(), bit(), word(5, rng.randrange(32))
        self.job, self.tables, self.source, self.counts = (
            EncoderJob(),
            TableWrites(),
            SourcePort(),
            CountPort(),
        )
        self.stream = Stream(16, keep=2)
        top = encoder(
            self.clk, self.rst, self.phase, self.job, self.tables, self.source, self.counts, self.stream
        )
        self.sim = CycleSimulator(top, self.clk, self.each)
        self.block: SentBlock | None = None
        self.writes: list[tuple[int, int]] = []
        self.reads: list[tuple[int, bool, int, SentBlock]] = []  # clock of the first lane, header, row
        self.bytes = bytearray()
        self.streams: list[bytes] = []
        self.results: list[Result] = []
        self.counted = _nothing()
        self.queue: list[SentBlock] = []
        self.started_at = self.done_at = 0
        self.watch: Callable[[EncoderBench], None] | None = None  # called in each clock

    def each(self) -> None:
        """Do what happens beside the unit in a clock."""
        rng, now = self.rng, self.sim.clocks
        if self.watch is not None:
            self.watch(self)
        self.phase.next = (int(self.phase) + 1) % 32
        self.write_tables()
        self.serve(now)
        if self.stream.tvalid and self.stream.tready:
            data = int(self.stream.tdata).to_bytes(2, "little")
            keep = int(self.stream.tkeep)
            assert keep == 3 or (keep == 1 and self.stream.tlast)
            if not self.bytes and len(self.streams) == sum(not r.constant for r in self.results):
                assert now - self.started_at > FIRST_BYTE
            self.bytes += data[: 1 + (keep >> 1)]
            if self.stream.tlast:
                self.streams.append(bytes(self.bytes))
                self.bytes.clear()
        self.stream.tready.next = rng.random() >= self.no_ready
        if self.counts.valid:
            assert not self.job.idle, "counts behind its done"
            address = int(self.counts.address)
            self.counted[address >> 4][address & 15] += 1 << int(self.counts.step)
        self.jobs(now)

    def write_tables(self) -> None:
        self.tables.enable.next = bool(self.writes)
        if self.writes:
            self.tables.address.next, self.tables.data.next = self.writes.pop(0)

    def serve(self, now: int) -> None:
        """Give data READ_CLOCKS after a request."""
        if self.source.take:
            assert self.block is not None
            self.reads.append((now + READ_CLOCKS, bool(self.source.header), int(self.source.row), self.block))
        self.source.data.next = self.rng.randrange(1 << 19)
        self.source.mean.next = self.rng.randrange(16)
        self.reads = [r for r in self.reads if now + 1 < r[0] + LANES]
        for begin, header, row, data in self.reads:
            if begin <= now + 1:
                self.source.data.next = data.data(header, row, now + 1 - begin)
                if not header:
                    self.source.mean.next = data.rows[row].mean
        phase = (int(self.phase) + 1) % 32
        if phase == 0:
            self.source.ok.next = False
        elif not self.source.ok:
            self.source.ok.next = self.rng.random() >= self.no_memory

    def jobs(self, now: int) -> None:
        """Start the next block, keep the results of the last."""
        self.job.start.next = False
        if self.job.done:
            j = self.job
            self.done_at = now
            self.results.append(
                Result(
                    bool(j.constant),
                    int(j.value),
                    int(j.bits),
                    int(j.seeds),
                    int(j.first),
                    int(j.last),
                    int(j.bytes),
                    bool(j.bad),
                    now - self.started_at,
                )
            )
        if self.job.idle and not self.job.start and self.queue:
            self.block = self.queue.pop(0)
            self.started_at = now
            self.job.start.next = True
            self.job.values.next = len(self.block.values)
            self.job.bank.next, self.job.thinning.next = self.block.bank, self.block.thinning

    def load(self, table: Table, bank: int) -> None:
        """Write a bank."""
        self.writes += table_words(table, bank)
        self.sim.run(len(self.writes) + 1)

    def code(self, blocks: list[SentBlock], *, results: int = 0, limit: int = 1 << 18) -> None:
        """Code blocks one after another, and wait for their results and bytes."""
        self.queue += blocks
        results = results or len(self.results) + len(blocks)
        end = self.sim.clocks + limit
        while len(self.results) < results:
            assert self.sim.clocks < end, "the unit hangs"
            self.sim.run(16)
        self.drain()

    def reset(self) -> None:
        """Reset the unit; what it gave before does not count."""
        self.rst.next = True
        self.queue.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)
        self.forget()
        assert self.job.idle
        for signal in (self.stream.tvalid, self.source.take, self.counts.valid, self.job.done):
            assert not signal

    def forget(self) -> None:
        """Forget results, bytes and counts."""
        self.results.clear()
        self.streams.clear()
        self.bytes.clear()
        self.counted = _nothing()

    def drain(self) -> None:
        """Let all bytes come."""
        quiet = 0
        while quiet < 3:
            quiet = 0 if self.stream.tvalid or self.bytes else quiet + 1
            self.sim.run(64)


def check(block: SentBlock, result: Result, stream: bytes | None) -> None:
    """Compare with the reference."""
    entry, data = block.expected()
    assert not result.bad
    bits = max((v ^ (v >> 31)).bit_length() for v in block.values)
    assert result.bits == bits
    if entry & 3 == CONSTANT:
        assert result.constant
        assert result.value == block.values[0] & 0xFFFF
        assert stream is None
        return
    assert not result.constant
    assert stream is not None
    assert len(stream) == result.size
    mine = CODED | result.seeds << 2 | result.first << 5 | result.last << 12 | result.size << 24
    assert (hex(mine), stream.hex()) == (hex(entry), data.hex())
