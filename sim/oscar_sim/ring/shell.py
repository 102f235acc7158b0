"""What surrounds a simulated NIC: AXI4-Lite master, network port, and the wires between nodes.

All are plain objects that one process a node moves on once a clock: MyHDL charges for every process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np

from oscar_hdl.streams.bundles import AxiLite, Stream
from oscar_sim.lane import RtlError

Script = Generator[None, None, Any]  # a step for each clock


class Wire:
    """A one-way link: so many 16-bit words a clock at most, and a number of clocks of delay.

    Whole frames leave it in order. `words`: of frames under way or arrived, with the clock of arrival.
    """

    def __init__(self, latency: int) -> None:
        self.latency = latency
        self.words: deque[tuple[int, int, bool]] = deque()


class Port:
    """A NIC's two streams to the network: frames go to `routes` in turn, what it gets comes from `source`.

    rate: 16-bit words per clock each way, up to 1. frames: all that the NIC sent in this AllReduce, as bytes.
    forwards: where each frame that comes is also sent on to, whole, between the NIC's own, and after how many
    of them (the next NIC takes frames in the schedule's order: one that is late must not be overtaken); None:
    nowhere.
    """

    def __init__(self, rx: Stream, tx: Stream, *, rate: float) -> None:
        self.rx, self.tx, self.rate = rx, tx, rate
        self.routes: deque[Wire] = deque()
        self.source: Wire | None = None
        self.forwards: deque[tuple[Wire, int] | None] = deque()  # for each frame to come
        self.passing: list[int] = []  # the frame that is received and will be sent on
        self.waiting: deque[tuple[Wire, int, list[int]]] = deque()
        self.frames: list[bytes] = []
        self.out: list[int] = []
        self.tx_credit = self.rx_credit = 0.0
        self.tx_ready = self.rx_offered = self.inside = False

    def tick(self, clock: int) -> None:
        """One rising edge."""
        self._send(clock)
        self._receive(clock)

    def _send(self, clock: int) -> None:
        tx = self.tx
        if self.tx_ready and tx.tvalid:
            last, wire = bool(tx.tlast), self.routes[0]
            wire.words.append((clock + wire.latency, int(tx.tdata), last))
            self.out.append(int(tx.tdata))
            self.tx_credit -= 1
            if last:
                self.frames.append(np.array(self.out, np.uint16).tobytes())
                self.out.clear()
                self.routes.popleft()
        if self.waiting and not self.out and len(self.frames) >= self.waiting[0][1]:
            wire, _, frame = self.waiting.popleft()
            due, end = clock + wire.latency, len(frame) - 1
            wire.words.extend((due, data, i == end) for i, data in enumerate(frame))
        self.tx_credit = min(2.0, self.tx_credit + self.rate)
        ready = self.tx_credit >= 1 and bool(self.routes)
        if ready != self.tx_ready:
            tx.tready.next = self.tx_ready = ready

    def _receive(self, clock: int) -> None:
        rx = self.rx
        self.rx_credit = min(2.0, self.rx_credit + self.rate)
        if self.rx_offered and not rx.tready:
            return
        words = self.source.words if self.source is not None else None
        offer = bool(words) and words[0][0] <= clock and self.rx_credit >= 1  # type: ignore[index]
        if offer:
            assert words is not None
            _, data, last = words.popleft()
            self.rx_credit -= 1
            rx.tdata.next, rx.tlast.next, rx.tkeep.next = data, last, 3
            self.passing.append(data)
            if last:
                target = self.forwards.popleft()
                if target is not None:
                    self.waiting.append((*target, self.passing))
                self.passing = []
        if offer != self.rx_offered:
            rx.tvalid.next = self.rx_offered = offer


class Master:
    """Reads and writes registers, one at a time."""

    def __init__(self, s_axil: AxiLite) -> None:
        self.bus = s_axil

    def write(self, address: int, data: int) -> Script:
        """Write a 32-bit register; raises RtlError when the hardware answers with an error."""
        s = self.bus
        s.awaddr.next, s.wdata.next, s.wstrb.next = address, data, 15
        s.awvalid.next = s.wvalid.next = s.bready.next = True
        address_open = data_open = True
        yield
        while True:
            if address_open and s.awready:
                s.awvalid.next, address_open = False, False
            if data_open and s.wready:
                s.wvalid.next, data_open = False, False
            if s.bvalid:
                s.bready.next = False
                if int(s.bresp):
                    raise RtlError(f"write of 0x{data:08x} to register 0x{address:02x} was refused")
                return
            yield

    def read(self, address: int) -> Script:
        """Return a 32-bit register; raises RtlError when the hardware answers with an error."""
        s = self.bus
        s.araddr.next = address
        s.arvalid.next = s.rready.next = True
        open_ = True
        yield
        while True:
            if open_ and s.arready:
                s.arvalid.next, open_ = False, False
            if s.rvalid:
                s.rready.next = False
                if int(s.rresp):
                    raise RtlError(f"read of register 0x{address:02x} was refused")
                return int(s.rdata)
            yield
