"""A switch that adds: its ports' frames come together whole and in turn, a slice sends all the exact sum."""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc import Encoder
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.list_ports import ARMED
from oscar_hdl.nic.control.registers import command_values
from oscar_hdl.nic.receive.deframer import DAMAGED, PEER
from oscar_hdl.nic.switch_slice import switch_slice
from oscar_hdl.streams.bundles import PortFrames, Stream, bit
from oscar_hdl.streams.port_copy import ALL, port_copy
from oscar_hdl.streams.port_merge import port_merge
from oscar_sim.allreduce.network import in_bytes, in_words
from oscar_sim.cycles import CycleSimulator
from oscar_sim.driver.lists import entry_words, trigger
from oscar_sim.seeds import dice
from support.nic_bench import ASC, BUS, ROWS_LOG2, SETS, STORE_LOG2, Bench, gradient, header_fields

pytestmark = pytest.mark.usefixtures("seed")

Word = tuple[int, int, int, int]  # data, keep, last, to whom


def frame(rng: Random, to: int = 0) -> list[Word]:
    size = rng.choice([1, 2, 9, 30])
    return [(rng.getrandbits(64), rng.getrandbits(8), n + 1 == size, to) for n in range(size)]


class Feed:
    """Offers words with pauses."""

    def __init__(self, stream: Stream, rng: Random, pause: float) -> None:
        self.stream, self.rng, self.pause, self.words = stream, rng, pause, deque[Word]()

    def step(self) -> None:
        stream = self.stream
        if stream.tvalid and stream.tready:
            self.words.popleft()
        held = bool(stream.tvalid and not stream.tready)
        stream.tvalid.next = bool(self.words) and (held or self.rng.random() >= self.pause)
        if self.words:
            stream.tdata.next, stream.tkeep.next, stream.tlast.next, to = self.words[0]
            if hasattr(stream, "tdest"):
                stream.tdest.next = to


class Take:
    """Takes words with pauses; frames by who made them."""

    def __init__(self, stream: Stream, rng: Random, pause: float) -> None:
        self.stream, self.rng, self.pause = stream, rng, pause
        self.frames: list[list[Word]] = []
        self.words: list[Word] = []

    def step(self) -> None:
        stream = self.stream
        if stream.tvalid and stream.tready:
            who = int(stream.tid) if hasattr(stream, "tid") else 0
            self.words.append((int(stream.tdata), int(stream.tkeep), int(stream.tlast), who))
            if stream.tlast:
                self.frames.append(self.words)
                self.words = []
        stream.tready.next = self.rng.random() >= self.pause


@pytest.mark.parametrize("pause", [0.0, 0.5])
@pytest.mark.parametrize("count", [2, 4, 16])
def test_frames_of_ports_come_whole_and_in_turn(count: int, pause: float) -> None:
    rng, clk, rst = dice(f"port_merge {count} {pause}"), bit(), bit()
    ports, out = PortFrames(count), Stream(64, keep=8, id=8)
    feeds, take = [Feed(port, rng, pause) for port in ports.streams], Take(out, rng, pause)
    sim = CycleSimulator(
        port_merge(clk, rst, ports, out), clk, lambda: [each.step() for each in (*feeds, take)]
    )
    sim.run(2)
    sent = [[frame(rng, port) for _ in range(rng.randrange(1, 7))] for port in range(count)]
    for feed, frames in zip(feeds, sent, strict=True):
        feed.words.extend(word for each in frames for word in each)
    for _ in range(20_000):
        sim.run(1)
        if not any(feed.words for feed in feeds) and len(take.frames) == sum(map(len, sent)):
            break
    for port, frames in enumerate(sent):
        assert [each for each in take.frames if each[0][3] == port] == frames
    if pause == 0:  # while all have frames, each is once in a round
        rounds = min(map(len, sent))
        order = [each[0][3] for each in take.frames[: rounds * count]]
        assert all(sorted(order[n : n + count]) == list(range(count)) for n in range(0, len(order), count))


@pytest.mark.parametrize("pause", [0.0, 0.5])
@pytest.mark.parametrize("count", [2, 4])
def test_frames_go_to_whom_they_are_for(count: int, pause: float) -> None:
    rng, clk, rst = dice(f"port_copy {count} {pause}"), bit(), bit()
    ports, stream = PortFrames(count), Stream(64, keep=8, dest=8)
    feed, takes = Feed(stream, rng, pause), [Take(port, rng, pause) for port in ports.streams]
    sim = CycleSimulator(
        port_copy(clk, rst, stream, ports), clk, lambda: [each.step() for each in (feed, *takes)]
    )
    sim.run(2)
    sent = [(to, frame(rng, to)) for to in rng.choices([*range(count + 1), ALL], k=30)]
    feed.words.extend(word for _, each in sent for word in each)
    clocks = 0
    while feed.words and clocks < 20_000:
        sim.run(1)
        clocks += 1
    sim.run(2)
    for port, take in enumerate(takes):
        due = [each for to, each in sent if to in (port, ALL)]
        assert [[word[:3] for word in each] for each in take.frames] == [
            [word[:3] for word in each] for each in due
        ]
    if pause == 0:
        assert clocks <= sum(len(each) for _, each in sent) + 2  # a word a clock


