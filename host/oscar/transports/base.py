"""The transport contract (docs/transports.md), and what all transports share: deadlines, notices, gathers."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn

from oscar.errors import OscarError

GATHER_TAGS = (32640, 32641)  # frames have lower tags (Action.tag) and a CRC-32 of their own
STATE_TAG = 32642  # of digests of the replicated state
CONTROL_TAG = 32767  # the largest tag that every MPI has
KEYED_CONTROL_TAG = 32766  # of control messages under a key: never confused with earlier plain ones
CONTROL_TAGS = (KEYED_CONTROL_TAG, CONTROL_TAG)
CONTROL_CAP = 4096  # bytes of a control message
PART_CAP = 16  # bytes of the message of `part`, which is empty
REASON_CHARS = 2000  # of a notice; as JSON, printable text of this length fits the cap
PATIENCE = 0.8  # of the time given; a peer without a sign of life by then is silent
SIGN_AFTER = 0.5  # of the time given; a rank that still waits then says that it is alive
LAST_WORDS_S = 0.2  # how long the last notice of a dead peer may take to arrive
ABORT_S = 1.0  # how long sending an abort may take
PEER_FAILED = 75  # exit status EX_TEMPFAIL: start again

Bytes = bytes | bytearray | memoryview
Kind = Literal["dead", "silent", "aborted"]
_SEAL = struct.Struct("<I")  # CRC-32 (IEEE) of the message behind it


@dataclass(frozen=True)
class Notice:
    """Why a rank gives up: who noticed, which peer is at fault (-1: none), where, and the whole text."""

    rank: int
    peer: int
    step: int
    chunk: int
    reason: str

    def pack(self) -> bytes:
        """Return the control message; a reason that is too long is cut."""
        fields = asdict(self)
        for length in (REASON_CHARS, REASON_CHARS // 8):
            fields["reason"] = self.reason[:length]
            message = json.dumps({"abort": fields}).encode()
            if len(message) <= CONTROL_CAP:
                break
        return message

    @classmethod
    def unpack(cls, fields: Any) -> Notice:
        """Return the notice of which `pack` wrote these fields; raises TypeError or KeyError for others."""
        kinds = {"rank": int, "peer": int, "step": int, "chunk": int, "reason": str}
        if any(type(fields[name]) is not kind for name, kind in kinds.items()):
            raise TypeError("expected four integers and a text")
        return cls(**fields)


class TransportError(OscarError):
    """A peer is dead, silent past the deadline, or gave up; `notice` says why it gave up.

    tag: of the message that was waited for, or could not be sent.
    """

    def __init__(
        self, text: str, *, peer: int, kind: Kind, tag: int = -1, notice: Notice | None = None
    ) -> None:
        super().__init__(text)
        self.peer, self.kind, self.tag, self.notice = peer, kind, tag, notice


class Transport(ABC):
    """One rank's end of all links; a subclass moves bytes, this class seals them and waits for them.

    A subclass sets up its library, calls `__init__` here last, and puts peers that it knows to be gone
    into `dead`. `rank` and `nodes` are the ring's. `keyed`: whether all that it sends is encrypted and
    authenticated. `can_survive`: whether `survivors` may work here, as far as can be told beforehand.
    Every message but frames, which have a checksum of their own, has a CRC-32 in front of it on the wire.
    """

    keyed = False
    can_survive = False

    def __init__(self, rank: int, nodes: int) -> None:
        self.rank, self.nodes = rank, nodes
        self.dead: dict[int, str] = {}  # peer -> why it is taken for dead
        self._signs: dict[int, tuple[float, str]] = {}  # peer -> when it said that it waits, and for what
        self.was_told = False  # by a neighbour, that the ring has ended
        self._silent: set[int] = set()  # peers for which a wait was given up
        left, right = (rank - 1) % nodes, (rank + 1) % nodes
        self.neighbours = tuple({left, right} - {rank})
        for peer in self.neighbours:
            self.post_recv(peer, CONTROL_TAG, CONTROL_CAP)

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """Make room for one message of up to `cap` bytes; those of one (peer, tag) come in order."""
        self._make_room(peer, tag, cap + self._seal_bytes(tag))

    def post_send(self, peer: int, tag: int, frame: Bytes) -> None:
        """Start to send `frame`, which must not change until `flush` has returned."""
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

    @abstractmethod
    def close(self) -> None:
        """Give back what the library lent; raises nothing."""

    def _seal_bytes(self, tag: int) -> int:
        """Return how many bytes longer a message of `tag` is on the wire."""
        return _SEAL.size if tag >= GATHER_TAGS[0] else 0

    def _seal(self, peer: int, tag: int, message: Bytes) -> tuple[Bytes, ...]:
        """Return a message to `peer` as it goes on the wire, in parts."""
        return (_SEAL.pack(zlib.crc32(message)), message) if self._seal_bytes(tag) else (message,)

    def _open(self, peer: int, tag: int, came: memoryview) -> memoryview:
        """Return the message that `peer` sealed; raises TransportError where it is not what was sent."""
        if not self._seal_bytes(tag):
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
        wait = _Wait(self, peer, tag, deadline, what)
        while True:
            frame = self._take(peer, tag)
            if frame is not None:
                return frame
            wait.go_on()

    def flush(self, deadline: float) -> None:
        """Return when all that was sent has left; raises TransportError where a peer does not take it."""
        wait: _Wait | None = None
        while unsent := self._unsent():
            if wait is None or wait.peer != unsent[0][0]:
                wait = _Wait(self, *unsent[0], deadline, "room for what was sent")
            wait.go_on()

    def abort(self, notice: Notice) -> None:
        """Tell the neighbours why this rank gives up; takes at most `ABORT_S`, raises nothing."""
        self._tell(notice.pack())
        stop, tries = time.monotonic() + ABORT_S, 0
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

    def _telling(self) -> bool:
        """Whether a control message is under way to a peer that may be there to take it."""
        return any(tag == CONTROL_TAG and peer not in self._silent for peer, tag in self._unsent())

    def _tell(self, message: bytes) -> None:
        for peer in self.neighbours:
            if peer not in self.dead:
                with contextlib.suppress(Exception):  # a rank that waits for this peer finds out why
                    self.post_send(peer, CONTROL_TAG, message)

    def _listen(self) -> None:
        """Read control messages; raises TransportError for a notice of abort."""
        for peer in self.neighbours:
            while (message := self._take(peer, CONTROL_TAG)) is not None:
                self._understand(peer, bytes(message))
                if peer in self.dead:
                    break
                self.post_recv(peer, CONTROL_TAG, CONTROL_CAP)

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


class _Wait:
    """The clock of one wait: it shows signs of life, listens, and gives up where there is no hope."""

    def __init__(self, transport: Transport, peer: int, tag: int, deadline: float, what: str) -> None:
        self.transport, self.peer, self.tag, self.what = transport, peer, tag, what
        self.begin = time.monotonic()
        self.span = max(0.0, deadline - self.begin)
        self.told = False
        self.tries = 0

    def go_on(self) -> None:
        """Pause; raises TransportError when waiting longer is useless."""
        transport, peer = self.transport, self.peer
        transport._listen()
        passed = time.monotonic() - self.begin
        if peer in transport.dead:
            self._dead(transport.dead[peer])
        if passed > SIGN_AFTER * self.span and not self.told:
            self.told = True
            transport._tell(json.dumps({"waiting": self.what[:REASON_CHARS]}).encode())
        when, what = transport._signs.get(peer, (0.0, ""))
        alive = when >= self.begin
        if passed >= self.span * (1.0 if alive else PATIENCE):
            transport._silent.add(peer)
            also = f" (it is alive, and itself waits for {what})" if alive else ""
            raise TransportError(
                f"rank {peer} was silent for {passed:.1f} s{also}", peer=peer, kind="silent", tag=self.tag
            )
        transport._pause(self.tries)
        self.tries += 1

    def _dead(self, why: str) -> None:
        """Let the peer's last messages arrive, then raise TransportError."""
        transport, stop = self.transport, time.monotonic() + LAST_WORDS_S
        while time.monotonic() < stop:
            transport._listen()
            transport._pause(self.tries)
            self.tries += 1
        raise TransportError(f"rank {self.peer} died ({why})", peer=self.peer, kind="dead", tag=self.tag)
