"""sender against the host's frames, with encoders, tables and memory that are models."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from myhdl import block

from oscar.coding.asc.link import ASC_CODE, Encoder
from oscar.coding.asc.params import AscParams
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, peek
from oscar_hdl.coder.ports import EncoderJob, SourcePort, TablesPort
from oscar_hdl.nic.ports import FrameCommand, TopPort, frames_out
from oscar_hdl.nic.send.sender import sender
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.compiled import copies_of
from oscar_sim.cycles import elaborated
from oscar_sim.seeds import dice, numbers

pytestmark = pytest.mark.usefixtures("seed")

CODED, RAW, CONSTANT = 0, 1, 2
ROW_BITS = 16
SET_CHECKSUMS = 0x9E37  # of set n, in the model: n times this
FIRST_BYTE = 64  # clocks from the start of an encoder's block to its first byte are more (docs/engine.md)


@dataclass
class Part:
    """A block: its values, and what an encoder makes of it."""

    values: list[int]
    data: bytes  # what the encoder gives
    seeds: int = 0
    first: int = 0
    last: int = 0

    @property
    def bits(self) -> int:
        """The results' `bits`."""
        return max(v ^ (v >> 15) for v in self.values).bit_length()

    @property
    def kind(self) -> int:
        """How it is sent."""
        if min(self.values) == max(self.values):
            return CONSTANT
        return CODED if len(self.data) < self.raw_size else RAW

    @property
    def raw_size(self) -> int:
        """Bytes of the raw block."""
        return (len(self.values) * (self.bits + 1) + 7) // 8

    def entry(self) -> bytes:
        """The directory's entry."""
        if self.kind == CONSTANT:
            entry = CONSTANT | (self.values[0] & 0xFFFFFFFF) << 16
        elif self.kind == RAW:
            entry = RAW | (self.bits + 1) << 2 | self.raw_size << 24
        else:
            entry = self.seeds << 2 | self.first << 5 | self.last << 12 | len(self.data) << 24
        return entry.to_bytes(6, "little")

    def sent(self) -> bytes:
        """Its bytes in the frame."""
        if self.kind == CONSTANT:
            return b""
        if self.kind == CODED:
            return self.data
        width = self.bits + 1
        packed = sum((v & ((1 << width) - 1)) << (width * i) for i, v in enumerate(self.values))
        return packed.to_bytes(self.raw_size, "little")


@dataclass
class Frame:
    """A command and the frame that is expected."""

    header: Header
    parts: list[Part]
    last: int
    block_log2: int
    row: int = 0
    load: int = 0
    save: int = 0
    fresh: bool = False
    bad: int = -1  # the block whose job ends with bad
    error: int = 0

    @property
    def peer(self) -> int:
        """To whom it goes: any number that goes with its chunk and sub-frame."""
        return self.header.chunk + self.header.sub & 255

    def bytes(self) -> bytes:
        """The frame."""
        if not self.parts:
            return pack_frame(self.header, b"")
        payload = (self.block_log2 | self.last << 11).to_bytes(2, "little")
        payload += b"".join(part.entry() for part in self.parts)
        payload += b"".join(part.sent() for part in self.parts)
        return pack_frame(self.header, payload)


def random_part(rng: random.Random, count: int, kind: int, most: int) -> Part:
    """Return a block of that kind with any bytes."""
    bits = rng.randrange(1, 16)
    if kind == CONSTANT:
        value = rng.choice((0, -1, 1, rng.randrange(-(1 << 15), 1 << 15)))
        return Part([value] * count, b"")
    values = [rng.randrange(-(1 << bits), 1 << bits) for _ in range(count)]
    values[0] = -(1 << bits)
    if count > 1:
        values[1] = rng.choice((0, 1))
    part = Part(values, b"", rng.randrange(6), rng.randrange(128), rng.randrange(128))
    size = part.raw_size + rng.choice((0, 0, 1, 2, 9, 200))
    if kind == CODED and part.raw_size > 1:
        size = min(part.raw_size - 1, rng.choice((rng.randrange(1, 24), rng.randrange(1, most))))
    part.data = rng.randbytes(size) if size else b""
    return part


