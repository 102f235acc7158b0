"""The block writer and its parts, against the reference's block format."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from myhdl import block, instance

from oscar_hdl.bit_packer import bit_packer
from oscar_hdl.block_writer import block_writer
from oscar_hdl.format2.params import max_words, raw_bytes
from oscar_hdl.size_test import size_test
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.word_stack import word_stack
from oscar_sim.bench import clock, never, randomly, simulate, sink
from oscar_sim.seeds import dice


def is_raw(n: int, width: int, words: int, raw_words: int) -> bool:
    """The rule of docs/format2.md."""
    body = 36 + 2 * ((12 * words + 15) // 16) + 2 * raw_words
    return words > max_words(n) or body >= raw_bytes(n, width)


def test_size_test() -> None:
    rng = dice(1)
    cases = [(4096, 16, 0, 0), (4096, 16, 4096, 4096), (4096, 8, 1536, 0), (4096, 8, 1537, 0), (1, 1, 1, 1)]
    cases += [(4096, 16, 1536, 16383), (20, 16, 0, 1), (20, 16, 0, 2)]
    while len(cases) < 300:
        n, width = rng.choice([rng.randrange(1, 4097), rng.randrange(1, 60), 4096]), rng.randrange(1, 17)
        words = min(max_words(n) + rng.randrange(-3, 3), n) if rng.random() < 0.3 else rng.randrange(n + 1)
        # Near the length at which it turns.
        raw_words = raw_bytes(n, width) // 2 - 18 - (3 * words + 3) // 4 + rng.randrange(-2, 3)
        if words >= 0 and raw_words >= 0:
            cases.append((n, width, words, raw_words))
    clk, run, done, raw = bit(), bit(), bit(), bit()
    n, width, words, raw_words = word(13), word(5), word(13), word(14)
    said: list[bool] = []

    @block
    def top():
        dut = size_test(clk, run, n, width, words, raw_words, done, raw)

        @instance
        def drive():
            for case in cases:
                for signal, value in zip((n, width, words, raw_words), case, strict=True):
                    signal.next = value
                run.next = False
                yield clk.posedge
                run.next = True
                yield clk.posedge
                for clocks in range(24):  # noqa: B007
                    yield clk.posedge
                    if done:
                        break
                assert clocks == 21
                said.append(bool(raw))

        return dut, drive, clock(clk)

    simulate(top, clk, until=lambda: len(said) == len(cases), limit=100_000)
    assert said == [is_raw(*case) for case in cases]
    assert 50 < sum(said) < 280


@pytest.mark.parametrize("gaps", [0.0, 0.5])
@pytest.mark.parametrize("stalls", [0.0, 0.5])
def test_bit_packer(gaps: float, stalls: float) -> None:
    rng = dice(2)
    clk, rst, valid, ready, end, last = (bit() for _ in range(6))
    data, bits, m_axis, got = word(16), word(5), Stream(16), []
    fields, expected = [], []
    for size in [1, 2, 3, 4, 5, 30, 1, 200, 1]:
        width, value, used = rng.randrange(17), 0, 0
        for i in range(size):
            b = rng.randrange(1, 17) if width == 0 else width
            v = rng.randrange(65536)
            fields.append((v, b, i == size - 1, i == size - 1 and size & 1))
            value |= (v & ((1 << b) - 1)) << used
            used += b
        length = (used + 15) // 16
        expected += [
            ((value >> (16 * i)) & 0xFFFF, i == length - 1 and bool(size & 1)) for i in range(length)
        ]

    @block
    def top():
        dut = bit_packer(clk, rst, valid, ready, data, bits, end, last, m_axis)
        pause = randomly(gaps, 3) if gaps else never

        @instance
        def drive():
            for item in [*fields[:3], None, *fields]:
                while pause():
                    valid.next = False
                    yield clk.posedge
                if item is None:
                    rst.next = True
                    yield clk.posedge
                    got.clear()
                    rst.next = False
                    continue
                valid.next, data.next, bits.next, end.next, last.next = True, *item
                yield clk.posedge
                while not ready:
                    yield clk.posedge
                valid.next = False

        return dut, drive, clock(clk), sink(clk, rst, m_axis, got, randomly(stalls, 4) if stalls else never)

    clocks = simulate(top, clk, until=lambda: len(got) >= len(expected), limit=5000)
    assert got == expected
    if not gaps and not stalls:
        assert clocks <= len(fields) + 9 + 20


@dataclass
class Block:
    """What the encoder knows of a block; `overflow`: its raw stream did not fit."""

    n: int
    width: int
    values: list[int]
    words: list[int] = field(default_factory=list)  # in reading order
    states: list[int] = field(default_factory=list)
    raw: list[int] = field(default_factory=list)  # 16 bits each
    overflow: bool = False
    last: bool = False

    @property
    def constant(self) -> bool:
        return len(set(self.values)) == 1

    @property
    def sent_raw(self) -> bool:
        return self.overflow or is_raw(self.n, self.width, len(self.words), len(self.raw))

    def payload(self) -> list[tuple[int, bool]]:
        """The block as _encode_block of the reference joins it, in words of 16 bits."""
        if self.constant:
            bits, length = 1 | (self.values[0] & 0xFFFFFFFF) << 16, 48
        elif self.sent_raw:
            mask = (1 << self.width) - 1
            packed = sum((v & mask) << (self.width * i) for i, v in enumerate(self.values))
            bits, length = 2 | packed << 48, 48 + 8 * raw_bytes(self.n, self.width)
        else:
            states = self.states + [4096] * (12 - len(self.states))
            word_bits = 16 * ((12 * len(self.words) + 15) // 16)
            bits = len(self.words) << 2 | len(self.raw) << 24
            bits |= sum(x << (48 + 24 * lane) for lane, x in enumerate(states))
            bits |= sum(w << (336 + 12 * i) for i, w in enumerate(self.words))
            bits |= sum(w << (336 + word_bits + 16 * i) for i, w in enumerate(self.raw))
            length = 336 + word_bits + 16 * len(self.raw)
        count = length // 16
        return [((bits >> (16 * i)) & 0xFFFF, self.last and i == count - 1) for i in range(count)]


def random_block(rng: random.Random, n: int, width: int, kind: str) -> Block:
    """A block whose kind follows from its sizes."""
    limit = 1 << (width - 1)
    values = [rng.randrange(-limit, limit) for _ in range(n)]
    if kind == "constant":
        return Block(n, width, [values[0]] * n)
    values[: 2 if n > 1 else 1] = [-limit, limit - 1][:n]
    room = raw_bytes(n, width) // 2 - 18
    words = rng.randrange(min(max_words(n), max(1, room - 1)) + 1) if kind == "coded" else n // 2
    raw_words = max(1, room - (3 * words + 3) // 4 - rng.randrange(1, 3)) if kind == "coded" else n
    block_ = Block(n, width, values, [rng.randrange(4096) for _ in range(words)])
    block_.raw = [rng.randrange(65536) for _ in range(raw_words)]
    block_.states = [rng.randrange(4096, 1 << 24) for _ in range(min(12, n))]
    block_.overflow = kind == "overflow"
    return block_


class Control:
    """The parts of asc_encoder around a block_writer: a word_stack, and a driver of everything else."""

    def __init__(self, frames: list[list[Block]], gaps: float, stalls: float, noise: int = 0) -> None:
        self.frames, self.rng, self.noise = frames, dice(noise), noise
        self.gaps, self.stalls = gaps, stalls
        for frame in frames:
            frame[-1].last = True
        self.clk, self.rst, self.flush = bit(), bit(), bit()
        self.valid, self.constant, self.last, self.overflow, self.done = (bit() for _ in range(5))
        self.n, self.width, self.info = word(13), word(5), word(16)
        self.event, self.sent = bit(), bit()
        self.state_valid, self.lane, self.state = bit(), word(4), word(24)
        self.push, self.push_word, self.push_end = bit(), word(12), bit()
        self.hold, self.hold_start, self.st_valid, self.st_drop = (bit() for _ in range(4))
        self.st_words = word(13)
        self.words, self.raw, self.value, self.m_axis = Stream(12), Stream(16), Stream(16), Stream(16)
        self.got: list[tuple[int, bool]] = []
        self.events = 0
        self.coded_to = self.done_to = -1  # the last block whose states were sent, and the last that is done
        self.begun = False

    @block
    def dut(self) -> Any:
        """Stack, writer and drivers."""
        stack = word_stack(
            self.clk, self.rst, self.flush, self.push, self.push_word, self.push_end, self.hold,
            self.hold_start, self.st_valid, self.st_words, self.st_drop, self.words,
        )  # fmt: skip
        writer = block_writer(
            self.clk, self.rst, self.valid, self.constant, self.last, self.overflow, self.n, self.width,
            self.info, self.done, self.event, self.sent, self.state_valid, self.lane, self.state,
            self.st_valid, self.st_words, self.st_drop, self.words, self.raw, self.value, self.m_axis,
        )  # fmt: skip
        blocks = [b for frame in self.frames for b in frame]

        def pause():
            while self.rng.random() < self.gaps:
                yield self.clk.posedge

        @instance
        def before():
            """A block that a reset cuts short, after so many clocks."""
            b, rng = random_block(dice(self.noise), 100, 12, "coded"), self.rng
            self.valid.next, self.n.next, self.width.next = self.noise > 0, 100, 12
            self.info.next, self.overflow.next = len(b.raw), self.noise % 3 == 0
            for i in range(self.noise):
                self.push.next, self.push_end.next = i < 30, i == 29
                self.state_valid.next, self.lane.next = 30 <= i < 42, max(0, 41 - i) % 12
                for stream in (self.raw, self.value):
                    stream.tvalid.next, stream.tlast.next = True, rng.random() < 0.1
                yield self.clk.posedge
            self.valid.next, self.overflow.next, self.rst.next = False, False, True
            for signal in (self.push, self.push_end, self.state_valid, self.raw.tvalid, self.value.tvalid):
                signal.next = False
            yield self.clk.posedge
            self.rst.next = False
            yield self.clk.posedge
            self.got.clear()
            self.begun = True

        @instance
        def coder():
            """Words and states of one block after the other; of block b + 1 while block b is written."""
            while not self.begun:
                yield self.clk.posedge
            for number, b in enumerate(blocks):
                if b.constant:
                    continue
                # After a raw block nothing is coded ahead.
                ahead = (
                    0
                    if any(x.sent_raw and not x.constant for x in blocks[max(0, number - 1) : number])
                    else 1
                )
                while self.done_to < number - 1 - ahead:
                    yield self.clk.posedge
                for w in reversed(b.words):
                    yield from pause()
                    self.push.next, self.push_word.next = True, w
                    yield self.clk.posedge
                    self.push.next = False
                while self.coded_to < number - 1:
                    yield self.clk.posedge
                self.push_end.next = True
                yield self.clk.posedge
                self.push_end.next = False
                for lane in reversed(range(len(b.states))):
                    self.state_valid.next, self.lane.next, self.state.next = True, lane, b.states[lane]
                    yield self.clk.posedge
                    self.state_valid.next = False
                    yield from pause()
            while True:
                yield self.clk.posedge

        @instance
        def describe():
            while not self.begun:
                yield self.clk.posedge
            for number, b in enumerate(blocks):
                self.valid.next, self.constant.next, self.last.next = True, b.constant, b.last
                self.overflow.next, self.n.next, self.width.next = b.overflow, b.n, b.width
                self.info.next = (b.values[0] & 0xFFFF) if b.constant else min(len(b.raw), 16383)
                while True:
                    yield self.clk.posedge
                    if self.sent:
                        self.coded_to = number
                    if self.done:
                        break
                self.coded_to = self.done_to = number
                self.valid.next = False
                if self.rng.random() < self.gaps:
                    yield self.clk.posedge
            while True:
                yield self.clk.posedge
                assert not self.done

        @instance
        def streams():
            while not self.begun:
                yield self.clk.posedge
            for b in blocks:
                if b.constant:
                    continue
                if b.sent_raw:
                    while not self.event:
                        yield self.clk.posedge
                    self.events += 1
                    self.flush.next = True
                    yield self.clk.posedge
                    self.flush.next = False
                    stream, items = self.value, [v & 0xFFFF for v in b.values]
                else:
                    stream, items = self.raw, b.raw
                for i, item in enumerate(items):
                    yield from pause()
                    stream.tvalid.next, stream.tdata.next = True, item
                    stream.tlast.next = i == len(items) - 1
                    yield self.clk.posedge
                    while not stream.tready:
                        yield self.clk.posedge
                    stream.tvalid.next = False
            while True:
                yield self.clk.posedge
                assert not self.event

        back = sink(
            self.clk, self.rst, self.m_axis, self.got, randomly(self.stalls, 9) if self.stalls else never
        )
        return stack, writer, before, coder, describe, streams, back, clock(self.clk)

    def run(self) -> int:
        """Return the clocks it took; check the payload."""
        expected = [w for frame in self.frames for b in frame for w in b.payload()]

        @block
        def top():
            return self.dut()

        clocks = simulate(
            top, self.clk, until=lambda: self.begun and len(self.got) >= len(expected), limit=100_000
        )
        assert self.got == expected
        return clocks


KINDS = ("coded", "constant", "coded", "coded", "raw", "constant", "coded", "overflow", "coded")


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("stalls", [0.0, 0.5])
def test_blocks_of_all_kinds(gaps: float, stalls: float) -> None:
    rng = dice(3)
    frames = []
    for kind in KINDS:
        frames.append([random_block(rng, rng.randrange(60, 200), rng.randrange(7, 17), kind)])
    frames.append([random_block(rng, rng.randrange(60, 120), 12, kind) for kind in KINDS * 2])
    bench = Control(frames, gaps, stalls)
    bench.run()
    assert bench.events == 6


def test_blocks_of_few_values() -> None:
    rng = dice(4)
    frames = [[random_block(rng, n, 16, "coded")] for n in range(2, 40)]
    for n in (20, 21, 22, 23, 30):
        b = random_block(rng, n, 16, "coded")
        b.words, b.raw = [], b.raw[:1]
        frames.append([b])
    frames += [[random_block(rng, 1, w, "constant")] for w in (1, 8, 16)]
    Control(frames, 0.0, 0.0).run()


@pytest.mark.parametrize("clocks", [3, 40, 60, 75, 90, 120, 151, 200])
def test_a_reset_in_the_middle_of_a_block(clocks: int) -> None:
    rng = dice(6)
    frame = [random_block(rng, rng.randrange(60, 80), 12, kind) for kind in KINDS[:5]]
    Control([frame], 0.0, 0.2, noise=clocks).run()


def test_a_word_a_clock() -> None:
    rng = dice(5)
    b = random_block(rng, 1000, 16, "coded")
    b.words, b.raw = b.words[:10], b.raw + [7] * (980 - len(b.raw))
    b.raw = b.raw[:970]
    assert not b.sent_raw
    assert Control([[b]], 0.0, 0.0).run() <= 10 + 12 + 24 + 5 + 24 + 10 + 970 + 30
    b = random_block(rng, 1000, 16, "overflow")
    b.words = []
    assert Control([[b]], 0.0, 0.0).run() <= 1000 + 60
