"""Ranks as threads of one process: for tests, and to try a Communicator without launching processes."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from oscar.transports.base import Bytes, Transport

NAP_S = 0.01  # how long a rank sleeps at most before it looks at the clock


class _Exchange:
    """What the ranks share: messages by (from, to, tag), and who has closed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.messages: dict[tuple[int, int, int], deque[bytes]] = defaultdict(deque)
        self.closed: set[int] = set()
        self.version = 0

    def notify(self) -> None:
        """Something has changed; `changed` is held."""
        self.version += 1
        self.changed.notify_all()


class ThreadTransport(Transport):
    """One rank's end; make all of them with `local_transports`."""

    def __init__(self, rank: int, nodes: int, exchange: _Exchange) -> None:
        self._exchange = exchange
        self._caps: dict[tuple[int, int], int] = {}
        self._seen = -1
        super().__init__(rank, nodes)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self._caps[peer, tag] = cap

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        with self._exchange.changed:
            self._exchange.messages[self.rank, peer, tag].append(b"".join(parts))
            self._exchange.notify()

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        with self._exchange.changed:
            waiting = self._exchange.messages[peer, self.rank, tag]
            if not waiting:
                if peer in self._exchange.closed:
                    self.dead[peer] = "its thread has closed the transport"
                return None
            frame = waiting.popleft()
        cap = self._caps.pop((peer, tag))
        if len(frame) > cap:
            raise ValueError(f"rank {peer} sent {len(frame)} bytes (tag {tag}), at most {cap} fit")
        return memoryview(frame)

    def _unsent(self) -> list[tuple[int, int]]:
        return []  # a send is done when it returns

    def _pause(self, tries: int) -> None:
        with self._exchange.changed:
            if self._exchange.version == self._seen:
                self._exchange.changed.wait(NAP_S)
            self._seen = self._exchange.version

    def close(self) -> None:
        """See Transport.close; the other ranks take this one for dead."""
        with self._exchange.changed:
            self._exchange.closed.add(self.rank)
            self._exchange.notify()


def local_transports(nodes: int) -> list[ThreadTransport]:
    """Return the ends of `nodes` ranks, one for each thread."""
    exchange = _Exchange()
    return [ThreadTransport(rank, nodes, exchange) for rank in range(nodes)]
