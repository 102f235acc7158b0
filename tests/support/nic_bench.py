"""A NIC on a test bench: registers, frames, memory; and gradients of all kinds."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams
from oscar.coding.frame import peek
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.nic.control.registers import BY_NAME, command_values
from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.nic.ports import frames_in, frames_out, row_streams
from oscar_hdl.streams.bundles import AxiLite, Stream, bit
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.allreduce.network import Manager, WordSource, in_bytes, in_words
from oscar_sim.compiled import copy_of
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import Lines, packet_start
from oscar_sim.seeds import dice
from support.bench import chance

UNITS, SETS, STORE_LOG2, ROWS_LOG2, BUS = 1, 16, 10, 9, 64
ASC = AscParams(sent_rows=False, block_log2=10)


class Bench:
    """A NIC with its streams, a source and a sink of frames; `run` performs a script of register accesses.

    units: of the NIC; pause: the share of clocks in which streams pause; floats: packets may bring some.
    BLOCK: what the bench is of.
    """

    BLOCK = "nic bench"

    def __init__(self, name: str, *, pause: float = 0.0, units: int = UNITS, floats: bool = False) -> None:
        self.rng, self.units, self.floats = dice(name), units, floats
        self.clk, self.rst = bit(), bit(1)
        self.ports: dict[str, Any] = {
            "s_axil": AxiLite(8), "irq": bit(), "s_axis_rx": frames_in(BUS),
            "m_axis_tx": frames_out(BUS), "s_axis_list": Stream(64),
        }  # fmt: skip
        self.bus, self.lists = Manager(self.ports["s_axil"]), WordSource(self.ports["s_axis_list"])
        self.pause = chance(pause, random.Random(self.rng.random()))
        self.coming: deque[tuple[int, int, bool, int]] = deque()
        self.taken: list[tuple[int, int, bool]] = []
        self.frames: list[bytes] = []
        self.peers: list[int] = []  # to whom they go
        self.offered = self.ready = False
        self.script: Any = iter(())
        self.simulator = copy_of(
            (self.BLOCK, units, floats), self.build(), self.clk, self._tick, [self.rst, self.ports]
        )
        self.reset()

    def build(self) -> Callable[[], Any]:
        """Return what makes the NIC; its ports are in `ports`."""
        self.ports |= row_streams(self.units)
        self.lines = Lines(self.units, 1 << (ASC.block_log2 - 5))
        self.queues: dict[str, deque[tuple[int, bool]]] = {
            name: deque() for name in ("s_axis_values", "s_axis_side", "s_axis_read")
        }
        self.valid = dict.fromkeys(self.queues, False)
        self.read_out: dict[str, list[int]] = {"m_axis_values": [], "m_axis_descriptors": []}
        self.open = dict.fromkeys(self.read_out, False)
        self.ends = dict.fromkeys(self.read_out, 0)
        return partial(
            oscar_nic, self.clk, self.rst, **self.ports, units=self.units, bus_bits=BUS, sets=SETS,
            store_log2=STORE_LOG2, rows_log2=ROWS_LOG2, block_log2=ASC.block_log2, floats=self.floats,
        )  # fmt: skip

    def _tick_rows(self) -> None:
        for name, queue in self.queues.items():
            stream = self.ports[name]
            if self.valid[name] and not stream.tready:
                continue
            self.valid[name] = bool(queue) and not self.pause()
            stream.tvalid.next = self.valid[name]
            if self.valid[name]:
                stream.tdata.next, stream.tlast.next = queue.popleft()
        for name, taken in self.read_out.items():
            stream = self.ports[name]
            if self.open[name] and stream.tvalid:
                taken.append(int(stream.tdata))
                self.ends[name] += int(stream.tlast)
            self.open[name] = not self.pause()
            stream.tready.next = self.open[name]

    def packet(self, name: str, words: list[int]) -> None:
        """Let a packet come."""
        self.queues[name].extend((word, n == len(words) - 1) for n, word in enumerate(words))

    def load(self, row: int, rows: FrameRows) -> Script:
        """Write rows, and wait until they are taken."""
        start = packet_start(row, rows.count)
        self.packet("s_axis_values", [start, *self.lines.value_words(row, rows)])
        self.packet("s_axis_side", [start, *self.lines.side_words(row, rows)])
        while self.queues["s_axis_values"] or self.queues["s_axis_side"] or any(self.valid.values()):
            yield
        for _ in range(140):  # zeros to the end of the group
            yield

    def fetch(self, row: int, count: int) -> Script:
        """Return values, and the descriptors of their rows."""
        for taken in self.read_out.values():
            taken.clear()
        self.ends = dict.fromkeys(self.ends, 0)
        self.packet("s_axis_read", [packet_start(row, count)])
        while not all(self.ends.values()):
            yield
        values = self.lines.values(row, count, self.read_out["m_axis_values"])
        described = self.lines.descriptors(row, count, self.read_out["m_axis_descriptors"])
        return values.astype(np.int32), described

    def _tick(self) -> None:
        self._tick_rows()
        self.lists.tick()
        self._tick_frames()
        self.result = next(self.script, "end")

    def _tick_frames(self) -> None:
        rx, tx = self.ports["s_axis_rx"], self.ports["m_axis_tx"]
        if not (self.offered and not rx.tready):
            self.offered = bool(self.coming) and not self.pause()
            rx.tvalid.next = self.offered
            if self.offered:
                rx.tdata.next, rx.tkeep.next, rx.tlast.next, rx.tid.next = self.coming.popleft()
        if self.ready and tx.tvalid:
            self.taken.append((int(tx.tdata), int(tx.tkeep), bool(tx.tlast)))
            if tx.tlast:
                self.frames.append(in_bytes(self.taken))
                self.peers.append(int(tx.tdest))
                self.taken.clear()
        self.ready = not self.pause()
        tx.tready.next = self.ready

    def reset(self) -> None:
        """Reset the NIC and forget what is under way."""
        self.rst.next = True
        self.coming.clear()
        self.lists.words.clear()
        for name, queue in self.queues.items():  # a packet that was cut off does not go on
            queue.clear()
            self.valid[name] = False
            self.ports[name].tvalid.next = False
        s = self.ports["s_axil"]
        for signal in (s.awvalid, s.wvalid, s.bready, s.arvalid, s.rready):
            signal.next = False
        self.simulator.run(2 + CLOCKS)
        self.rst.next = False
        self.simulator.run(2 + CLOCKS)  # oscar_nic holds it as long again
        self.frames.clear()
        self.taken.clear()  # words of a frame that the reset cut off

    def run(self, script: Script, limit: int = 60_000) -> Any:
        """Run a script to its end and return what it returns."""
        value: list[Any] = []

        def whole() -> Script:
            value.append((yield from script))

        self.script = whole()
        for _ in range(limit // 20):
            self.simulator.run(20)
            if value:
                return value[0]
        raise TimeoutError(f"the NIC was not done within {limit} clocks")

    def put(self, frame: bytes, peer: int = 0) -> None:
        """Let a frame come that a peer made."""
        self.coming.extend((*word, peer) for word in in_words(frame, BUS // 8))

    def give(self, name: str, **fields: int) -> Script:
        """Write a command."""
        for register, value in command_values(name, **fields).items():
            yield from self.bus.write(BY_NAME[register].offset, value)

    def write(self, name: str, **fields: int) -> Script:
        """Write a register."""
        yield from self.bus.write(BY_NAME[name].offset, BY_NAME[name].pack(**fields))

    def read(self, name: str) -> Script:
        """Return a register's fields."""
        register = BY_NAME[name]
        return register.unpack((yield from self.bus.read(register.offset)))

    def ended(self, name: str, count: int) -> Script:
        """Wait until so many commands have ended, and return the result."""
        while True:
            result = yield from self.read(f"{name}_RESULT")
            if result["ended"] == count & 255:
                return result
            yield

    def raised(self, flag: str) -> Script:
        """Wait until a flag of IRQ_STATUS is set."""
        while not (yield from self.read("IRQ_STATUS"))[flag]:
            yield

    def arrived(self) -> Script:
        """Wait for a frame to come, and clear what tells it."""
        yield from self.raised("arrived")
        yield from self.write("IRQ_STATUS", arrived=1)

    def send(self, values: np.ndarray, positions: np.ndarray, *, row: int, **fields: int) -> Script:
        """Load values and give the command to encode them."""
        yield from self.load(row, frame_rows(values, positions))
        yield from self.give("SEND", count=values.size, row=row, **fields)


def header_fields(frame: bytes) -> dict[str, int]:
    """Return what a RECEIVE command says of a frame."""
    head = peek(frame)
    return {
        "step": head.step, "chunk": head.chunk, "sub": head.sub, "width": head.width,
        "sequence": head.sequence, "count": head.count,
    }  # fmt: skip


def gradient(rng: random.Random, count: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return values of 16 bits and their position classes."""
    g = np.random.default_rng(rng.getrandbits(64))
    positions = g.integers(0, 12, count).astype(np.uint8)
    if kind == "normal":
        values = np.round(g.normal(0, 2.0 ** (positions / 2 - 1)))
    elif kind == "sparse":
        values = g.integers(-3, 4, count) * (np.repeat(g.random(-(-count // 32)) < 0.3, 32)[:count])
    elif kind == "wide":
        values = np.round(g.standard_t(1.5, count) * 40)
    elif kind == "noise":
        values = g.integers(-(1 << 15), 1 << 15, count)
    else:
        values = np.full(count, rng.choice([0, 0, 5, -300]))
        values[count // 2 :] += rng.choice([0, 1])
    return np.clip(values, -32768, 32767).astype(np.int32), positions


KINDS = ("normal", "sparse", "wide", "noise", "constant")
