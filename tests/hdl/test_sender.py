"""sender against the host's frames, with encoders, tables and memory that are models."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc.link import Encoder
from oscar.coding.asc.params import AscParams
from oscar_hdl.coder.ports import EncoderJob
from oscar_hdl.nic.send.sender import sender
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.seeds import dice, numbers
from support.sender_bench import SenderBench
from support.sent_frames import (
    CODED,
    CONSTANT,
    ROW_BITS,
    Part,
    checksum,
    coded_frame,
    random_frame,
    random_part,
    sized_frame,
)

pytestmark = pytest.mark.usefixtures("seed")

FIRST_BYTE = 64  # clocks from the start of an encoder's block to its first byte are more (docs/engine.md)


@dataclass
class Unit:
    """A model of an encoder."""

    job: Any
    stream: Any
    base: Any
    rng: random.Random
    speed: float  # pairs a clock, and share of clocks with a pair in the stream
    limit: int = 512
    part: Part | None = None
    index: int = 0
    bank: int = 0
    bad: bool = False
    sent: int = 0
    wait: int = 0
    pairs: deque = field(default_factory=deque)
    finishing: int = -1

    def clock(self, bench: Bench) -> None:
        """Do what an encoder does in a clock."""
        job, stream = self.job, self.stream
        job.done.next = False
        if job.start:
            assert job.idle
            assert self.part is None
            frame = bench.frame_of(int(job.bank))
            self.index, self.part = bench.block_at(frame, int(self.base), int(job.values))
            self.bank = int(job.bank)
            bench.ahead += frame is not bench.frame
            self.bad = self.index == frame.bad
            assert int(job.bank) != bench.drained
            assert int(job.thinning) == (frame.header.count > 1 << 15)
            job.idle.next = False
            self.sent, self.wait, self.finishing = 0, FIRST_BYTE + self.rng.choice((0, 3, 100)), -1
            bench.starts.append((self.index, len(bench.done)))
            self.hold = self.held()
        elif self.part is not None:
            assert self.hold == self.held()
            self._work(bench)
        if stream.tvalid and stream.tready:
            self.pairs.popleft()
            stream.tvalid.next = False
        if (not stream.tvalid or stream.tready) and self.pairs and self.rng.random() < self.speed:
            data, keep, last = self.pairs[0]
            stream.tdata.next, stream.tkeep.next, stream.tlast.next = data, keep, last
            stream.tvalid.next = True

    def held(self) -> tuple[int, ...]:
        """What stays as it is while a block is coded."""
        return int(self.base), int(self.job.values), int(self.job.bank), int(self.job.thinning)

    def _work(self, bench: Bench) -> None:
        part, job = self.part, self.job
        if self.wait:
            self.wait -= 1
        elif self.sent < len(part.data):
            if self.rng.random() < self.speed and len(self.pairs) < self.limit:
                pair = part.data[self.sent : self.sent + 2]
                self.sent += 2
                self.pairs.append(
                    (int.from_bytes(pair, "little"), 1 if len(pair) == 1 else 3, self.sent >= len(part.data))
                )
        elif self.finishing < 0:
            self.finishing = self.rng.choice((0, 0, 1, 5))  # from done to idle
            job.done.next = True
            bench.done.append(self.index)
            job.bad.next = self.bad
            job.constant.next = part.kind == CONSTANT
            job.value.next = part.values[0] & 0xFFFF
            job.bits.next = part.bits
            job.seeds.next, job.first.next, job.last.next = part.seeds, part.first, part.last
            job.bytes.next = len(part.data)
            if not self.finishing:
                job.idle.next = True
                self.part = None
        else:
            self.finishing -= 1
            if not self.finishing:
                job.idle.next = True
                self.part = None

    def busy(self, bank: int) -> bool:
        """Return whether it codes a block of a bank, or has its bytes."""
        return self.bank == bank and (self.part is not None or bool(self.pairs))

    def reset(self) -> None:
        """Forget the job."""
        self.part = None
        self.pairs.clear()
        self.job.idle.next, self.job.done.next, self.stream.tvalid.next = True, False, False


class Bench(SenderBench):
    """A sender and models of encoders."""

    def __init__(
        self, rng: random.Random, units: int, *, bus_bits: int = 64, store_log2: int = 8, speed: float = 1.0,
        pressure: float = 0.0,
    ) -> None:  # fmt: skip
        self.jobs = [EncoderJob() for _ in range(units)]
        self.streams = [Stream(16, keep=2) for _ in range(units)]
        self.bases = [word(ROW_BITS) for _ in range(units)]
        self.units = [
            Unit(*three, rng, speed) for three in zip(self.jobs, self.streams, self.bases, strict=True)
        ]
        for unit in self.units:
            unit.job.idle = bit(1)

        def make(bench: SenderBench) -> Any:
            return sender(
                bench.clk, bench.rst, bench.tx, bench.command, bench.row, bench.top, bench.tables, self.jobs,
                self.streams, [*self.bases, bench.raw_row], bench.source, bus_bits=bus_bits,
                store_log2=store_log2,
            )  # fmt: skip

        ports = [*self.jobs, *self.streams, *self.bases]
        super().__init__(rng, make, ports, bus_bits=bus_bits, pressure=pressure)


@pytest.mark.parametrize("units", [1, 4, 5])
def test_frames_of_any_blocks(units: int):
    rng = dice(units)
    bench = Bench(rng, units, store_log2=11, speed=rng.choice((0.3, 0.9, 1.0)), pressure=rng.choice((0, 0.5)))
    bench.check([random_frame(rng, blocks=n, kinds="ccckckkr") for n in (1, 5, 0, units + 1)])


def test_frames_overlap():
    rng, early, ahead = dice(34), 0, 0
    for _ in range(30):  # chance may keep them apart
        bench = overlapping(rng)
        early, ahead = early + bench.early, ahead + bench.ahead
        if early and ahead:
            break
    assert early
    assert ahead


@pytest.mark.parametrize("kind", [CODED, CONSTANT])
def test_an_encoder_has_two_open_blocks(kind: int):
    rng = dice(35)
    bench = Bench(rng, 2, store_log2=11)
    frame = random_frame(rng, blocks=5, kinds="c", most=24)
    frame.parts[0].data = rng.randbytes(1500)  # the first block takes longer than those after it
    frame.parts[0].values = [-(1 << 15), *([1] * 1023)]
    frame.parts[1] = random_part(rng, 1024, kind, 24)
    frame.parts[2:4] = (random_part(rng, 1024, CODED, 24) for _ in range(2))
    bench.check([frame])
    assert bench.done[:3] == [1, 2, 0], "the other encoder has two blocks while the first is open, no more"
    assert bench.starts[3][1] == 3


def overlapping(rng: random.Random) -> Bench:
    """Run a bench whose frames follow each other as fast as they can; return it at its end."""
    bench = Bench(rng, 3, store_log2=9, speed=rng.choice((0.5, 1.0)))
    bench.table_clocks = 1500
    frames = [
        random_frame(rng, blocks=rng.choice((0, 1, 2, 3, 4)), most=400, kinds="ccccckr") for _ in range(9)
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


def test_frames_of_the_host():
    rng, draw = dice(20), numbers(20)
    link = Encoder(AscParams(sent_rows=False, block_log2=10), implementation="reference")
    frames = []
    for scale, count in ((0.3, 2500), (3, 1025), (300, 2048), (20000, 40), (0.0, 1500), (2, 0)):
        values = np.clip(np.rint(draw.laplace(0, scale, count)), -32768, 32767).astype(np.int16)
        values[1024:2048] *= scale != 3
        if count:
            frames.append(coded_frame(values, link, 10, 4, rng.randrange(1 << 15), 5))
    Bench(rng, 2, store_log2=11).check(frames)


@pytest.mark.parametrize(("bus_bits", "units"), [(128, 5), (512, 2)])
def test_wide_buses(bus_bits: int, units: int):
    rng = dice(bus_bits)
    bench = Bench(rng, units, bus_bits=bus_bits, store_log2=10, pressure=rng.choice((0, 0.3)))
    bench.check([random_frame(rng, blocks=n, kinds="cckcr") for n in (units, 1, 0)])


def test_frames_that_do_not_fit_leave_no_trace():
    rng = dice(30)
    bench = Bench(rng, 3, store_log2=7, pressure=0.5)
    room = 8 * ((1 << 7) - 4)
    frames = [
        sized_frame(rng, size)
        for size in (room - 8, room, room - 1, room + 1, room - 7, 5000, 100, room // 2, room // 3, room - 1)
    ]
    for frame in frames:
        frame.error = 4 * (len(frame.bytes()) >= room)
    bench.check(frames)


def test_raw_blocks_that_do_not_fit():
    rng = dice(31)
    bench = Bench(rng, 2, store_log2=8)
    frames = [random_frame(rng, blocks=n, kinds="r") for n in (4, 2, 1)]
    for frame in frames:
        for part in frame.parts:
            if len(part.values) > 1:  # one value alone is a constant
                part.values[0] = -(1 << 15)
                part.data = rng.randbytes(part.raw_size + rng.randrange(3))
        frame.error = 4 * (len(frame.bytes()) >= 8 * ((1 << 8) - 4))
    assert frames[0].error
    bench.check([*frames, random_frame(rng, blocks=2, kinds="c", most=300)])


def test_a_bad_descriptor_ends_the_command():
    rng = dice(32)
    bench = Bench(rng, 3, store_log2=11)  # all may be raw
    frames = [random_frame(rng, blocks=n) for n in (7, 1, 5, 2, 4)]
    for n, bad in ((0, 3), (1, 0), (3, 1)):
        frames[n].bad, frames[n].error = bad, 5
    bench.check(frames)


def test_a_reset_at_any_clock():
    rng = dice(33)
    bench = Bench(rng, 3, store_log2=9, pressure=0.2)
    for _ in range(8):
        bench.start(random_frame(rng, blocks=rng.randrange(5), most=200, kinds="ccckkr"))
        bench.simulator.run(rng.choice((rng.randrange(60), rng.randrange(3000))))
        bench.reset()
        bench.errors.clear(), bench.frames.clear(), bench.builds.clear(), bench.learns.clear()
        bench.check([random_frame(rng, blocks=rng.randrange(4), most=150, kinds="cck")])
        bench.frames.clear()
        bench.reset()
        bench.errors.clear(), bench.builds.clear(), bench.learns.clear()
