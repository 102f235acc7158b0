"""Ring AllReduce as a pure generator of actions (docs/protocol.md, "Schedule").

One generator drives the in-process cluster, real transports, the RTL and the timing recurrence.
It knows ranks, steps, chunks and sub-frames; it never sees a value, a byte or a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

MAX_SUBFRAMES = 64


class Phase(IntEnum):
    """Half of an AllReduce."""

    REDUCE_SCATTER = 0
    ALL_GATHER = 1


class Op(IntEnum):
    """What a node does; ENCODE, DECODE_ADD and DECODE occupy the NIC's codec, SEND and FORWARD the link."""

    POST_RECV = 0  # make room for the frame of this key from `peer`
    ENCODE = 1  # code this sub-frame of the partial sum (or residual) into a frame
    SEND = 2  # give the frame just encoded to the link towards `peer`
    WAIT = 3  # until the frame of this key has arrived from `peer`
    DECODE_ADD = 4  # decode it and add it to the partial sum (or keep the residual)
    DECODE = 5  # decode it and adopt the values as final (forward all-gather)
    FORWARD = 6  # pass a received frame on to `peer`, its bytes unchanged
    ADOPT = 7  # owner decodes its own final frame, so that lossy codecs leave all nodes identical


@dataclass(frozen=True)
class Action:
    """One thing a node does. `step` counts within the phase, 0 .. nodes-2; `peer` is -1 without one."""

    op: Op
    phase: Phase
    step: int
    chunk: int
    sub: int
    peer: int = -1

    def ring_step(self, nodes: int) -> int:
        """Step counted over the whole AllReduce, 0 .. 2 * nodes - 3."""
        return self.phase * (nodes - 1) + self.step

    @property
    def tag(self) -> int:
        """Message tag, unique per (phase, step, sub) on one directed link; fits 16 bits up to 256 nodes."""
        return ((self.step << 1) | self.phase) * MAX_SUBFRAMES + self.sub


def ring_chunk_sent(rank: int, nodes: int, phase: Phase, step: int, *, boomerang: bool) -> int:
    """Chunk that `rank` sends at `step` of `phase`; it receives what its upstream peer sends."""
    if phase is Phase.REDUCE_SCATTER:
        return (rank - step) % nodes
    return (rank + 1 + step) % nodes if boomerang else (rank + 1 - step) % nodes


def ring_actions(
    rank: int,
    nodes: int,
    *,
    subframes: int,
    boomerang: bool = False,
    duplex: bool = False,
    adopt: bool = False,
) -> Iterator[Action]:
    """Yield what `rank` does in a ring AllReduce over `nodes`, each chunk cut into `subframes`.

    The reduce-scatter runs rank -> rank+1. The all-gather runs the same way and forwards final frames
    unchanged, or, with `boomerang`, runs rank -> rank-1 and sends the sum of what the receiver lacks.
    A received sub-frame is decoded, added, encoded and sent before the next one is waited for, so that
    transfers overlap with coding. `adopt` makes owners decode their own frames (lossy codecs).

    `duplex` runs both phases of a boomerang at once: what comes back are sums over the end of the ring
    (suffixes), which never depend on the reduce-scatter's sums over its beginning (prefixes). A node's
    result is its prefix, own values included, plus the suffix it received, either of which may come
    first: N-1 hops instead of 2(N-1). Each node splits the sum at another place, so that only integers,
    exact in any association, leave all nodes identical.

    Raises ValueError when the arguments do not describe a ring, or for `duplex` without `boomerang`.
    """
    if not 1 <= nodes <= 1024 or not 0 <= rank < nodes or not 1 <= subframes <= MAX_SUBFRAMES:
        raise ValueError(
            f"expected 0 <= rank < nodes <= 1024 and 1 <= subframes <= {MAX_SUBFRAMES}, "
            f"got rank={rank}, nodes={nodes}, subframes={subframes}"
        )
    check_gather(boomerang=boomerang, duplex=duplex)
    if nodes == 1:
        return
    yield from _posts(rank, nodes, subframes, boomerang)
    if duplex:
        yield from _sums(rank, nodes, subframes, tuple(Phase))
        return
    yield from _sums(rank, nodes, subframes, (Phase.REDUCE_SCATTER,))
    if boomerang:
        yield from _sums(rank, nodes, subframes, (Phase.ALL_GATHER,))
    else:
        yield from _forward(rank, nodes, subframes, adopt)


def check_gather(*, boomerang: bool, duplex: bool) -> None:
    """Raise ValueError unless the flags name one of the gathers forward, boomerang and duplex."""
    if duplex and not boomerang:
        raise ValueError(
            "duplex=True needs boomerang=True: final frames that are forwarded depend on the reduce-scatter"
        )


def _posts(rank: int, nodes: int, subframes: int, boomerang: bool) -> Iterator[Action]:
    """Post every receive up front: a frame never arrives where nobody made room for it."""
    left, right = (rank - 1) % nodes, (rank + 1) % nodes
    for phase in Phase:
        peer = right if boomerang and phase is Phase.ALL_GATHER else left
        for step in range(nodes - 1):
            chunk = ring_chunk_sent(peer, nodes, phase, step, boomerang=boomerang)
            for sub in range(subframes):
                yield Action(Op.POST_RECV, phase, step, chunk, sub, peer)


def _sums(rank: int, nodes: int, subframes: int, phases: tuple[Phase, ...]) -> Iterator[Action]:
    """Run `phases` at once; in each, every hop adds its own values to what came and sends the sum on.

    The reduce-scatter's partial sums travel to the right. The boomerang's residuals go back to the left:
    the owner of a chunk starts with its own local values, so that each hop codes only what the receiver
    lacks. The phases take turns by sub-frame: while one is on the wire, the other is coded.
    """
    left, right = (rank - 1) % nodes, (rank + 1) % nodes
    for step in range(nodes):
        for sub in range(subframes):
            for phase in phases:
                source, target = (left, right) if phase is Phase.REDUCE_SCATTER else (right, left)
                chunk = ring_chunk_sent(rank, nodes, phase, step, boomerang=True)
                if step > 0:
                    yield Action(Op.WAIT, phase, step - 1, chunk, sub, source)
                    yield Action(Op.DECODE_ADD, phase, step - 1, chunk, sub, source)
                if step < nodes - 1:
                    yield Action(Op.ENCODE, phase, step, chunk, sub)
                    yield Action(Op.SEND, phase, step, chunk, sub, target)


def _forward(rank: int, nodes: int, subframes: int, adopt: bool) -> Iterator[Action]:
    phase = Phase.ALL_GATHER
    left, right = (rank - 1) % nodes, (rank + 1) % nodes
    for step in range(nodes):
        chunk = (rank + 1 - step) % nodes
        for sub in range(subframes):
            if step == 0:
                yield Action(Op.ENCODE, phase, 0, chunk, sub)
                yield Action(Op.SEND, phase, 0, chunk, sub, right)
                if adopt:
                    yield Action(Op.ADOPT, phase, 0, chunk, sub)
                continue
            yield Action(Op.WAIT, phase, step - 1, chunk, sub, left)
            if step < nodes - 1:
                yield Action(Op.FORWARD, phase, step, chunk, sub, right)
            yield Action(Op.DECODE, phase, step - 1, chunk, sub, left)
