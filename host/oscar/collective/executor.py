"""Runs the schedule of every rank of one process: round-robin, deterministic, no threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from oscar.collective.local import Fault, LocalTransport, damaged, silent
from oscar.collective.node import Node
from oscar.collective.ring import Action, Op, ring_actions

SENDS = (Op.SEND, Op.FORWARD)


class _Runner:
    """One rank's way through its actions, and what is wrong with it."""

    def __init__(self, node: Node, actions: Iterator[Action], faults: Sequence[Fault]) -> None:
        self.node, self.actions = node, actions
        self.faults = {fault.action: fault for fault in faults}
        self.index = -1
        self.current: Action | None = None
        self.dead = self.stalled = self.corrupting = False
        self.paused = 0
        self.step()

    def step(self) -> None:
        """Move on to the next action; a fault strikes when its action comes up."""
        self.current = next(self.actions, None)
        self.index += 1
        fault = self.faults.get(self.index)
        if fault is None or self.current is None:
            return
        self.dead = fault.kind == "kill"
        self.stalled = fault.kind == "stall"
        self.corrupting = self.corrupting or fault.kind == "corrupt"
        self.paused = fault.rounds if fault.kind == "delay" else 0


class Ring:
    """The nodes of one process and the frames between them; one `run` is one AllReduce."""

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        subframes: int,
        boomerang: bool,
        duplex: bool = False,
        faults: Sequence[Fault] = (),
    ) -> None:
        size = len(nodes)
        self.nodes, self.transport = nodes, LocalTransport(size)
        shape = (2, max(0, size - 1), size, subframes)
        self.frame_bytes, self.counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        adopt = size > 1 and not nodes[0].codec.lossless
        self.runners = [
            _Runner(
                node,
                ring_actions(
                    node.rank, size, subframes=subframes, boomerang=boomerang, duplex=duplex, adopt=adopt
                ),
                [fault for fault in faults if fault.rank == node.rank],
            )
            for node in nodes
        ]

    def run(self) -> None:
        """Perform all actions of all nodes; raises PeerError as soon as one cannot go on."""
        while any(self._advance(runner, only=Op.POST_RECV) for runner in self.runners):
            pass  # receives first, those of late ranks too: a frame finds room wherever it arrives
        while any(runner.current is not None for runner in self.runners):
            moved = [self._advance(runner) for runner in self.runners]
            if not any(moved):
                self._deadline()

    def clocks(self) -> np.ndarray | None:
        """Return what the nodes' devices took, [encode or decode, phase, step, rank], or None without any."""
        if not self.nodes or self.nodes[0].codec.clocks is None:
            return None
        total = np.zeros((2, *self.counts.shape[:3]), np.int64)
        for node in self.nodes:
            for action, clocks in node.clocks:
                total[int(action.op is not Op.ENCODE), action.phase, action.step, node.rank] += clocks
        return total

    def _advance(self, runner: _Runner, *, only: Op | None = None) -> bool:
        """Perform actions of one rank until it has to wait; return whether anything happened."""
        moved = False
        while runner.current is not None and not runner.dead and not runner.stalled:
            if only is not None and runner.current.op is not only:
                break
            if runner.paused:
                runner.paused -= 1
                return True
            if not self._perform(runner, runner.current):
                break
            runner.step()
            moved = True
        return moved

    def _perform(self, runner: _Runner, action: Action) -> bool:
        node = runner.node
        count = node.count(action)
        if count == 0:
            return True  # an empty sub-frame is never sent
        if action.op is Op.WAIT:
            frame = self.transport.take(node.rank, action.peer, action.tag)
            if frame is None:
                return False
            node.receive(action, frame)
        elif action.op is Op.POST_RECV:
            self.transport.post_recv(node.rank, action.peer, action.tag, node.cap(action))
        else:
            frame = node.perform(action)
            if action.op in SENDS and frame is not None:
                at = (action.phase, action.step, node.rank, action.sub)
                self.frame_bytes[at], self.counts[at] = len(frame), count
                if runner.corrupting:
                    frame, runner.corrupting = damaged(frame, runner.index), False
                peer = self.runners[action.peer]
                if not peer.dead and not peer.stalled:
                    self.transport.post_send(node.rank, action.peer, action.tag, frame)
        return True

    def _deadline(self) -> None:
        """Nobody can move any more: the first healthy rank that waits for a faulty one says so."""
        broken = {r.node.rank: r for r in self.runners if r.dead or r.stalled}
        waiting = [r for r in self.runners if r.current is not None and r.node.rank not in broken]
        for runner in sorted(waiting, key=lambda r: r.current.peer not in broken if r.current else True):
            action = runner.current
            if action is not None:
                peer = broken.get(action.peer)
                raise silent(
                    runner.node.rank, action.peer, action.ring_step(len(self.nodes)), action.chunk,
                    dead=peer is not None and peer.dead,
                )  # fmt: skip
        rank, runner = next(iter(broken.items()))
        action = runner.current
        raise silent(
            (rank + 1) % len(self.nodes), rank, action.ring_step(len(self.nodes)) if action else 0,
            action.chunk if action else 0, dead=runner.dead,
        )  # fmt: skip
