"""A session with a NIC over any way to its ports, checked against the host's coder and splitter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.frame import peek
from oscar.numerics.plans import block_costs, make_plan
from oscar_hdl.coder.rows import FrameRows, descriptors, frame_rows, in_rows
from oscar_hdl.nic.control.registers import BY_NAME, COMMAND_PARTS, command_values
from oscar_sim.driver.lists import entry_words, trigger
from oscar_sim.driver.row_packets import Lines, packet_start
from oscar_sim.errors import RtlError

BLOCK_LOG2, UNITS, BUS_BYTES = 10, 1, 8
SIZES = {"units": UNITS, "sets": 4, "store_log2": 10, "rows_log2": 9, "block_log2": BLOCK_LOG2}
OTHER = 2  # the peer with which it exchanges frames
BLOCK = 1 << (BLOCK_LOG2 - 5)  # rows: frames begin at multiples
LINES = Lines(UNITS, BLOCK)
CLEARING = 600  # clocks after a reset in which memories of counts are cleared
LIMIT = 60_000  # clocks of a step of the run
INTO = ("s_axis_rx", "s_axis_values", "s_axis_side", "s_axis_read", "s_axis_list")
OUT = ("m_axis_tx", "m_axis_values", "m_axis_descriptors")


class NicBench(ABC):
    """A NIC of SIZES at a bench. A subclass brings words to the ports; every method lets clocks pass.

    Raises RtlError where the NIC is not what the host is.
    """

    rng: np.random.Generator

    def begin(self) -> None:
        """Forget all frames: behind a reset links begin anew."""
        asc = AscParams(sent_rows=False, block_log2=BLOCK_LOG2)
        self.ours, self.theirs = Encoder(asc), Encoder(asc)
        self.numbers, self.peer = {"SEND": 0, "RECEIVE": 0}, OTHER

    @abstractmethod
    def step(self, clocks: int = 1) -> None:
        """Let clocks pass."""

    @abstractmethod
    def write(self, name: str, **fields: int) -> None:
        """Write a register; raise RtlError where the NIC refuses it."""

    @abstractmethod
    def read(self, name: str) -> dict[str, int]:
        """Return a register's fields; raise RtlError where the NIC has none there."""

    @abstractmethod
    def packet(self, name: str, words: list[int]) -> None:
        """Let a packet of whole words come on a stream of INTO."""

    @abstractmethod
    def arrive(self, frame: bytes) -> None:
        """Let a frame come from the network."""

    @abstractmethod
    def taken_in(self, name: str) -> bool:
        """Whether the NIC has taken all that came on a stream of INTO."""

    @abstractmethod
    def packet_out(self, name: str) -> list[int] | None:
        """Return the words of the oldest packet that left on a stream of OUT, where a whole one did."""

    @abstractmethod
    def frame_out(self) -> bytes | None:
        """Return the oldest frame that left for the network, where a whole one did."""

    def wait(self, there: Callable[[], object], wrong: str) -> None:
        """Let clocks pass until something is there; raise RtlError with what is wrong where it never is."""
        for _ in range(LIMIT):
            if there():
                return
            self.step()
        raise RtlError(f"{wrong}: looked {LIMIT:,} times")

    def left(self, name: str) -> list[int]:
        """Wait for a packet to leave on a stream of OUT, and return its words."""
        for _ in range(LIMIT):
            if (words := self.packet_out(name)) is not None:
                return words
            self.step()
        raise RtlError(f"no packet leaves on {name}: looked {LIMIT:,} times")

    def frame(self) -> bytes:
        """Wait for a frame to leave, and return it."""
        for _ in range(LIMIT):
            if (frame := self.frame_out()) is not None:
                return frame
            self.step()
        raise RtlError(f"no frame leaves: looked {LIMIT:,} times")

    def command(self, name: str, **fields: int) -> None:
        """Give a command, when none of its direction waits."""
        pending = f"{name.lower()}_pending"
        self.wait(lambda: not self.read("STATUS")[pending], f"{pending} stays 1")
        for register in (*COMMAND_PARTS, f"{name}_COMMAND"):
            known = {field.name for field in BY_NAME[register].fields}
            self.write(register, **{key: value for key, value in fields.items() if key in known})
        self.numbers[name] += 1

    def await_frame(self) -> None:
        """Wait until a frame is the oldest."""
        self.wait(lambda: self.read("IRQ_STATUS")["arrived"], "no frame comes")
        self.write("IRQ_STATUS", arrived=1)

    def ended(self, name: str) -> None:
        """Wait until all commands of a direction have ended well."""
        number = self.numbers[name]
        self.wait(
            lambda: self.read(f"{name}_RESULT")["ended"] == number & 255, f"{name} {number} does not end"
        )
        if (result := self.read(f"{name}_RESULT"))["error"]:
            raise RtlError(f"{name} {number}: {result}")

    def load(self, row: int, rows: FrameRows) -> None:
        """Write rows into memory."""
        start = packet_start(row, rows.count)
        self.packet("s_axis_values", [start, *LINES.value_words(row, rows)])
        self.packet("s_axis_side", [start, *LINES.side_words(row, rows)])
        self.wait(lambda: all(map(self.taken_in, ("s_axis_values", "s_axis_side"))), "rows are not taken")
        self.step(140)  # zeros to the end of the group

    def check_rows(self, row: int, values: np.ndarray, positions: np.ndarray) -> None:
        """Read rows, and compare them with what they should be."""
        self.packet("s_axis_read", [packet_start(row, values.size)])
        result = LINES.values(row, values.size, self.left("m_axis_values"))
        described = LINES.descriptors(row, values.size, self.left("m_axis_descriptors"))
        if not np.array_equal(result, values.astype(np.int16)):
            raise RtlError(f"sums in rows from {row} on differ")
        if described.tolist() != descriptors(in_rows(values, np.int32)).tolist():
            raise RtlError(f"descriptors of rows from {row} on differ")

    def check_plan(self, values: np.ndarray, nodes: int) -> list[int]:
        """Cut the plan of a gradient that was just read; return the boundaries, which are the host's."""
        granule = 1 << self.read("STATUS")["granule_log2"]
        self.write("PLAN_COMMAND", nodes=nodes, blocks=-(-values.size // granule), cut=1)
        self.wait(lambda: not self.read("PLAN_RESULT")["running"], "no plan is made")
        edges = [self.read(f"PLAN_EDGE_{n}")["block"] for n in range(1, nodes)]
        cut, costs = tuple(min(granule * edge, values.size) for edge in edges), block_costs(values, granule)
        wanted = make_plan("splitter", values.size, nodes, granule=granule, costs=costs).bounds[1:-1]
        if equal := self.read("PLAN_RESULT")["equal"]:
            cut = wanted
        if equal != (costs.sum() == 0) or cut != wanted:
            raise RtlError(f"chunks are cut at {cut} (equal: {equal}), not at {wanted}")
        self.write("PLAN_COMMAND", clear=1)
        return edges

    def send(self, values: np.ndarray, positions: np.ndarray, row: int) -> bytes:
        """Give the command to send what is in memory; return the frame that has to leave."""
        n = self.numbers["SEND"]
        self.command(
            "SEND", count=values.size, row=row, peer=self.peer, step=0, chunk=n, width=16, sequence=n,
            load=0, save=0, fresh=int(n == 0),
        )  # fmt: skip
        return self.ours.encode(values, step=0, context=positions, width=16, chunk=n)

    def receive(self, values: np.ndarray, positions: np.ndarray, row: int, *, adopt: bool) -> None:
        """Let a frame come, behind a damaged copy of it, and give the command to receive it."""
        n = self.numbers["RECEIVE"]
        frame = self.theirs.encode(values, step=1, context=positions, width=16, chunk=n)
        damaged = bytearray(frame)
        damaged[int(self.rng.integers(len(frame)))] ^= 1 << int(self.rng.integers(8))
        for data in (bytes(damaged), frame) if n == 0 else (frame,):
            self.arrive(data)
        head = peek(frame)
        self.await_frame()
        oldest = self.read("OLDEST_FRAME") | self.read("OLDEST_NAME")
        if oldest != {"step": 1, "chunk": n, "peer": OTHER, "sub": 0, "number": n & 255, "there": 1}:
            raise RtlError(f"another frame is told than {n} that came: {oldest}")
        fields = {k: getattr(head, k) for k in ("step", "chunk", "sub", "width", "sequence", "count")}
        self.command(
            "RECEIVE", **fields, peer=OTHER, load=1, save=1, fresh=int(n == 0), row=row, add=not adopt,
            adopt=adopt,
        )  # fmt: skip


def exchange_list(nic: NicBench, count: int) -> None:
    """A list of two: a frame that comes is added, then its sums are sent; all as the host has them."""
    rng = nic.rng
    positions = rng.integers(2, 10, count).astype(np.uint8)
    local, came = (np.rint(rng.laplace(0, 9, count)).astype(np.int32) for _ in range(2))
    nic.load(0, frame_rows(local, positions))
    into, out = nic.numbers["RECEIVE"], nic.numbers["SEND"]
    frame = nic.theirs.encode(came, step=1, context=positions, width=16, chunk=into)
    expected = nic.ours.encode(local + came, step=0, context=positions, width=16, chunk=out)
    shape = {"count": count, "width": 16, "row": 0, "peer": OTHER}
    first = command_values(
        "RECEIVE", **shape, step=1, chunk=into, sequence=into, load=1, save=1, fresh=int(into == 0), add=1
    )
    second = command_values("SEND", **shape, chunk=out, sequence=out, fresh=int(out == 0))
    words = entry_words(first, trigger(gate=1)) + entry_words(second, trigger(kind=1, events=1, next=1))
    nic.packet("s_axis_list", words)
    nic.wait(lambda: nic.taken_in("s_axis_list"), "a list is not taken")
    nic.write("IRQ_STATUS", list=1)
    nic.write("LIST_COMMAND", entries=2, run=1)
    nic.step(int(rng.integers(1, 400)))
    nic.arrive(frame)
    nic.wait(lambda: nic.read("IRQ_STATUS")["list"], "a list does not end")
    if (result := nic.read("LIST_RESULT"))["error"]:
        raise RtlError(f"a list ended with {result}")
    for name in ("RECEIVE", "SEND"):
        nic.numbers[name] += 1
        nic.ended(name)
    if nic.frame() != expected:
        raise RtlError("the frame that a list sent differs from the host's")
    nic.check_rows(0, local + came, positions)


def exchange(nic: NicBench, count: int, *, adopt: bool) -> None:
    """A frame each way at once, then the sums sent on: all as the host has them."""
    rng = nic.rng

    def gradient(scale: float) -> np.ndarray:
        live = np.repeat(rng.random(-(-count // 32)) < 0.6, 32)[:count]
        return np.clip(np.rint(rng.laplace(0, scale, count) * live), -32768, 32767).astype(np.int32)

    positions = rng.integers(2, 10, count).astype(np.uint8)
    sent, local, came = gradient(3.0), gradient(20.0), gradient(3000.0 if adopt else 12.0)
    rows = -(-count // 32 // BLOCK) * BLOCK + BLOCK
    nic.load(0, frame_rows(sent, positions))
    nic.load(rows, frame_rows(local, positions))
    nic.receive(came, positions, rows, adopt=adopt)
    expected = nic.send(sent, positions, 0)
    if nic.frame() != expected:
        raise RtlError("the frame sent differs from the host's")
    nic.ended("RECEIVE")
    nic.ended("SEND")
    sums = ((came + (0 if adopt else local)) + 32768) % 65536 - 32768
    nic.write("PLAN_SEGMENT", first=0, count=1)
    nic.check_rows(rows, sums, positions)
    nic.check_plan(sums, 3)
    expected = nic.send(sums, positions, rows)
    if nic.frame() != expected:
        raise RtlError("the frame of sums differs from the host's")
    nic.ended("SEND")
