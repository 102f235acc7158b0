"""A transport between threads of one process, for tests and for trying a Communicator."""

from __future__ import annotations

import threading
from collections import defaultdict, deque

from oscar.transports.base import Bytes, Transport

NAP_S = 0.01  # seconds; longest sleep before a rank looks at the clock


class _Inbox:
    """The received messages of one rank by (sender, tag), and the ranks that have closed."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.messages: dict[tuple[int, int], deque[Bytes]] = defaultdict(deque)
        self.closed: set[int] = set()
        self.version = 0

    def notify(self) -> None:
        """Wake all waiters; the caller holds `changed`."""
        self.version += 1
        self.changed.notify_all()


class ThreadTransport(Transport):
    """One rank's end; make all of them with `local_transports`."""

    def __init__(self, rank: int, inboxes: list[_Inbox]) -> None:
        self._inboxes = inboxes
        self._caps: dict[tuple[int, int], int] = {}
        self._seen = -1
        self._ends_by(_leave, inboxes, rank)
        super().__init__(rank, len(inboxes))

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self._caps[peer, tag] = cap

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        inbox, message = self._inboxes[peer], parts[0]
        if len(parts) > 1 or not memoryview(message).readonly:  # else nobody changes it while the peer reads
            message = b"".join(parts)
        with inbox.changed:
            inbox.messages[self.rank, tag].append(message)
            inbox.notify()

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        inbox = self._inboxes[self.rank]
        with inbox.changed:
            waiting = inbox.messages[peer, tag]
            if not waiting:
                if peer in inbox.closed:
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
        inbox = self._inboxes[self.rank]
        with inbox.changed:
            if inbox.version == self._seen:
                inbox.changed.wait(NAP_S)
            self._seen = inbox.version


def _leave(inboxes: list[_Inbox], rank: int) -> None:
    """Mark `rank` as dead for the other ranks."""
    for inbox in inboxes:
        with inbox.changed:
            inbox.closed.add(rank)
            inbox.notify()


def local_transports(nodes: int) -> list[ThreadTransport]:
    """Return the ends of `nodes` ranks; each thread uses one.

    >>> import time
    >>> first, second = local_transports(2)
    >>> second.post_recv(0, 5, cap=16)
    >>> first.post_send(1, 5, b"hello")
    >>> bytes(second.wait(0, 5, deadline=time.monotonic() + 10))
    b'hello'
    """
    inboxes = [_Inbox() for _ in range(nodes)]
    return [ThreadTransport(rank, inboxes) for rank in range(nodes)]
