"""The decoder against the reference: values, sums, their order, counts, descriptors, and what is refused."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from needs import needs
from oscar.coding.asc.model import class_of, low_bits, symbol_of
from oscar.coding.asc.params import LIMIT
from oscar.coding.asc.reference import _signed
from oscar_hdl.coder.decode.decoder import decoder
from oscar_hdl.coder.ports import CountPort, DecoderJob, PositionPort, SumPort, TableWrites
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.blocks import table_words
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.converted import compare_verilog
from support.decoder_block import SIZES, DecodedBlock, random_block, random_freq, random_local

pytestmark = pytest.mark.usefixtures("seed")

SUMS = ("take", "row", "valid", "total", "described", "described_row", "row_class", "row_size", "row_top")


@dataclass
class Chances:
    """How often the ports let the decoder wait."""

    gap: float = 0.0  # between pairs
    ok: float = 1.0


class Bench:
    """A decoder, its memory, its source of bytes, clock by clock."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clk, self.rst, self.phase = bit(), bit(), word(5)
        self.job, self.tables, self.s_axis = DecoderJob(), TableWrites(), Stream(16)
        self.position, self.sums, self.counting = PositionPort(), SumPort(), CountPort()
        self.top = decoder(
            self.clk, self.rst, self.phase, self.job, self.tables, self.s_axis, self.position, self.sums,
            self.counting,
        )  # fmt: skip
        self.sim = CycleSimulator(self.top, self.clk, self.each)
        self.chances = Chances()
        self.writes: list[tuple[int, int]] = []
        self.feed: list[tuple[int, bool]] = []
        self.trace: list[tuple[list[int], list[int]]] | None = None
        self.clock = 0
        self.local: dict[tuple[int, int], int] = {}
        self.forget()

    def forget(self) -> None:
        """Begin anew with all that came out."""
        self.order: list[int] = []
        self.totals: dict[tuple[int, int], int] = {}
        self.described: list[tuple[int, int, int, int]] = []
        self.counts: dict[tuple[int, int], int] = {}
        self.due_data: dict[int, tuple[int, int]] = {}
        self.due_local: dict[int, int] = {}
        self.due_total: dict[int, tuple[int, int]] = {}
        self.done = False

    def ports(self) -> tuple[list[tuple[str, object]], list[tuple[str, object]]]:
        """Inputs and outputs with their names after conversion."""
        inputs, outputs = [("rst", self.rst), ("phase", self.phase)], []
        out = {
            "job": ("idle", "done", "bad"),
            "tables": (),
            "s_axis_bytes": ("tready",),
            "position": ("take", "header", "row"),
            "sums": SUMS,
            "counts": ("valid", "address", "step"),
        }
        bundles = (self.job, self.tables, self.s_axis, self.position, self.sums, self.counting)
        for (prefix, names), bundle in zip(out.items(), bundles, strict=True):
            for name, signal in vars(bundle).items():
                (outputs if name in names else inputs).append((f"{prefix}_{name}", signal))
        return inputs, outputs

    def each(self) -> None:
        """Do what surrounds the decoder in a clock."""
        if self.trace is not None:
            inputs, outputs = self.ports()
            self.trace.append(([int(s) for _, s in inputs], [int(s) for _, s in outputs]))  # type: ignore[call-overload]
        self.phase.next = self.phase + 1
        self._tables()
        self._positions()
        self._sums()
        self._bytes()
        if self.counting.valid and not self.rst:
            assert not self.job.idle, "counts behind its done"
            address = int(self.counting.address)
            key = (address >> 4, address & 15)
            self.counts[key] = self.counts.get(key, 0) + (1 << int(self.counting.step))
        self.done = self.done or bool(self.job.done)
        self.clock += 1

    def _tables(self) -> None:
        self.tables.enable.next = bool(self.writes)
        if self.writes:
            self.tables.address.next, self.tables.data.next = self.writes.pop(0)

    def _positions(self) -> None:
        if self.position.take and not self.rst:
            assert self.phase == 0
            at, header = int(self.position.row), bool(self.position.header)
            for k in range(32):
                data = self.block.position(header, at, 31 - k)
                mean = self.rng.randrange(16) if header else self.block.row(at).mean
                junk = 0 if header else self.rng.randrange(2) << 3
                self.due_data[self.clock + 3 + k] = (data | junk, mean)
        noise = self.rng.randrange(16), self.rng.randrange(16)
        self.position.data.next, self.position.mean.next = self.due_data.pop(self.clock, noise)
        if self.phase == 24:
            self.position.ok.next = self.rng.random() < self.chances.ok

    def _sums(self) -> None:
        if self.sums.take and not self.rst:
            row = int(self.sums.row)
            self.order.append(row)
            for k in range(32):
                self.due_local[self.clock + 3 + k] = self.local.get((row, 31 - k), 0)
                self.due_total[self.clock + 6 + k] = (row, 31 - k)
        self.sums.local.next = self.due_local.pop(self.clock, self.rng.randrange(1 << 16))
        key = self.due_total.pop(self.clock, None)
        if not self.rst:
            assert bool(self.sums.valid) == (key is not None)
            if key is not None:
                self.totals[key] = int(self.sums.total)
            if self.sums.described:
                row, row_class = int(self.sums.described_row), int(self.sums.row_class)
                self.described.append((row, row_class, int(self.sums.row_size), int(self.sums.row_top)))

    def _bytes(self) -> None:
        if self.s_axis.tvalid and self.s_axis.tready and self.feed:
            self.feed.pop(0)
            self.offered = False
        if self.feed and (self.offered or self.rng.random() >= self.chances.gap):
            self.offered = True
            self.s_axis.tdata.next, self.s_axis.tlast.next = self.feed[0]
        else:
            self.offered = False
            self.s_axis.tdata.next = self.rng.randrange(1 << 16)
            self.s_axis.tlast.next = self.rng.randrange(2)
        self.s_axis.tvalid.next = self.offered

    offered = False

    def load(self, block: DecodedBlock) -> None:
        """Write a block's tables."""
        self.writes += table_words(block.freq, block.bank)
        self.sim.run(len(self.writes) + 3)

    def start(self, block: DecodedBlock, pairs: list[int]) -> None:
        """Start a job and give its pairs."""
        self.block, self.done, job = block, False, self.job
        self.feed += [(pair, i == len(pairs) - 1) for i, pair in enumerate(pairs)]
        for name in ("bank", "thinning", "seeds", "first", "last"):
            getattr(job, name).next = getattr(block, name)
        job.values.next, job.odd.next = len(block.values), len(block.data) & 1
        job.start.next = True
        self.sim.run(1)
        job.start.next = False

    def finish(self) -> int:
        """Run to the end of the job; return the clocks."""
        begin = self.clock
        while not self.done:
            self.sim.run(1)
            assert self.clock - begin < 100_000, "the decoder hangs"
        return self.clock - begin

    def reset(self) -> None:
        """Reset for as long as units need; nothing that was going on goes on."""
        self.rst.next = True
        self.feed.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)
        self.forget()
        assert self.job.idle

    def check(self, block: DecodedBlock, *, counts: bool = True) -> None:
        """Compare all that came out with a block."""
        assert not self.job.bad
        assert self.order == block.order()
        rows = [row for group in block.groups for row in group]
        described = []
        for r in self.order:
            sums = [_signed(v + self.local.get((r, i), 0) & 0xFFFF, 16) for i, v in enumerate(rows[r].values)]
            got = [self.totals[r, lane] for lane in range(32)]
            assert got == [s & 0xFFFF for s in sums] + [0] * (32 - len(sums)), (r, rows[r])
            size = next(
                i for i, n in enumerate(SIZES, 1) if all(-(1 << n - 1) <= s < 1 << n - 1 for s in sums)
            )
            row_class = class_of(sums, 0, 0)
            top = symbol_of(min(max(map(abs, sums)), LIMIT - 1), 0)[0]
            described.append((r, row_class, size if row_class else 0, top))
        assert self.described == described
        if counts:
            assert self.counts == block.counts()


