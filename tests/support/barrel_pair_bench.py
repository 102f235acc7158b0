"""A test bench of both barrel units at one bank: blocks become bytes, and bytes become sums."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from typing import Any

from myhdl import block

from oscar_hdl.coder.decode.barrel_decoder import barrel_decoder
from oscar_hdl.coder.decode.ports import DecoderJob, FeedPort
from oscar_hdl.coder.encode.barrel_encoder import barrel_encoder
from oscar_hdl.coder.encode.ports import DrainPort, EncoderJob
from oscar_hdl.coder.ports import TableWrites
from oscar_hdl.coder.unit.ports import THREADS, WORD_BYTES, CountedLanes
from oscar_hdl.nic.memory.row_bank import row_bank
from oscar_hdl.streams.bundles import Stream
from oscar_sim.blocks import table_words
from oscar_sim.compiled import copy_of
from support.bank_units import BLOCK_BITS
from support.encoder_block import Table
from support.row_bank_bench import BankBench


@dataclass
class Carried:
    """A block that is encoded from the bank's block `first`, and its bytes as they come."""

    first: int
    values: int
    thread: int = 0
    done: bool = False
    entry: tuple[int, int, int] = (0, 0, 0)  # seeds, first, last
    data: bytes | None = None


@block
def barrel_pair(bench: PairBench) -> Any:
    """The bank and both units."""
    return (
        row_bank(
            bench.clk, bench.rst, bench.phase, bench.position, bench.blocks["position"], bench.sums,
            bench.source, bench.blocks["source"], bench.loads_in, bench.read, bench.top,
            block_bits=BLOCK_BITS,
        ),
        barrel_encoder(
            bench.clk, bench.rst, bench.phase, bench.encode, bench.quads, bench.source, bench.counts[0],
            bench.drain, bench.stream,
        ),
        barrel_decoder(
            bench.clk, bench.rst, bench.phase, bench.decode, bench.quads, bench.feed, bench.position,
            bench.sums, bench.counts[1],
        ),
    )  # fmt: skip


class PairBench(BankBench):
    """The bank, whose units are there, with its loader and its reader; blocks carry no constants."""

    def __init__(self, rng: random.Random) -> None:
        self.encode, self.decode = EncoderJob(), DecoderJob()
        self.quads = TableWrites()
        self.feed, self.drain, self.stream = FeedPort(), DrainPort(), Stream(128, keep=WORD_BYTES)
        self.counts = CountedLanes(), CountedLanes()
        self.writes: list[tuple[int, int]] = []
        self.to_code: list[Carried] = []
        self.coding: list[Carried] = []
        self.drained: Carried | None = None
        self.bytes = bytearray()
        self.to_add: list[tuple[Carried, int]] = []  # and to which block
        self.adding: dict[int, list[int]] = {}  # words that are to be given, by thread
        self.bad = 0
        super().__init__(rng)

    def make(self) -> Any:
        """See BankBench."""
        units = [self.encode, self.decode, self.quads, self.feed, self.drain, self.stream]
        ports = [self.rst, self.phase, self.blocks, self.values, self.side, self.read, self.top]
        ports += [*units, *self.counts]
        return copy_of("pair bench", partial(barrel_pair, self), self.clk, self.each, ports)

    def each(self) -> None:
        """Do what happens beside bank and units in a clock."""
        phase = int(self.phase) % 4
        self.phase.next = (int(self.phase) + 1) % 16
        self.load(phase)
        self.reader(self.sim.clocks, phase)
        self.quads.enable.next = bool(self.writes)
        if self.writes:
            self.quads.address.next, self.quads.data.next = self.writes.pop(0)
        if not self.rst:
            self.run_encoder()
            self.take_bytes()
            self.run_decoder()
            self.give_bytes()

    def run_encoder(self) -> None:
        """Start blocks, and keep what is said of those that are done."""
        job, blocks = self.encode, self.blocks["source"]
        if job.done:
            found = next(c for c in self.coding if c.thread == int(job.done_thread) and not c.done)
            assert not job.bad
            assert not job.constant
            found.done, found.entry = True, (int(job.seeds), int(job.first), int(job.last))
        blocks.start.next = False
        started, job.start.next = bool(job.start), False
        busy = {c.thread for c in self.coding if c.data is None or not c.done}
        free = [t for t in range(THREADS) if int(job.idle) >> t & 1 and t not in busy]
        if self.to_code and free and not started and not self.writes:
            one = self.to_code.pop(0)
            one.thread = self.rng.choice(free)
            self.coding.append(one)
            job.start.next, job.thread.next, job.values.next = True, one.thread, one.values
            job.bank.next = 0
            blocks.start.next, blocks.thread.next, blocks.first.next = True, one.thread, one.first

    def take_bytes(self) -> None:
        """Drain the oldest block."""
        stream, drain = self.stream, self.drain
        if stream.tvalid and stream.tready:
            assert self.drained is not None
            number = int(stream.tkeep).bit_length()
            self.bytes += int(stream.tdata).to_bytes(WORD_BYTES, "little")[:number]
            if stream.tlast:
                self.drained.data, self.drained = bytes(self.bytes), None
                self.bytes.clear()
        stream.tready.next = self.rng.random() < 0.9
        started, drain.start.next = bool(drain.start), False
        waiting = [c for c in self.coding if c.data is None]
        if self.drained is None and drain.idle and not started and waiting:
            self.drained = waiting[0]
            drain.start.next, drain.thread.next = True, waiting[0].thread

    def run_decoder(self) -> None:
        """Start blocks."""
        job, blocks = self.decode, self.blocks["position"]
        if job.done:
            assert not self.adding.pop(int(job.done_thread))
            self.bad += bool(job.bad)
        blocks.start.next = False
        job.start.next = False
        free = [t for t in range(THREADS) if int(job.idle) >> t & 1 and t not in self.adding]
        if self.to_add and free and not self.quiet and not self.writes:
            carried, first = self.to_add.pop(0)
            assert carried.data is not None
            thread = self.rng.choice(free)
            job.start.next, job.thread.next, job.values.next = True, thread, carried.values
            job.bank.next = 0
            job.bytes.next, job.offset.next = len(carried.data), 0
            job.seeds.next, job.first.next, job.last.next = carried.entry
            blocks.start.next, blocks.thread.next, blocks.first.next = True, thread, first
            data = bytes(-len(carried.data) % WORD_BYTES) + carried.data[::-1]
            self.adding[thread] = [
                int.from_bytes(data[i : i + WORD_BYTES], "little") for i in range(0, len(data), WORD_BYTES)
            ]
            self.quiet = 6

    def give_bytes(self) -> None:
        """Give a thread that has room a word every second clock, the first some clocks behind its start."""
        feed = self.feed
        self.quiet = max(0, self.quiet - 1)
        given, feed.valid.next = bool(feed.valid), False
        may = [t for t, words in self.adding.items() if words and int(self.feed.room) >> t & 1]
        if may and not given and not self.quiet:
            thread = self.rng.choice(may)
            feed.valid.next, feed.thread.next, feed.data.next = True, thread, self.adding[thread].pop(0)

    quiet = 0  # clocks until words come

    def tables(self, table: Table) -> None:
        """Write both units' bank 0."""
        self.writes = table_words(table, 0)
        self.sim.run(len(self.writes) + 4)

    def until(self, over: Any, limit: int = 40_000) -> None:
        """Wait until `over` says so."""
        for _ in range(limit // 8):
            self.sim.run(8)
            if over():
                return
        raise AssertionError("no end")
