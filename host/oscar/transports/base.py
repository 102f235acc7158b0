"""The transport contract (docs/transports.md), and what all transports share: deadlines, notices, gathers."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
import sys
import time
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from oscar.transports.notices import CONTROL_CAP as CONTROL_CAP
from oscar.transports.notices import Notice as Notice
from oscar.transports.notices import TransportError as TransportError
from oscar.transports.waits import Wait

GATHER_TAGS = (32640, 32641)  # frames have lower tags (Action.tag) and a CRC-32 of their own
STATE_TAG = 32642  # of digests of the replicated state
EXCHANGE_TAG = 32643  # of buffers that go straight to one rank
CONTROL_TAG = 32767  # the largest tag that every MPI has
KEYED_CONTROL_TAG = 32766  # of control messages under a key: never confused with earlier plain ones
CONTROL_TAGS = (KEYED_CONTROL_TAG, CONTROL_TAG)
PART_CAP = 16  # bytes of the message of `part`, which is empty
ABORT_S = 1.0  # how long sending an abort may take
LISTENING = 20  # of a long wait, one part in this many goes into rounds of listening to all neighbours;
ROUND_S = 0.05  # but a round begins at least this long after the last one
CLOSED = "this transport is closed; make a new one on every rank"
PEER_FAILED = 75  # exit status EX_TEMPFAIL: start again

Bytes = bytes | bytearray | memoryview
_SEAL = struct.Struct("<I")  # CRC-32 (IEEE) of the message behind it


class Transport(ABC):
    """One rank's end of all links; a subclass moves bytes, this class seals them and waits for them.

    A subclass sets up its library, calls `_ends_by` and, last, `__init__` here, and puts peers that it knows
    to be gone into `dead`. `rank` and `nodes` are the ring's. `members`: by rank, the number of its process
    in the whole job, where the library knows that. `neighbours`: who hears this rank's control messages and
    is heard: the two of the ring, and whom it met. `keyed`: whether all that it sends is encrypted and
    authenticated; `pad`: by how many per cent at most that is lengthened, to hide sizes. `can_survive`:
    whether `survivors` may work here, as far as can be told beforehand. Every message but frames, which have
    a checksum of their own, has a CRC-32 in front of it on the wire.
    """

    keyed = False
    pad = 0.0
    can_survive = False

    def __init__(self, rank: int, nodes: int, *, members: Sequence[int] | None = None) -> None:
        self.rank, self.nodes = rank, nodes
        self.members = tuple(range(nodes) if members is None else members)
        self.dead: dict[int, str] = {}  # peer -> why it is taken for dead
        self._signs: dict[int, tuple[float, str]] = {}  # peer -> when it said that it waits, and for what
        self.was_told = False  # by a neighbour, that the ring has ended
        self._silent: set[int] = set()  # peers for which a wait was given up
        self._next_round = 0.0  # when to listen to all neighbours again
        self.neighbours: dict[int, None] = {}  # in the order in which they are told
        self.meet({(rank - 1) % nodes, (rank + 1) % nodes})

    def meet(self, peers: Iterable[int]) -> None:
        """Make neighbours of `peers`, too: their control messages are heard, and they are told this rank's.

        To be done on both sides, before the first message between them is waited for. Whom this rank knows,
        and itself, are left out. Raises ValueError for a rank that there is not.
        """
        for peer in sorted(set(peers) - {self.rank} - self.neighbours.keys()):
            if not 0 <= peer < self.nodes:
                raise ValueError(f"expected ranks of 0 to {self.nodes - 1} to meet, got {peer}")
            self.neighbours[peer] = None
            self.post_recv(peer, CONTROL_TAG, CONTROL_CAP)

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """Make room for one message of up to `cap` bytes; those of one (peer, tag) come in order.

        Raises ValueError for a peer that this rank has not met: nobody would hear that it fails.
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
        """Do what `post_recv` does for a message as it is on the wire."""

    @abstractmethod
    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        """Start to send a message as it is on the wire; `parts` follow each other, and must not change."""

    @abstractmethod
    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        """Return the expected message, if it has arrived; if it never will, note the peer in `dead`."""

    @abstractmethod
    def _unsent(self) -> list[tuple[int, int]]:
        """Return (peer, tag) of every message that is still on its way out, the oldest first."""

    @abstractmethod
    def _pause(self, tries: int) -> None:
        """Sleep, or wait for something to arrive, after `tries` looks in vain."""

    def _ends_by(self, work: Callable[..., object], *args: Any) -> None:
        """Have work(*args) give back what the library lent, once: by `close`, or with the last reference.

        At the latest it runs at exit, before the libraries' teardown: a thread that waits then is fatal.
        """
        self._ending = weakref.finalize(self, work, *args)

    @property
    def closed(self) -> bool:
        """Whether `close` was called: nothing can be sent or received any more."""
        return not self._ending.alive

    def close(self) -> None:
        """Give back what the library lent; may be repeated, raises nothing. Exit does it, too."""
        self._ending()

    def check_open(self) -> None:
        """Raise TransportError once this transport is closed."""
        if self.closed:
            raise TransportError(CLOSED, peer=-1, kind="aborted")

    def _wire_bytes(self, tag: int, size: int) -> int:
        """Return how many bytes a message of `size` bytes has on the wire."""
        return size + (_SEAL.size if tag >= GATHER_TAGS[0] else 0)

    def _seal(self, peer: int, tag: int, message: Bytes) -> tuple[Bytes, ...]:
        """Return a message to `peer` as it goes on the wire, in parts."""
        return (_SEAL.pack(zlib.crc32(message)), message) if tag >= GATHER_TAGS[0] else (message,)

    def _open(self, peer: int, tag: int, came: memoryview) -> memoryview:
        """Return the message that `peer` sealed; raises TransportError where it is not what was sent."""
        if tag < GATHER_TAGS[0]:
            return came
        message = came[_SEAL.size :]
        if len(came) < _SEAL.size or _SEAL.unpack_from(came) != (zlib.crc32(message),):
            text = f"a message of {len(message)} bytes (tag {tag}) from rank {peer} was damaged on the way"
            raise TransportError(f"{text}: its CRC-32 does not fit", peer=peer, kind="aborted", tag=tag)
        return message

    def _take(self, peer: int, tag: int) -> memoryview | None:
        """Return the message posted for, if it has arrived; raises TransportError for a damaged one."""
        came = self._arrived(peer, tag)
        return None if came is None else self._open(peer, tag, came)

    def part(self, deadline: float) -> None:
        """Wait until every rank has all that it waits for; collective, the last thing before a rank goes.

        A process that ends with bytes unread resets its connections, and others lose what they had not read
        yet. Where a rank has gone already there is nothing to wait for. Raises nothing.
        """
        with contextlib.suppress(TransportError):
            self.gather(b"", PART_CAP, deadline, "the end")

    def leave(self, status: int) -> NoReturn:
        """End this process at once, after a failure: the library's own clean-up must not hold it up."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def survivors(self, timeout_s: float = 60.0) -> Transport:
        """Return a transport between those that are left after a rank died; collective among them.

        timeout_s: how late one may be. Raises TransportError where nobody is known to have died, or
        the library cannot tell.
        """
        raise TransportError(
            f"{type(self).__name__} cannot go on without a rank; set transport.survive to false",
            peer=-1,
            kind="dead",
        )

    def wait(self, peer: int, tag: int, deadline: float, what: str = "a message") -> memoryview:
        """Return the message from `peer`, valid until its (peer, tag) is posted again.

        deadline: of time.monotonic. what: names in words what is waited for, for errors here and elsewhere.
        Raises TransportError when `peer` is gone or silent, or a neighbour gave up.
        """
        wait = Wait(self, peer, tag, deadline, what)
        while True:
            frame = self._take(peer, tag)
            if frame is not None:
                return frame
            wait.go_on()

    def flush(self, deadline: float) -> None:
        """Return when all that was sent has left; raises TransportError where a peer does not take it.

        Signs of life are not waited for: a peer reads them when it waits for something itself.
        """
        wait: Wait | None = None
        while unsent := [(peer, tag) for peer, tag in self._unsent() if tag != CONTROL_TAG]:
            if wait is None or wait.peer != unsent[0][0]:
                wait = Wait(self, *unsent[0], deadline, "room for what was sent")
            wait.go_on()

    def abort(self, notice: Notice) -> None:
        """Tell the neighbours why this rank gives up; takes at most `ABORT_S`, raises nothing."""
        stop, tries = time.monotonic() + ABORT_S, 0
        self._tell(notice.pack(), stop)
        try:
            while self._telling() and time.monotonic() < stop:
                self._pause(tries)
                tries += 1
        except Exception:  # a dead neighbour; the other one knows
            return

    def gather(self, mine: bytes, cap: int, deadline: float, what: str) -> list[bytes]:
        """Return every rank's message, by rank: N - 1 hops around the ring.

        mine: up to `cap` bytes; cap: equal on all ranks. Raises TransportError like `wait`.
        """
        if len(mine) > cap:
            raise ValueError(f"expected at most {cap} bytes to gather, got {len(mine)}")
        every = [b""] * self.nodes
        every[self.rank] = mine

        def keep(hop: int, came: memoryview) -> None:
            every[(self.rank - hop - 1) % self.nodes] = bytes(came)

        self.circulate(
            self.nodes - 1, cap, deadline, what, lambda hop: every[(self.rank - hop) % self.nodes], keep
        )
        return every

    def circulate(
        self,
        hops: int,
        cap: int,
        deadline: float,
        what: str,
        give: Callable[[int], Bytes],
        keep: Callable[[int, memoryview], None],
    ) -> None:
        """Send give(hop) to the next rank, hand what the one before sent to keep(hop, message), `hops` times.

        give may return what was kept a hop before. cap: bytes of a message at most, equal on all ranks.
        Raises TransportError like `wait`.
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
        """Send messages[r] straight to each rank r; return what every rank sent to this one, by rank.

        caps: bytes that each rank sends at most. All ranks must have met. Raises TransportError like `wait`.
        """
        others = [(self.rank + step) % self.nodes for step in range(1, self.nodes)]
        for source in reversed(others):
            self.post_recv(source, EXCHANGE_TAG, caps[source])
        for to in others:
            self.post_send(to, EXCHANGE_TAG, messages[to])
        came = [bytes(messages[self.rank])] * self.nodes
        for source in reversed(others):
            came[source] = bytes(self.wait(source, EXCHANGE_TAG, deadline, what))
        self.flush(deadline)
        return came

    def _telling(self) -> bool:
        """Whether a control message is under way to a peer that may be there to take it."""
        return any(tag == CONTROL_TAG and peer not in self._silent for peer, tag in self._unsent())

    def _tell(self, message: bytes, stop: float = math.inf) -> None:
        """Start to send a control message to all neighbours; after `stop`, of time.monotonic, to no more."""
        for peer in self.neighbours:
            if peer not in self.dead and time.monotonic() < stop:
                with contextlib.suppress(Exception):  # a rank that waits for this peer finds out why
                    self.post_send(peer, CONTROL_TAG, message)

    def _listen(self, peer: int) -> None:
        """Read control messages: of `peer` at once, of all neighbours in rounds that cost a wait little.

        Raises TransportError for a notice of abort.
        """
        begin = time.monotonic()
        if begin < self._next_round:
            self._hear(peer)
            return
        for each in (peer, *self.neighbours):
            self._hear(each)
        end = time.monotonic()
        self._next_round = end + min(ROUND_S, (LISTENING - 1) * (end - begin))

    def _hear(self, peer: int) -> None:
        while (came := self._take(peer, CONTROL_TAG)) is not None:
            message = bytes(came)
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
