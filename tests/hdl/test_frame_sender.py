"""frame_sender against the host's frames, with units, tables and memory that are models."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from needs import needs
from oscar_hdl.coder.encode.ports import BUFFER_BYTES, DrainPort, EncoderJob
from oscar_hdl.coder.ports import BANKS
from oscar_hdl.coder.unit.ports import ALL_THREADS, THREADS, WORD_BYTES
from oscar_hdl.flow.placement.parts import sides
from oscar_hdl.nic.ports import BankBlock
from oscar_hdl.nic.send.frame_sender import EncodeUnits, frame_sender
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.seeds import dice
from support.converted import compare_verilog
from support.sender_bench import SenderBench
from support.sent_frames import (
    CONSTANT,
    ROW_BITS,
    Frame,
    Part,
    checksum,
    random_frame,
    sized_frame,
)

pytestmark = pytest.mark.usefixtures("seed")

LOG2 = 10  # of a block's values
TURN_BYTES = 128  # that two turns may give


@dataclass
class Thread:
    """A block that a unit has, or had: its bytes stay."""

    part: Part
    index: int
    bank: int
    bad: bool
    data: bytes
    wait: int
    made: int = 0
    taken: int = 0
    ended: bool = False


@dataclass
class Unit:
    """A model of a barrel encoder."""

    number: int
    job: Any
    drain: Any
    stream: Any
    rows: Any
    rng: random.Random
    speed: float
    threads: dict[int, Thread] = field(default_factory=dict)
    draining: int = -1
    idle: int = ALL_THREADS

    def clock(self, bench: SenderBench) -> None:
        """Do what is done in a clock."""
        job = self.job
        self._give(bench)
        job.done.next = False
        for name in ("done_thread", "bytes", "bits", "seeds", "first", "last", "value", "bad", "constant"):
            getattr(job, name).next = self.rng.getrandbits(1)
        told = False
        for number, thread in sorted(self.threads.items(), key=lambda _: self.rng.random()):
            if thread.ended or self.rng.random() > self.speed:
                continue
            if thread.wait:
                thread.wait -= 1
            elif thread.made < len(thread.data):
                if thread.made - thread.taken <= BUFFER_BYTES - TURN_BYTES:
                    thread.made = min(len(thread.data), thread.made + self.rng.randrange(40))
            elif not told:
                told = True
                self._end(bench, number, thread)
        self._start(bench)
        job.idle.next = self.idle

    def _start(self, bench: SenderBench) -> None:
        """Take a block."""
        job, rows = self.job, self.rows
        assert bool(job.start) == bool(rows.start)
        if not job.start:
            return
        number = int(job.thread)
        assert number == rows.thread
        assert int(job.idle) >> number & 1
        assert number not in self.threads or self.threads[number].ended
        assert number != self.draining
        frame = bench.frame_of(int(job.bank))
        last, clock = bench.built[int(job.bank)]
        assert last == frame.last
        assert bench.simulator.clocks >= clock + 5
        index, part = bench.block_at(frame, bench.row_of(self.number, int(rows.first)), int(job.values))
        bench.ahead += frame is not bench.frame
        assert int(job.bank) != bench.drained
        data = part.data
        if part.kind == CONSTANT and part.values[0]:
            data = self.rng.randbytes(self.rng.randrange(64, 200))
        wait = self.rng.choice((30, 40, 200))
        self.threads[number] = Thread(part, index, int(job.bank), index == frame.bad, data, wait)
        self.idle &= ~(1 << number)
        bench.starts.append((index, len(bench.done)))

    def _end(self, bench: SenderBench, number: int, thread: Thread) -> None:
        """Tell what came of a block."""
        job, part = self.job, thread.part
        thread.ended = True
        job.done.next, job.done_thread.next = True, number
        self.idle |= 1 << number
        bench.done.append(thread.index)
        job.bad.next = thread.bad
        job.constant.next = part.kind == CONSTANT
        job.value.next = part.values[0] & 0xFFFF
        job.bits.next = part.bits
        job.seeds.next, job.first.next, job.last.next = part.seeds, part.first, part.last
        job.bytes.next = self.rng.getrandbits(19) if part.kind == CONSTANT else len(part.data)

    def _give(self, bench: SenderBench) -> None:
        """Give words of the thread that is drained."""
        stream, drain = self.stream, self.drain
        if stream.tvalid and stream.tready:
            stream.tvalid.next = False
            if stream.tlast:
                self.draining = -1
                drain.idle.next = True
        if self.draining >= 0 and (not stream.tvalid or stream.tready):
            thread = self.threads[self.draining]
            left = thread.made - thread.taken
            if thread.ended and not thread.data:
                self.draining = -1
                drain.idle.next = True
            elif (left > WORD_BYTES or (thread.ended and left)) and self.rng.random() < self.speed:
                piece = thread.data[thread.taken : thread.taken + WORD_BYTES]
                thread.taken += len(piece)
                junk = self.rng.randbytes(WORD_BYTES - len(piece))
                stream.tdata.next = int.from_bytes(piece + junk, "little")
                stream.tkeep.next = (1 << len(piece)) - 1
                stream.tlast.next = thread.taken == len(thread.data)
                stream.tvalid.next = True
        if drain.start:
            assert drain.idle
            assert self.draining < 0
            self.draining = int(drain.thread)
            assert self.threads[self.draining].taken == 0, "a block is drained once"
            drain.idle.next = False

    def busy(self, bank: int) -> bool:
        """Return whether a block of a bank is coded."""
        return any(thread.bank == bank and not thread.ended for thread in self.threads.values())

    def reset(self) -> None:
        """Forget all."""
        self.threads.clear()
        self.draining, self.idle = -1, ALL_THREADS
        self.job.idle.next, self.job.done.next = ALL_THREADS, False
        self.stream.tvalid.next, self.drain.idle.next = False, True


class Bench(SenderBench):
    """A sender and models of units."""

    def __init__(
        self, rng: random.Random, units: int, *, bus_bits: int = 64, store_log2: int = 8, speed: float = 1.0,
        pressure: float = 0.0, log2: int = LOG2,
    ) -> None:  # fmt: skip
        self.log2 = log2
        self.jobs = [EncoderJob() for _ in range(units)]
        self.drains = [DrainPort() for _ in range(units)]
        self.streams = [Stream(8 * WORD_BYTES, keep=WORD_BYTES) for _ in range(units)]
        self.bits = units.bit_length() - 1
        self.blocks = [BankBlock(ROW_BITS - self.bits) for _ in range(units)]
        for job, drain in zip(self.jobs, self.drains, strict=True):
            job.idle, drain.idle = word(THREADS, ALL_THREADS), bit(1)
        ports = zip(self.jobs, self.drains, self.streams, self.blocks, strict=True)
        self.units = [Unit(n, *four, rng, speed) for n, four in enumerate(ports)]

        def make(bench: SenderBench) -> Callable[[], Any]:
            parts = EncodeUnits(
                self.jobs, self.drains, self.streams, self.blocks, bench.source, bench.raw_row
            )
            self.arguments = (bench.tx, bench.command, bench.row, bench.top, bench.tables, parts)
            return partial(
                frame_sender, bench.clk, bench.rst, *self.arguments, bus_bits=bus_bits,
                store_log2=store_log2, block_log2=log2,
            )  # fmt: skip

        more = [*self.jobs, *self.drains, *self.streams, *self.blocks]
        key = "sender bench", units, bus_bits, store_log2, log2
        super().__init__(rng, key, make, more, bus_bits=bus_bits, pressure=pressure)

    def row_of(self, unit: int, first: int) -> int:
        """Return the row of memory of a row of a unit's bank."""
        low = self.log2 - 5
        return (first >> low << self.bits | unit) << low | first & (1 << low) - 1 if self.bits else first

    def start(self, frame: Frame) -> None:
        """Give a command whose blocks lie in banks."""
        if self.bits:
            frame.row &= ~((1 << self.log2 - 5) - 1)
        super().start(frame)


