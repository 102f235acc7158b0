"""A test bench of `row_memory`: streams, commands, models of all units, and raw_packer as it is."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from myhdl import block

from oscar_hdl.coder.ports import RawJob, RawSource
from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.flow.placement import parts
from oscar_hdl.nic.memory.ports import STREAM_LANES, PlannedRows, RawRows, RowCommand, RowCommands, UnitRows
from oscar_hdl.nic.memory.row_memory import row_memory
from oscar_hdl.nic.ports import ROW_BITS as NIC_ROW_BITS
from oscar_hdl.nic.ports import STREAM_BITS, TopPort
from oscar_hdl.nic.send.raw_packer import raw_packer
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.compiled import copy_of
from oscar_sim.driver.row_packets import Lines
from support.bank_units import BLOCK, BLOCK_BITS, ROW_BITS, ROWS, Rows, UnitsModel, signed
from support.bench import run_until

Trace = list[tuple[list[int], list[int]]]


def whole(signals: tuple[Any, ...]) -> int:
    """Return signals as one number, the first one lowest."""
    number = 0
    for signal in reversed(signals):
        number = number << (len(signal) or 1) | int(signal)
    return number


def packed_bits(values: list[int], width: int) -> int:
    """Return a raw block's bytes: the lower bits of its values, one behind the other."""
    return sum((value & ((1 << width) - 1)) << width * i for i, value in enumerate(values))


@block
def memory_and_packer(bench: MemoryBench) -> Any:
    """The memory and raw_packer."""
    b = bench
    return (
        row_memory(b.clk, b.rst, *b.arguments, **b.parameters),
        raw_packer(b.clk, b.rst, b.encode, b.raw_source, b.raw_out),
    )


