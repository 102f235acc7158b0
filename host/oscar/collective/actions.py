"""What a node does in an AllReduce, one action at a time (docs/protocol.md, "Schedule").

A schedule yields actions, a node performs them, an executor drives both. An action knows ranks, steps, chunks
and sub-frames; it never sees a value, a byte or a clock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

MAX_SUBFRAMES = 64
MAX_SLOTS = 510  # chunks on one directed link: as many as a ring of 256 ranks has in both phases


class Phase(IntEnum):
    """Half of an AllReduce."""

    REDUCE_SCATTER = 0
    ALL_GATHER = 1


class Op(IntEnum):
    """What a node does; ENCODE, DECODE_ADD and DECODE occupy the codec, SEND and FORWARD the link."""

    POST_RECV = 0  # make room for the frame of this key from `peer`
    ENCODE = 1  # code this sub-frame of the partial sum (or residual) into a frame
    SEND = 2  # give the frame just encoded to the link towards `peer`
    WAIT = 3  # until the frame of this key has arrived from `peer`
    DECODE_ADD = 4  # decode it and add it to the partial sum (or keep the residual)
    DECODE = 5  # decode it and adopt the values as final (forward all-gather)
    FORWARD = 6  # pass a received frame on to `peer`, its bytes unchanged
    ADOPT = 7  # owner decodes its own final frame, so that lossy codecs leave all nodes identical


SENDS = (Op.SEND, Op.FORWARD)


class Action(NamedTuple):
    """One thing a node does with one frame.

    step: within the phase; what it counts is the schedule's. peer: the rank at the other end of the wire, -1
    without one. source: the rank that encoded the frame; for a forwarded frame that is not the peer it came
    from. table: number of the coding tables, which the frame's header carries. terms: bit r is set where the
    frame sums rank r's values. slot: of the chunks that cross one directed link, in both phases, which one
    this is, 0 .. MAX_SLOTS - 1.
    """

    op: Op
    phase: Phase
    step: int
    chunk: int
    sub: int
    peer: int = -1
    source: int = -1
    table: int = 0
    terms: int = 0
    slot: int = 0

    @property
    def workers(self) -> int:
        """How many workers' values the frame sums."""
        return self.terms.bit_count()

    @property
    def place(self) -> str:
        """Where in the AllReduce this is, in words."""
        half = "all-gather" if self.phase else "reduce-scatter"
        return f"step {self.step} of the {half}, chunk {self.chunk}"

    @property
    def tag(self) -> int:
        """Message tag, unique on one directed link, below 32,640, where the transports' own tags begin."""
        return self.slot * MAX_SUBFRAMES + self.sub