def test_frames_overlap() -> None:
    rng, early, ahead, most = dice(34), 0, 0, 0
    for _ in range(30):  # chance may keep them apart
        bench = overlapping(rng)
        early, ahead, most = early + bench.early, ahead + bench.ahead, max(most, bench.most)
        if early and ahead and most == BANKS:
            break
    assert early
    assert ahead
    assert most == BANKS


def overlapping(rng: random.Random) -> Bench:
    """Run a bench whose frames follow each other as fast as they can; return it at its end."""
    bench = Bench(rng, rng.choice((1, 2, 4)), store_log2=9, speed=rng.choice((0.5, 1.0)))
    bench.table_clocks = range(1, 1500)
    frames = [
        random_frame(rng, blocks=rng.choice((0, 1, 2, 3, 9)), most=400, kinds="ccccckr") for _ in range(9)
    ]
    frames += [random_frame(rng, blocks=2, most=400, kinds="c") for _ in range(2)]
    frames.insert(5, random_frame(rng, blocks=34, most=24, kinds="ck"))  # so many values are counted in part
    frames.insert(7, sized_frame(rng, 5000))
    for n, frame in enumerate(frames):  # few sets: some load what is saved just before
        frame.load, frame.save = rng.randrange(3), rng.randrange(3)
        frame.header = replace(frame.header, checksum=checksum(frame.load, frame.fresh))
        if len(frame.bytes()) >= 8 * ((1 << 9) - 4):
            frame.error = 4
        if frame.parts and (n in (6, 8) or rng.random() < 0.2):
            frame.bad, frame.error = rng.randrange(len(frame.parts)), 5
    bench.check(frames, pauses=0)
    return bench


