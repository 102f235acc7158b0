"""The clock of a wait for one peer."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from oscar.transports.notices import REASON_CHARS, TransportError

if TYPE_CHECKING:
    from oscar.transports.base import Transport

PATIENCE = 0.8  # of the time given; a peer without a sign of life by then is silent
SIGN_AFTER = 0.5  # of the time given; a rank that still waits then says that it is alive
LAST_WORDS_S = 0.2  # how long the last notice of a dead peer may take to arrive


class Wait:
    """The clock of one wait: it shows signs of life, listens, and gives up where there is no hope."""

    def __init__(self, transport: Transport, peer: int, tag: int, deadline: float, what: str) -> None:
        self.transport, self.peer, self.tag, self.what = transport, peer, tag, what
        self.begin = time.monotonic()
        self.span = max(0.0, deadline - self.begin)
        self.told = False
        self.gone = 0.0  # when the peer was found dead
        self.tries = 0

    def go_on(self) -> None:
        """Pause; raises TransportError when waiting longer is useless."""
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
        """Pause, so that the peer's last messages arrive; raise TransportError once they had time for it."""
        now = time.monotonic()
        self.gone = self.gone or now
        if now < self.gone + LAST_WORDS_S:
            self.transport._pause(self.tries)
            self.tries += 1
            return
        raise TransportError(f"rank {self.peer} died ({why})", peer=self.peer, kind="dead", tag=self.tag)
