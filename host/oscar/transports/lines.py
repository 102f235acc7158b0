"""Connections to all peers, none of which blocks: what comes is sorted by sender and tag.

The rank's own thread moves bytes when it sends and while it waits. A helper thread moves those of large
messages while the rank computes; else it sleeps. A message has a head of 16 bytes: u64 length, u16 tag, two
zero bytes, and the u32 CRC-32 (IEEE) of these 12.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import weakref
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

Bytes = bytes | bytearray | memoryview
NAP_S = 0.01  # seconds; longest sleep before a thread looks at the clock
JOIN_S = 2.0
STAGE_BYTES = 1 << 16  # read at once where messages are small; larger ones get rooms that are kept
DIRECT_BYTES = 1 << 13  # of a message that are still missing, from which they are read into its own room
HELPED_BYTES = 1 << 18  # of a message, from which the helper looks for it
PIECES = 64  # handed to the kernel at once
GONE = "its connection was closed"
_WORDS = struct.Struct("<QHxx")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _WORDS.size + _CHECK.size
_READ, _WRITE = select.POLLIN, select.POLLIN | select.POLLOUT


def head_of(size: int, tag: int) -> bytes:
    """Return the head of a message of `size` bytes."""
    words = _WORDS.pack(size, tag)
    return words + _CHECK.pack(zlib.crc32(words))


class Line:
    """The connection to one peer; whoever calls a method holds the lock of `Lines`.

    arrived: messages by tag. out: pieces that the kernel has not taken yet, of the messages in `unsent`, each
    [tag, bytes left, bytes in all]. due: by tag, most bytes of the message that has room. awaited: tags of
    large messages that are due. lost: why nothing more is read; what came before is kept, and a last notice
    may still be sent. torn: whether what was sent ends within a message, so that nothing may follow.
    """

    def __init__(self, connection: socket.socket, stage: memoryview) -> None:
        connection.setblocking(False)
        self.socket, self.file, self._stage = connection, connection.fileno(), stage
        self.lost: str | None = None
        self.torn = False
        self.arrived: dict[int, deque[memoryview]] = defaultdict(deque)
        self.due: dict[int, int] = {}
        self.awaited: set[int] = set()
        self.out: deque[memoryview] = deque()
        self.unsent: deque[list[int]] = deque()
        self.held = False  # whether the last message in `out` waits for more
        self.mask = _READ  # events that the rank's thread looks for
        self._head = b""  # of the next message, as far as it has come
        self._tag, self._body, self._got, self._missing = 0, memoryview(b""), 0, 0  # the message that comes
        self._held: dict[int, memoryview] = {}  # by tag: rooms of messages that the rank may still read
        self._free: dict[int, memoryview] = {}  # rooms that it gave back, kept so that pages stay mapped

    def expect(self, tag: int, cap: int) -> None:
        """Take back the room of the last message of `tag`; a message of up to `cap` bytes is due."""
        if (room := self._held.pop(tag, None)) is not None:
            self._free[tag] = room
        self.due[tag] = cap
        if cap >= HELPED_BYTES and not self.arrived[tag]:
            self.awaited.add(tag)

    def take(self, tag: int) -> memoryview | None:
        """Return the next message of `tag`, valid until the next `expect`, or None."""
        waiting = self.arrived[tag]
        if not waiting:
            return None
        message = waiting.popleft()
        self.due.pop(tag, None)
        if len(message) >= STAGE_BYTES:
            self._held[tag] = memoryview(message.obj)
        return message

    def send(self, tag: int, pieces: Sequence[Bytes], *, held: bool = False) -> None:
        """Send a message, its head first; what the kernel does not take waits in `out`.

        held: it waits there until more is sent, or the rank waits itself, so that both leave at once.
        """
        if self.torn:
            return
        size = sum(map(len, pieces))
        sent = 0 if self.out or held else self._push(pieces)
        if sent == size:
            return
        if self.lost is not None:
            if sent:
                self._tear()
            return
        self.unsent.append([tag, size - sent, size])
        for each in pieces:
            piece = memoryview(each)
            here = min(sent, len(piece))
            sent -= here
            if here < len(piece):
                self.out.append(piece[here:])
        if self.held and not held:
            self.push()
        self.held = held

    def push(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        while self.out and (sent := self._push([*self.out][:PIECES])):
            left = sent
            while left:
                piece = self.out.popleft()
                if left < len(piece):
                    self.out.appendleft(piece[left:])
                left -= min(left, len(piece))
            while sent:
                first = self.unsent[0]
                here = min(sent, first[1])
                first[1] -= here
                sent -= here
                if not first[1]:
                    self.unsent.popleft()

    def _push(self, pieces: Sequence[Bytes]) -> int:
        """Return how many bytes the kernel took."""
        try:
            return self.socket.sendmsg(pieces)
        except BlockingIOError:
            return 0
        except OSError as error:
            self.pull()  # the last words of a peer that has gone
            self._lose(str(error))
            return 0

    def _lose(self, why: str) -> None:
        self.lost = self.lost or why
        if self.unsent and self.unsent[0][1] < self.unsent[0][2]:
            self._tear()
        self.out.clear()
        self.unsent.clear()
        self.awaited.clear()

    def _tear(self) -> None:
        """End what is sent within a message: the peer finds the end, not another message in the middle."""
        self.torn = True
        with suppress(OSError):  # it is closed already
            self.socket.shutdown(socket.SHUT_WR)

    def pull(self) -> None:
        """Read what has arrived."""
        while self.lost is None:
            direct = self._missing >= DIRECT_BYTES
            room = self._body[self._got :] if direct else self._stage
            try:
                came = self.socket.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(str(error))
                return
            if came == 0:
                self._lose(GONE)
            elif direct:
                self._fill(came)
            else:
                self._sort(room[:came])
            if came < len(room):
                return

    def _sort(self, came: memoryview) -> None:
        """Deal what came to the message that was coming, and to those behind it."""
        while len(came) and self.lost is None:
            if self._missing:
                part = came[: self._missing]
                self._body[self._got : self._got + len(part)] = part
                self._fill(len(part))
            else:
                part = came[: HEAD_BYTES - len(self._head)]
                self._head += part
                if len(self._head) == HEAD_BYTES:
                    self._begin(self._head)
                    self._head = b""
            came = came[len(part) :]

    def _begin(self, head: bytes) -> None:
        """Begin to receive the message with this head."""
        size, self._tag = _WORDS.unpack_from(head)
        if _CHECK.unpack_from(head, _WORDS.size) != (zlib.crc32(head[: _WORDS.size]),):
            self._lose("the head of a message was damaged on the way: its CRC-32 does not fit")
            return
        if not self.arrived[self._tag] and size > (cap := self.due.get(self._tag, size)):
            self._lose(f"it sent {size} bytes (tag {self._tag}), at most {cap} fit")
            return
        free = self._free.get(self._tag)
        try:
            if size < STAGE_BYTES or free is None or len(free) < size:
                self._body = memoryview(bytearray(size))
            else:
                self._body = self._free.pop(self._tag)[:size]
        except (MemoryError, OverflowError):
            self._lose(f"it announced a message of {size} bytes, more than this machine can hold")
            return
        self._got, self._missing = 0, size
        self._fill(0)

    def _fill(self, came: int) -> None:
        self._got += came
        self._missing -= came
        if not self._missing:
            self.arrived[self._tag].append(self._body)
            self.awaited.discard(self._tag)


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
                wanted = _WRITE if line.out else _READ
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
            if event & select.POLLOUT:
                line.push()
            if event & ~select.POLLOUT:
                line.pull()
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
                    if line.out or line.awaited:
                        poll.register(file, _WRITE if line.out else _READ)
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
