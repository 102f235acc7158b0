"""The connection to one peer: what comes is sorted by tag, within the room that this rank has made for it.

A message has a head of 16 bytes: u64 length, u16 tag, two zero bytes, and the u32 CRC-32 (IEEE) of these 12.
A head is only a claim. It gets memory if this rank awaits the message, or has awaited one of this size on the
same tag, or if it is small. Any other message stays in the socket until this rank awaits it.
"""

from __future__ import annotations

import select
import socket
import struct
import zlib
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

Bytes = bytes | bytearray | memoryview
STAGE_BYTES = 1 << 16  # read at once where messages are small; larger ones get rooms that are kept
DIRECT_BYTES = 1 << 13  # of a message that are still missing, from which they are read into its own room
HELPED_BYTES = 1 << 18  # of a message, from which the helper looks for it
EARLY_BYTES = 1 << 18  # of all messages of a peer that came before this rank awaited them
EARLY_COST = 1 << 10  # bytes that such a message counts beside its own: objects of Python
PIECES = 64  # handed to the kernel at once
GONE = "its connection was closed"
_WORDS = struct.Struct("<QHxx")
_CHECK = struct.Struct("<I")
HEAD_BYTES = _WORDS.size + _CHECK.size


def head_of(size: int, tag: int) -> bytes:
    """Return the head of a message of `size` bytes."""
    words = _WORDS.pack(size, tag)
    return words + _CHECK.pack(zlib.crc32(words))