def random_frame(
    rng: random.Random, *, blocks: int, most: int = 700, kinds: str = "ccccrk", log2: int = 10
) -> Frame:
    """Return a frame with blocks of any kind and bytes: coded, raw, constant."""
    size = 1 << log2
    tail = rng.choice((1, 2, 31, 32, 33, rng.randrange(1, size), size))
    count = (blocks - 1) * size + tail if blocks else 0
    parts = []
    for at in range(0, count, size):
        kind = "crk".index(rng.choice(kinds))
        n = min(size, count - at)
        parts.append(random_part(rng, n, CONSTANT if n == 1 else kind, most))
    load = rng.randrange(128)
    header = Header(
        ASC_CODE, rng.getrandbits(16), count, rng.getrandbits(16), rng.getrandbits(8), rng.randrange(1, 17),
        rng.getrandbits(16), checksum(load, fresh := rng.random() < 0.5),
    )  # fmt: skip
    return Frame(
        header, parts, rng.randrange(16), log2, rng.randrange(1 << ROW_BITS), load, rng.randrange(128), fresh
    )


def checksum(load: int, fresh: bool) -> int:
    """What the model of tables says of a set."""
    return (load * SET_CHECKSUMS + fresh) & 0xFFFF


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

    def reset(self) -> None:
        """Forget the job."""
        self.part = None
        self.pairs.clear()
        self.job.idle.next, self.job.done.next, self.stream.tvalid.next = True, False, False


class Bench:
    """A sender with models around it."""

    def __init__(
        self, rng: random.Random, units: int, *, bus_bits: int = 64, store_log2: int = 8, speed: float = 1.0,
        pressure: float = 0.0,
    ) -> None:  # fmt: skip
        self.rng, self.pressure = rng, pressure
        self.clk, self.rst, self.row = bit(), bit(), word(ROW_BITS)
        self.tx = frames_out(bus_bits)
        self.command, self.top, self.tables = FrameCommand(), TopPort(), TablesPort()
        self.source = SourcePort()
        self.jobs = [EncoderJob() for _ in range(units)]
        self.streams = [Stream(16, keep=2) for _ in range(units)]
        self.bases = [word(ROW_BITS) for _ in range(units + 1)]
        self.units = [
            Unit(*three, rng, speed) for three in zip(self.jobs, self.streams, self.bases, strict=False)
        ]
        for unit in self.units:
            unit.job.idle = bit(1)
        self.under_way: deque[Frame] = deque()
        self.ended = 0
        self.saves: dict[int, int] = {}  # of a bank that was built, before it is learnt
        self.drained = self.learning = -1  # the bank that is, and its set
        self.early = 0  # builds while blocks are coded
        self.ahead = 0  # blocks that are dealt while the frame before is collected
        self.done: list[int] = []  # blocks that are coded
        self.starts: list[tuple[int, int]] = []  # blocks as they were dealt, and how many were coded then
        self.table_clocks = 60
        self.taken = bytearray()
        self.frames: list[bytes] = []
        self.errors: list[int] = []
        self.learns: list[tuple[int, ...]] = []
        self.builds: list[tuple[int, ...]] = []
        self.read: deque[int] = deque([0] * 3)
        self.events: dict[str, int] = {}
        self.searching = 0  # clocks until the last symbol is known
        self.query: deque[tuple[int, bool]] = deque([(0, False)] * 2)
        self.waiting: tuple[int, int, bool, int] | None = None
        self.goes: list[int] = []  # to whom frames
        self.gap = 0

        @block
        def top() -> Any:
            return sender(
                self.clk, self.rst, self.tx, self.command, self.row, self.top, self.tables, self.jobs,
                self.streams, self.bases, self.source, bus_bits=bus_bits, store_log2=store_log2,
            )  # fmt: skip

        ports = [self.clk, self.rst, self.tx, self.command, self.row, self.tables, *self.jobs, *self.streams]
        ports += [*self.bases, self.source, self.top]
        self.simulator = copies_of(elaborated(top), self.clk, self.clock, [ports])

    @property
    def frame(self) -> Frame:
        """The frame whose blocks are collected."""
        return self.under_way[0]

    def frame_of(self, bank: int) -> Frame:
        """The frame under way that has a bank."""
        return self.under_way[(bank - self.ended) % 2]

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
            own = [unit for unit in self.units if unit.bank == self.ended % 2]
            assert all(unit.part is None and not unit.pairs for unit in own)
            self.errors.append(int(self.command.error))
            self.under_way.popleft()
            self.ended += 1

    def _memory(self) -> None:
        source = self.source
        if source.take:
            assert not source.header
            assert len(self.read) <= 3, "rows are 32 clocks apart"
            _, part = self.block_at(
                self.frame, int(self.bases[-1]), len(self.block_of(int(self.bases[-1])).values)
            )
            row = part.values[32 * int(source.row) : 32 * int(source.row) + 32]
            assert row
            noise = self.rng.randrange(8)
            self.read = deque([0] * 3 + [(v & 0xFFFF) | noise << 16 for v in row] + [0] * (32 - len(row)))
        source.data.next = self.read.popleft() if self.read else self.rng.getrandbits(19)
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
                assert ask not in self.events
                self.events[ask] = self.rng.randrange(1, self.table_clocks)
                if ask == "build":
                    told = int(tables.load), int(tables.fresh), int(tables.save), int(tables.bank)
                    assert tables.mask == 0
                    assert told[3] not in self.saves, "the frame before is not learnt"
                    assert told[1] or told[0] not in (*self.saves.values(), self.learning)
                    self.builds.append((*told[:2], int(tables.last), told[3]))
                    self.saves[told[3]] = told[2]
                    self.early += any(unit.part is not None for unit in self.units)
                else:
                    self.drained = int(tables.count_bank)
                    self.learning = self.saves.pop(self.drained)
                    self.learns.append((self.learning, self.drained, int(tables.forget)))
            elif ask in self.events:
                self.events[ask] -= 1
                if not self.events[ask]:
                    del self.events[ask]
                    getattr(tables, answer).next = True
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
        assert len(self.under_way) <= 2
        command, header = self.command, frame.header
        for name in ("step", "chunk", "sub", "width", "sequence", "count"):
            getattr(command, name).next = getattr(header, name)
        for name in ("load", "save", "fresh", "block_log2"):
            getattr(command, name).next = getattr(frame, name)
        command.peer.next = frame.peer
        self.row.next = frame.row
        command.start.next = True
        self.simulator.run(1)
        command.start.next = False
        self.simulator.run(1)

    def until(self, condition: Callable[[], bool], *, limit: int = 60_000) -> None:
        """Run until it is so."""
        end = self.simulator.clocks + limit
        while not condition():
            self.simulator.run(1)
            assert self.simulator.clocks < end, "nothing happens"

    def reset(self) -> None:
        """Reset sender and models."""
        self.rst.next = True
        self.simulator.run(1)
        self.rst.next = False
        self.simulator.run(2)
        self.goes.clear()

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
        assert self.builds == [(f.load, f.fresh, f.last, n % 2) for n, f in full]
        assert self.learns == [(f.save, n % 2, bool(f.error)) for n, f in full]


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


