"""What surrounds a simulated NIC: AXI4-Lite manager, network port, and the switch between nodes.

All are plain objects that are moved on once a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from oscar.coding.frame import peek
from oscar_hdl.nic.ports import TO_ALL
from oscar_hdl.streams.bundles import AxiLite, Stream
from oscar_sim.driver.nic_driver import Script
from oscar_sim.errors import RtlError

Word = tuple[int, int, bool]  # data, keep, last


class Span(NamedTuple):
    """When a frame went by, from its first clock to its last; way: out or in."""

    way: str
    begin: int
    end: int
    step: int
    chunk: int


class FrameInFlight:
    """A frame on its way to a node: words with the clock at which each is there. source: who encoded it."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.words: deque[tuple[float, Word]] = deque()


class NetworkPort:
    """A NIC's two streams, at a switch that sends copies of a frame one after the other.

    rate: words a clock each way, up to 1; latency: clocks from port to port. forward(source, header): to whom
    a frame that came is passed on.
    """

    def __init__(
        self, rank: int, rx: Stream, tx: Stream, *, rate: float, latency: int,
        forward: Callable[[int, Any], Sequence[int]],
    ) -> None:  # fmt: skip
        self.rank, self.rx, self.tx, self.rate, self.latency = rank, rx, tx, rate, latency
        self.forward = forward
        self.peers: Sequence[NetworkPort] = ()
        self.frames: list[bytes] = []
        self.spans: list[Span] = []  # of frames that came and left, as they ended
        self.clock = self.left_from = self.came_from = 0
        # Out: what the NIC gives, and when the wire is free.
        self.out: list[Word] = []
        self.to: list[int] = []  # who is still to get it
        self.live: FrameInFlight | None = None
        self.wire_free = 0.0
        self.tx_ready = False
        # In.
        self.coming: deque[FrameInFlight] = deque()
        self.inside: FrameInFlight | None = None
        self.took: list[Word] = []
        self.rx_free = 0.0
        self.offered = False

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not (self.coming or self.inside or self.offered or self.out)

    def tick(self) -> None:
        """One rising edge."""
        self.clock += 1
        self._send()
        self._receive()

    def _transmit(self, to: FrameInFlight, word: Word) -> None:
        """Put a word on the wire as soon as it is free."""
        start = max(float(self.clock), self.wire_free)
        self.wire_free = start + 1 / self.rate
        to.words.append((start + self.latency, word))

    def _send(self) -> None:
        tx = self.tx
        if self.tx_ready and tx.tvalid:
            word = int(tx.tdata), int(tx.tkeep), bool(tx.tlast)
            if self.live is None:
                self.live, self.left_from = FrameInFlight(self.rank), self.clock
                self.to = [int(tx.tdest)]
                if tx.tdest == TO_ALL:
                    self.to = [(self.rank + n) % len(self.peers) for n in range(1, len(self.peers))]
                self.peers[self.to.pop(0)].coming.append(self.live)
            self._transmit(self.live, word)
            self.out.append(word)
            if word[2]:
                self.frames.append(in_bytes(self.out))
                for peer in self.to:
                    self.copy(self.out, self.rank, peer)
                self._note("out", self.left_from, self.frames[-1])
                self.out, self.live = [], None
        ready = self.wire_free < self.clock + 2
        if ready != self.tx_ready:
            tx.tready.next = self.tx_ready = ready

    def copy(self, words: Sequence[Word], source: int, peer: int) -> None:
        """Send a whole frame."""
        to = FrameInFlight(source)
        for word in words:
            self._transmit(to, word)
        self.peers[peer].coming.append(to)

    def _receive(self) -> None:
        rx = self.rx
        if self.offered and not rx.tready:
            return
        if self.inside is None and self.coming:
            # Whoever's first word is here first; frames of a sender stay in order.
            first = min(self.coming, key=lambda a: a.words[0][0] if a.words else float("inf"))
            if first.words and first.words[0][0] <= self.clock:
                self.coming.remove(first)
                self.inside, self.came_from = first, self.clock
        offer = (
            self.inside is not None
            and bool(self.inside.words)
            and self.inside.words[0][0] <= self.clock
            and self.rx_free <= self.clock
        )
        if offer:
            assert self.inside is not None
            _, word = self.inside.words.popleft()
            self.rx_free = max(self.rx_free + 1 / self.rate, self.clock)
            rx.tdata.next, rx.tkeep.next, rx.tlast.next = word
            rx.tid.next = self.inside.source
            self._pass(word)
        if offer != self.offered:
            rx.tvalid.next = self.offered = offer

    def _note(self, way: str, begin: int, frame: bytes) -> None:
        head = peek(frame)
        self.spans.append(Span(way, begin, self.clock, head.step, head.chunk))

    def _pass(self, word: Word) -> None:
        """Keep the frame that enters, and pass it on."""
        assert self.inside is not None
        self.took.append(word)
        if word[2]:
            frame = in_bytes(self.took)
            self._note("in", self.came_from, frame)
            for peer in self.forward(self.inside.source, peek(frame)):
                self.copy(self.took, self.inside.source, peer)
            self.took, self.inside = [], None


