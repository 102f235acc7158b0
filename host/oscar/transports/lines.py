"""Connections to all peers, none of which blocks: what comes is sorted by sender and tag.

The rank's own thread moves bytes when it sends and while it waits. A helper thread moves those of large
messages while the rank computes; else it sleeps. line.py has one connection, and the form of a message.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from collections.abc import Mapping, Sequence

from oscar.transports.line import STAGE_BYTES, Bytes, Line

NAP_S = 0.01  # seconds; longest sleep before a thread looks at the clock
JOIN_S = 2.0


class Lines:
    """All lines of a rank, by peer. It does not know the transport, which may go while the helper lives."""

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        stage = memoryview(bytearray(STAGE_BYTES))
        self.by_peer = {peer: Line(connection, stage) for peer, connection in connections.items()}
        self.closed = False
        self.dropped = False  # whether this is a child's copy, whose end is no matter of the child
        self._lock = threading.RLock()  # the collector may close these lines in a thread that holds it
        self._waiting = False  # whether the rank's thread moves bytes itself
        self._moved = self._seen = 0  # times that the helper moved some, in all and when the rank last looked
        self._lines = {line.file: line for line in self.by_peer.values()}
        self._poll = select.poll()
        for file, line in self._lines.items():
            self._poll.register(file, line.mask)
        self._work = threading.Event()
        self._helper: threading.Thread | None = None
        _EVERY.add(self)

    def send(self, peer: int, tag: int, pieces: Sequence[Bytes], *, held: bool = False) -> None:
        """Start to send a message, its head first; its bytes must not change until it has left."""
        line = self.by_peer[peer]
        with self._lock:
            line.send(tag, pieces, held=held)
        if line.out and not held:
            self._help()

    def expect(self, peer: int, tag: int, cap: int) -> None:
        """See Line.expect."""
        line = self.by_peer[peer]
        with self._lock:
            line.expect(tag, cap)
        if line.awaited:
            self._help()

    def take(self, peer: int, tag: int) -> memoryview | None:
        """See Line.take."""
        with self._lock:
            return self.by_peer[peer].take(tag)

    def unsent(self) -> list[tuple[int, int]]:
        """Return (peer, tag) of the messages that the kernel has not taken yet."""
        with self._lock:
            return [(peer, tag) for peer, line in self.by_peer.items() for tag, *_ in line.unsent]

    def pause(self, most_s: float = NAP_S) -> None:
        """Sleep until bytes have moved, or for `most_s`."""
        with self._lock:
            if self._moved != self._seen:
                self._seen = self._moved
                return
            self._waiting = True
            for file, line in self._lines.items():
                if line.held:
                    line.held = False
                    line.push()
                wanted = line.events()
                if wanted != line.mask:
                    line.mask = wanted
                    self._poll.modify(file, wanted)
        try:
            ready = self._poll.poll(1e3 * most_s)
        finally:
            self._waiting = False
        with self._lock:
            self._move(ready)
            busy = any(line.out or line.awaited for line in self._lines.values())
        if busy:
            self._help()

    def _move(self, ready: Sequence[tuple[int, int]]) -> None:
        for file, event in ready:
            if self.closed:
                return
            line = self._lines.get(file)
            if line is None:
                continue
            line.serve(event)
            if line.lost is not None:
                self._poll.unregister(file)
                del self._lines[file]

    def _help(self) -> None:
        """Have the helper move bytes until the rank waits for some."""
        if self._helper is None:
            self._helper = threading.Thread(target=self._serve, name="oscar-tcp", daemon=True)
            self._helper.start()
        self._work.set()

    def _serve(self) -> None:
        while self._work.wait() and not self.closed:
            poll, none = select.poll(), True
            with self._lock:
                for file, line in self._lines.items() if not self._waiting else ():
                    if line.out or (line.awaited and line.blocked is None):
                        poll.register(file, line.events())
                        none = False
                if none and not self.closed:
                    self._work.clear()
                    continue
            ready = poll.poll(1e3 * NAP_S)
            with self._lock:
                if ready and not self._waiting:
                    self._move(ready)
                    self._moved += 1

    def close(self) -> None:
        """Close all connections; peers find out."""
        with self._lock:
            self.closed = True
            for line in self.by_peer.values():
                line.socket.close()
        self._work.set()
        if self._helper is not None and self._helper is not threading.current_thread():
            self._helper.join(JOIN_S)

    def drop(self) -> None:
        """Close this process's copies of the connections after a fork; those of the parent stay open.

        The parent's helper may have held the locks, and there is no helper here that would let go of them.
        """
        self.closed = self.dropped = True
        self._lock, self._work, self._helper = threading.RLock(), threading.Event(), None
        for line in self.by_peer.values():
            line.socket.close()


_EVERY: weakref.WeakSet[Lines] = weakref.WeakSet()


def _forked() -> None:
    """Let go of connections that a child has of its parent: else peers would not see the parent's death."""
    for lines in [*_EVERY]:
        lines.drop()


os.register_at_fork(after_in_child=_forked)