@pytest.mark.parametrize(("bus_bits", "units"), [(128, 2), (512, 8)])
def test_wide_buses(bus_bits: int, units: int) -> None:
    rng = dice(bus_bits)
    bench = Bench(rng, units, bus_bits=bus_bits, store_log2=10, pressure=rng.choice((0, 0.3)))
    bench.check([random_frame(rng, blocks=n, kinds="cckcr") for n in (units + 1, 1, 0, 3)])


def test_frames_that_do_not_fit_leave_no_trace() -> None:
    rng = dice(30)
    bench = Bench(rng, rng.choice((1, 2, 4)), store_log2=7, pressure=0.5)
    room = 8 * ((1 << 7) - 4)
    frames = [
        sized_frame(rng, size)
        for size in (room - 8, room, room - 1, room + 1, room - 7, 5000, 100, room // 2, room // 3, room - 1)
    ]
    for frame in frames:
        frame.error = 4 * (len(frame.bytes()) >= room)
    bench.check(frames)


def test_raw_blocks_that_do_not_fit() -> None:
    rng = dice(31)
    bench = Bench(rng, 2, store_log2=8)
    frames = [random_frame(rng, blocks=n, kinds="r", width=16) for n in (4, 2, 1)]
    for frame in frames:
        for part in frame.parts:
            if len(part.values) > 1:  # one value alone is a constant
                part.values[0] = -(1 << 15)
                part.data = rng.randbytes(part.limit + rng.randrange(3))
        frame.error = 4 * (len(frame.bytes()) >= 8 * ((1 << 8) - 4))
    assert frames[0].error
    bench.check([*frames, random_frame(rng, blocks=2, kinds="c", most=300)])


def test_a_bad_descriptor_ends_the_command() -> None:
    rng = dice(32)
    bench = Bench(rng, 4, store_log2=11)  # all may be raw
    frames = [random_frame(rng, blocks=n) for n in (7, 1, 5, 2, 4)]
    for n, bad in ((0, 3), (1, 0), (3, 1)):
        frames[n].bad, frames[n].error = bad, 5
    bench.check(frames)


def test_the_head_of_a_frame_that_failed_is_not_in_the_next_one_s_crc() -> None:
    rng = random.Random(3)
    bench = Bench(rng, 1, store_log2=11)
    for clocks in range(2, 18):  # in which the next frame begins while the head's CRC would be added
        bench.table_clocks = range(clocks, clocks + 1)
        frames = [random_frame(rng, blocks=1, kinds="c", width=16) for _ in range(2)]
        for frame in frames:
            frame.parts[0].values, frame.header = [-(1 << 15), 1] * 200, replace(frame.header, count=400)
            frame.parts[0].data = rng.randbytes(60)
        frames[0].bad, frames[0].error = 0, 5
        bench.check(frames, pauses=0)
        bench.reset()


def test_a_reset_at_any_clock() -> None:
    rng = dice(33)
    bench = Bench(rng, rng.choice((1, 2, 4)), store_log2=9, pressure=0.2)
    for _ in range(8):
        bench.start(random_frame(rng, blocks=rng.randrange(12), most=200, kinds="ccckkr"))
        bench.simulator.run(rng.choice((rng.randrange(60), rng.randrange(3000))))
        bench.reset()
        bench.check([random_frame(rng, blocks=rng.randrange(4), most=150, kinds="cck")])
        bench.reset()


@pytest.mark.parametrize(("units", "bus_bits"), [(1, 64), (2, 256)])
def test_verilog_does_the_same_in_every_clock(units: int, bus_bits: int, tmp_path: Path) -> None:
    needs("iverilog")
    rng = dice(f"verilog {units}")
    sizes = {"bus_bits": bus_bits, "store_log2": 11}
    bench = Bench(rng, units, pressure=0.2, **sizes)
    fresh = Bench(rng, units, **sizes)
    takes, gives = sides(frame_sender, lambda: fresh.arguments, bench.arguments, block_log2=LOG2, **sizes)
    inside, trace = bench.simulator.each, []

    def each() -> None:
        """Keep what goes in and out, the first port lowest."""
        both = []
        for side in (takes, gives):
            number, at = 0, 0
            for signal in side:
                number, at = number | int(signal) << at, at + len(signal)
            both.append(number)
        trace.append(((int(bench.rst), both[0]), (both[1],)))
        inside()

    bench.simulator.each = each
    bench.check([random_frame(rng, blocks=n, most=300, kinds="cckr") for n in (2, 0)])
    warm = len(trace)
    bench.reset()
    bench.errors.clear(), bench.frames.clear(), bench.builds.clear(), bench.learns.clear()
    bench.check([random_frame(rng, blocks=n, most=300, kinds="cccckr") for n in (4, 1, 9)])
    ports = tuple(
        [(name, word(sum(map(len, side))))] for name, side in (("inputs", takes), ("outputs", gives))
    )
    ports[0].insert(0, ("rst", bit()))
    compare_verilog(
        "oscar_hdl.flow.placement.parts:frame_sender", ports, trace, tmp_path, warm, units=units,
        block_log2=LOG2, row_bits=ROW_BITS, **sizes,
    )  # fmt: skip
