"""Time of one AllReduce from the actions that nodes execute: the oracle for `recurrence`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oscar.collective.actions import SENDS, Action, Op
from oscar.collective.gather import FORWARD, Gather
from oscar.collective.ring import ring_actions
from oscar.errors import OscarError
from oscar.timeline.link import LinkModel
from oscar.timeline.sizes import Sizes, checked_sizes, cut_for
from oscar.timeline.spans import Span

ROUNDING = 1e-12  # of a time: a frame that follows another without a gap does not wait
_Key = tuple[int, int, int, int]  # phase, step, sender, sub-frame
_Work = tuple[int, int, int]  # phase, chunk, sub-frame


@dataclass(frozen=True, eq=False)
class Replay:
    """Result of a replay: `total_s`, `finish_s` (float64 [N]) and, if asked for, the spans of all nodes.

    `received` int64 [N]: bytes that each node's port received; `met_s`: how long frames waited there in all,
    because another one was coming in.
    """

    total_s: float
    finish_s: NDArray[np.float64]
    received: NDArray[np.int64]
    met_s: float
    spans: list[Span]


@dataclass
class _Engine:
    """An encoder and a decoder, or an engine that is both; `last`: the sum decoded last, and its start."""

    encoder_free: float = 0.0
    decoder_free: float = 0.0
    last: tuple[_Work, float] | None = None


@dataclass
class _Node:
    """Where one rank stands: its resources, and when values and frames are ready to use."""

    rank: int
    actions: Iterator[Action]
    engines: list[_Engine]
    next: Action | None = None
    link_free: float = 0.0
    ingress_free: float = 0.0
    waited_until: float = 0.0
    finish: float = 0.0
    received: int = 0
    values_ready: dict[tuple[int, int], float] = field(default_factory=dict)  # by chunk, sub-frame
    frame_ready: dict[tuple[int, int], float] = field(default_factory=dict)
    arrived: dict[tuple[int, int], float] = field(default_factory=dict)

    def engine(self, sub: int) -> _Engine:
        return self.engines[sub % len(self.engines)]


class _Network:
    """All nodes of one replay and the frames between them."""

    def __init__(self, nodes: list[_Node], sizes: Sizes, counts: Sizes, link: LinkModel, coded: bool) -> None:
        self.nodes, self.sizes, self.counts, self.link = nodes, sizes, counts, link
        self.codec, self.coded = link.codec(coded), coded
        self.arrival: dict[_Key, float] = {}
        self.met_s = 0.0
        self.spans: list[Span] | None = None
        self.sending: list[tuple[float, int]] = []  # a heap: when each node's next frame leaves, and its rank

    def run(self) -> None:
        """Carry out all actions; frames leave in order of time, and ports receive them in that order."""
        for node in self.nodes:
            self.advance(node)
        while self.sending:
            start, rank = heappop(self.sending)
            node = self.nodes[rank]
            assert node.next is not None
            receiver = self._send(node, node.next, start)
            node.next = None
            self.advance(node)
            if receiver is not node and receiver.next is not None and receiver.next.op is Op.WAIT:
                self.advance(receiver)

    def advance(self, node: _Node) -> None:
        """Carry out a node's actions up to the next frame that it sends, or that it waits for in vain."""
        while (action := node.next or next(node.actions, None)) is not None:
            node.next = action
            receives = action.op in (Op.WAIT, Op.DECODE_ADD, Op.DECODE, Op.POST_RECV)
            key = (int(action.phase), action.step, action.peer if receives else node.rank, action.sub)
            at = (action.chunk, action.sub)
            if self.counts[key] > 0:
                if action.op is Op.POST_RECV:
                    node.link_free += self.link.message_s
                elif action.op in SENDS:
                    ready = node.frame_ready[at] if action.op is Op.SEND else node.arrived[at]
                    heappush(self.sending, (max(ready, node.link_free), node.rank))
                    return
                elif action.op is Op.WAIT:
                    if key not in self.arrival:
                        return
                    node.arrived[at] = self.arrival[key]
                    self._wait(node, action)
                elif action.op is Op.ENCODE:
                    node.frame_ready[at] = self._encode(node, action, node.values_ready.get(at, 0.0), key)
                else:
                    ready = node.frame_ready[at] if action.op is Op.ADOPT else node.arrived[at]
                    node.values_ready[at] = self._decode(node, action, ready, key)
            node.next = None

    def _wait(self, node: _Node, action: Action) -> None:
        """Show as waiting the time in which the decoder has nothing to do until this frame is in."""
        free = node.engine(action.sub).decoder_free
        start, until = max(free, node.waited_until), node.arrived[action.chunk, action.sub]
        node.waited_until = max(node.waited_until, until)
        if until > start:
            self._span(node, "wait", start, until - start, action)

    def _encode(self, node: _Node, action: Action, ready: float, key: _Key) -> float:
        engine, codec = node.engine(action.sub), self.codec
        work = (int(action.phase), action.chunk, action.sub)
        start, cost = max(ready, engine.encoder_free), self.counts[key] * codec.encode_each
        done = start + cost + codec.encode_once
        if codec.busy and engine.last is not None and engine.last[0] == work:
            done = engine.last[1] + self.counts[key] * codec.hop_each + codec.hop_once
        if codec.busy:
            start, cost = min(start, done), max(0.0, done - start)
            engine.decoder_free = engine.encoder_free = done
        else:
            engine.encoder_free = start + cost
        engine.last = None
        if self.coded:
            self._span(node, "encode", start, cost, action)
        return done

    def _decode(self, node: _Node, action: Action, ready: float, key: _Key) -> float:
        engine, codec = node.engine(action.sub), self.codec
        start, cost = max(ready, engine.decoder_free), self.counts[key] * codec.decode_each
        done = start + cost + codec.decode_once
        if codec.busy:
            cost = done - start
            engine.decoder_free = engine.encoder_free = done
        else:
            engine.decoder_free = start + cost
        engine.last = (int(action.phase), action.chunk, action.sub), start
        if self.coded:
            self._span(node, "decode-add", start, cost, action)
        node.finish = max(node.finish, done)
        return done

    def _send(self, node: _Node, action: Action, start: float) -> _Node:
        """Put a frame on the wire, note when it arrives, and return its receiver."""
        key = (int(action.phase), action.step, node.rank, action.sub)
        cost = self.sizes[key] * self.link.seconds_per_byte
        node.link_free = start + cost
        node.finish = max(node.finish, node.link_free)
        receiver = self.nodes[action.peer]
        arrival = node.link_free + self.link.latency_s
        late = receiver.ingress_free + cost - arrival
        if late > ROUNDING * arrival:
            self.met_s += late
            arrival += late
        receiver.ingress_free = self.arrival[key] = arrival
        receiver.received += int(self.sizes[key])
        self._span(node, "send", start, cost, action)
        return receiver

    def _span(self, node: _Node, stage: str, start: float, duration: float, action: Action) -> None:
        if self.spans is not None:
            where = (int(action.phase), action.step, action.chunk, action.sub)
            codes = stage in ("encode", "decode-add")
            engine = action.sub % self.codec.engines if codes else 0
            self.spans.append(Span(node.rank, stage, float(start), float(duration), *where, engine))


