"""framer against oscar.coding.frame.pack_frame."""

from __future__ import annotations

import random
import struct
from functools import partial
from typing import Any

import pytest
from myhdl import always, block, instance

from oscar.coding.frame import Header, pack_frame
from oscar_hdl.crc32 import ONES, crc32, step, unstep
from oscar_hdl.framer import framer
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, never, randomly, simulate, sink
from oscar_sim.seeds import dice

FIELDS = {"step": 16, "chunk": 16, "sub": 8, "width": 8, "sequence": 16, "checksum": 16, "count": 19}


def header(rng: random.Random) -> Header:
    """Return a header of any fields."""
    return Header(16, **{name: rng.getrandbits(bits) for name, bits in FIELDS.items()})


def frames_of(taken: list[Any]) -> list[bytes]:
    """Return the frames that were taken from a stream of 16-bit words."""
    frames, words = [], b""
    for data, last, keep in taken:
        assert keep == 3
        words += struct.pack("<H", data)
        if last:
            frames.append(words)
            words = b""
    assert not words
    return frames


class Bench:
    """A framer with its drivers; `jobs` is a list of (header, payload words, drop, expect done)."""

    def __init__(self, depth_log2: int, gaps: Any, pressure: Any) -> None:
        self.clk, self.rst = bit(), bit()
        self.payload, self.frames = Stream(16), Stream(16, keep=2)
        self.complete, self.finish, self.drop, self.done, self.overflow = (bit() for _ in range(5))
        self.sent = bit()
        self.fields = {name: word(bits) for name, bits in FIELDS.items()}
        self.gaps, self.pressure, self.depth_log2 = gaps, pressure, depth_log2
        self.taken: list[Any] = []
        self.overflows: list[int] = []
        self.strobes = 0
        self.finished = False

    @block
    def top(self, jobs: list[tuple[Header, list[int], bool]], reset_in: int | None = None) -> Any:
        """Return the bench; a reset comes in the middle of the payload of job `reset_in`."""

        def drive():
            for n, (head, words, drop) in enumerate(jobs):
                for name, signal in self.fields.items():
                    signal.next = getattr(head, name)
                for i, data in enumerate(words):
                    while self.gaps():
                        self.payload.tvalid.next = False
                        yield self.clk.posedge
                    if n == reset_in and i == len(words) // 2:
                        self.rst.next = True
                        self.payload.tvalid.next = False
                        yield self.clk.posedge
                        self.taken.clear()
                        self.rst.next = False
                        break
                    self.payload.tdata.next = data
                    self.payload.tlast.next = i == len(words) - 1
                    self.payload.tvalid.next = True
                    yield self.clk.posedge
                    while not self.payload.tready:
                        yield self.clk.posedge
                self.payload.tvalid.next = False
                if n == reset_in:
                    continue
                if words:
                    yield self.clk.posedge
                    assert self.complete
                self.finish.next, self.drop.next = not drop, drop
                while not self.done:
                    yield self.clk.posedge
                if self.overflow:
                    self.overflows.append(n)
                self.finish.next = self.drop.next = False
                yield self.clk.posedge
            self.finished = True

        driver = instance(drive)

        @always(self.clk.posedge)
        def count():
            self.strobes += bool(self.sent)

        dut = framer(
            self.clk, self.rst, self.payload, self.complete, self.finish, self.drop, *self.fields.values(),
            self.done, self.overflow, self.frames, self.sent, depth_log2=self.depth_log2,
        )  # fmt: skip
        drain = sink(self.clk, self.rst, self.frames, self.taken, self.pressure)
        return clock(self.clk), driver, count, dut, drain

    def run(self, jobs: list[Any], frames: int, reset_in: int | None = None) -> list[bytes]:
        """Return the frames of `jobs`, once there are that many."""
        simulate(
            partial(self.top, jobs, reset_in), self.clk, limit=60_000,
            until=lambda: self.finished and sum(last for _, last, _ in self.taken) == frames,
        )  # fmt: skip
        return frames_of(self.taken)


def payload(rng: random.Random, size: int) -> list[int]:
    """Return random words."""
    return [rng.getrandbits(16) for _ in range(size)]


def packed(head: Header, words: list[int]) -> bytes:
    """Return the frame that the host makes."""
    return pack_frame(head, struct.pack(f"<{len(words)}H", *words))


def test_crc_model_and_block_agree():
    rng = dice(0)
    state, data, result = word(32), word(16), word(32)
    for _ in range(3):
        value, words = rng.getrandbits(32), rng.getrandbits(16)
        assert unstep(step(value, words), words) == value
    check = ONES
    for low, high in ((b"1", b"2"), (b"3", b"4"), (b"5", b"6"), (b"7", b"8")):
        check = step(check, low[0] | high[0] << 8)
    assert step(check, ord("9"), 8) ^ ONES == 0xCBF43926  # the published check value
    clk, wrong = bit(), []

    def drive():
        for _ in range(200):
            state.next, data.next = rng.getrandbits(32), rng.getrandbits(16)
            yield clk.posedge
            wrong.append(int(result) != step(int(state), int(data)))

    @block
    def top():
        return clock(clk), instance(drive), crc32(state, data, result)

    simulate(top, clk, until=lambda: len(wrong) == 200, limit=300)
    assert not any(wrong)


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("pressure", [0.0, 0.6])
def test_frames_equal_the_hosts(gaps: float, pressure: float):
    rng = dice(int(10 * (gaps + pressure)))
    sizes = (0, 1, 2, 51, 33, 16, 0, 41, 7)  # 51: all of a store of 64 words
    jobs = [(header(rng), payload(rng, size), False) for size in sizes]
    bench = Bench(6, randomly(gaps, 1) if gaps else never, randomly(pressure, 2) if pressure else never)
    assert bench.run(jobs, len(jobs)) == [packed(head, words) for head, words, _ in jobs]
    assert bench.strobes == sum(map(len, (words for _, words, _ in jobs))) + 12 * len(jobs)


def test_long_payload():
    rng = dice(5)
    head, words = header(rng), payload(rng, 3000)
    assert Bench(12, never, never).run([(head, words, False)], 1) == [packed(head, words)]


def test_dropped_and_overflowing_frames_leave_no_trace():
    rng = dice(7)
    sizes = ((20, False), (30, True), (52, False), (12, False), (90, True), (51, False))
    jobs = [(header(rng), payload(rng, size), drop) for size, drop in sizes]
    bench = Bench(6, randomly(0.2, 3), randomly(0.3, 4))
    good = [n for n, (size, drop) in enumerate(sizes) if not drop and size <= 51]
    assert bench.run(jobs, len(good)) == [packed(*jobs[n][:2]) for n in good]
    assert bench.overflows == [2, 4]


def test_reset_in_mid_frame():
    rng = dice(9)
    jobs = [(header(rng), payload(rng, size), False) for size in (40, 50, 30, 11)]
    bench = Bench(6, never, randomly(0.5, 5))
    frames = bench.run(jobs, 2, reset_in=1)
    assert frames == [packed(*job[:2]) for job in jobs[2:]]
