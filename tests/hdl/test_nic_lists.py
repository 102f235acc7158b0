"""nic_core by lists: frames and sums are the host's however frames come; bad lists change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc import Encoder
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.list_ports import ENDED
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED, command_values
from oscar_sim.driver.lists import entry_words, trigger
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import packet_start
from support.nic_bench import ASC, Bench, gradient, header_fields

pytestmark = pytest.mark.usefixtures("seed")

COUNT, WIDTH = 200, 12
PEERS = (3, 200, 17)
OWN, OTHER = 0, 32  # first rows of the chunk that is added here, and of one that a peer adds


def entry(name: str, own: dict[str, int], **fields: int) -> list[int]:
    """Return an entry's three words."""
    return entry_words(command_values(name, **fields), trigger(**own, kind=int(name == "SEND")))


@dataclass
class Exchange:
    """A direct AllReduce of one NIC: pushes are added to its chunk, its own go to a peer, a sum comes back.

    made: own values come while the list runs. words: of the list. half: of one whose entry 0 receives the
    sum, and whose entry 1 sends. sums and adopted: what rows hold at the end. sent: frames by peer, in order.
    """

    bench: Bench
    made: bool = False
    entries: list[list[int]] = field(default_factory=list)
    coming: list[tuple[bytes, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.bench.rng
        own, positions = gradient(rng, COUNT, "normal")
        other, _ = gradient(rng, COUNT, "sparse")
        own, other = (np.clip(values, -90, 90) for values in (own, other))
        self.rows = [(OWN, frame_rows(own, positions)), (OTHER, frame_rows(other, positions))]
        self.sums, shape = own.copy(), {"context": positions, "width": WIDTH}
        fresh = {"sequence": 0, "load": 0, "fresh": 1}
        for n, peer in enumerate(PEERS):  # all have one name but for the peer
            values = np.clip(gradient(rng, COUNT, rng.choice(("normal", "sparse")))[0], -90, 90)
            self.sums += values
            frame = Encoder(ASC).encode(values, step=0, chunk=1, **shape)
            self.coming.append((frame, peer))
            self.entries.append(
                entry(
                    "RECEIVE",
                    {"gate": 5, "need": int(self.made)},
                    **header_fields(frame),
                    peer=peer,
                    save=n,
                    fresh=1,
                    row=OWN,
                    add=1,
                )
            )
        final, _ = gradient(rng, COUNT, "normal")
        self.adopted = final
        frame = Encoder(ASC).encode(final, step=3, chunk=2, **shape)
        self.final = frame, PEERS[1]
        adopts = header_fields(frame) | {"peer": PEERS[1], "save": 3, "fresh": 1, "row": OTHER, "adopt": 1}
        self.entries.append(entry("RECEIVE", {"gate": 4, "need": 2}, **adopts))
        where = {"count": COUNT, "width": WIDTH}
        push = fresh | where | {"step": 0, "chunk": 2, "save": 4, "peer": PEERS[1], "row": OTHER}
        values = 2 * COUNT if self.made else 0  # a packet of values, and one of side rows
        self.entries.append(entry("SEND", {"next": 4, "values": values}, **push))
        self.half = entry("RECEIVE", {"gate": 1, "need": 2}, **adopts) + entry("SEND", {"next": 1}, **push)
        total = fresh | where | {"step": 3, "chunk": 1, "save": 5, "peer": 255, "row": OWN}
        self.entries.append(entry("SEND", {"next": 5, "events": len(PEERS), "values": values}, **total))
        self.sent = [
            Encoder(ASC).encode(other, step=0, chunk=2, **shape),
            Encoder(ASC).encode(self.sums, step=3, chunk=1, **shape),
        ]

    @property
    def words(self) -> list[int]:
        return [word for each in self.entries for word in each]

    def load(self) -> None:
        """Write local rows."""
        for row, rows in self.rows:
            self.bench.run(self.bench.load(row, rows))

    def make(self, row: int) -> None:
        """Let local rows come for the list, in packets of any size, values and side rows each at any time."""
        bench, number = self.bench, {OWN: 5, OTHER: 4}[row]
        rows = dict(self.rows)[row]
        lines, at = bench.lines, 0
        while at < COUNT:
            count = min(COUNT - at, 32 * bench.rng.randrange(1, 4))
            words = lines.value_words(row + at // 32, rows.part(at // 32, count))
            bench.packet("s_axis_values", [packet_start(row + at // 32, count, number), *words])
            at += count
        bench.packet("s_axis_side", [packet_start(row, COUNT, number), *lines.side_words(row, rows)])

    def poison(self) -> None:
        """Write other rows where local ones come."""
        for row, _ in self.rows:
            values, positions = gradient(self.bench.rng, COUNT, "noise")
            self.bench.run(self.bench.load(row, frame_rows(values, positions)))

    def check(self) -> None:
        """Compare frames and rows with the host's."""
        bench = self.bench
        assert bench.frames == self.sent
        assert bench.peers == [PEERS[1], 255]
        np.testing.assert_array_equal(bench.run(bench.fetch(OWN, COUNT))[0], self.sums)
        np.testing.assert_array_equal(bench.run(bench.fetch(OTHER, COUNT))[0], self.adopted)


def start(bench: Bench, words: list[int], entries: int | None = None) -> Script:
    """Give a list and its command."""
    bench.lists.put(words)
    while not bench.lists.idle:
        yield
    yield from bench.write("LIST_COMMAND", entries=len(words) // 3 if entries is None else entries, run=1)


def ended(bench: Bench) -> Script:
    """Wait for a list's end; return LIST_RESULT."""
    while not (yield from bench.read("IRQ_STATUS"))["list"]:
        yield
    yield from bench.bus.write(BY_NAME["IRQ_STATUS"].offset, BY_NAME["IRQ_STATUS"].mask)
    return (yield from bench.read("LIST_RESULT"))


def finish(bench: Bench, exchange: Exchange) -> None:
    """Bring the sum once the first frame is sent; the list ends well, and the second frame is sent."""
    while len(bench.frames) < 1:
        bench.simulator.run(10)
    bench.put(*exchange.final)
    assert bench.run(ended(bench)) == {"ended": 1, "error": 0, "entry": 0, "running": 0}
    while len(bench.frames) < 2:
        bench.simulator.run(10)


def spoilt(frame: bytes, at: int, rng: Any) -> bytes:
    """Return a frame with a bit flipped."""
    data = bytearray(frame)
    data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_a_list_is_a_whole_exchange(pause: float) -> None:
    """Damaged, foreign and forged frames between the right ones, which come before the list, and late."""
    bench = Bench(f"list {pause}", pause=pause)
    rng, exchange = bench.rng, Exchange(bench)
    exchange.load()
    rng.shuffle(exchange.coming)
    (first, one), (second, two), (third, three) = exchange.coming
    values, positions = gradient(rng, COUNT, "normal")
    forger = Encoder(ASC)  # its second frame has the name, but another sequence and checksum
    forged = [forger.encode(values, step=0, chunk=1, width=WIDTH, context=positions) for _ in range(2)][1]
    bench.put(first, one)
    bench.run(start(bench, exchange.words))
    bench.put(spoilt(second, rng.randrange(24, len(second)), rng), two)  # dropped: CRC
    bench.put(second, 99)  # dropped: from nobody whom an entry waits for
    bench.put(forged, two)  # dropped: but its entry waits again
    bench.put(second, two)
    bench.put(second, two)  # dropped: that entry has ended
    bench.simulator.run(rng.choice([10, 2500]))
    bench.put(third, three)
    finish(bench, exchange)
    exchange.check()
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 5}  # the forged one's command was aborted
    assert bench.run(bench.read("FRAMES_IN")) == {"value": 4}
    bench.put(first, one)  # of the next AllReduce: it stays
    bench.run(bench.arrived())
    assert bench.run(bench.read("OLDEST_NAME"))["peer"] == one


def test_what_hangs_is_shown_aborted_and_reset() -> None:
    bench = Bench("list hangs")
    rng, exchange = bench.rng, Exchange(bench)
    exchange.load()

    def state(number: int) -> Script:
        yield from bench.write("LIST_SHOW", entry=number)
        for _ in range(20):
            yield
        return (yield from bench.read("ENTRY_STATE"))

    def hang() -> Script:
        yield from start(bench, exchange.words)
        bench.put(*exchange.coming[0])
        while (yield from state(5))["events"] != 2 or (yield from state(4))["state"] != ENDED:
            yield

    bench.run(hang())
    expected = [(0, 3, 0), *[(0, 1, 0)] * 3, (0, 3, 0), (2, 1, 0)]
    assert [tuple(bench.run(state(n)).values()) for n in range(6)] == expected
    for name in ("RECEIVE_COMMAND", "SEND_COMMAND"):  # both at once are refused
        bench.run(bench.write(name, row=0))
    bench.run(bench.write("LIST_COMMAND", entries=6, run=1))
    bench.simulator.run(10)
    assert bench.run(bench.read("REFUSED")) == {"value": 3}
    assert bench.run(bench.read("IRQ_STATUS"))["refused"]
    bench.run(bench.write("ABORT", receive=1))
    assert bench.run(ended(bench)) == {"ended": 1, "error": ERROR_ABORTED, "entry": 0, "running": 0}
    assert len(bench.frames) == 1
    for clocks in (rng.randrange(300), rng.randrange(2000)):
        bench.script = start(bench, exchange.words)
        for frame, peer in exchange.coming:
            bench.put(frame, peer)
        bench.simulator.run(clocks)
        bench.script = iter(())
        bench.reset()
        bench.peers.clear()
    # A shorter list whose entry 1 is a SEND, where one waited for a frame that comes only now.
    exchange.load()
    bad = bench.run(bench.read("FRAMES_BAD"))["value"]
    bench.run(start(bench, exchange.half))
    bench.put(*exchange.coming[1])
    bench.put(*exchange.final)
    assert bench.run(ended(bench)) == {"ended": 1, "error": 0, "entry": 0, "running": 0}
    assert bench.run(bench.read("FRAMES_BAD"))["value"] == bad + 1
    bench.reset()
    bench.peers.clear()
    exchange.load()
    for frame, peer in exchange.coming:
        bench.put(frame, peer)
    bench.run(start(bench, exchange.words))
    bench.put(*exchange.final)
    assert bench.run(ended(bench))["error"] == 0
    while len(bench.frames) < 2:
        bench.simulator.run(10)
    exchange.check()


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_values_that_come_late_start_what_waits_for_them(pause: float) -> None:
    """Rows hold others until they are made, so whoever starts early changes a byte."""
    bench = Bench(f"list made {pause}", pause=pause)
    rng, exchange = bench.rng, Exchange(bench, made=True)
    exchange.poison()
    first, second = rng.sample([OWN, OTHER], 2)
    exchange.make(first)  # it waits for the list
    bench.simulator.run(rng.choice([10, 500]))
    bench.run(start(bench, exchange.words))
    for frame, peer in exchange.coming[: rng.randrange(4)]:
        bench.put(frame, peer)
        exchange.coming.remove((frame, peer))
    bench.simulator.run(rng.choice([10, 2500]))
    wrong = {OWN: OTHER, OTHER: OWN}
    for row in (first, second):  # refused: more than is waited for, for a RECEIVE, for none
        for number, count in ((4, 2 * COUNT + 1), (rng.randrange(4), 1), (6 + rng.randrange(250), 1)):
            bench.packet("s_axis_values", [packet_start(wrong[row], count, number), *range(3)])
    exchange.make(second)
    for frame, peer in exchange.coming:
        bench.put(frame, peer)
    finish(bench, exchange)
    order = sorted(range(2), key=lambda n: bench.peers[n] == 255)
    bench.frames[:], bench.peers[:] = [bench.frames[n] for n in order], [bench.peers[n] for n in order]
    exchange.check()
    assert bench.run(bench.read("PACKETS_BAD")) == {"value": 6}


def test_bad_lists_are_refused_and_change_nothing() -> None:
    bench = Bench("list bad")
    rng, exchange = bench.rng, Exchange(bench)
    exchange.load()
    words, refusals = exchange.words, 0
    bench.run(start(bench, words[:-1], 5))  # ends inside an entry
    refusals += 1
    for entries in (0, 5, 7, 257):
        bench.run(start(bench, words, entries))
        refusals += 1
    bench.simulator.run(20)
    assert bench.run(bench.read("REFUSED")) == {"value": refusals}
    assert bench.run(bench.read("PACKETS_BAD")) == {"value": 1}
    assert bench.run(bench.read("IRQ_STATUS"))["bad_packet"]
    assert bench.run(bench.read("LIST_RESULT")) == {"ended": 0, "error": 0, "entry": 0, "running": 0}
    number = rng.randrange(6)
    wrong = list(words)
    wrong[3 * number] &= ~(0x7FFFF << 32)  # of no values
    chained = list(words)
    chained[3 * 4 + 2] = trigger(kind=1, next=2)  # no SEND
    for n, (bad, error, at) in enumerate([(wrong, 1, number), (chained, 2, 4)], 1):
        bench.put(*exchange.coming[0])
        bench.run(start(bench, bad))
        assert bench.run(ended(bench)) == {"ended": n, "error": error, "entry": at, "running": 0}
    assert not bench.frames
    assert bench.run(bench.read("OLDEST_NAME"))["there"]
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 0}
    assert bench.run(bench.read("STATUS"))["receive_running"] == 0
    np.testing.assert_array_equal(
        bench.run(bench.fetch(OTHER, COUNT))[0], exchange.rows[1][1].values.reshape(-1)[:COUNT]
    )