def test_blocks_come_back_added_and_counted() -> None:
    rng = dice("decoder")
    bench = Bench(rng)
    for count in (1, rng.randrange(2, 70), 1024, rng.randrange(1000, 1100)):
        block = random_block(rng, count)
        bench.forget()
        bench.local = random_local(rng, block)
        bench.chances = Chances(rng.choice([0, 0.5, 0.9]), rng.choice([1, 0.5]))
        bench.load(block)
        bench.start(block, block.pairs(rng.randrange(256)))
        bench.finish()
        bench.sim.run(1)
        assert not bench.feed
        bench.check(block)


def test_any_number_of_rows_rides_in_the_start_states() -> None:
    rng = dice("decoder seeds")
    bench = Bench(rng)
    for seeds, largest in ((0, 500), (1, 32767), (2, 127), (3, 15), (4, 7), (5, 3)):
        rows = rng.choice([1, 3, 7])
        count = rows * 32 - rng.randrange(31)
        values = [rng.randint(-largest, largest) for _ in range(count)]
        last = symbol_of(min(LIMIT - 1, largest), 0)[0]
        positions = [rng.randrange(16) for _ in values]
        block = DecodedBlock(values, positions, random_freq(rng, last), seeds=seeds)
        bench.forget()
        bench.local = {}
        bench.load(block)
        bench.start(block, block.pairs(0))
        bench.finish()
        bench.check(block)


