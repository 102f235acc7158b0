"""Frames over plain TCP connections between the ranks of a torch.distributed group (extra torch).

torch.distributed only introduces the ranks to each other: addresses, and a public value of each rank, go
through the job's store. Both ends of a connection prove who they are (proofs.py); strangers are sent away,
at either end (introductions.py). Later bytes are in clear (keyed.py seals).

No connection blocks: what comes is sorted by sender and tag. The rank's own thread moves bytes when it
sends and while it waits. A helper thread moves those of large messages while the rank computes; else it
sleeps. line.py has one connection, and the form of a message.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from oscar.errors import OscarError
from oscar.transports.base import CONTROL_TAGS, STATE_TAG, Bytes, Transport, TransportError
from oscar.transports.gloo import first_line, load_torch, meeting, start
from oscar.transports.introductions import connect
from oscar.transports.line import STAGE_BYTES, Line, head_of

NAP_S = 0.01  # seconds; longest sleep before a thread looks at the clock
JOIN_S = 2.0
MAKING = timedelta(minutes=5)  # how late another rank may be to the making of a transport


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


class TcpTransport(Transport):
    """One rank of a torch.distributed group (default: all ranks), with a connection to every other rank.

    Making one is collective between the ranks of `group`, in one order on all of these; other ranks have no
    part in it. Starts torch.distributed from torchrun's environment where that has not been done. Raises
    MissingExtraError without torch, OscarError outside torchrun, in a process that is not in `group`, and
    where a rank of it has not come after five minutes.
    """

    def __init__(self, group: Any = None) -> None:
        _, dist = load_torch()
        owns_default = not dist.is_initialized()
        if owns_default:
            start(dist)
        store, ranks, refuse = meeting(group, "tcp")
        rank = ranks.index(dist.get_rank())
        try:
            self._lines = Lines(connect(store, rank, len(ranks), time.monotonic() + MAKING.total_seconds()))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise refuse(error, MAKING) from None
        self._begin(rank, ranks, dist.group.WORLD if owns_default else None)

    def _begin(self, rank: int, ranks: list[int], default: Any = None) -> None:
        """Take over the connections in `_lines`; default: the job's group, where it ends with this one."""
        self._caps: dict[tuple[int, int], int] = {}
        self._ends_by(_end, self._lines, default)
        super().__init__(rank, len(ranks), members=ranks)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self._caps[peer, tag] = cap
        self._lines.expect(peer, tag, cap)

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        pieces = head_of(sum(map(len, parts)), tag), *parts
        self._lines.send(peer, tag, pieces, held=tag == STATE_TAG)  # the frame that follows takes it along

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        arrived = self._lines.take(peer, tag)
        if arrived is not None:
            if len(arrived) > self._caps[peer, tag]:
                text = (
                    f"rank {peer} sent {len(arrived)} bytes (tag {tag}), at most {self._caps[peer, tag]} fit"
                )
                raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        elif (lost := self._lines.by_peer[peer].lost) is not None:
            self.dead.setdefault(peer, lost)
        elif (blocked := self._lines.by_peer[peer].blocked) is not None and tag not in CONTROL_TAGS:
            arrived = self._behind(peer, tag, *blocked)
        return arrived

    def _behind(self, peer: int, tag: int, other: int, size: int) -> memoryview | None:
        """Return the message, where it came before the connection was blocked by a message of tag `other`.

        Raises TransportError where it did not: it would be behind a message for which this rank, which waits
        here, will never make room.
        """
        arrived = self._lines.take(peer, tag)
        if arrived is None and other not in CONTROL_TAGS:
            expected = f"expected a message of tag {tag} from rank {peer}"
            text = f"{expected}, got one of tag {other} and {size} bytes, which nobody awaits"
            raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        return arrived

    def _unsent(self) -> list[tuple[int, int]]:
        return self._lines.unsent()

    def _pause(self, tries: int) -> None:
        self._lines.pause()

    def _glance(self) -> None:
        self._lines.pause(0.0)


class StoreTransport(TcpTransport):
    """One rank of `nodes` that meet at a store of torch.distributed, which need not be initialised.

    store: one that all ranks reach, with a prefix that no other meeting has. timeout_s: for others to come.
    Raises MissingExtraError without torch, OscarError where a rank has not come by then or the store is gone.
    """

    def __init__(self, store: Any, rank: int, nodes: int, *, timeout_s: float) -> None:
        load_torch()
        try:
            self._lines = Lines(connect(store, rank, nodes, time.monotonic() + timeout_s))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise OscarError(
                f"rank {rank} of {nodes} could not meet the others at the store within {timeout_s:g} s "
                f"({first_line(error)}); start all ranks, and keep the store alive"
            ) from None
        self._begin(rank, list(range(nodes)))


def _end(lines: Lines, default: Any) -> None:
    """Close all connections, and end torch.distributed where we began it; nothing in a forked child."""
    if lines.dropped:
        return
    lines.close()
    if default is not None:
        _, dist = load_torch()
        if dist.is_initialized() and dist.group.WORLD is default:
            dist.destroy_process_group()
