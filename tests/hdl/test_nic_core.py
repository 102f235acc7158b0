"""nic_core through its registers: frames and sums are the host's, damage is refused, reset at any clock."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.frame import peek
from oscar_hdl.coder.rows import frame_rows, last_symbol
from oscar_hdl.nic.nic_core import nic_core
from oscar_hdl.nic.registers import BY_NAME, ERROR_ABORTED, ID_VALUE, VERSION
from oscar_hdl.streams.bundles import AxiLite, Stream, bit
from oscar_sim.allreduce.memory_model import MemoryModel, memory_ports
from oscar_sim.allreduce.network import Manager, in_bytes, in_words
from oscar_sim.bench import chance
from oscar_sim.compiled import CompiledSimulator, signals_of
from oscar_sim.driver.nic_driver import Script
from oscar_sim.seeds import dice

ENGINES, SETS, STORE_LOG2, ROWS_LOG2, BUS = 2, 16, 10, 9, 64
CLEARING = 600  # clocks after a reset in which memories are cleared
ASC = AscParams(sent_rows=False, block_log2=10)


class Bench:
    """A NIC with its memory, a source and a sink of frames; `run` performs a script of register accesses."""

    def __init__(self, name: str, *, pause: float = 0.0) -> None:
        self.rng = dice(name)
        self.clk, self.rst = bit(), bit(1)
        self.ports: dict[str, Any] = {
            "s_axil": AxiLite(8), "irq": bit(), "s_axis_rx": Stream(BUS, keep=BUS // 8),
            "m_axis_tx": Stream(BUS, keep=BUS // 8), **memory_ports(ENGINES + 1),
        }  # fmt: skip
        self.memory = MemoryModel(1 << ROWS_LOG2, self.ports)
        self.bus = Manager(self.ports["s_axil"])
        self.pause = chance(pause, random.Random(self.rng.random()))
        self.coming: deque[tuple[int, int, bool]] = deque()
        self.taken: list[tuple[int, int, bool]] = []
        self.frames: list[bytes] = []
        self.offered = self.ready = False
        self.script: Any = iter(())
        dut = nic_core(
            self.clk, self.rst, **self.ports, engines=ENGINES, bus_bits=BUS, sets=SETS,
            store_log2=STORE_LOG2, rows_log2=ROWS_LOG2,
        )  # fmt: skip
        self.simulator = CompiledSimulator(dut, self.clk, self._tick, watched=signals_of(self.ports))
        self.reset()

    def _tick(self) -> None:
        self.memory.tick()
        rx, tx = self.ports["s_axis_rx"], self.ports["m_axis_tx"]
        if not (self.offered and not rx.tready):
            self.offered = bool(self.coming) and not self.pause()
            rx.tvalid.next = self.offered
            if self.offered:
                rx.tdata.next, rx.tkeep.next, rx.tlast.next = self.coming.popleft()
        if self.ready and tx.tvalid:
            self.taken.append((int(tx.tdata), int(tx.tkeep), bool(tx.tlast)))
            if tx.tlast:
                self.frames.append(in_bytes(self.taken))
                self.taken.clear()
        self.ready = not self.pause()
        tx.tready.next = self.ready
        self.result = next(self.script, "end")

    def reset(self) -> None:
        """Reset the NIC and forget what is under way."""
        self.rst.next = True
        self.coming.clear()
        self.taken.clear()
        s = self.ports["s_axil"]
        for signal in (s.awvalid, s.wvalid, s.bready, s.arvalid, s.rready):
            signal.next = False
        self.simulator.run(2)
        self.rst.next = False
        self.simulator.run(CLEARING)
        self.frames.clear()

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

    def put(self, frame: bytes) -> None:
        """Let a frame come."""
        self.coming.extend(in_words(frame, BUS // 8))

    def give(self, name: str, **fields: int) -> Script:
        """Write a command."""
        for part in ("FRAME", "SHAPE", "TABLES", "COMMAND"):
            register = BY_NAME[f"{name}_{part}"]
            known = {field.name for field in register.fields}
            values = {key: value for key, value in fields.items() if key in known}
            yield from self.bus.write(register.offset, register.pack(**values))

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

    def send(self, values: np.ndarray, positions: np.ndarray, *, row: int, **fields: int) -> Script:
        """Load values and give the command to encode them."""
        self.memory.load(row, frame_rows(values, positions))
        yield from self.give(
            "SEND", count=values.size, row=row, last=last_symbol(values), block_log2=ASC.block_log2, **fields
        )


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


def plans(rng: random.Random, kinds: Iterable[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return frames' values, short ones and long ones."""
    return [gradient(rng, rng.choice([1, 33, 500, 1024, 1025, 2600]), kind) for kind in kinds]


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_frames_are_the_hosts(pause: float) -> None:
    bench = Bench(f"send {pause}", pause=pause)
    encoder = Encoder(ASC)
    frames = []
    for n, (values, positions) in enumerate(plans(bench.rng, (*KINDS, "normal", "sparse"))):
        frames.append(encoder.encode(values, step=3, context=positions, width=16, chunk=n, sub=1))
        where = {"step": 3, "chunk": n, "sub": 1, "width": 16, "sequence": n, "load": 5, "save": 5}
        bench.run(bench.send(values, positions, row=32 * (n % 3), fresh=int(n == 0), **where))
        result = bench.run(bench.ended("SEND", n + 1))
        assert result["error"] == 0
        while len(bench.frames) <= n:
            bench.simulator.run(1)
        assert bench.frames[n] == frames[n]


