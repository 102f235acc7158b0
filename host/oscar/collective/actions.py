"""The actions of a node in an AllReduce (docs/reference/protocol.md, "Schedule").

A schedule yields actions, a node performs them, an executor drives both. An action names ranks, steps, chunks
and sub-frames. It holds no values, no bytes and no times.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

MAX_SUBFRAMES = 64
MAX_SLOTS = 510  # most chunks that one directed link carries: a ring of 256 ranks needs 2 * 255


class Phase(IntEnum):
    """A half of an AllReduce."""

    REDUCE_SCATTER = 0
    ALL_GATHER = 1


class Op(IntEnum):
    """The kind of an action. ENCODE, DECODE_ADD and DECODE occupy the codec, SEND and FORWARD the link."""

    POST_RECV = 0  # make room for the frame that `peer` will send
    ENCODE = 1  # code a sub-frame of the partial sum into a frame
    SEND = 2  # send the frame that was just encoded to `peer`
    WAIT = 3  # wait until the frame from `peer` has arrived
    DECODE_ADD = 4  # decode the frame and add its values to the partial sum
    DECODE = 5  # decode the frame and take its values as the final sum
    FORWARD = 6  # send a received frame on to `peer`, its bytes unchanged
    ADOPT = 7  # decode this owner's own final frame, so that a lossy codec leaves all nodes identical


SENDS = (Op.SEND, Op.FORWARD)


class Action(NamedTuple):
    """An action of one node with one frame.

    op: kind of the action.
    phase: half of the AllReduce.
    step: number within the phase; each schedule says what it counts.
    chunk, sub: number of the chunk, and of the sub-frame in it.
    peer: rank at the other end of the link; -1 for an action without a link.
    source: rank that encoded the frame. A forwarded frame comes from another rank than its source.
    table: number of the set of coding tables, which the frame's header carries.
    terms: bit r is set where the frame's sum includes the values of rank r.
    slot: position of this chunk among all chunks that cross the directed link, 0 to MAX_SLOTS - 1.
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
        """Number of workers whose values the frame sums."""
        return self.terms.bit_count()

    @property
    def place(self) -> str:
        """Step, phase and chunk in words, for messages."""
        half = "all-gather" if self.phase else "reduce-scatter"
        return f"step {self.step} of the {half}, chunk {self.chunk}"

    @property
    def tag(self) -> int:
        """Message tag, unique on one directed link. Tags from 32,640 on belong to the transports."""
        return self.slot * MAX_SUBFRAMES + self.sub
