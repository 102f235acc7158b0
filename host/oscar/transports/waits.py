"""The clock of a wait for one peer, the error of a wait that gives up, and the notice for the other ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from oscar.errors import OscarError

if TYPE_CHECKING:
    from oscar.transports.base import Transport

CONTROL_CAP = 4096  # bytes of a control message
REASON_CHARS = 2000  # characters of a notice's reason; as JSON, printable text of this length fits the cap

Kind = Literal["dead", "silent", "aborted"]
PATIENCE = 0.8  # share of the timeout; a peer that gave no sign of life by then is silent
SIGN_AFTER = 0.5  # share of the timeout; a rank that waits longer tells its neighbours that it is alive
LAST_WORDS_S = 0.2  # seconds in which the last notice of a dead peer may still arrive


@dataclass(frozen=True)
class Notice:
    """A rank's notice that it gives up.

    rank: rank that noticed the fault.
    peer: rank at fault (-1: none).
    step, chunk: place in the AllReduce (-1: none).
    reason: the whole message.
    """

    rank: int
    peer: int
    step: int
    chunk: int
    reason: str

    def pack(self) -> bytes:
        """Return the notice as a control message; cut a reason that is too long."""
        fields = asdict(self)
        for length in (REASON_CHARS, REASON_CHARS // 8):
            fields["reason"] = self.reason[:length]
            message = json.dumps({"abort": fields}).encode()
            if len(message) <= CONTROL_CAP:
                break
        return message

    @classmethod
    def unpack(cls, fields: Any) -> Notice:
        """Return the notice with fields that `pack` wrote. Raises TypeError or KeyError for other fields."""
        kinds = {"rank": int, "peer": int, "step": int, "chunk": int, "reason": str}
        if any(type(fields[name]) is not kind for name, kind in kinds.items()):
            raise TypeError("expected four integers and a text")
        return cls(**fields)


class TransportError(OscarError):
    """A peer is dead, is silent past the deadline, or gave up.

    peer: the rank at fault. tag: tag of the awaited or unsent message. notice: the notice of a peer that gave
    up, else None.
    """

    def __init__(
        self, text: str, *, peer: int, kind: Kind, tag: int = -1, notice: Notice | None = None
    ) -> None:
        super().__init__(text)
        self.peer, self.kind, self.tag, self.notice = peer, kind, tag, notice


class AnyWait:
    """The clock of a wait for a message of any of several peers; their deaths are no error.

    It sends a sign of life, listens for notices, and gives up at the deadline.
    """

    tag = -1

    def __init__(self, transport: Transport, deadline: float, what: str) -> None:
        self.transport, self.what = transport, what
        self.begin = time.monotonic()
        self.span = max(0.0, deadline - self.begin)
        self.told = False
        self.tries = 0

    def go_on(self, peers: Sequence[int]) -> None:
        """Pause. Raises TransportError once one of `peers` is silent, or a neighbour gave up."""
        self._listen(peers[0])
        self._check(peers)

    def _listen(self, peer: int) -> None:
        self.transport.check_open()
        self.transport._listen(peer)

    def _check(self, peers: Sequence[int]) -> None:
        transport, passed = self.transport, time.monotonic() - self.begin
        if passed > SIGN_AFTER * self.span and not self.told:
            self.told = True
            transport._tell(json.dumps({"waiting": self.what[:REASON_CHARS]}).encode())
        signs = {peer: transport._signs.get(peer, (0.0, "")) for peer in peers}
        mute = [peer for peer, (when, _) in signs.items() if when < self.begin]
        if passed >= self.span * (PATIENCE if mute else 1.0):
            peer = (mute or peers)[0]
            also = "" if mute else f" (it is alive, and itself waits for {signs[peer][1]})"
            transport._silent.add(peer)
            raise TransportError(
                f"rank {peer} was silent for {passed:.1f} s{also}", peer=peer, kind="silent", tag=self.tag
            )
        self._pause()

    def _pause(self) -> None:
        self.transport._pause(self.tries)
        self.tries += 1


class Wait(AnyWait):
    """The clock of a wait for one peer, whose death is an error."""

    def __init__(self, transport: Transport, peer: int, tag: int, deadline: float, what: str) -> None:
        super().__init__(transport, deadline, what)
        self.peer, self.tag = peer, tag
        self.gone = 0.0  # when the peer was found dead

    def go_on(self, peers: Sequence[int] = ()) -> None:
        """Pause. Raises TransportError once the peer is dead or silent, or a neighbour gave up."""
        self._listen(self.peer)
        if self.peer in self.transport.dead:
            self._dead(self.transport.dead[self.peer])
        else:
            self._check((self.peer,))

    def _dead(self, why: str) -> None:
        """Pause, so that a dead peer's last messages can arrive; raise TransportError after LAST_WORDS_S."""
        now = time.monotonic()
        self.gone = self.gone or now
        if now >= self.gone + LAST_WORDS_S:
            raise TransportError(f"rank {self.peer} died ({why})", peer=self.peer, kind="dead", tag=self.tag)
        self._pause()
