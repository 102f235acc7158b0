"""Redundant tasks in modelled time: real frames, ports of a switch, workers of any speed.

Each rank's port sends one frame at a time and receives one, as in `oscar.timeline.link`; sums go before
tasks. The encoder and the decoder of a rank each serve one frame after the other. Adding, and the network,
are as fast on a slow worker as on another: only its tasks take longer. What a worker does when it gets the
last sum is left at once; a real one would end its micro-batch first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.coding.frame import peek
from oscar.timeline.link import LinkModel
from oscar_lab.rivals.redundant_nodes import RedundantNode
from oscar_lab.rivals.redundant_tasks import Kind, Redundancy, TaskMessage

ORDER = {Kind.AGAIN: 0, Kind.SUM: 1, Kind.TASK: 2}  # on a port with several frames to send


@dataclass(frozen=True)
class Lap:
    """One AllReduce. sums: in plan order, equal on all ranks.

    seconds: from the common begin until the last rank had all sums; covered_s: until the last owner had all
    tasks. finished: tasks done; drained: copies that came to owners and were not added, those of earlier laps
    included; frames, bytes: sent.
    """

    sums: Array
    seconds: float
    covered_s: float
    finished: int
    drained: int
    frames: int
    bytes: int


class _Port:
    """A rank's way out and in, its encoder and decoder, each with the time until which it is busy.

    queue: what waits to be sent. coded: the last frame: one that goes to many is coded once.
    """

    def __init__(self) -> None:
        self.out = self.into = self.encoder = self.decoder = 0.0
        self.queue: list[tuple[int, int, int, TaskMessage]] = []
        self.coded = b""


class Race:
    """Ranks that run AllReduces one after the other; all begin each one together.

    codec, width: see RedundantNode; link: every rank's port and codec, without cores.
    """

    def __init__(
        self, plan: Redundancy, codec: Codec, width: Callable[[int], int], link: LinkModel | None = None
    ) -> None:
        self.plan, self.link = plan, (link or LinkModel()).wired(coded=True)
        self.nodes = [RedundantNode(rank, plan, codec, width) for rank in range(plan.nodes)]
        self.dead: set[int] = set()
        self.time = 0.0
        self._codec = self.link.codec(coded=True)
        self._ports = [_Port() for _ in range(plan.nodes)]
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._tickets = count()
        self._flying: Counter[tuple[int, int]] = Counter()  # frames by link

    def lap(
        self,
        tasks: Sequence[Array],
        seconds: Sequence[Sequence[float]],
        bounds: Sequence[int],
        classes: Array | None = None,
        *,
        dtype: Any = np.int32,
        deaths: Mapping[int, float] | None = None,
    ) -> Lap:
        """Run one AllReduce.

        tasks: integers in plan order, by task. seconds: of each worker's tasks, in the order in which it does
        them. bounds, classes, dtype: see RedundantNode.begin. deaths: seconds from the begin after which a
        rank dies. Raises PeerError where a task has no copy left.
        """
        self._tasks, self._seconds, self._start, self._covered = tasks, seconds, self.time, self.time
        self._frames = self._bytes = self._finished = 0
        if len(self.dead | set(deaths or ())) >= self.plan.nodes:
            raise ValueError("deaths: expected one rank at least to live")
        before = sum(node.drained for node in self.nodes)
        for rank, after in (deaths or {}).items():
            self._at(self.time + after, self._die, rank)
        for rank in self._living():
            self._send(rank, self.nodes[rank].begin(bounds, classes, dtype))
            self._work(rank)
        while not all(self.nodes[rank].done for rank in self._living()):
            self.time, _, act, arguments = heapq.heappop(self._events)
            act(*arguments)
        return Lap(
            self.nodes[self._living()[0]].now.sums,
            self.time - self._start,
            (self._covered if self.plan.nodes > 1 else self.time) - self._start,
            self._finished,
            sum(node.drained for node in self.nodes) - before,
            self._frames,
            self._bytes,
        )

    def _living(self) -> list[int]:
        return [rank for rank in range(self.plan.nodes) if rank not in self.dead]

    def _at(self, when: float, act: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._events, (when, next(self._tickets), act, arguments))

    def _work(self, rank: int) -> None:
        """Begin the rank's next task, if there is one."""
        node = self.nodes[rank]
        task = node.wanted
        if task is not None:
            took = self._seconds[rank][self.plan.tasks(rank).index(task)]
            self._at(self.time + took, self._finish, rank, task, node.now.number)

    def _finish(self, rank: int, task: int, number: int) -> None:
        node = self.nodes[rank]
        if rank in self.dead or node.done or node.now.number != number:
            return  # left when the last sum came
        self._finished += 1
        self._send(rank, node.finish(task, self._tasks[task]))
        self._work(rank)

    def _send(self, rank: int, messages: Sequence[TaskMessage]) -> None:
        """Code the frames, one after the other, then queue them at the port."""
        port = self._ports[rank]
        for message in messages:
            if message.kind is Kind.SUM:
                self._covered = self.time
            if message.frame is not port.coded:
                values = peek(message.frame).count
                port.encoder = max(port.encoder, self.time) + values * self._codec.encode_each
                port.coded = message.frame
            self._at(port.encoder + self._codec.encode_once, self._ready, message)

    def _ready(self, message: TaskMessage) -> None:
        port = self._ports[message.sender]
        heapq.heappush(port.queue, (message.iteration, ORDER[message.kind], next(self._tickets), message))
        self._leave(message.sender)

    def _leave(self, rank: int) -> None:
        """Send the port's next frame, if it is free."""
        port = self._ports[rank]
        if rank in self.dead or not port.queue or port.out > self.time:
            return
        message = heapq.heappop(port.queue)[-1]
        self._frames += 1
        self._bytes += message.size
        port.out = self.time + self.link.message_s + message.size * self.link.seconds_per_byte
        self._at(port.out, self._leave, rank)
        self._flying[message.sender, message.receiver] += 1
        self._at(self.time + self.link.latency_s, self._arrive, message, port.out)

    def _arrive(self, message: TaskMessage, left: float) -> None:
        """Take a frame in, whose first bit is at the receiver's port; left: when its last bit left."""
        port, link = self._ports[message.receiver], self.link
        port.into = max(
            left + link.latency_s, max(port.into, self.time) + message.size * link.seconds_per_byte
        )
        values = peek(message.frame).count
        port.decoder = max(port.decoder, port.into) + values * self._codec.decode_each
        when = port.decoder + self._codec.decode_once
        self._at(when, self._got, message)

    def _got(self, message: TaskMessage) -> None:
        self._flying[message.sender, message.receiver] -= 1
        if message.receiver not in self.dead:
            self._send(message.receiver, self.nodes[message.receiver].receive(message))
            if message.sender in self.dead:
                self._learn(message.receiver, message.sender)

    def _die(self, rank: int) -> None:
        """Stop a rank; what is on its way arrives, and each peer learns of the death after that."""
        self.dead.add(rank)
        for peer in self._living():
            self._at(self.time + self.link.latency_s, self._learn, peer, rank)

    def _learn(self, peer: int, rank: int) -> None:
        if peer not in self.dead and not self._flying[rank, peer]:
            self._send(peer, self.nodes[peer].lost(rank))
