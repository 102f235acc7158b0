"""row_memory: what is loaded is where units look for it, sums stay where they were added, all at once."""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from oscar.timeline.nic import load_nic
from oscar_hdl.coder.ports import PositionPort, SourcePort, SumPort
from oscar_hdl.coder.rows import FrameRows, descriptors, frame_rows
from oscar_hdl.nic.memory.bank_ports import STREAM_LANES, RowCommand, bank_count
from oscar_hdl.nic.memory.row_memory import row_memory
from oscar_hdl.nic.ports import STREAM_BITS, TopPort
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.compiled import copies_of
from oscar_sim.driver.row_packets import side_words, value_words, values_of
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

BLOCK_ROWS = 32
ROW_BITS = 11
POSITION_SEEN = 30  # the phase in which ok is looked at
ENGINE, RAW = (
    (30, 25, 43),
    (23, 1, 45),
)  # where source's ok is; of sums' take; from there to what describes them


class Unit:
    """Takes rows as a decoder and an encoder do, and keeps what it is given."""

    def __init__(self, bench: Bench, phases: tuple[int, int, int], ahead: int) -> None:
        self.rng, self.ahead, self.raw = bench.rng, ahead, phases is RAW
        source_seen, self.sum_phase, self.describes = phases
        self.seen = {"position": POSITION_SEEN, "source": source_seen}
        self.position, self.sums, self.source = PositionPort(), SumPort(), SourcePort()
        self.adopt, self.decode_row, self.encode_row = bit(), word(16), word(16)
        self.asked: list[deque[tuple[bool, int]]] = [deque(), deque()]  # of position, of source
        self.plan: dict[int, list[tuple[str, Any]]] = {}  # by clock
        self.got: dict[str, list[tuple[bool, int, list[int], list[int]]]] = {}
        self.begin({}, [], set())

    def begin(
        self, new: dict[int, tuple[np.ndarray, int]], rows: list[tuple[bool, int]], live: set[int]
    ) -> None:
        """Decode rows, of which `new` gives totals and descriptor; encode all that are live."""
        self.new, self.live, self.got = new, live, {"position": [], "sums": [], "source": []}
        for queue in self.asked:
            queue.extend(rows)

    @property
    def idle(self) -> bool:
        return not any(self.asked) and not self.plan

    def at(self, clock: int, what: str, data: Any) -> None:
        self.plan.setdefault(clock, []).append((what, data))

    def wants(self, name: str, header: bool, row: int) -> bool:
        """Whether it asks for this: encoders do not for rows of class 0, nor raw packers for headers."""
        if name == "position":
            return header or row in self.new
        return header is not self.raw and (header or self.raw or row in self.live)

    def step(self, now: int, phase: int) -> None:
        """Set what is there in the next clock, and look at what is there in this one."""
        phase = (phase + self.ahead) % 32
        for name, queue in zip(("position", "source"), self.asked, strict=True):
            port = getattr(self, name)
            if phase == self.seen[name] and queue and port.ok and self.rng.random() < 0.8:
                entry = (*queue[0], [], [])
                if self.wants(name, *entry[:2]):
                    self.at(now + 1, name, entry)
                    for i in range(32):
                        self.at(now + 6 + i, f"read {name}", entry)
                    if name == "position" and not entry[0]:
                        self.at(now + 1 + self.sum_phase, "sums", (False, entry[1], [], []))
                queue.popleft()
        for port in (self.position, self.sums, self.source):
            port.take.next = False
            port.row.next = self.rng.getrandbits(12)
        self.sums.valid.next = self.sums.described.next = False
        self.sums.total.next, self.sums.row_class.next = self.rng.getrandbits(16), self.rng.getrandbits(4)
        for what, data in self.plan.pop(now, ()):
            self.do(now, what, data)

    def do(self, now: int, what: str, data: Any) -> None:
        kind = what.rpartition(" ")[2]
        port = getattr(self, kind, None)
        if what in self.got:
            port.take.next, port.row.next = True, data[1]
            if what != "sums":
                port.header.next = data[0]
            else:
                totals, descriptor = self.new[data[1]]
                for i in range(32):
                    self.at(now + 5 + i, "read sums", data)
                    self.at(now + 6 + i, "total", int(totals[31 - i]))
                self.at(now + self.describes, "described", (data[1], descriptor))
            self.got[what].append(data)
        elif what == "total":
            self.sums.valid.next, self.sums.total.next = True, data & 0xFFFF
        elif what == "described":
            self.sums.described.next = True
            self.sums.described_row.next, kind = data
            self.sums.row_class.next, self.sums.row_size.next = kind & 15, kind >> 4 & 7
            self.sums.row_top.next = kind >> 7
        else:
            data[2].append(int(port.local if kind == "sums" else port.data))
            data[3].append(0 if kind == "sums" else int(port.mean))