class MemoryBench:
    """A NIC's memory with all that asks it; `rows` are what each bank should hold."""

    def __init__(self, rng: random.Random, banks: int, trace: Trace | None = None) -> None:
        self.rng, self.banks, self.come, self.blocks = rng, banks, 1.0, banks * ROWS // BLOCK
        self.rows = [Rows() for _ in range(banks)]
        self.units = [UnitsModel(rng, rows) for rows in self.rows]
        self.clk, self.rst = bit(), bit()
        self.phase = word(4, rng.randrange(16))
        row_bits = ROW_BITS + banks.bit_length() - 1
        self.commands = {name: RowCommand(row_bits) for name in ("values", "side", "unload")}
        self.top = TopPort()
        self.lines, self.counts = Lines(banks, BLOCK), bit()
        self.in_values, self.in_side = Stream(banks * STREAM_BITS), Stream(banks * STREAM_BITS)
        self.out_values, self.out_descriptors = Stream(banks * STREAM_BITS), Stream(banks * 16)
        self.sums, self.keep = Stream(STREAM_BITS, keep=STREAM_BITS // 8), 0
        self.raw_source, self.encode_row, self.encode = RawSource(), word(NIC_ROW_BITS), RawJob()
        self.raw_out = Stream(16, keep=2)
        self.queues: dict[Any, deque[int]] = {stream: deque() for stream in (self.in_values, self.in_side)}
        self.taken: dict[Any, list[tuple[int, bool]]] = {
            stream: [] for stream in (self.out_values, self.out_descriptors, self.sums, self.raw_out)
        }
        units = UnitRows(
            [u.position for u in self.units], [u.blocks["position"] for u in self.units],
            [u.sums for u in self.units], [u.source for u in self.units],
            [u.blocks["source"] for u in self.units],
        )  # fmt: skip
        raw = RawRows(self.raw_source, self.encode_row)
        streams = self.in_values, self.in_side, self.out_values, self.out_descriptors
        planned = PlannedRows(self.counts, self.sums)
        commands = RowCommands(*self.commands.values())
        self.arguments = self.phase, units, raw, commands, self.top, planned, *streams
        self.parameters = {"row_bits": row_bits, "block_log2": BLOCK_BITS + 5, "adds": True}
        self.trace = trace
        if trace is not None:
            others = partial(parts.memory_arguments, banks, row_bits)
            self.takes, self.gives = parts.sides(row_memory, others, self.arguments, **self.parameters)
        ports: list[Any] = [self.rst, self.phase, self.top, self.counts]
        ports += [self.encode_row, self.encode, self.raw_source]
        ports += [*self.commands.values(), *self.queues, *self.taken]
        ports += [[u.position, u.sums, u.source, *u.blocks.values()] for u in self.units]
        make = partial(memory_and_packer, self)
        self.sim = copy_of(("memory bench", banks), make, self.clk, self.each, ports)

    def each(self) -> None:
        """Do what happens beside the memory in a clock."""
        now, phase = self.sim.clocks, int(self.phase)
        if self.trace is not None:
            inputs = [int(self.rst), whole(self.takes)]
            self.trace.append((inputs, [whole(self.gives)]))
        self.phase.next = (phase + 1) % 16
        for stream, queue in self.queues.items():
            if stream.tvalid and stream.tready:
                queue.popleft()
            keeps = stream.tvalid and not stream.tready and queue
            shown = bool(queue) and (bool(keeps) or self.rng.random() < self.come)
            stream.tvalid.next = shown
            stream.tdata.next = queue[0] if shown else self.rng.getrandbits(len(stream.tdata))
        for stream, taken in self.taken.items():
            if stream.tvalid and stream.tready:
                taken.append((int(stream.tdata), bool(stream.tlast)))
                if stream is self.sums:
                    self.keep = int(stream.tkeep)
            stream.tready.next = self.rng.random() < self.come
        for unit in self.units:
            unit.step(now, phase % 4, bool(self.rst))

    def reset(self) -> None:
        """Begin anew; memory keeps what it holds."""
        self.rst.next = True
        self.sim.run(2)
        for unit in self.units:
            unit.forget()
        for queue in self.queues.values():
            queue.clear()
        for taken in self.taken.values():
            taken.clear()
        self.sim.run(CLOCKS)
        self.rst.next = False
        self.sim.run(1)

    def at(self, row: int) -> tuple[Rows, int]:
        """Return the bank of a row of the NIC's, and its row there."""
        line, bank = divmod(row // BLOCK, self.banks)
        return self.rows[bank], line * BLOCK + row % BLOCK

    def start(self, name: str, first: int, count: int, *, clear: bool = False, adds: bool = False) -> None:
        """Give a command."""
        command = self.commands[name]
        command.first.next, command.count.next = first, count
        command.clear.next, command.adds.next = clear, adds
        command.start.next = True
        self.sim.run(1)
        command.start.next = False
        self.sim.run(2)

    @property
    def idle(self) -> bool:
        """Whether commands, units and raw_packer have ended."""
        jobs = [*self.commands.values(), self.encode]
        return all(job.idle for job in jobs) and all(unit.idle for unit in self.units)

    def wait(self, limit: int = 60_000) -> None:
        """Wait until all have."""
        for _ in range(limit // 4):
            self.sim.run(4)
            if self.idle:
                self.sim.run(24)
                return
        raise AssertionError("no end")

    def load(self, first: int, rows: FrameRows) -> None:
        """Load a frame, behind whose last value anything may come."""
        self.queues[self.in_values].extend(self.lines.value_words(first, self.noisy(rows)))
        rest = sum(0x1FFFF << 128 * bank + 15 for bank in range(self.banks))
        noise = self.rng.getrandbits(128 * self.banks) & rest
        self.queues[self.in_side].extend(word | noise for word in self.lines.side_words(first, rows))
        for row in range(0, rows.means.size, BLOCK):
            bank, at = self.at(first + row)
            bank.load(at, rows.part(row, min(BLOCK * 32, rows.count - 32 * row)))
        self.start("values", first, rows.count)
        self.start("side", first, rows.count)

    def add(self, first: int, rows: FrameRows) -> None:
        """Add a frame's values to what rows hold."""
        self.queues[self.in_values].extend(self.lines.value_words(first, self.noisy(rows)))
        for row, values in enumerate(rows.values):
            bank, at = self.at(first + row)
            bank.add(at, (bank.values[at] + values) & 0xFFFF)
        self.start("values", first, rows.count, adds=True)

    def noisy(self, rows: FrameRows) -> FrameRows:
        """Return rows with anything behind the last value, to the end of its word."""
        flat = rows.values.reshape(-1).copy()
        stop = -(-rows.count // STREAM_LANES) * STREAM_LANES
        flat[rows.count : stop] = [self.rng.randrange(-999, 999) for _ in range(stop - rows.count)]
        return replace(rows, values=flat.reshape(rows.values.shape), count=stop)

    def clear(self, first: int, count: int) -> None:
        """Clear the rows of so many values."""
        for row in range(first, first + -(-count // 32)):
            bank, at = self.at(row)
            bank.kinds[at] = bank.values[at] = 0
        self.start("side", first, count, clear=True)

    def held(self, first: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return values and descriptors that rows should have."""
        places = [self.at(row) for row in range(first, first + number)]
        values = np.array([bank.values[at] * bool(bank.kinds[at] & 15) for bank, at in places])
        return values, np.array([bank.kinds[at] for bank, at in places])

    def read(self, first: int, count: int) -> tuple[list[int], list[int]]:
        """Return values and descriptors of a frame as memory gives them."""
        for stream in (self.out_values, self.out_descriptors, self.sums):
            self.taken[stream].clear()
        self.start("unload", first, count)
        run_until(self.sim, lambda: self.commands["unload"].idle, limit=10_000 + 100 * count)
        words, described = self.taken[self.out_values], self.taken[self.out_descriptors]
        steps = self.lines.places(first, -(-count // 32))[2]
        assert [last for _, last in words] == [False] * (len(words) - 1) + [True]
        assert len(words) == 4 * steps - self.lines.spare(first, count)
        assert [last for _, last in described] == [False] * (steps - 1) + [True]
        values = self.lines.values(first, count, [w for w, _ in words]).tolist()
        return values, self.lines.descriptors(first, count, [w for w, _ in described]).tolist()

    def unload(self, first: int, count: int) -> None:
        """Read a frame, and compare it with what memory should hold."""
        values, kinds = self.held(first, -(-count // 32))
        held = signed(values.reshape(-1)[:count]).tolist()
        assert self.read(first, count) == (held, kinds.tolist())
        summed = self.taken[self.sums]
        if not self.counts:
            assert not summed
            return
        assert [last for _, last in summed] == [False] * (-(-count // STREAM_LANES) - 1) + [True]
        assert Lines().values(0, count, [w for w, _ in summed]).tolist() == held
        assert self.keep == (1 << 2 * ((count - 1) % STREAM_LANES + 1)) - 1

    def largest(self, first: int, count: int) -> int:
        """Return the largest symbol of a frame's rows."""
        self.top.row.next, self.top.count.next, self.top.ask.next = first, count, True
        self.sim.run(1)
        self.top.ask.next = False
        for _ in range(4000):
            self.sim.run(1)
            if self.top.known:
                return int(self.top.symbol)
        raise AssertionError("no end")

    def pack_raw(self, first: int, count: int, width: int) -> None:
        """Have a block packed."""
        self.encode_row.next = first
        self.encode.width.next = width
        self.taken[self.raw_out].clear()
        self.encode.values.next, self.encode.start.next = count, True
        self.sim.run(1)
        self.encode.start.next = False
        self.sim.run(1)

    def check_packed(self, first: int, count: int, width: int) -> None:
        """Compare the bytes of a block with what memory should hold."""
        values = self.held(first, -(-count // 32))[0].reshape(-1)[:count].tolist()
        taken = self.taken[self.raw_out]
        assert [last for _, last in taken] == [False] * (-(-count * width // 16) - 1) + [True]
        got = sum(pair << 16 * i for i, (pair, _) in enumerate(taken))
        assert got & ((1 << width * count) - 1) == packed_bits(values, width)
