"""An all-to-all exchange: every rank has a buffer for every other rank and sends it directly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from oscar.array import Array
from oscar.collective.actions import Action, Op, Phase
from oscar.collective.frames import ROW, Frames
from oscar.collective.schedule import Schedule


@dataclass(frozen=True)
class HandOver(Schedule):
    """An all-to-all exchange as a schedule, for the time model. Rank r sends to r+1, r+2, and so on.

    No codec is involved and nothing is summed. Chunk s N + d is the buffer of rank s for rank d.
    """

    name: ClassVar[str] = "hand-over"

    @property
    def owners(self) -> tuple[int, ...]:
        return tuple(chunk % self.nodes for chunk in range(self.nodes * self.nodes))

    @property
    def hops(self) -> int:
        return 1 if self.nodes > 1 else 0

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions."""
        n = self.nodes
        for step in range(n - 1):
            source = (rank - step - 1) % n
            yield self._action(Op.POST_RECV, step, source, rank, peer=source)
        for step in range(n - 1):
            to = (rank + step + 1) % n
            yield self._action(Op.ENCODE, step, rank, to)
            yield self._action(Op.SEND, step, rank, to, peer=to)
        for step in range(n - 1):
            source = (rank - step - 1) % n
            yield self._action(Op.WAIT, step, source, rank, peer=source)
            yield self._action(Op.DECODE, step, source, rank)

    def _action(self, op: Op, step: int, source: int, to: int, *, peer: int = -1) -> Action:
        chunk = source * self.nodes + to
        return Action(op, Phase.REDUCE_SCATTER, step, chunk, 0, peer, source, terms=1 << source, slot=0)


def handed_over(lengths: Array, header: int) -> Frames:
    """Return the frames of an exchange in which rank s sends `lengths[s, d]` bytes to rank d.

    header: bytes added to each frame. Empty buffers, and buffers for the rank itself, are not sent.
    """
    nodes = len(lengths)
    sender, receiver = np.nonzero(lengths * (1 - np.eye(nodes, dtype=np.int64)))
    rows = np.zeros(sender.size, ROW)
    rows["sender"], rows["receiver"], rows["terms"] = sender, receiver, 1
    rows["step"], rows["chunk"] = (receiver - sender - 1) % nodes, sender * nodes + receiver
    rows["count"] = lengths[sender, receiver]
    rows["bytes"] = rows["count"] + header
    return Frames.of(rows)