@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_frames_of_the_host_are_decoded(pause: float) -> None:
    bench = Bench(f"receive {pause}", pause=pause)
    rng, encoder = bench.rng, Encoder(ASC if pause else AscParams(block_log2=11))
    for n, (values, positions) in enumerate(plans(rng, (*KINDS, "normal", "sparse"))):
        frame = encoder.encode(values, step=3, context=positions, width=16, chunk=n, sub=0)
        local, _ = gradient(rng, values.size, rng.choice(KINDS))
        bench.memory.load(64, frame_rows(local, positions))
        adopt = rng.random() < 0.5
        order = {"load": 2, "save": 2, "fresh": int(n == 0), "row": 64, "adopt" if adopt else "add": 1}
        if rng.random() < 0.5:
            bench.put(frame)
            bench.run(bench.give("RECEIVE", **header_fields(frame), **order))
        else:
            bench.run(bench.give("RECEIVE", **header_fields(frame), **order))
            bench.put(frame)
        result = bench.run(bench.ended("RECEIVE", n + 1))
        assert (result["error"], result["reason"]) == (0, 0)
        expected = frame_rows(((values + (0 if adopt else local)) + 32768) % 65536 - 32768, positions)
        memory, rows = bench.memory, slice(64, 64 + expected.means.size)
        np.testing.assert_array_equal(memory.value[rows], expected.values)
        np.testing.assert_array_equal(memory.row_class[rows], expected.classes)
        np.testing.assert_array_equal(memory.size[rows], expected.sizes)


def test_registers_tell_what_it_is() -> None:
    bench = Bench("registers")
    assert bench.run(bench.read("ID")) == {"value": ID_VALUE}
    assert bench.run(bench.read("CONFIG")) == {
        "engines": ENGINES, "bus_bytes": BUS // 8, "store_log2": STORE_LOG2, "sets_log2": 4,
        "version": VERSION,
    }  # fmt: skip
    assert bench.run(bench.read("STATUS"))["rows_log2"] == ROWS_LOG2