def test_a_reset_forgets_a_block_at_any_clock() -> None:
    rng = dice("decoder reset")
    bench = Bench(rng)
    block = random_block(rng, 96, zero=0.3)
    bench.load(block)
    for _ in range(12):
        bench.forget()
        bench.start(block, block.pairs(0))
        bench.sim.run(rng.randrange(400))
        bench.reset()
        bench.sim.run(rng.randrange(3))
    bench.start(block, block.pairs(0))
    bench.finish()
    bench.check(block)


def test_damaged_bytes_are_refused_where_the_reference_refuses_them() -> None:
    rng = dice("decoder damage")
    bench = Bench(rng)
    for kind in ("bits", "short", "long", "bits", "short", "none", "bits", "long", "none"):
        block = random_block(rng, rng.randrange(1, 200), zero=0.1)
        pairs = block.pairs(0)
        if kind == "bits":
            for _ in range(rng.randrange(1, 4)):
                pairs[rng.randrange(len(pairs))] ^= 1 << rng.randrange(16)
        elif kind == "short":
            del pairs[rng.randrange(49, max(50, len(pairs))) :]  # receivers refuse less than 96 bytes
        elif kind == "long":
            pairs += [rng.randrange(1 << 16) for _ in range(rng.choice([1, 2, 700]))]
        bench.forget()
        bench.local = {}
        bench.load(block)
        bench.start(block, pairs)
        bench.finish()
        data = b"".join(pair.to_bytes(2, "little") for pair in pairs)[len(block.data) & 1 :][::-1]
        if block.damaged(data):
            assert bench.job.bad
            assert not bench.feed
        else:
            fit = [
                abs(v >> low_bits(row.row_class, 0)) < LIMIT
                for group in block.groups for row in group for v in row.values
            ]  # fmt: skip
            bench.check(block, counts=all(fit))


def test_slots_follow_one_another() -> None:
    rng = dice("decoder speed")
    bench = Bench(rng)
    values = [rng.choice([-2, -1, 1, 2]) for _ in range(2048)]
    block = DecodedBlock(values, [7] * len(values), random_freq(rng, 2))
    bench.load(block)
    bench.start(block, block.pairs(0))
    bench.feed += [(pair, False) for pair in block.pairs(0)]  # of the next block, before this one is done
    bench.feed[-1] = bench.feed[-1][0], True
    bench.finish()
    begin = bench.clock
    bench.sim.run(1)
    bench.check(block)
    bench.forget()
    bench.start(block, [])
    bench.finish()
    assert bench.clock - begin == 32 * (64 + 2 + 2 + 2)  # rows, classes, load, what comes behind them
    bench.sim.run(1)
    bench.check(block)


def test_verilog_does_the_same_in_every_clock(tmp_path: Path) -> None:
    needs("iverilog")
    rng = dice("decoder verilog")
    bench = Bench(rng)
    bench.trace = []
    bench.reset()
    warm = 0
    for _ in range(2):
        block = random_block(rng, 100, zero=0.1)
        bench.forget()
        bench.load(block)
        bench.start(block, block.pairs(0))
        bench.finish()
        bench.check(block)
        warm = warm or bench.clock  # combinational processes do not run before one of their inputs changes
    compare_verilog("decoder", bench.ports(), bench.trace, tmp_path, warm)