class SliceBench(Bench):
    """A slice between four ports."""

    BLOCK = "slice bench"

    def __init__(self, name: str, share: float) -> None:
        self.share = share
        super().__init__(name, pause=share)

    def build(self) -> Any:
        super().build()
        self.ports |= {"s_axis_rx": PortFrames(4), "m_axis_tx": PortFrames(4)}
        rng, share = self.rng, self.share
        self.feeds = [Feed(port, rng, share) for port in self.ports["s_axis_rx"].streams]
        self.takes = [Take(port, rng, share) for port in self.ports["m_axis_tx"].streams]
        return partial(
            switch_slice, self.clk, self.rst, **self.ports, units=self.units, bus_bits=BUS, sets=SETS,
            store_log2=STORE_LOG2, rows_log2=ROWS_LOG2, block_log2=ASC.block_log2,
        )  # fmt: skip

    def _tick_frames(self) -> None:
        for each in (*self.feeds, *self.takes):
            each.step()

    def put(self, frame: bytes, peer: int = 0) -> None:
        self.feeds[peer].words.extend((*word, 0) for word in in_words(frame, BUS // 8))


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_a_slice_sends_all_ports_the_exact_sum(pause: float) -> None:
    """A damaged frame and one of no entry are dropped, told by port; the entry waits for the right one."""
    bench, count = SliceBench(f"slice {pause}", pause), 2000
    rng, sums = bench.rng, np.zeros(2000, np.int32)
    _, positions = gradient(rng, count, "normal")
    shape = {"context": positions, "width": 12}
    words, frames = [], []
    for port in range(4):
        values = np.clip(gradient(rng, count, rng.choice(("normal", "sparse")))[0], -90, 90)
        sums += values
        frames.append(Encoder(ASC).encode(values, step=0, chunk=1, **shape))
        where = header_fields(frames[port]) | {"peer": port, "save": port, "fresh": 1, "row": 0, "add": 1}
        words += entry_words(command_values("RECEIVE", **where), trigger(gate=4))
    whole = {"step": 3, "chunk": 1, "save": 4, "fresh": 1, "count": count, "width": 12, "peer": ALL}
    send = command_values("SEND", **whole)
    words += entry_words(send, trigger(kind=1, events=4, next=4))

    def start() -> Any:
        yield from bench.load(0, frame_rows(np.zeros(count, np.int32), positions))
        bench.lists.put(words)
        while not bench.lists.idle:
            yield
        yield from bench.write("LIST_COMMAND", entries=5, run=1)

    bench.run(start())
    late, other = rng.sample(range(4), 2)
    damaged = bytearray(frames[late])
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    bench.put(bytes(damaged), late)
    bench.put(Encoder(ASC).encode(values, step=0, chunk=2, **shape), other)
    for port in rng.sample([n for n in range(4) if n != late], 3):
        bench.put(frames[port], port)

    def told(show: str, what: str, of: int) -> Any:
        yield from bench.write(f"{show}_SHOW", **{what: of})
        for _ in range(20):
            yield
        return (yield from bench.read("ENTRY_STATE" if show == "LIST" else "PEER_DROPS"))

    state = partial(told, "LIST", "entry")
    assert any(bench.run(state(4))["events"] == 1 for _ in range(3_000))
    assert [n for n in range(5) if bench.run(state(n))["state"] == ARMED] == [late, 4]
    drops = [bench.run(told("PEER", "peer", port)) for port in range(4)]
    assert [each["frames"] for each in drops] == [int(port in (late, other)) for port in range(4)]
    assert 1 <= drops[late]["reason"] <= DAMAGED
    assert drops[other]["reason"] == PEER
    bench.put(frames[late], late)
    assert any(bench.run(bench.read("IRQ_STATUS"))["list"] for _ in range(3_000))
    assert bench.run(bench.read("LIST_RESULT")) == {"ended": 1, "error": 0, "entry": 0, "running": 0}
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 2}
    bench.simulator.run(2_000)
    expected = Encoder(ASC).encode(sums, step=3, chunk=1, **shape)
    for take in bench.takes:
        assert [in_bytes([word[:3] for word in frame]) for frame in take.frames] == [expected]
    np.testing.assert_array_equal(bench.run(bench.fetch(0, count))[0], sums)


def test_other_numbers_of_ports_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 2, 4, 8 or 16 ports, got 3"):
        port_merge(bit(), bit(), PortFrames(3), Stream(64, keep=8, id=8))
    with pytest.raises(ValueError, match="expected 2, 4, 8 or 16 ports, got 1"):
        port_copy(bit(), bit(), Stream(64, keep=8, dest=8), PortFrames(1))