def test_a_wait_is_aborted_and_the_next_command_works() -> None:
    bench = Bench("abort")
    values, positions = gradient(bench.rng, 700, "normal")
    frame = Encoder(ASC).encode(values, step=0, context=positions, width=12)
    order = {**header_fields(frame), "save": 1, "fresh": 1, "row": 0, "adopt": 1}
    bench.memory.load(0, frame_rows(values * 0, positions))
    bench.run(bench.give("RECEIVE", **order))
    bench.simulator.run(bench.rng.randrange(300))
    bench.run(bench.bus.write(BY_NAME["ABORT"].offset, 1))
    assert bench.run(bench.ended("RECEIVE", 1))["error"] == ERROR_ABORTED
    bench.put(frame)
    bench.run(bench.give("RECEIVE", **order))
    assert bench.run(bench.ended("RECEIVE", 2))["error"] == 0
    np.testing.assert_array_equal(bench.memory.values(0, 700), values)


def test_damage_is_dropped_and_counted() -> None:
    """A flipped bit, a frame of another chunk, then the right one."""
    bench = Bench("damage")
    values, positions = gradient(bench.rng, 900, "normal")
    frame = Encoder(ASC).encode(values, step=1, context=positions, width=12, chunk=7)
    other = Encoder(ASC).encode(values, step=1, context=positions, width=12, chunk=8)
    flipped = bytearray(frame)
    flipped[bench.rng.randrange(24, len(frame))] ^= 1 << bench.rng.randrange(8)
    bench.memory.load(0, frame_rows(values, positions))
    bench.run(bench.give("RECEIVE", **header_fields(frame), load=0, save=0, fresh=1, row=0, add=1))
    for bad, reason in ((bytes(flipped), 4), (other, 7)):
        bench.put(bad)
        while not bench.run(bench.read("IRQ_STATUS"))["bad_frame"]:
            pass
        bench.run(bench.bus.write(BY_NAME["IRQ_STATUS"].offset, 0x7F))
        assert bench.run(bench.read("RECEIVE_RESULT"))["reason"] == reason
    bench.put(frame)
    assert bench.run(bench.ended("RECEIVE", 1))["error"] == 0
    np.testing.assert_array_equal(bench.memory.values(0, 900), 2 * values)
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 2}


def test_both_directions_at_once_and_reset_at_any_clock() -> None:
    """A reset in the middle of whatever goes on; then frames both ways, commands queued."""
    bench = Bench("reset")
    rng = bench.rng
    data = [gradient(rng, rng.randrange(1200, 2500), "normal") for _ in range(3)]
    for again in range(3):
        encoder, decoder = Encoder(ASC), Decoder(ASC)
        frames = [encoder.encode(v, step=0, context=p, width=16, chunk=n) for n, (v, p) in enumerate(data)]
        for frame in frames:
            bench.put(frame)

        def work(frames: list[bytes] = frames) -> Script:
            for n, (values, positions) in enumerate(data):
                while (yield from bench.read("STATUS"))["receive_pending"]:
                    yield
                bench.memory.load(96 * n, frame_rows(values, positions))
                yield from bench.give(
                    "RECEIVE", **header_fields(frames[n]), load=3, save=3, fresh=int(n == 0), row=96 * n,
                    add=1,
                )  # fmt: skip
                while (yield from bench.read("STATUS"))["send_pending"]:
                    yield
                where = {"step": 0, "chunk": n, "width": 16, "sequence": n, "load": 1, "save": 1}
                yield from bench.send(values, positions, row=288 + 96 * (n % 2), fresh=int(n == 0), **where)
                yield from bench.ended("SEND", n + 1)
            yield from bench.ended("RECEIVE", 3)
            return (yield from bench.read("RECEIVE_RESULT"))

        if again < 2:
            bench.script = work()
            bench.simulator.run(rng.randrange(6000))
            bench.script = iter(())
            bench.reset()
        else:
            result = bench.run(work(), limit=100_000)
            assert result["error"] == 0
            bench.simulator.run(3000)
            assert bench.frames == frames
            for n, (values, positions) in enumerate(data):
                sums = decoder.decode(frames[n], step=0, context=positions) * 2
                np.testing.assert_array_equal(bench.memory.values(96 * n, values.size), sums)