class Bench:
    """A NIC's memory, with units, streams and commands."""

    def __init__(self, rng: Random, engines: int, come: float) -> None:
        self.rng, self.come = rng, come
        self.clk, self.rst, self.phase = bit(), bit(), word(5)
        banks = bank_count(engines)
        self.units = [*(Unit(self, ENGINE, 4 * (n // banks)) for n in range(engines)), Unit(self, RAW, 2)]
        self.commands = {name: RowCommand(ROW_BITS) for name in ("values", "side", "unload")}
        self.top = TopPort()
        self.in_values, self.in_side = Stream(STREAM_BITS), Stream(STREAM_BITS)
        self.out_values, self.out_descriptors = Stream(STREAM_BITS), Stream(16)
        self.queues: dict[Any, deque[int]] = {self.in_values: deque(), self.in_side: deque()}
        self.taken: dict[Any, list[tuple[int, bool]]] = {self.out_values: [], self.out_descriptors: []}
        u = self.units
        top = row_memory(
            self.clk, self.rst, self.phase, [x.position for x in u], [x.sums for x in u],
            [x.decode_row for x in u], [x.adopt for x in u], [x.source for x in u], [x.encode_row for x in u],
            *self.commands.values(), self.top, self.in_values, self.in_side, self.out_values,
            self.out_descriptors, row_bits=ROW_BITS, block_log2=10,
        )  # fmt: skip
        ports: list[Any] = [self.rst, self.phase, self.top]
        ports += [*self.commands.values(), *self.queues, *self.taken]
        ports += [[x.position, x.sums, x.source, x.adopt, x.decode_row, x.encode_row] for x in u]
        self.simulator = copies_of(top, self.clk, self.each, [ports])

    def each(self) -> None:
        now, phase = self.simulator.clocks, int(self.phase)
        self.phase.next = (phase + 1) % 32
        for stream, queue in self.queues.items():
            if stream.tvalid and stream.tready:
                queue.popleft()
            keeps = stream.tvalid and not stream.tready
            shown = bool(queue) and (bool(keeps) or self.rng.random() < self.come)
            stream.tvalid.next = shown
            stream.tdata.next = queue[0] if shown else self.rng.getrandbits(STREAM_BITS)
        for stream, taken in self.taken.items():
            if stream.tvalid and stream.tready:
                taken.append((int(stream.tdata), bool(stream.tlast)))
            stream.tready.next = self.rng.random() < self.come
        for unit in self.units:
            unit.step(now, phase)

    def start(self, name: str, first: int, count: int, *, clear: bool = False) -> None:
        command = self.commands[name]
        command.first.next, command.count.next, command.clear.next = first, count, clear
        command.start.next = True
        self.simulator.run(1)
        command.start.next = False
        self.simulator.run(2)

    def wait(self, limit: int = 60_000) -> None:
        for _ in range(limit):
            if all(c.idle for c in self.commands.values()) and all(u.idle for u in self.units):
                self.simulator.run(10)
                return
            self.simulator.run(1)
        raise AssertionError("no end")

    def load(self, rows: FrameRows, first: int) -> None:
        words = value_words(rows)
        over = -rows.count % STREAM_LANES  # behind the last value anything may come
        words[-1] |= self.rng.getrandbits(16 * over) << 16 * (STREAM_LANES - over)
        self.queues[self.in_values].extend(words)
        self.queues[self.in_side].extend(word | self.rng.getrandbits(17) << 15 for word in side_words(rows))
        self.start("values", first, rows.count)
        self.start("side", first, rows.count)

    def largest(self, first: int, count: int) -> int:
        """Return the largest symbol of a frame's rows."""
        self.top.row.next, self.top.count.next, self.top.ask.next = first, count, True
        self.simulator.run(1)
        self.top.ask.next = False
        for _ in range(400):
            self.simulator.run(1)
            if self.top.known:
                return int(self.top.symbol)
        raise AssertionError("no end")

    def unload(self, first: int, count: int) -> tuple[list[int], list[int]]:
        for taken in self.taken.values():
            taken.clear()
        self.start("unload", first, count)
        self.wait()
        words = self.taken[self.out_values]
        assert [last for _, last in words] == [False] * (-(-count // STREAM_LANES) - 1) + [True]
        kinds = self.taken[self.out_descriptors]
        assert [last for _, last in kinds] == [False] * (-(-count // 32) - 1) + [True]
        values = values_of([word for word, _ in words], count).astype(np.int32) & 0xFFFF
        return values.tolist(), [described for described, _ in kinds]


def random_rows(rng: Random, count: int) -> FrameRows:
    r = np.random.default_rng(rng.getrandbits(32))
    values = r.integers(-300, 300, count) * np.repeat(r.random(-(-count // 32)) < 0.6, 32)[:count]
    return frame_rows(values, r.integers(0, 16, count))


class Work:
    """A block that a unit decodes and adds, while it encodes what is there."""

    def __init__(self, unit: Unit, base: int, rows: FrameRows, rng: Random, *, adopt: bool) -> None:
        self.unit, self.rows = unit, rows
        self.local = rows.values * (not adopt)
        new = random_rows(rng, rows.count)
        total = (self.local + new.values + 0x8000) % 0x10000 - 0x8000
        kinds = descriptors(total).tolist()
        self.sums = np.where(new.classes[:, None] > 0, total, self.local)
        self.live = np.flatnonzero(new.classes).tolist()
        unit.decode_row.next, unit.encode_row.next, unit.adopt.next = base, base, adopt
        unit.begin(
            {j: (total[j], kinds[j]) for j in self.live},
            [(True, 0), *((False, j) for j in range(rows.means.size - 1, -1, -1))],
            set(np.flatnonzero(rows.classes).tolist()),
        )

    def check(self) -> None:
        """Compare what the unit was given with the rows before they were added to."""
        rows, got = self.rows, self.unit.got
        padding = [0] * (32 - rows.means.size)
        for header, row, data, means in got["position"]:
            wanted = rows.means.tolist() + padding if header else rows.distances[row].tolist()
            assert data[::-1] == wanted
            assert header or set(means) == {int(rows.means[row])}
        assert [row for _, row, _, _ in got["sums"]] == self.live[::-1]
        for _, row, data, _ in got["sums"]:
            assert data[::-1] == (self.local[row] & 0xFFFF).tolist()

    def check_source(self) -> None:
        """Compare what an encoder was given, when nothing was decoded meanwhile."""
        rows, padding = self.rows, [0] * (32 - self.rows.means.size)
        for header, row, data, means in self.unit.got["source"]:
            wanted = (rows.values[row] & 0xFFFF) | rows.distances[row].astype(np.int32) << 16
            wanted = (wanted * (rows.classes[row] > 0)).tolist()
            if header:
                wanted = (rows.headers & 0x7FF).tolist() + padding
            if self.unit.raw:
                assert data == [value & 0xFFFF for value in wanted]
                continue
            assert data == wanted
            assert header or set(means) == {int(rows.means[row])}


@pytest.mark.parametrize("engines", [2, 16])
def test_only_the_rows_that_are_asked_for_are_cleared(engines: int):
    rng = dice(f"memory clear {engines}")
    bench = Bench(rng, engines, 1.0)
    bench.rst.next = True
    bench.simulator.run(CLOCKS)
    bench.rst.next = False
    bench.simulator.run(1)
    everything = 8 * 1024
    rows = frame_rows(np.random.default_rng(rng.getrandbits(32)).integers(1, 9, everything))
    bench.load(rows, 0)
    bench.wait()
    expected = rows.values.copy()
    for blocks in (1, rng.randrange(2, 5), rng.randrange(2, 7)):
        first = rng.randrange(8 - blocks + 1) * BLOCK_ROWS
        count = blocks * 1024 - rng.choice((0, 0, rng.randrange(1024)))
        bench.start("side", first, count, clear=True)
        bench.wait()
        expected[first : first - (-count // 32)] = 0
        values, _ = bench.unload(0, everything)
        assert values == expected.reshape(-1).tolist(), (first, count)


@pytest.mark.parametrize("engines", [2, 16])
def test_the_largest_symbol_is_that_of_the_frame_alone(engines: int):
    """Asked for as soon as the frame's rows are taken: those behind them still have symbols from before."""
    rng = dice(f"memory top {engines}")
    bench = Bench(rng, engines, 0.8)
    bench.rst.next = True
    bench.simulator.run(CLOCKS)
    bench.rst.next = False
    bench.simulator.run(1)
    bench.load(frame_rows(np.full(8 * 1024, 200)), 0)
    bench.wait()
    for blocks in (1, rng.randrange(2, 8)):
        first = rng.randrange(8 - blocks) * BLOCK_ROWS
        count = (blocks - 1) * 1024 + rng.randrange(1, 1025)
        values = np.zeros(count, np.int64)
        values[rng.randrange(count)] = rng.choice((-1, 1)) * rng.randrange(200)
        rows = frame_rows(values)
        bench.load(rows, first)
        while bench.queues[bench.in_side]:
            bench.simulator.run(1)
        bench.simulator.run(rng.choice((1, 2, 3, 40)))
        assert bench.largest(first, count) == rows.tops.max()
        bench.wait()
        assert bench.largest(first, count) == rows.tops.max()


def test_rows_take_the_clocks_of_the_time_model():
    """Of what a frame takes more than one of half its rows, each row has a part: nics/nic.json names it.

    Meanwhile every engine has rows of the same banks.
    """
    rng, took = dice("memory clocks"), []
    bench = Bench(rng, 2, 1.0)
    bench.rst.next = True
    bench.simulator.run(CLOCKS)
    bench.rst.next = False
    bench.simulator.run(1)
    for count in (1024, 2048):
        clocks = []
        rows = frame_rows(np.ones(count, np.int64))
        for move in (partial(bench.load, rows, 0), partial(bench.start, "unload", 0, count)):
            for i, unit in enumerate(bench.units[:-1]):
                Work(unit, BLOCK_ROWS * (4 + i), random_rows(rng, 512), rng, adopt=False)
            bench.simulator.run(-bench.simulator.clocks % 32)
            began = bench.simulator.clocks
            move()
            while not all(command.idle for command in bench.commands.values()):
                bench.simulator.run(1)
            clocks.append(bench.simulator.clocks - began)
            assert not any(unit.idle for unit in bench.units[:-1])
            bench.wait()
        took.append(clocks)
    driver = load_nic().driver
    assert driver is not None
    clocks = [(long - short) / (1024 / 32) for short, long in zip(*took, strict=True)]
    assert clocks == [driver.load_clocks, driver.read_clocks]


@pytest.mark.parametrize(("engines", "come"), [(2, 0.6), (8, 0.6), (16, 1.0)])
def test_frames_are_loaded_added_and_read(engines: int, come: float):
    rng = dice(f"memory {engines} {come}")
    bench = Bench(rng, engines, come)
    bench.simulator.run(rng.randrange(1, 40))
    bench.rst.next = True
    bench.simulator.run(CLOCKS)
    bench.rst.next = False
    bench.simulator.run(1)
    first, second = 0, 2 * BLOCK_ROWS * engines
    # The last unit is the raw one; it has the block behind those of the engines, in bank 0.
    frame = random_rows(rng, engines * 1024 + rng.randrange(1, 200))
    other = random_rows(rng, rng.randrange(1, 300))
    bench.load(frame, first)
    bench.wait()
    bench.load(other, second)  # while the first is worked on
    works = []
    for i, unit in enumerate(bench.units):
        part = frame.part(BLOCK_ROWS * i, min(1024, frame.count - 1024 * i))
        works.append(Work(unit, first + BLOCK_ROWS * i, part, rng, adopt=False))
        for queue in unit.asked[1:]:  # in the second round
            queue.clear()
    bench.simulator.run(2)
    bench.wait()
    for work in works:
        work.check()
    expected = np.concatenate([work.sums for work in works])
    values, described = bench.unload(first, frame.count)
    assert values == (expected.reshape(-1)[: frame.count] & 0xFFFF).tolist()
    after = frame_rows(expected.reshape(-1)[: frame.count])
    assert described == descriptors(after.values).tolist()
    assert bench.largest(first, frame.count) == after.tops.max()
    assert bench.largest(second, other.count) == other.tops.max()
    # Now the sums are encoded while another frame is cleared and adopted.
    bench.start("side", second, other.count, clear=True)
    bench.wait()
    assert bench.unload(second, other.count)[0] == [0] * other.count
    after = FrameRows(
        after.values, frame.distances, frame.means, after.classes, after.sizes, after.count
    )  # fmt: skip
    sent = []
    for i, unit in enumerate(bench.units):
        part = after.part(BLOCK_ROWS * i, min(1024, after.count - 1024 * i))
        sent.append(Work(unit, BLOCK_ROWS * i, part, rng, adopt=False))
        unit.asked[0].clear()
    adopted = FrameRows(np.zeros_like(other.values), *(getattr(other, n) for n in ("distances", "means")),
                        np.zeros_like(other.classes), np.zeros_like(other.sizes), other.count)  # fmt: skip
    bench.units[0].asked[0].clear()
    unit = bench.units[0]
    source_queue = deque(unit.asked[1])
    work = Work(unit, second, adopted, rng, adopt=True)
    unit.encode_row.next = 0
    unit.asked[1].clear()
    unit.asked[1].extend(source_queue)
    bench.simulator.run(2)
    bench.wait()
    for entry in sent:
        entry.check_source()
    work.check()
    assert bench.unload(second, other.count)[0] == (work.sums.reshape(-1)[: other.count] & 0xFFFF).tolist()