class Line:
    """The connection to one peer; whoever calls a method holds the lock of `Lines`.

    arrived: by tag, messages and what each takes of EARLY_BYTES.
    out: pieces that the kernel has not taken yet, of the messages in `unsent`, each [tag, bytes left, bytes
        in all].
    due: by tag, most bytes of the message that has room.
    awaited: tags of large messages that are due.
    blocked: tag and size of a message that has no room yet, so that nothing is read.
    lost: why nothing more is read; what came before is kept, and a last notice may still be sent.
    torn: whether what was sent ends within a message, so that nothing may follow.
    """

    def __init__(self, connection: socket.socket, stage: memoryview) -> None:
        connection.setblocking(False)
        self.socket, self.file, self._stage = connection, connection.fileno(), stage
        self.lost: str | None = None
        self.torn = False
        self.arrived: dict[int, deque[tuple[memoryview, int]]] = {}
        self.due: dict[int, int] = {}
        self.awaited: set[int] = set()
        self.out: deque[memoryview] = deque()
        self.unsent: deque[list[int]] = deque()
        self.held = False  # whether the last message in `out` waits for more
        self.mask = select.POLLIN  # events that the rank's thread looks for
        self.blocked: tuple[int, int] | None = None
        self._rest = b""  # read after the head of the blocked message
        self._head = b""  # of the next message, as far as it has come
        self._tag, self._body, self._got, self._missing = 0, memoryview(b""), 0, 0  # the message that comes
        self._cost = 0  # of the message that comes, in EARLY_BYTES
        self._early = 0  # bytes of EARLY_BYTES that are taken
        self._largest: dict[int, int] = {}  # by tag: the largest cap of all receives so far
        self._held: dict[int, memoryview] = {}  # by tag: rooms of messages that the rank may still read
        self._free: dict[int, memoryview] = {}  # rooms that it gave back, kept so that pages stay mapped

    def expect(self, tag: int, cap: int) -> None:
        """Take back the room of the last message of `tag`; a message of up to `cap` bytes is due."""
        if (room := self._held.pop(tag, None)) is not None:
            self._free[tag] = room
        self.due[tag] = cap
        self._largest[tag] = max(cap, self._largest.get(tag, 0))
        if cap >= HELPED_BYTES and not self.arrived.get(tag):
            self.awaited.add(tag)
        self._resume(tag)

    def take(self, tag: int) -> memoryview | None:
        """Return the next message of `tag`, valid until the next `expect`, or None."""
        waiting = self.arrived.get(tag)
        if not waiting:
            return None
        message, cost = waiting.popleft()
        self._early -= cost
        self.due.pop(tag, None)
        if len(message) >= STAGE_BYTES:
            self._held[tag] = memoryview(message.obj)
        self._resume(tag)
        return message

    def events(self) -> int:
        """Return the events of poll that this line has a use for; what is blocked stays in the socket."""
        return (select.POLLOUT if self.out else 0) | (select.POLLIN if self.blocked is None else 0)

    def serve(self, event: int) -> None:
        """Do what an event of poll asks for."""
        if event & select.POLLOUT:
            self.push()
        if self.blocked is None:
            if event & ~select.POLLOUT:
                self.pull()
        elif event & (select.POLLERR | select.POLLHUP):
            self._lose(GONE)

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
        while self.lost is None and self.blocked is None:
            direct = self._missing >= DIRECT_BYTES
            room = self._body[self._got :] if direct else self._stage
            try:
                received = self.socket.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(str(error))
                return
            if received == 0:
                self._lose(GONE)
            elif direct:
                self._fill(received)
            else:
                self._sort(room[:received])
            if received < len(room):
                return

    def _sort(self, received: memoryview) -> None:
        """Deal what came to the message that was coming, and to those after it."""
        while self.lost is None:
            if self._missing:
                part = received[: self._missing]
                self._body[self._got : self._got + len(part)] = part
                self._fill(len(part))
            else:
                part = received[: HEAD_BYTES - len(self._head)]
                self._head += part
                if len(self._head) == HEAD_BYTES:
                    self._begin()
            received = received[len(part) :]
            if self.blocked is not None:
                self._rest = bytes(received)
                return
            if not received:
                return

    def _begin(self) -> None:
        """Begin to receive the message whose head has come, or block the line if it has no room."""
        size, tag = _WORDS.unpack_from(self._head)
        if _CHECK.unpack_from(self._head, _WORDS.size) != (zlib.crc32(self._head[: _WORDS.size]),):
            self._lose("the head of a message was damaged on the way: its CRC-32 does not fit")
            return
        if not self.arrived.get(tag) and size > (cap := self.due.get(tag, size)):
            self._lose(f"it sent {size} bytes (tag {tag}), at most {cap} fit")
            return
        cost = self._cost_of(tag, size)
        if cost is None:
            self.blocked = tag, size
            return
        free = self._free.get(tag)
        try:
            if size < STAGE_BYTES or free is None or len(free) < size:
                self._body = memoryview(bytearray(size))
            else:
                self._body = self._free.pop(tag)[:size]
        except MemoryError:
            self._lose(f"this machine has no memory for its message of {size} bytes (tag {tag})")
            return
        self._head, self._tag, self._cost, self._got, self._missing = b"", tag, cost, 0, size
        self._early += cost
        self._fill(0)

    def _cost_of(self, tag: int, size: int) -> int | None:
        """Return what a message takes of EARLY_BYTES, or None if it has to wait until it is awaited.

        One message of a tag costs nothing: that which is due, or one as large as was due before, since a peer
        may be ahead by a call.
        """
        if not self.arrived.get(tag) and size <= self._largest.get(tag, -1):
            return 0
        cost = size + EARLY_COST
        return cost if self._early + cost <= EARLY_BYTES else None

    def _resume(self, tag: int) -> None:
        """Go on after a blocked message if it has room now that `tag` was awaited or taken."""
        if self.blocked is not None and (self.blocked[0] == tag or self._cost_of(*self.blocked) is not None):
            self.blocked, rest = None, memoryview(self._rest)
            self._sort(rest)

    def _fill(self, received: int) -> None:
        self._got += received
        self._missing -= received
        if not self._missing:
            self.arrived.setdefault(self._tag, deque()).append((self._body, self._cost))
            self.awaited.discard(self._tag)
