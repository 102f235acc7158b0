"""deframer against oscar.coding.frame.pack_frame: what is intact and expected gets in, nothing else."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from myhdl import always, block, instance

from oscar.coding.frame import Header, pack_frame
from oscar_hdl.deframer import REASONS, deframer
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, never, randomly, simulate, source
from oscar_sim.seeds import dice

FIELDS = {"step": 16, "chunk": 16, "sub": 8, "width": 8, "sequence": 16, "checksum": 16, "count": 19}
NUMBER = {name: number for number, name in REASONS.items()}


def header(rng: random.Random, **fixed: int) -> Header:
    """Return a header of any fields but those given."""
    return replace(Header(16, **{name: rng.getrandbits(bits) for name, bits in FIELDS.items()}), **fixed)


def frame(rng: random.Random, size: int, **fixed: int) -> tuple[Header, bytes]:
    """Return a header and its frame with a random payload of `size` words."""
    head = header(rng, **fixed)
    return head, pack_frame(head, rng.randbytes(2 * size))


def transfers(data: bytes) -> list[tuple[int, bool, int]]:
    """Return the transfers of a frame, an odd last byte with half a keep."""
    words = [struct.unpack("<H", (data[i : i + 2] + b"\0")[:2])[0] for i in range(0, len(data), 2)]
    last = len(words) - 1
    return [(w, i == last, 1 if i == last and len(data) % 2 else 3) for i, w in enumerate(words)]


class Bench:
    """A deframer, what it is sent, and a reader that wants a list of headers one after another."""

    def __init__(
        self, *, depth_log2: int = 7, gaps: Any = never, wait: Any = never, lanes: int = 1, lane: int = 0
    ):
        self.clk, self.rst = bit(), bit()
        self.frames = Stream(16, keep=2)
        self.fields = {name: word(bits) for name, bits in FIELDS.items()}
        self.wanted, self.matched, self.free, self.bad, self.strobe = (bit() for _ in range(5))
        self.words, self.reason = word(19), word(4)
        self.rd_valid, self.rd_ready, self.rd_data_valid = bit(), bit(), bit()
        self.rd_addr, self.rd_data = word(19), word(16)
        self.gaps, self.wait = gaps, wait
        self.parameters = {"depth_log2": depth_log2, "lanes": lanes, "lane": lane}
        self.payloads: list[bytes] = []
        self.bads: list[str] = []
        self.taken = 0

    @block
    def top(self, sent: list[Any], wanted: list[Header]) -> Any:
        """Return the bench."""

        @instance
        def read():
            for head in wanted:
                for name, signal in self.fields.items():
                    signal.next = getattr(head, name)
                while self.wait():
                    yield self.clk.posedge
                self.wanted.next = True
                yield self.clk.posedge
                while not self.matched:
                    yield self.clk.posedge
                self.wanted.next = False
                answers: list[int] = []
                asked = 0
                while len(answers) < self.words:
                    self.rd_valid.next = asked < self.words and not self.wait()
                    self.rd_addr.next = asked
                    yield self.clk.posedge
                    if self.rd_valid and self.rd_ready:
                        asked += 1
                        self.rd_addr.next = asked
                    if self.rd_data_valid:
                        answers.append(int(self.rd_data))
                    self.rd_valid.next = False
                    yield self.clk.posedge
                    if self.rd_data_valid:
                        answers.append(int(self.rd_data))
                self.payloads.append(struct.pack(f"<{len(answers)}H", *answers))
                self.free.next = True
                yield self.clk.posedge
                self.free.next = False
                yield self.clk.posedge

        @always(self.clk.posedge)
        def watch():
            if self.bad:
                self.bads.append(REASONS[int(self.reason)])
            self.taken += bool(self.strobe)

        dut = deframer(
            self.clk, self.rst, self.frames, self.wanted, *self.fields.values(), self.matched, self.words,
            self.rd_valid, self.rd_ready, self.rd_addr, self.rd_data, self.rd_data_valid, self.free, self.bad,
            self.reason, self.strobe, **self.parameters,
        )  # fmt: skip
        items = (item for data in sent for item in (data if isinstance(data, list) else transfers(data)))
        feed = source(self.clk, self.rst, self.frames, items, self.gaps)
        return clock(self.clk), read, watch, dut, feed

    def run(self, sent: list[Any], wanted: list[Header], bads: int = 0) -> None:
        """Send frames (bytes, or transfers) until all wanted ones were read and `bads` were refused."""
        simulate(
            partial(self.top, sent, wanted), self.clk, limit=40_000,
            until=lambda: len(self.payloads) == len(wanted) and len(self.bads) >= bads,
        )  # fmt: skip


@pytest.mark.parametrize("gaps", [0.0, 0.4])
@pytest.mark.parametrize("wait", [0.0, 0.6])
def test_payloads_come_out_as_they_were_packed(gaps: float, wait: float):
    rng = dice(int(10 * (gaps + wait)))
    frames = [frame(rng, size) for size in (0, 1, 115, 2, 60, 115, 0, 50, 40, 33)]  # 115: all of the store
    bench = Bench(gaps=randomly(gaps, 1) if gaps else never, wait=randomly(wait, 2) if wait else never)
    bench.run([data for _, data in frames], [head for head, _ in frames])
    assert bench.payloads == [data[24:] for _, data in frames]
    assert bench.bads == []
    assert bench.taken == sum(len(data) // 2 for _, data in frames)


def damaged(rng: random.Random, data: bytes) -> list[tuple[bytes, str]]:
    """Return the frame damaged in every kind of way, and the reason for which it is refused."""
    flipped = [bytearray(data) for _ in range(8)]
    flipped[0][0] ^= 0x10  # not the magic
    flipped[1][0] ^= 0x02  # another version
    flipped[2][9] ^= 1 << rng.randrange(8)  # a field that nobody can foresee
    flipped[3][20 + rng.randrange(4)] ^= 1 << rng.randrange(8)  # the CRC itself
    flipped[4][24 + rng.randrange(len(data) - 24)] ^= 1 << rng.randrange(8)
    flipped[5][-1] ^= 0x80
    flipped[6][16] ^= 2  # payload length
    flipped[7][19] ^= 0x80
    reasons = ["magic or version"] * 2 + ["CRC"] * 4 + ["length"] * 2
    found = [(bytes(f), reason) for f, reason in zip(flipped, reasons, strict=True)]
    other = pack_frame(Header(9, 1, 1), data[24:])
    cut = [data[:-2], data[:-1], data[:25], data[:22], data[:2], data + b"\0\0", data + b"\0", data * 2]
    return [
        *found,
        (other, "codec"),
        *((part, "length") for part in cut),
        (bytes(300), "too long for the store"),
    ]


def test_damage_is_refused_and_good_frames_pass_between():
    rng = dice(3)
    sent, wanted, payloads, reasons = [], [], [], []
    _, victim = frame(rng, 20)
    for bad, reason in damaged(rng, victim):
        head, data = frame(rng, rng.randrange(30))
        sent += [bad, data]
        wanted.append(head)
        payloads.append(data[24:])
        reasons.append(reason)
    bench = Bench(gaps=randomly(0.2, 5))
    bench.run(sent, wanted, len(reasons))
    assert bench.payloads == payloads
    assert bench.bads == reasons


def test_a_byte_missing_in_the_middle_is_refused():
    rng = dice(4)
    head, data = frame(rng, 8)
    holed = [(w, last, 2 if i == 14 else keep) for i, (w, last, keep) in enumerate(transfers(data))]
    bench = Bench()
    bench.run([holed, data], [head], 1)
    assert bench.bads == ["length"]
    assert bench.payloads == [data[24:]]


def test_frames_that_nobody_expects_are_refused():
    rng = dice(6)
    head, data = frame(rng, 10, sub=7, width=9)
    wrong, reasons = [], []
    for name, bits in FIELDS.items():
        for flip in (1, 1 << (bits - 1)):
            wrong.append(pack_frame(replace(head, **{name: getattr(head, name) ^ flip}), data[24:]))
            reasons.append("sub-frame or width" if name in ("sub", "width") else name)
    huge = pack_frame(replace(head, count=head.count | 1 << 19), data[24:])
    both = pack_frame(replace(head, chunk=head.chunk ^ 1, count=head.count ^ 1), data[24:])
    bench = Bench(depth_log2=6)
    bench.run([*wrong, huge, both, data], [head], len(reasons) + 2)
    assert bench.bads == [*reasons, "count", "chunk"]
    assert bench.payloads == [data[24:]]


def test_frames_of_other_lanes_are_passed_over():
    rng = dice(8)
    frames = [frame(rng, rng.randrange(40), sub=sub) for sub in (0, 1, 3, 2, 6, 4, 5)]
    bench = Bench(lanes=4, lane=2)
    bench.run([data for _, data in frames], [frames[3][0], frames[4][0]])
    assert bench.payloads == [frames[3][1][24:], frames[4][1][24:]]
    assert bench.bads == []


@pytest.mark.parametrize("at", [1, 5, 20, 60, 70])
def test_reset_in_mid_frame_forgets_everything(at: int):
    rng = dice(at)
    (_, first), (_, second), (head, third) = (frame(rng, size) for size in (20, 30, 25))
    bench = Bench(depth_log2=7)
    clk, rst, clocks = bench.clk, bench.rst, 0

    @block
    def top():
        @always(clk.posedge)
        def reset():
            nonlocal clocks
            clocks += 1
            rst.next = clocks == at

        return bench.top([first, second, third], [head]), reset

    simulate(top, clk, until=lambda: len(bench.payloads) == 1, limit=2_000)
    assert bench.payloads == [third[24:]]
