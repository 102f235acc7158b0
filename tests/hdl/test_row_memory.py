"""row_banks: what is loaded is where engines look for it, sums stay where they were added, all at once."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import numpy as np
import pytest

from oscar_hdl.coder.ports import PositionPort, SourcePort, SumPort
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.nic.bank_ports import RowCommand
from oscar_hdl.nic.row_banks import row_banks
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

BLOCK_BITS = 5  # rows of 2^5, so 1,024 values
ROW_BITS = 7
PHASES = (0, 25, 0)  # of the takes of position, sums, source


class Unit:
    """Takes rows of a bank as a decoder and an encoder do, and keeps what they are given."""

    def __init__(self, bench: Bench, index: int) -> None:
        self.bench, self.index = bench, index
        self.position, self.sums, self.source = PositionPort(), SumPort(), SourcePort()
        self.adopt, self.decoder_base, self.encoder_base = bit(), word(14), word(14)
        self.asked: list[deque[tuple[bool, int]]] = [deque(), deque(), deque()]
        self.got: list[list[Any]] = [[], [], []]
        self.due: list[deque[tuple[int, bool, int]]] = [deque(), deque(), deque()]
        self.totals: deque[tuple[int, int]] = deque()  # clock, value
        self.described: deque[tuple[int, int, int, int]] = deque()
        self.new: dict[int, tuple[np.ndarray, int, int]] = {}  # totals and descriptor of rows

    @property
    def idle(self) -> bool:
        return not any(self.asked) and not any(self.due) and not self.totals and not self.described

    def step(self, now: int, phase: int) -> None:
        """Ask in the clock behind this one, and look at what is there in this one."""
        ports = self.position, self.sums, self.source
        for kind, port in enumerate(ports):
            port.take.next = False
            port.row.next = self.bench.rng.getrandbits(12)
            if self.asked[kind] and (phase + 1) % 32 == PHASES[kind] and self.bench.rng.random() < 0.8:
                header, row = self.asked[kind].popleft()
                port.take.next, port.row.next = True, row
                if kind != 1:
                    port.header.next = header
                self.due[kind].append((now + 5, header, row))
                self.got[kind].append((header, row, [], []))
                if kind == 1:
                    totals, row_class, size = self.new[row]
                    self.totals.extend((now + 7 + i, int(v)) for i, v in enumerate(totals[::-1]))
                    self.described.append((now + 45 + self.bench.rng.randrange(20), row, row_class, size))
        for kind, port in enumerate(ports):
            for begin, header, row in self.due[kind]:
                if begin <= now < begin + 32:
                    entry = next(e for e in self.got[kind] if e[:2] == (header, row) and len(e[2]) < 32)
                    entry[2].append(int(port.local if kind == 1 else port.data))
                    if kind != 1:
                        entry[3].append(int(port.mean))
            while self.due[kind] and now >= self.due[kind][0][0] + 31:
                self.due[kind].popleft()
        self.give(now)

    def give(self, now: int) -> None:
        sums = self.sums
        sums.valid.next = bool(self.totals) and self.totals[0][0] == now + 1
        sums.total.next = self.bench.rng.getrandbits(16)
        if self.totals and self.totals[0][0] == now + 1:
            sums.total.next = self.totals.popleft()[1] & 0xFFFF
        sums.described.next = bool(self.described) and self.described[0][0] == now + 1
        if self.described and self.described[0][0] == now + 1:
            _, row, row_class, size = self.described.popleft()
            sums.described_row.next, sums.row_class.next, sums.row_size.next = row, row_class, size


class Bench:
    """A NIC's banks, with units, streams and commands."""

    def __init__(self, rng: Random, banks: int, bus: int, come: float) -> None:
        self.rng, self.come = rng, come
        self.clk, self.rst, self.phase = bit(), bit(), word(5)
        self.units = [Unit(self, i) for i in range(banks)]
        self.commands = {name: RowCommand(14) for name in ("values", "side", "unload")}
        self.in_values, self.in_side = Stream(bus), Stream(64)
        self.out_values, self.out_descriptors = Stream(bus), Stream(8)
        self.queues: dict[Any, deque[int]] = {self.in_values: deque(), self.in_side: deque()}
        self.taken: dict[Any, list[tuple[int, bool]]] = {self.out_values: [], self.out_descriptors: []}
        self.dones = dict.fromkeys(self.commands, 0)
        u = self.units
        top = row_banks(
            self.clk, self.rst, self.phase, [x.position for x in u], [x.sums for x in u], [x.adopt for x in u],
            [x.decoder_base for x in u], [x.source for x in u], [x.encoder_base for x in u],
            *self.commands.values(), self.in_values, self.in_side, self.out_values, self.out_descriptors,
            row_bits=ROW_BITS, block_bits=BLOCK_BITS, odd=tuple(bool(p % 2) for p in PHASES),
        )  # fmt: skip
        self.simulator = CycleSimulator(top, self.clk, self.each)

    def each(self) -> None:
        now, phase = self.simulator.clocks, int(self.phase)
        self.phase.next = (phase + 1) % 32
        for stream, queue in self.queues.items():
            if stream.tvalid and stream.tready:
                queue.popleft()
            keeps = stream.tvalid and not stream.tready
            shown = bool(queue) and (bool(keeps) or self.rng.random() < self.come)
            stream.tvalid.next = shown
            stream.tdata.next = queue[0] if shown else self.rng.getrandbits(64)
        for stream, taken in self.taken.items():
            if stream.tvalid and stream.tready:
                taken.append((int(stream.tdata), bool(stream.tlast)))
            stream.tready.next = self.rng.random() < self.come
        for unit in self.units:
            unit.step(now, phase)
        for name, command in self.commands.items():
            self.dones[name] += bool(command.done)

    def start(self, name: str, first: int, count: int, *, clear: bool = False) -> None:
        command = self.commands[name]
        command.first.next, command.count.next, command.clear.next = first, count, clear
        command.start.next = True
        self.simulator.run(1)
        command.start.next = False
        self.simulator.run(1)

    def wait(self, limit: int = 40_000) -> None:
        for _ in range(limit):
            if all(c.idle for c in self.commands.values()) and all(u.idle for u in self.units):
                self.simulator.run(80)  # the last totals and descriptors
                return
            self.simulator.run(1)
        raise AssertionError("no end")

    def load(self, rows: FrameRows, first: int) -> None:
        flat = (rows.values.reshape(-1)[: rows.count].astype(np.int64) & 0xFFFF).tolist()
        bus = len(self.in_values.tdata)
        flat += [self.rng.getrandbits(16) for _ in range(-len(flat) % (bus // 16))]
        lanes = bus // 16
        self.queues[self.in_values].extend(
            sum(v << (16 * i) for i, v in enumerate(flat[at : at + lanes]))
            for at in range(0, len(flat), lanes)
        )
        for t, header in enumerate(rows.headers.tolist()):
            packed = sum(int(d) << (4 * i) for i, d in enumerate(rows.distances[t]))
            self.queues[self.in_side].extend((header, packed & ((1 << 64) - 1), packed >> 64))
        self.start("values", first, rows.count)
        self.start("side", first, rows.count)

    def unload(self, first: int, count: int) -> tuple[list[int], list[int]]:
        for taken in self.taken.values():
            taken.clear()
        self.start("unload", first, count)
        self.wait()
        lanes = len(self.out_values.tdata) // 16
        words = self.taken[self.out_values]
        assert [last for _, last in words] == [False] * (len(words) - 1) + [True]
        values = [w >> (16 * i) & 0xFFFF for w, _ in words for i in range(lanes)]
        assert len(words) == -(-count // lanes)
        return values[:count], [d for d, _ in self.taken[self.out_descriptors]]

    def blocks(self, first: int, rows: FrameRows) -> list[tuple[Unit, int, FrameRows]]:
        """Return unit, base and rows of each block."""
        found, size = [], 1 << BLOCK_BITS
        for b, at in enumerate(range(0, rows.means.size, size)):
            part = rows.part(at, min(rows.count - 32 * at, 32 * size))
            found.append((self.units[b % len(self.units)], first + at, part))
        return found


def random_rows(rng: Random, count: int) -> FrameRows:
    r = np.random.default_rng(rng.getrandbits(32))
    values = r.integers(-300, 300, count) * np.repeat(r.random(-(-count // 32)) < 0.6, 32)[:count]
    return frame_rows(values, r.integers(0, 16, count))


def add(bench: Bench, work: list[tuple[Unit, int, FrameRows]], rng: Random) -> list[np.ndarray]:
    """Let every unit decode and encode blocks, a block at a time; return the sums."""
    sums = []
    for unit, base, rows in work:
        new = random_rows(rng, rows.count)
        total = (rows.values + new.values + 0x8000) % 0x10000 - 0x8000
        after = frame_rows(total.reshape(-1)[: rows.count])
        sums.append(np.where(new.classes[:, None] > 0, total, rows.values))
        live = np.flatnonzero(new.classes).tolist()
        unit.decoder_base.next = unit.encoder_base.next = base
        unit.new = {j: (total[j], int(after.classes[j]), int(after.sizes[j])) for j in live}
        groups = range(0, rows.means.size, 32)
        unit.asked[0].extend((True, j) for j in groups)
        unit.asked[0].extend((False, j) for j in live)
        unit.asked[1].extend((False, j) for j in live)
        for kind in (0, 1, 2):
            unit.got[kind].clear()
    bench.simulator.run(2)
    bench.wait()
    for unit, _, rows in work:
        for header, row, data, means in unit.got[0]:
            wanted = rows.means[row : row + 32].tolist() if header else rows.distances[row].tolist()
            assert data[::-1] == wanted + [0] * (32 - len(wanted))
            assert header or set(means) == {int(rows.means[row])}
        for _, row, data, _ in unit.got[1]:
            assert data[::-1] == (rows.values[row] & 0xFFFF).tolist()
        assert len(unit.got[1]) == len(unit.new)
    return sums


@pytest.mark.parametrize(("banks", "bus", "come"), [(1, 64, 1.0), (2, 64, 0.4), (3, 256, 0.8)])
def test_frames_are_loaded_added_and_read(banks: int, bus: int, come: float):
    rng = dice(f"banks {banks}")
    bench = Bench(rng, banks, bus, come)
    bench.rst.next = True
    bench.simulator.run(1)
    bench.rst.next = False
    bench.simulator.run(1)
    skip = 1 << (BLOCK_BITS + banks.bit_length() - 1)
    first, second = 0, 2 * skip
    frame = random_rows(rng, rng.randrange(32 * 32 + 1, min(2 * skip, banks << BLOCK_BITS) * 32 + 1))
    other = random_rows(rng, rng.randrange(1, 700))
    bench.load(frame, first)
    bench.wait()
    bench.load(other, second)  # while the first is worked on
    bench.taken[bench.out_values].clear()
    work = bench.blocks(first, frame)[: len(bench.units)]
    sums = add(bench, work, rng)
    values, descriptors = bench.unload(first, frame.count)
    expected = np.concatenate([*sums, frame.values[32 * len(work) :]])[: frame.means.size].reshape(-1)
    assert values == (expected[: frame.count] & 0xFFFF).tolist()
    after = frame_rows(expected[: frame.count])
    assert descriptors == (after.classes | after.sizes << 4).tolist()
    assert bench.unload(second, other.count)[0] == (other.values.reshape(-1)[: other.count] & 0xFFFF).tolist()