def coded_frame(values: np.ndarray, link: Encoder, log2: int, step: int, row: int, bench_load: int) -> Frame:
    """Return the host's frame of values, its blocks as an encoder gives them."""
    sequence_frame = link.encode(values, step=step, width=16, chunk=7, sub=3)
    header = peek(sequence_frame)
    payload = sequence_frame[HEADER_BYTES:]
    size, parts = 1 << log2, []
    at = 2 + 6 * -(-values.size // size)
    for n, start in enumerate(range(0, values.size, size)):
        entry = int.from_bytes(payload[2 + 6 * n : 8 + 6 * n], "little")
        part = Part([int(v) for v in values[start : start + size]], b"")
        length = 0 if entry & 3 == CONSTANT else entry >> 24
        part.data = bytes(payload[at : at + length])
        at += length
        part.seeds, part.first, part.last = entry >> 2 & 7, entry >> 5 & 127, entry >> 12 & 127
        assert entry & 3 == part.kind
        parts.append(part)
    header = replace(header, checksum=checksum(bench_load, False))
    frame = Frame(header, parts, payload[1] >> 3 & 15, log2, row, bench_load)
    assert frame.bytes()[HEADER_BYTES:] == payload
    return frame


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


def sized_frame(rng: random.Random, size: int) -> Frame:
    """Return a frame of so many bytes, with four coded blocks that are longer raw."""
    sizes = [rng.randrange(1, (size - 50) // 3) for _ in range(3)] if size < 5000 else [1500] * 3
    sizes.append(size - 50 - sum(sizes))
    parts = [Part([-(1 << 15), *([1] * 1023)], rng.randbytes(n), rng.randrange(6)) for n in sizes]
    frame = random_frame(rng, blocks=0)
    frame.header, frame.parts = replace(frame.header, count=4096), parts
    assert len(frame.bytes()) == size
    return frame


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
