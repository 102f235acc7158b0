"""Time of one AllReduce from the very actions that nodes execute: the oracle for `recurrence`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oscar.allreduce.schedule import Action, Op, ring_actions
from oscar.errors import OscarError
from oscar.timing.link import LinkModel
from oscar.timing.sizes import Sizes, checked_sizes
from oscar.timing.spans import Span

_Key = tuple[int, int, int, int]  # phase, step, sender, sub-frame


@dataclass(frozen=True, eq=False)
class Replay:
    """Result of a replay: `total_s`, `finish_s` (float64 [N]) and, if asked for, the spans of all nodes."""

    total_s: float
    finish_s: NDArray[np.float64]
    spans: list[Span]


@dataclass
class _Node:
    """Where one rank stands: its three resources, and when values and frames are ready to use."""

    rank: int
    actions: Iterator[Action]
    blocked_on: Action | None = None
    encoder_free: float = 0.0
    decoder_free: float = 0.0
    link_free: float = 0.0
    waited_until: float = 0.0
    finish: float = 0.0
    values_ready: dict[tuple[int, int], float] = field(default_factory=dict)  # by chunk, sub-frame
    frame_ready: dict[tuple[int, int], float] = field(default_factory=dict)
    arrived: dict[tuple[int, int], float] = field(default_factory=dict)


class _Ring:
    """All nodes of one replay and the frames between them."""

    def __init__(self, sizes: Sizes, counts: Sizes, link: LinkModel, coded: bool, spans: bool) -> None:
        self.sizes, self.counts, self.link = sizes, counts, link
        self.per_value, self.encode_latency, self.decode_latency = link.codec_cost(coded)
        self.coded, self.keep = coded, spans
        self.arrival: dict[_Key, float] = {}
        self.spans: list[Span] = []

    def run(self, node: _Node) -> bool:
        """Carry out a node's actions up to a frame not yet sent; return whether any was carried out."""
        moved = False
        action = node.blocked_on or next(node.actions, None)
        while action is not None:
            if not self.carry_out(node, action):
                node.blocked_on = action
                return moved
            moved, node.blocked_on = True, None
            action = next(node.actions, None)
        return moved

    def carry_out(self, node: _Node, action: Action) -> bool:
        """Advance the clocks by one action; return False if it waits for a frame that is not sent yet."""
        receives = action.op in (Op.WAIT, Op.DECODE_ADD, Op.DECODE, Op.POST_RECV)
        sender = action.peer if receives else node.rank
        key = (int(action.phase), action.step, sender, action.sub)
        if action.op is Op.POST_RECV or self.counts[key] == 0:
            return True
        at = (action.chunk, action.sub)
        if action.op is Op.WAIT:
            if key not in self.arrival:
                return False
            node.arrived[at] = self.arrival[key]
            self._wait(node, action)
        elif action.op is Op.ENCODE:
            node.frame_ready[at] = self._encode(node, action, node.values_ready.get(at, 0.0), key)
        elif action.op in (Op.SEND, Op.FORWARD):
            ready = node.frame_ready[at] if action.op is Op.SEND else node.arrived[at]
            self._send(node, action, ready, key)
        else:
            ready = node.frame_ready[at] if action.op is Op.ADOPT else node.arrived[at]
            node.values_ready[at] = self._decode(node, action, ready, key)
        return True

    def _wait(self, node: _Node, action: Action) -> None:
        """Show as waiting the time in which the decoder has nothing to do until this frame is in."""
        start, until = max(node.decoder_free, node.waited_until), node.arrived[action.chunk, action.sub]
        node.waited_until = max(node.waited_until, until)
        if until > start:
            self._span(node, "wait", start, until - start, action)

    def _encode(self, node: _Node, action: Action, ready: float, key: _Key) -> float:
        start, cost = max(ready, node.encoder_free), self.counts[key] * self.per_value
        node.encoder_free = start + cost
        if self.coded:
            self._span(node, "encode", start, cost, action)
        return node.encoder_free + self.encode_latency

    def _decode(self, node: _Node, action: Action, ready: float, key: _Key) -> float:
        start, cost = max(ready, node.decoder_free), self.counts[key] * self.per_value
        node.decoder_free = start + cost
        if self.coded:
            self._span(node, "decode-add", start, cost, action)
        done = node.decoder_free + self.decode_latency
        node.finish = max(node.finish, done)
        return done

    def _send(self, node: _Node, action: Action, ready: float, key: _Key) -> None:
        start, cost = max(ready, node.link_free), self.sizes[key] * self.link.seconds_per_byte
        node.link_free = start + cost
        node.finish = max(node.finish, node.link_free)
        self.arrival[key] = node.link_free + self.link.latency_s
        self._span(node, "send", start, cost, action)

    def _span(self, node: _Node, stage: str, start: float, duration: float, action: Action) -> None:
        if self.keep:
            where = (int(action.phase), action.step, action.chunk, action.sub)
            self.spans.append(Span(node.rank, stage, float(start), float(duration), *where))


def replay(
    frame_bytes: ArrayLike,
    counts: ArrayLike,
    link: LinkModel,
    *,
    boomerang: bool = False,
    duplex: bool = False,
    adopt: bool = False,
    coded: bool = True,
    spans: bool = False,
) -> Replay:
    """Evaluate when everything happens in one ring AllReduce, from the actions of `ring_actions`.

    `frame_bytes`, `counts`: integers [phase 2, step N-1, sender N, sub-frame K]; a frame without values is
    not sent, and its actions cost nothing. `coded` false: raw floats, no codec. An action starts once
    its input is ready and its engine or link has done what the program asked of it before; with
    `duplex` both phases share these. A node finishes when it has its last values and its last frame has
    left.

    Raises TypeError or ValueError for tables that describe no ring or `duplex` without `boomerang`,
    OscarError if the schedule deadlocks.
    """
    sizes, values = checked_sizes(frame_bytes, counts, boomerang=boomerang)
    total, subs = values.shape[2:]
    ring = _Ring(sizes, values, link, coded, spans)
    nodes = [
        _Node(
            rank, ring_actions(rank, total, subframes=subs, boomerang=boomerang, duplex=duplex, adopt=adopt)
        )
        for rank in range(total)
    ]
    while any(ring.run(node) for node in nodes):
        pass
    stuck = {node.rank: node.blocked_on for node in nodes if node.blocked_on is not None}
    if stuck:
        raise OscarError(
            f"expected a send for every wait, got ranks waiting for ever: {stuck}; fix the schedule"
        )
    finish = np.array([node.finish for node in nodes])
    return Replay(float(finish.max()), finish, ring.spans)
