"""The contract of transports (docs/reference/transports.md), with deadlines, notices and gathers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from isal.isal_zlib import crc32

from oscar.transports.waits import CONTROL_CAP as CONTROL_CAP
from oscar.transports.waits import Notice as Notice
from oscar.transports.waits import TransportError as TransportError
from oscar.transports.waits import Wait

GATHER_TAGS = (32640, 32641)  # frames have lower tags (Action.tag) and their own CRC-32
STATE_TAG = 32642  # tag of digests of the replicated state
EXCHANGE_TAG = 32643  # tag of buffers that are sent directly to one rank
TASK_TAG = 32644  # tag of copies of tasks
CONTROL_TAG = 32767  # the largest tag that every MPI has
KEYED_CONTROL_TAG = 32766  # tag of control messages under a key; differs from that of earlier plain ones
CONTROL_TAGS = (KEYED_CONTROL_TAG, CONTROL_TAG)
PART_CAP = 16  # bytes of room for the message of `part`, which is empty
ABORT_S = 1.0  # seconds in which an abort must be sent
LISTENING = 20  # a long wait spends 1 / LISTENING of its time listening to all neighbours
ROUND_S = 0.05  # seconds; longest pause between two rounds of listening
CLOSED = "this transport is closed; make a new one on every rank"
PEER_FAILED = 75  # exit status EX_TEMPFAIL: start again

Bytes = bytes | bytearray | memoryview
_SEAL = struct.Struct("<I")  # CRC-32 (IEEE) of the message that follows


class Transport(ABC):
    """One rank's end of all links. A subclass moves bytes; this class adds checksums and waits.

    A subclass sets up its library, calls `_ends_by`, and calls this `__init__` last. It notes dead peers in
    `dead`. On the wire every message except frames has a CRC-32 in front; frames contain a checksum.

    Attributes:
        rank: This rank.
        nodes: The number of ranks.
        members: By rank, the number of its process in the whole job, where the library knows it.
        neighbours: Ranks that exchange control messages with this rank: the two neighbours in the ring,
            and all ranks it has met.
        keyed: Whether everything sent is encrypted and authenticated.
        pad: Largest lengthening of encrypted messages in per cent.
        can_survive: Whether `survivors` may work here.
    """

    keyed = False
    pad = 0.0
    can_survive = False

    def __init__(self, rank: int, nodes: int, *, members: Sequence[int] | None = None) -> None:
        self.rank, self.nodes = rank, nodes
        self.members = tuple(range(nodes) if members is None else members)
        self.dead: dict[int, str] = {}  # reason by dead peer
        self._signs: dict[int, tuple[float, str]] = {}  # by peer: time of its sign of life, and its wait
        self.was_told = False  # whether a neighbour sent an abort
        self._silent: set[int] = set()  # peers that did not answer in time
        self._next_error: TransportError | None = None  # heard in a call that has its result
        self._next_round = 0.0  # time to listen to all neighbours again
        self.neighbours: dict[int, None] = {}  # an ordered set, in the order of control messages
        self.meet({(rank - 1) % nodes, (rank + 1) % nodes})

    def meet(self, peers: Iterable[int]) -> None:
        """Make `peers` neighbours, so that control messages go both ways.

        Both sides must do this before either waits for a message from the other. Known neighbours and the
        rank itself are skipped. Raises ValueError for a rank that does not exist.
        """
        for peer in sorted(set(peers) - {self.rank} - self.neighbours.keys()):
            if not 0 <= peer < self.nodes:
                raise ValueError(f"expected ranks of 0 to {self.nodes - 1} to meet, got {peer}")
            self.neighbours[peer] = None
            self.post_recv(peer, CONTROL_TAG, CONTROL_CAP)

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """Make room for one message of up to `cap` bytes. Messages of one (peer, tag) arrive in order.

        Raises ValueError for a peer that this rank has not met, because its failure would go unnoticed.
        """
        self.check_open()
        if peer not in self.neighbours:
            raise ValueError(f"rank {self.rank} would wait for rank {peer} and has not met it: call meet")
        self._make_room(peer, tag, self._wire_bytes(tag, cap))

    def post_send(self, peer: int, tag: int, frame: Bytes) -> None:
        """Start to send `frame`, which must not change until `flush` has returned."""
        self.check_open()
        self._send(peer, tag, self._seal(peer, tag, frame))

    @abstractmethod
    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        """Make room for a message of up to `cap` bytes on the wire."""

    @abstractmethod
    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        """Start to send a message of consecutive `parts`, which must not change until `flush` returns."""

    @abstractmethod
    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        """Return the posted message if it has arrived, else None; note a peer that is gone in `dead`."""

    @abstractmethod
    def _unsent(self) -> list[tuple[int, int]]:
        """Return (peer, tag) of every message that has not left yet, the oldest first."""

    @abstractmethod
    def _pause(self, tries: int) -> None:
        """Sleep, or wait for a message, after `tries` unsuccessful looks."""

    def _ends_by(self, work: Callable[..., object], *args: Any) -> None:
        """Let work(*args) release the library's resources, once: on `close` or with the last reference.

        It runs at exit at the latest, before the libraries' teardown: a thread that still waits then is
        fatal.
        """
        self._ending = weakref.finalize(self, work, *args)

    @property
    def closed(self) -> bool:
        """Whether `close` was called; nothing can be sent or received then."""
        return not self._ending.alive

    def close(self) -> None:
        """Release the library's resources. Raises nothing; a second call does nothing. Exit closes, too."""
        self._ending()

    def check_open(self) -> None:
        """Raise TransportError once this transport is closed."""
        if self.closed:
            raise TransportError(CLOSED, peer=-1, kind="aborted")

    def _wire_bytes(self, tag: int, size: int) -> int:
        """Return the bytes on the wire of a message of `size` bytes."""
        return size + (_SEAL.size if tag >= GATHER_TAGS[0] else 0)

    def _seal(self, peer: int, tag: int, message: Bytes) -> tuple[Bytes, ...]:
        """Return a message to `peer` in its form on the wire, in parts."""
        return (_SEAL.pack(crc32(message)), message) if tag >= GATHER_TAGS[0] else (message,)

    def _open(self, peer: int, tag: int, arrived: memoryview) -> memoryview:
        """Return the message that `peer` sealed. Raises TransportError where its checksum does not fit."""
        if tag < GATHER_TAGS[0]:
            return arrived
        message = arrived[_SEAL.size :]
        if len(arrived) < _SEAL.size or _SEAL.unpack_from(arrived) != (crc32(message),):
            text = f"a message of {len(message)} bytes (tag {tag}) from rank {peer} was damaged on the way"
            raise TransportError(f"{text}: its CRC-32 does not fit", peer=peer, kind="aborted", tag=tag)
        return message

    def _take(self, peer: int, tag: int) -> memoryview | None:
        """Return the posted message if it has arrived, else None. Raises TransportError if it is damaged."""
        arrived = self._arrived(peer, tag)
        return None if arrived is None else self._open(peer, tag, arrived)

    def part(self, deadline: float) -> None:
        """Wait until every rank has received all its messages; collective, the last call before a rank ends.

        A process that ends with unread bytes resets its connections, and its peers lose unread messages. If
        a rank has ended already, this returns at once. Raises nothing.
        """
        with contextlib.suppress(TransportError):
            self.gather(b"", PART_CAP, deadline, "the end")

    def leave(self, status: int) -> NoReturn:
        """End this process at once after a failure, without the library's clean-up, which might hang."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def survivors(self, timeout_s: float = 60.0) -> Transport:
        """Return a transport between the ranks that are left after a death; collective among these.

        Args:
            timeout_s: Longest wait for a rank, in seconds.

        Raises:
            TransportError: Where no death is known, or where the library cannot continue without a rank.
        """
        raise TransportError(
            f"{type(self).__name__} cannot go on without a rank; set transport.survive to false",
            peer=-1,
            kind="dead",
        )

    def wait(
        self,
        peer: int,
        tag: int,
        deadline: float,
        what: str = "a message",
        *,
        work: Callable[[], bool] | None = None,
    ) -> memoryview:
        """Return the message from `peer`, valid until (peer, tag) is posted again.

        Args:
            deadline: In seconds of time.monotonic.
            what: The message's name in errors, here and on other ranks.
            work: Something to do in the meantime, a little at each call; returns whether there was anything.

        Raises:
            TransportError: When `peer` is dead or silent, or when a neighbour gave up.
        """
        wait = Wait(self, peer, tag, deadline, what)
        while True:
            frame = self._take(peer, tag)
            if frame is not None:
                return frame
            if work is not None and work():
                self._glance()
            else:
                wait.go_on()

    def move(self) -> None:
        """Move bytes that wait to be moved, and release messages that have left; no pause."""
        self._glance()
        self._unsent()

    def look(self, peer: int, tag: int) -> memoryview | None:
        """Return the posted message if it has arrived, as `wait` does, else None; note a death in `dead`."""
        return self._take(peer, tag)

    def _glance(self) -> None:  # noqa: B027 - most libraries move bytes by themselves
        """Move bytes that wait to be moved, without a pause."""

    def flush(self, deadline: float) -> None:
        """Wait until all sent messages have left. Raises TransportError where a peer does not take one.

        Control messages are not awaited: a peer reads them only when it waits itself.
        """
        wait: Wait | None = None
        while unsent := [(peer, tag) for peer, tag in self._unsent() if tag != CONTROL_TAG]:
            if wait is None or wait.peer != unsent[0][0]:
                wait = Wait(self, *unsent[0], deadline, "room for what was sent")
            wait.go_on()

    def abort(self, notice: Notice) -> None:
        """Tell the neighbours why this rank gives up. Takes at most `ABORT_S` seconds; raises nothing."""
        stop, tries = time.monotonic() + ABORT_S, 0
        self._tell(notice.pack(), stop)
        try:
            while self._telling() and time.monotonic() < stop:
                self._pause(tries)
                tries += 1
        except Exception:  # a dead neighbour; the other one knows
            return

    def gather(self, mine: bytes, cap: int, deadline: float, what: str) -> list[bytes]:
        """Return every rank's message, by rank, after N - 1 hops around the ring; collective.

        Args:
            mine: This rank's message.
            cap: Most bytes of a message, equal on all ranks. Raises as `wait` does.
        """
        if len(mine) > cap:
            raise ValueError(f"expected at most {cap} bytes to gather, got {len(mine)}")
        gathered = [b""] * self.nodes
        gathered[self.rank] = mine

        def keep(hop: int, arrived: memoryview) -> None:
            gathered[(self.rank - hop - 1) % self.nodes] = bytes(arrived)

        self.circulate(
            self.nodes - 1, cap, deadline, what, lambda hop: gathered[(self.rank - hop) % self.nodes], keep
        )
        return gathered

    def circulate(
        self,
        hops: int,
        cap: int,
        deadline: float,
        what: str,
        give: Callable[[int], Bytes],
        keep: Callable[[int, memoryview], None],
    ) -> None:
        """At each of `hops`: send give(hop) to the next rank, pass the previous rank's message to `keep`.

        `give` may return the message kept one hop before.

        Args:
            keep: Called as keep(hop, message).
            cap: Most bytes of a message, equal on all ranks. Raises as `wait` does.
        """
        left, right = (self.rank - 1) % self.nodes, (self.rank + 1) % self.nodes
        for hop in range(min(2, hops)):
            self.post_recv(left, GATHER_TAGS[hop & 1], cap)
        for hop in range(hops):
            self.post_send(right, GATHER_TAGS[hop & 1], give(hop))
            keep(hop, self.wait(left, GATHER_TAGS[hop & 1], deadline, what))
            if hop + 2 < hops:
                self.post_recv(left, GATHER_TAGS[hop & 1], cap)
        self.flush(deadline)

    def hand_over(
        self, messages: Sequence[Bytes], caps: Sequence[int], deadline: float, what: str
    ) -> list[bytes]:
        """Send messages[r] directly to each rank r; return the messages for this rank, by sender.

        Args:
            caps: Most bytes from each rank. All ranks must have met. Raises as `wait` does.
        """
        others = [(self.rank + step) % self.nodes for step in range(1, self.nodes)]
        for source in reversed(others):
            self.post_recv(source, EXCHANGE_TAG, caps[source])
        for to in others:
            self.post_send(to, EXCHANGE_TAG, messages[to])
        arrived = [bytes(messages[self.rank])] * self.nodes
        for source in reversed(others):
            arrived[source] = bytes(self.wait(source, EXCHANGE_TAG, deadline, what))
        self.flush(deadline)
        return arrived

    def _telling(self) -> bool:
        """Whether a control message is still under way to a peer that may be alive."""
        return any(tag == CONTROL_TAG and peer not in self._silent for peer, tag in self._unsent())

    def _tell(self, message: bytes, stop: float = math.inf) -> None:
        """Start to send a control message to all neighbours. stop: last time of time.monotonic."""
        for peer in self.neighbours:
            if peer not in self.dead and time.monotonic() < stop:
                with contextlib.suppress(Exception):  # a rank that waits for this peer finds out why
                    self.post_send(peer, CONTROL_TAG, message)

    def _listen(self, peer: int) -> None:
        """Read control messages: from `peer` always, from all neighbours in rounds at intervals.

        Raises TransportError for a notice of abort.
        """
        if self._next_error is not None:
            raise self._next_error
        begin = time.monotonic()
        if begin < self._next_round:
            self._hear(peer)
            return
        for each in (peer, *self.neighbours):
            self._hear(each)
        end = time.monotonic()
        self._next_round = end + min(ROUND_S, (LISTENING - 1) * (end - begin))

    def check_blame(self) -> None:
        """Raise TransportError where a neighbour gave up because of this rank, as far as is known; no wait.

        What else neighbours have told is raised by the next wait.
        """
        self._glance()
        for peer in self.neighbours:
            try:
                self._hear(peer)
            except TransportError as error:
                if error.notice is not None and error.notice.peer == self.rank:
                    raise
                self._next_error = self._next_error or error

    def _hear(self, peer: int) -> None:
        while (arrived := self._take(peer, CONTROL_TAG)) is not None:
            message = bytes(arrived)
            self.post_recv(peer, CONTROL_TAG, CONTROL_CAP)
            self._understand(peer, message)

    def _understand(self, peer: int, message: bytes) -> None:
        try:
            content: dict[str, Any] = json.loads(message)
            if "abort" in content:
                notice = Notice.unpack(content["abort"])
            else:
                self._signs[peer] = (time.monotonic(), str(content["waiting"]))
                return
        except (ValueError, TypeError, KeyError, RecursionError):
            text = f"rank {peer} sent an unreadable control message; run one release everywhere"
            raise TransportError(text, peer=peer, kind="aborted") from None
        self.was_told = True
        self._silent.add(notice.peer)  # it may be stopped: do not wait for it
        raise TransportError(
            f"rank {notice.rank} gave up: {notice.reason}", peer=peer, kind="aborted", notice=notice
        )
