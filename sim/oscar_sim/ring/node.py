"""One node of the ring: the driver of its NIC and the memory that the NIC's streams read and write."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.collective.actions import Phase
from oscar.collective.schedule import Schedule
from oscar.numerics.plans import ChunkPlan
from oscar_hdl.format2.params import AscParams
from oscar_hdl.registers import BY_NAME, COUNTERS, REGISTERS
from oscar_hdl.streams.bundles import AxiLite, Stream
from oscar_sim.ends import Collector, Feeder
from oscar_sim.lane import RtlError
from oscar_sim.lane_order import lane_order
from oscar_sim.ring.commands import ADOPT, ENCODE, Command, TableSets, commands
from oscar_sim.ring.shell import Master, Port, Script, Wire

POLL = 64  # clocks between two looks at the interrupt line


class NicPorts:
    """The signals of one oscar_nic with one lane, by name."""

    def __init__(self, signals: dict[str, Any]) -> None:
        self.signals = signals
        self.axil: AxiLite = signals["s_axil"]

    def stream(self, name: str) -> Stream:
        """Return a stream port."""
        stream: Stream = self.signals[name]
        return stream


class RingNode:
    """Performs its commands of every iteration; `tick` is one rising edge.

    rank, schedule: its part of the AllReduce; width: bits of a sum of so many terms; asc: the coder;
    wires: by (from, to). Results: sums of the last iteration in plan order, the NIC's counters.
    """

    def __init__(
        self, rank: int, schedule: Schedule, ports: NicPorts, *, width: Any, asc: AscParams,
        sets: int, wires: dict[tuple[int, int], Wire], rate: float,
    ) -> None:  # fmt: skip
        self.rank, self.nodes, self.schedule = rank, schedule.nodes, schedule
        self.width, self.asc, self.wires = width, asc, wires
        self.ports, self.master = ports, Master(ports.axil)
        self.local_in, self.class_in = (
            Feeder(ports.stream("s_axis_local")),
            Feeder(ports.stream("s_axis_class")),
        )
        self.redo_in, self.sums_out = (
            Feeder(ports.stream("s_axis_redo")),
            Collector(ports.stream("m_axis_sum")),
        )
        self.port = Port(ports.stream("s_axis_rx"), ports.stream("m_axis_tx"), rate=rate)
        self.tables = TableSets(sets)
        self.sending: list[int] = []  # value and class of every value that the encoder may ask for again
        self.done = True  # nothing to do yet
        self.redos = 0
        self.clock = 0

    def start(self, plan: ChunkPlan, local: np.ndarray, classes: np.ndarray) -> None:
        """Begin an AllReduce over `local`, in plan order; the one before is done."""
        self.port.frames.clear()
        self.plan, self.local, self.classes = plan, local.astype(np.int64), classes
        self.work = self.local.copy()
        self.suffix = np.zeros_like(self.local) if self.schedule.apart else None
        self.todo = [
            (command, low, high)
            for command in commands(self.rank, self.schedule)
            if (high := plan.bounds[command.chunk + 1]) > (low := plan.bounds[command.chunk])
        ]
        own = 0  # frames of this NIC's that are to be sent before
        for command, _, _ in self.todo:  # frames may come before their commands
            if command.source is not None:
                onward = (self.wires[self.rank, command.forward], own) if command.forward >= 0 else None
                self.port.forwards.append(onward)
            own += command.target is not None
        self.script, self.done = self._iteration(), False

    def result(self) -> np.ndarray:
        """Return the sums in plan order."""
        return self.work if self.suffix is None else self.work + self.suffix

    def tick(self) -> None:
        """One rising edge."""
        self.clock += 1
        for part in (self.local_in, self.class_in, self.redo_in, self.sums_out):
            part.tick()
        self.port.tick(self.clock)
        self._redo()
        if not self.done:
            self.done = next(self.script, "end") == "end"

    def _redo(self) -> None:
        signals = self.ports.signals
        if signals["redo_valid"] and signals["redo_ready"]:
            first, count = int(signals["redo_first"]), int(signals["redo_count"])
            sums = self.sums_out.words
            values = self.sending or [v | c << 16 for v, c in zip(sums, self.sent_classes, strict=False)]
            self.redo_in.put(values[first : first + count])
            self.redos += 1
        signals["redo_ready"].next = True

    def _iteration(self) -> Script:
        yield from self.master.write(BY_NAME["IRQ_ENABLE"].offset, 0x00FFFFFF)
        for command, low, high in self.todo:
            yield from self._perform(command, low, high)
        while self.port.routes or self.port.waiting:
            yield

    def _perform(self, command: Command, low: int, high: int) -> Script:
        order = lane_order(high - low, self.asc.block)
        self.sent_classes = self.classes[low:high][order].tolist()
        fields = {"COUNT": high - low, "STEP": 0, "CHUNK": 0, "SUB_WIDTH": 0, "SEQUENCE": 0, "SETS": 0}
        code, saved = command.code, []
        for action, at, fresh in ((command.source, 0, 1 << 4), (command.target, 16, 1 << 5)):
            if action is None:
                continue
            number, sequence = self.tables.load(action)
            target = self.tables.reserve()
            saved.append((action, target))
            fields["STEP"] |= action.table << at
            fields["CHUNK"] |= command.chunk << at
            fields["SUB_WIDTH"] |= self.width(action.workers) << (8 + at)
            fields["SEQUENCE"] |= sequence << at
            fields["SETS"] |= (number or 0) << at | target << (8 + at)
            if number is None:
                code |= fresh
        self._connect(command)
        yield from self._issue(command, fields, code, low, high, order)
        for action, target in saved:
            self.tables.commit(action, target)
        if command.code != ENCODE:
            values = np.empty(high - low, np.int64)
            values[order] = np.array(self.sums_out.words, np.uint16).view(np.int16)
            if self.suffix is None or _phase(command) is Phase.REDUCE_SCATTER:
                self.work[low:high] = values
            else:
                self.suffix[low:high] = values - (0 if command.code == ADOPT else self.local[low:high])

    def _connect(self, command: Command) -> None:
        """Say where frames go to and come from: the shell's switch."""
        if command.target is not None:
            self.port.routes.append(self.wires[self.rank, command.target.peer])
        if command.source is not None:
            self.port.source = self.wires[command.source.peer, self.rank]

    def _issue(
        self, command: Command, fields: dict[str, int], code: int, low: int, high: int, order: np.ndarray
    ) -> Script:
        self.sums_out.words.clear()
        adds = command.code != ADOPT
        values = self.local[low:high][order] & 0xFFFF
        self.sending = []
        if command.code == ENCODE:
            self.sending = (values | np.array(self.sent_classes) << 16).tolist()
        self.class_in.put(self.sent_classes)
        if adds:
            self.local_in.put(values.tolist())
        for name, value in fields.items():
            yield from self.master.write(BY_NAME[name].offset, value)
        yield from self.master.write(BY_NAME["COMMAND"].offset, code)
        while not self.ports.signals["irq"]:
            yield
        status = yield from self.master.read(BY_NAME["IRQ_STATUS"].offset)
        yield from self.master.write(BY_NAME["IRQ_STATUS"].offset, status)
        if status & ~1:
            result = yield from self.master.read(BY_NAME["RESULT"].offset)
            raise RtlError(
                f"node {self.rank}, {command}: status 0x{status:08x}, result 0x{result:08x} "
                "(docs/registers.md); a bucket of fewer values may fit the frame stores"
            )
        kept = command.code != ENCODE
        while (kept and len(self.sums_out.words) < high - low) or self.local_in.queue:
            yield

    def counters(self) -> Script:
        """Return all counters by name."""
        found = {}
        for register in REGISTERS:
            if register.offset >= COUNTERS:
                found[register.name] = yield from self.master.read(register.offset)
        return found


def _phase(command: Command) -> Phase:
    action = command.target or command.source
    assert action is not None
    return action.phase