def replay_actions(
    programs: Sequence[Iterable[Action]],
    frame_bytes: Sizes,
    counts: Sizes,
    link: LinkModel,
    *,
    coded: bool = True,
    spans: bool = False,
) -> Replay:
    """Evaluate when every action of `programs` happens; there is one program for each node.

    `frame_bytes`, `counts`: integers indexed by phase, step, sender and sub-frame; a frame without values is
    not sent, and its actions cost nothing. Raises OscarError if the schedule deadlocks.
    """
    engines = link.codec(coded).engines
    nodes = [
        _Node(rank, iter(actions), [_Engine() for _ in range(engines)])
        for rank, actions in enumerate(programs)
    ]
    network = _Network(nodes, frame_bytes, counts, link, coded)
    if spans:
        network.spans = []
    network.run()
    stuck = {node.rank: node.next for node in nodes if node.next is not None}
    if stuck:
        raise OscarError(
            f"expected a send for every wait, got ranks that wait for ever: {stuck}; fix the schedule"
        )
    finish = np.array([node.finish for node in nodes])
    received = np.array([node.received for node in nodes])
    return Replay(float(finish.max()), finish, received, network.met_s, network.spans or [])


def replay(
    frame_bytes: ArrayLike,
    counts: ArrayLike,
    link: LinkModel,
    gather: Gather = FORWARD,
    *,
    spans: bool = False,
) -> Replay:
    """Evaluate when everything happens in one ring AllReduce, from the actions of `ring_actions`.

    `frame_bytes`, `counts`: integers [phase 2, step N-1, sender N, sub-frame K]; a frame without values is
    not sent, and its actions cost nothing. An action starts once its input is ready and its engine or link
    has finished all earlier work of the program; both phases of duplex share these. A node finishes when
    it has its last values and its last frame has left.

    Raises TypeError or ValueError for tables that describe no ring, OscarError if the schedule deadlocks.
    """
    sizes, values = checked_sizes(frame_bytes, counts, gather)
    sizes, values = cut_for(sizes, values, link.codec(gather.coded).engines)
    total, subs = values.shape[2:]
    programs = [ring_actions(rank, total, subframes=subs, gather=gather) for rank in range(total)]
    return replay_actions(programs, sizes, values, link, coded=gather.coded, spans=spans)