def in_bytes(words: Sequence[Word]) -> bytes:
    """Return the bytes of words."""
    return b"".join(data.to_bytes(64, "little")[: keep.bit_count()] for data, keep, _ in words)


def in_words(frame: bytes, size: int) -> list[Word]:
    """Return a frame as words of `size` bytes."""
    parts = [frame[at : at + size] for at in range(0, len(frame), size)]
    return [
        (int.from_bytes(part, "little"), (1 << len(part)) - 1, n == len(parts) - 1)
        for n, part in enumerate(parts)
    ]


class WordSource:
    """Gives words to a stream of the NIC, one a clock."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.words: deque[Word] = deque()
        self.offered = False

    @property
    def idle(self) -> bool:
        """Whether all is taken."""
        return not (self.words or self.offered)

    def put(self, words: Sequence[int]) -> None:
        """Give a packet of whole words."""
        self.words.extend((word, 0, n == len(words) - 1) for n, word in enumerate(words))

    def tick(self) -> None:
        """One rising edge."""
        stream = self.stream
        if self.offered and not stream.tready:
            return
        if self.offered or self.words:
            stream.tvalid.next = self.offered = bool(self.words)
        if self.words:
            stream.tdata.next, keep, stream.tlast.next = self.words.popleft()
            if hasattr(stream, "tkeep"):
                stream.tkeep.next = keep


class LateLevel:
    """A level that a host notices so many clocks after it rose. rises: how often it did."""

    def __init__(self, signal: Any, clocks: int, now: Callable[[], int]) -> None:
        self.signal, self.clocks, self.now = signal, clocks, now
        self.rose: int | None = None
        self.rises = 0

    def __bool__(self) -> bool:
        if not self.signal:
            self.rose = None
            return False
        if self.rose is None:
            self.rose = self.now()
            self.rises += 1
        return self.now() - self.rose >= self.clocks


class Manager:
    """Reads and writes registers, one at a time, whatever scripts ask for them; used: how many.

    Each takes the host some clocks more.
    """

    def __init__(self, s_axil: AxiLite, *, write: int = 0, read: int = 0) -> None:
        self.bus, self.clocks = s_axil, {"write": write, "read": read}
        self.used = {"write": 0, "read": 0}
        self._busy = False

    def _alone(self, access: Script) -> Script:
        """Let an access wait for others; one that is given up, as by a reset, holds up none."""
        while self._busy:
            yield
        self._busy = True
        try:
            return (yield from access)
        finally:
            self._busy = False

    def _host(self, name: str) -> Script:
        """Let the host's clocks of an access pass."""
        self.used[name] += 1
        for _ in range(self.clocks[name]):
            yield

    def write(self, address: int, data: int) -> Script:
        """Write a 32-bit register; raises RtlError when the hardware answers with an error."""
        return self._alone(self._write(address, data))

    def _write(self, address: int, data: int) -> Script:
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
                yield
                yield from self._host("write")
                return
            yield

    def read(self, address: int) -> Script:
        """Return a 32-bit register; raises RtlError when the hardware answers with an error."""
        return self._alone(self._read(address))

    def _read(self, address: int) -> Script:
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
                value = int(s.rdata)
                yield
                yield from self._host("read")
                return value
            yield
