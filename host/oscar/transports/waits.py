"""The clock of a wait for one peer."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from oscar.transports.notices import REASON_CHARS, TransportError

if TYPE_CHECKING:
    from oscar.transports.base import Transport

PATIENCE = 0.8  # share of the timeout; a peer that gave no sign of life by then is silent
SIGN_AFTER = 0.5  # share of the timeout; a rank that waits longer tells its neighbours that it is alive
LAST_WORDS_S = 0.2  # seconds in which the last notice of a dead peer may still arrive


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
