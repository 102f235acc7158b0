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


class Wait:
    """The clock of one wait. It sends a sign of life, listens for notices, and gives up at the deadline."""

    def __init__(self, transport: Transport, peer: int, tag: int, deadline: float, what: str) -> None:
        self.transport, self.peer, self.tag, self.what = transport, peer, tag, what
        self.begin = time.monotonic()
        self.span = max(0.0, deadline - self.begin)
        self.told = False
        self.gone = 0.0  # when the peer was found dead
        self.tries = 0

    def go_on(self) -> None:
        """Pause. Raises TransportError once the peer is dead or silent, or a neighbour gave up."""
        transport, peer = self.transport, self.peer
        transport.check_open()
        transport._listen(self.peer)
        passed = time.monotonic() - self.begin
        if peer in transport.dead:
            self._dead(transport.dead[peer])
            return
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
        """Pause, so that a dead peer's last messages can arrive; raise TransportError after LAST_WORDS_S."""
        now = time.monotonic()
        self.gone = self.gone or now
        if now < self.gone + LAST_WORDS_S:
            self.transport._pause(self.tries)
            self.tries += 1
            return
        raise TransportError(f"rank {self.peer} died ({why})", peer=self.peer, kind="dead", tag=self.tag)


class AnyWait:
    """The clock of a wait for a message of any of several peers; their deaths are no error."""

    def __init__(self, transport: Transport, deadline: float, what: str) -> None:
        self.transport, self.what = transport, what
        self.begin = time.monotonic()
        self.span = max(0.0, deadline - self.begin)
        self.told = False
        self.tries = 0

    def go_on(self, peers: Sequence[int]) -> None:
        """Pause. Raises TransportError if a neighbour gave up, and once one of `peers` is silent for too long."""
        transport = self.transport
        transport.check_open()
        transport._listen(next(iter(transport.neighbours), transport.rank))
        passed = time.monotonic() - self.begin
        if passed > SIGN_AFTER * self.span and not self.told:
            self.told = True
            transport._tell(json.dumps({"waiting": self.what[:REASON_CHARS]}).encode())
        mute = [peer for peer in peers if transport._signs.get(peer, (0.0, ""))[0] < self.begin]
        if passed >= self.span or (mute and passed >= PATIENCE * self.span):
            peer = mute[0] if mute else peers[0] if peers else -1
            transport._silent.add(peer)
            raise TransportError(f"rank {peer} was silent for {passed:.1f} s", peer=peer, kind="silent")
        transport._pause(self.tries)
        self.tries += 1
