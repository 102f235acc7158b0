"""A rank in software among simulated NICs: the host's coder and schedule, at a port of the same network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from oscar.coding.frame import peek
from oscar.coding.registry import asc_codec
from oscar.collective.actions import Action, Op
from oscar.collective.executor import execute
from oscar.collective.frames import FrameLog
from oscar.collective.node import ChunkLayout, Node
from oscar_sim.allreduce.expected import Iteration
from oscar_sim.allreduce.network import NetworkPort, Span, in_bytes, in_words
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.programme import Key

if TYPE_CHECKING:
    from oscar_sim.allreduce.run import Run


class SoftwarePort(NetworkPort):
    """A port without streams: whole frames come and go. arrive(source, frame): takes one that has come."""

    def __init__(
        self, rank: int, *, rate: float, latency: int, size: int, arrive: Callable[[int, bytes], None]
    ) -> None:
        super().__init__(rank, None, None, rate=rate, latency=latency, forward=lambda source, header: [])
        self.size, self.arrive = size, arrive

    def tick(self) -> None:
        """One rising edge."""
        self.clock += 1
        whole = [frame for frame in self.coming if frame.words and frame.words[-1][1][2]]
        for frame in sorted(whole, key=lambda each: each.words[-1][0]):
            took = len(frame.words) / self.rate
            ended = max(frame.words[-1][0], self.rx_free + took)
            if ended > self.clock:
                return
            self.rx_free = ended
            self.coming.remove(frame)
            data = in_bytes([word for _, word in frame.words])
            self._note("in", round(ended - took), data)
            self.arrive(frame.source, data)

    def put(self, frame: bytes, source: int, peer: int) -> None:
        """Send a frame that `source` encoded."""
        begin = max(float(self.clock), self.wire_free)
        self.copy(in_words(frame, self.size), source, peer)
        head = peek(frame)
        self.spans.append(Span("out", round(begin), round(self.wire_free), head.step, head.chunk))


class SoftwareNode:
    """A rank that codes as the host does, in no clocks, whatever codes on the other ranks."""

    def __init__(self, run: Run, rank: int) -> None:
        self.run, self.rank = run, rank
        options = run.options
        self.node = Node(rank, options.nodes, asc_codec(run.asc), apart=False, width=run.width)
        self.port = SoftwarePort(
            rank, rate=options.rate, latency=options.latency, size=options.bus_bits // 8, arrive=self._arrive
        )
        self.sums = np.zeros(0, np.int16)  # of the last AllReduce, in plan order
        self.began = self.clocks = 0
        self._arrived: dict[Key, bytes] = {}
        self._action: Action | None = None  # that is performed

    def _arrive(self, source: int, frame: bytes) -> None:
        """Keep a frame until the schedule waits for it."""
        self._arrived[Key.of_header(source, peek(frame), self.run.options.nodes)] = frame

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """See TransportEnd.post_recv; the network has room for all."""

    def post_send(self, peer: int, tag: int, frame: Any) -> None:
        """See TransportEnd.post_send; a frame for several peers counts once."""
        assert self._action is not None
        data = bytes(frame)
        if self._action.op is Op.SEND and data not in self.port.frames[-1:]:
            self.port.frames.append(data)
        self.port.put(data, self._action.source, peer)

    def start(self, expected: Iteration) -> Script:
        """Perform an AllReduce of this rank's values, from when the NICs can begin."""
        while not all(node.ready for node in self.run.simulated):
            yield
        options = self.run.options
        self.port.frames.clear()
        self.port.spans.clear()
        self.began = self.run.clocks
        layout = ChunkLayout(expected.plan.bounds, options.subframes)
        self.node.begin(expected.local[self.rank].copy(), expected.classes, layout)
        program = execute(self.node, self.run.schedule.actions(self.rank), self, FrameLog())
        self._action = next(program, None)
        while self._action is not None:
            frame = None
            if self._action.op is Op.WAIT:
                key = Key.of(self._action)
                while key not in self._arrived:
                    yield
                frame = self._arrived.pop(key)
            try:
                self._action = program.send(frame)
            except StopIteration:
                self._action = None
        while not self.port.idle:
            yield
        self.clocks = self.run.clocks - self.began
        self.sums = self.node.result().copy()

    def tick(self) -> None:
        """One rising edge."""
        self.port.tick()
