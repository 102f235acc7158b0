"""raw_decoder: values, counts and sums of raw and constant blocks equal the reference."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc.model import Row, class_of, count_group
from oscar_hdl.coder.decode.raw_decoder import raw_decoder
from oscar_hdl.coder.ports import CountPort, PositionPort, RawJob, SumPort
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.rtl_rows import CountMemory, PositionMemory, SumMemory

pytestmark = pytest.mark.usefixtures("seed")


def counted(values: np.ndarray, positions: np.ndarray) -> list[int]:
    """Return what the reference counts in a block."""
    counts = [[0] * 16 for _ in range(32)]
    rows = []
    for at in range(0, values.size, 32):
        part = values[at : at + 32].tolist()
        rows.append(Row(part, positions[at : at + 32].tolist(), class_of(part, 0, 0)))
    for number in range(-(-len(rows) // 32)):
        count_group(rows[32 * number : 32 * number + 32], number, values.size, 0, counts)
    return [n for row in counts for n in row]


def pairs(values: np.ndarray, width: int) -> list[int]:
    """Return a raw block's bytes, two in a word."""
    packed = sum((int(v) & ((1 << width) - 1)) << (width * i) for i, v in enumerate(values))
    return [packed >> (16 * i) & 0xFFFF for i in range(-(-values.size * width // 16))]


class Bench:
    """A raw_decoder with memory, counts and a source of bytes."""

    def __init__(self, rng: Random, *, ok: float = 1, bytes_come: float = 1) -> None:
        self.clk, self.rst, self.phase = bit(), bit(), word(5)
        self.job, self.raw = RawJob(), Stream(16)
        ports = PositionPort(), SumPort(), CountPort()
        self.rng, self.come, self.words = rng, bytes_come, []
        nothing = frame_rows(np.zeros(32))
        self.position = PositionMemory(ports[0], self.phase, nothing, rng, ok=ok)
        self.sums = SumMemory(ports[1], self.phase, nothing.values, 32, rng)
        self.counts = CountMemory(ports[2], self.job)
        self.dones = 0
        top = raw_decoder(self.clk, self.rst, self.phase, self.job, self.raw, *ports)
        self.simulator = CycleSimulator(top, self.clk, self.each)

    def each(self) -> None:
        self.phase.next = (int(self.phase) + 1) % 32
        if self.raw.tvalid and self.raw.tready and self.words:
            self.words.pop(0)
        keeps = self.raw.tvalid and not self.raw.tready
        shown = bool(self.words) and (bool(keeps) or self.rng.random() < self.come)
        self.raw.tvalid.next = shown
        self.raw.tdata.next = self.words[0] if shown else self.rng.getrandbits(16)
        for part in (self.position, self.sums, self.counts):
            part.step()
        self.dones += bool(self.job.done)

    def reset(self) -> None:
        self.rst.next = True
        self.simulator.run(1)
        self.rst.next = False
        self.words.clear()
        self.raw.tvalid.next = False
        self.simulator.run(1)
        assert self.job.idle
        self.counts.counts = [0] * 512

    def start(self, rows: FrameRows, given: np.ndarray, **fields: Any) -> None:
        self.position.rows = rows
        self.sums.begin(given, rows.count)
        for name, value in {"values": rows.count, **fields}.items():
            getattr(self.job, name).next = value
        self.dones = 0
        self.job.start.next = True
        self.simulator.run(1)
        self.job.start.next = False
        self.simulator.run(1)

    def finish(self) -> int:
        """Run until done; return the clocks it took."""
        for clocks in range(20_000 * (1 + self.job.values // 1024)):
            if self.dones:
                assert self.job.idle
                assert self.sums.complete
                assert not self.words
                return clocks
            self.simulator.run(1)
        raise AssertionError("no end")


def block_of(rng: Random, width: int, count: int) -> np.ndarray:
    """Return values of up to `width` bits, some rows of zeros, some groups small or zero."""
    r = np.random.default_rng(rng.getrandbits(32))
    half = 1 << (width - 1)
    values = r.integers(-half, half, count)
    values >>= np.repeat(r.integers(0, width, -(-count // 32)), 32)[:count]
    for size, chance in ((32, r.choice([0.1, 0.6, 0.9])), (1024, 0.2)):
        values *= np.repeat(r.random(-(-count // size)) >= chance, size)[:count]
    return values


@pytest.mark.parametrize("smooth", [True, False])
def test_blocks_one_after_another(smooth: bool):
    rng = dice(f"raw {smooth}")
    bench = Bench(rng) if smooth else Bench(rng, ok=0.5, bytes_come=0.3)
    bench.reset()
    for number, width in enumerate([*rng.sample(range(1, 17), 4), 16, 3, 11]):
        count = rng.choice([1, 31, 32, 33, 1000, 1024, 1025, rng.randrange(1, 2500)])
        constant = rng.random() < 0.2
        values = block_of(rng, width, count)
        if constant:
            values[:] = rng.choice([1, -1, 191, -192, 1528, -32768, 32767])
        positions = np.array([rng.randrange(16) for _ in range(count)])
        rows = frame_rows(values, positions)
        local = frame_rows(block_of(rng, rng.choice([2, 8, 16]), count)).values
        bench.words = [] if constant else pairs(values, width)
        before = list(bench.counts.counts)
        bench.start(
            rows, local, width=width, constant=constant,
            value=int(values[0]) & 0xFFFF,
        )  # fmt: skip
        clocks = bench.finish()
        sums = (rows.values + local + 0x8000) % 0x10000 - 0x8000
        live = np.flatnonzero(rows.classes)
        assert sorted(bench.sums.taken) == live.tolist()
        assert np.array_equal(bench.sums.values[live], sums[live])
        new = [b - a for a, b in zip(before, bench.counts.counts, strict=True)]
        assert new == counted(values, positions), (number, width, count, constant)
        if smooth:  # a value a clock, a row in 32, and 200 a group
            assert clocks < 70 * -(-count // 32) + 200 * -(-count // 1024)


def test_reset_at_any_clock():
    rng = dice("raw reset")
    bench = Bench(rng, ok=0.8, bytes_come=0.8)
    for _ in range(6):
        bench.reset()
        values = block_of(rng, 7, 1500)
        positions = np.array([rng.randrange(16) for _ in range(1500)])
        rows = frame_rows(values, positions)
        bench.words = pairs(values, 7)
        bench.start(rows, rows.values, width=7, constant=False)
        bench.simulator.run(rng.randrange(5000))
    bench.reset()
    values[0], bench.words = 1, []
    bench.words = pairs(values, 7)
    rows = frame_rows(values, positions)
    bench.start(rows, rows.values, width=7, constant=False)
    bench.finish()
    assert np.array_equal(bench.sums.values, 2 * rows.values)
    assert bench.counts.counts == counted(values, positions)
