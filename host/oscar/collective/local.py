"""All ranks in one process: mailboxes replace links, ranks take turns, and faults can be injected.

Also what such a process counts and compares with: the order in which a schedule's owners add, on which
sums of floats depend (`association`), and an all-to-all exchange as a schedule for the time model
(`HandOver`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np

from oscar.array import Array
from oscar.collective.actions import Action, Op, Phase
from oscar.collective.executor import execute
from oscar.collective.frames import CLOCKS, ROW, FrameLog, Frames
from oscar.collective.node import Node
from oscar.collective.schedule import Schedule
from oscar.errors import PeerError

FaultKind = Literal["kill", "stall", "corrupt", "delay"]
Tree = Any  # a rank, or a pair of trees: (sum that a rank held, sum that it added)


@dataclass(frozen=True)
class Fault:
    """A fault that strikes `rank` just before its action number `action`.

    kill: the rank dies, and its peers notice at once.
    stall: the rank stops, and its peers notice at the deadline.
    corrupt: one bit of the rank's next sent frame is flipped.
    delay: the rank pauses for `rounds` scheduler rounds.
    """

    kind: FaultKind
    rank: int
    action: int
    rounds: int = 8

    def __post_init__(self) -> None:
        if self.kind not in ("kill", "stall", "corrupt", "delay"):
            raise ValueError(f"fault must be kill, stall, corrupt or delay, got {self.kind!r}")
        if min(self.rank, self.action, self.rounds) < 0:
            raise ValueError(f"rank, action and rounds of a fault must be 0 or more, got {self}")


class _Rank:
    """One rank: its position in its program, its mailbox, and its faults."""

    def __init__(self, run: LocalRun, node: Node, actions: Iterable[Action], faults: Sequence[Fault]) -> None:
        self.run, self.node = run, node
        self.faults = {fault.action: fault for fault in faults if fault.rank == node.rank}
        self.index = -1
        self.dead = self.stalled = self.corrupting = False
        self.paused = 0
        self._caps: dict[tuple[int, int], int] = {}
        self._frames: dict[tuple[int, int], bytes] = {}
        self._program = execute(node, self._struck(actions) if self.faults else actions, self, run.log)
        self.current: Action | None = next(self._program, None)

    def _struck(self, actions: Iterable[Action]) -> Iterator[Action]:
        """Yield `actions`; apply each fault when its action comes up."""
        for self.index, action in enumerate(actions):
            fault = self.faults.get(self.index)
            if fault is not None:
                self.dead = fault.kind == "kill"
                self.stalled = fault.kind == "stall"
                self.corrupting = self.corrupting or fault.kind == "corrupt"
                self.paused = fault.rounds if fault.kind == "delay" else 0
            yield action

    @property
    def faulty(self) -> bool:
        """Whether a fault has ended this rank's work."""
        return self.dead or self.stalled

    def post_recv(self, peer: int, tag: int, cap: int) -> None:
        """Make room for a frame of up to `cap` bytes from `peer`."""
        self._caps[peer, tag] = cap

    def post_send(self, peer: int, tag: int, frame: bytes) -> None:
        """Deliver `frame` to `peer`, unless a fault prevents it."""
        if self.corrupting:
            frame, self.corrupting = damaged(frame, self.index), False
        if not self.run.ranks[peer].faulty:
            self.run.ranks[peer].deliver(self.node.rank, tag, frame)

    def deliver(self, sender: int, tag: int, frame: bytes) -> None:
        """Accept a frame. Raises ValueError where no receive was posted for it, or where it is too long."""
        cap = self._caps.get((sender, tag))
        if cap is None or len(frame) > cap:
            room = "no receive was posted" if cap is None else f"at most {cap} bytes fit"
            raise ValueError(
                f"rank {sender} sent {len(frame)} bytes to rank {self.node.rank} (tag {tag}), {room}"
            )
        self._frames[sender, tag] = frame

    def advance(self, *, only: Op | None = None) -> bool:
        """Perform actions until this rank has to wait; return whether anything happened."""
        moved = False
        while self.current is not None and not self.faulty and only in (None, self.current.op):
            if self.paused:
                self.paused -= 1
                return True
            frame = None
            if self.current.op is Op.WAIT:
                frame = self._frames.pop((self.current.peer, self.current.tag), None)
                if frame is None:
                    break
            try:
                self.current = self._program.send(frame)
            except StopIteration:
                self.current = None
            moved = True
        return moved


class LocalRun:
    """One AllReduce between the nodes of this process. It is deterministic and uses no threads.

    programs: the actions of each rank. faults: faults to inject. `log` records every frame.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        programs: Sequence[Iterable[Action]],
        *,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.log = FrameLog()
        self.ranks: list[_Rank] = []
        for node, actions in zip(nodes, programs, strict=True):
            self.ranks.append(_Rank(self, node, actions, faults))

    def run(self) -> None:
        """Perform all actions of all nodes. Raises PeerError as soon as no rank can go on."""
        while any(rank.advance(only=Op.POST_RECV) for rank in self.ranks):
            pass  # post the receives of all ranks first, so that every frame finds room
        while any(rank.current is not None for rank in self.ranks):
            moved = [rank.advance() for rank in self.ranks]
            if not any(moved):
                self._deadline()

    def clocks(self) -> Array | None:
        """Return the devices' clock cycles as rows of CLOCKS; None where no device counts them."""
        if all(rank.node.codec.clocks is None for rank in self.ranks):
            return None
        rows = [
            (a.op is Op.ENCODE, a.phase, a.step, rank.node.rank, clocks)
            for rank in self.ranks
            for a, clocks in rank.node.clocks
        ]
        return np.array(rows, CLOCKS)

    def _deadline(self) -> None:
        """Raise the PeerError of the first healthy rank that waits for a faulty one: no rank can move."""
        broken = {rank.node.rank: rank for rank in self.ranks if rank.faulty}
        waiting = [(r.node.rank, r.current) for r in self.ranks if r.current is not None and not r.faulty]
        for number, action in sorted(waiting, key=lambda pair: pair[1].peer not in broken):
            dead = action.peer in broken and broken[action.peer].dead
            raise silent(number, action.peer, action, dead=dead)
        number, rank = next(iter(broken.items()))
        raise silent((number + 1) % len(self.ranks), number, rank.current, dead=rank.dead)


def damaged(frame: bytes, seed: int) -> bytes:
    """Return `frame` with one bit flipped; `seed` chooses the bit."""
    bit = (seed * 2654435761) % (8 * len(frame))
    out = bytearray(frame)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


def silent(rank: int, peer: int, action: Action | None, *, dead: bool) -> PeerError:
    """Return the error of `rank`, whose `peer` will never send the frame of `action`."""
    what = "died" if dead else "was silent past the deadline"
    due = "its last frames were" if action is None else f"its frame of {action.place} was"
    step, chunk = (0, 0) if action is None else (action.step, action.chunk)
    return PeerError(
        f"rank {rank}: peer {peer} {what} while {due} due; gradients are untouched: restart rank {peer}",
        advice=", or go on without it",
        rank=rank,
        peer=peer,
        step=step,
        chunk=chunk,
    )


@lru_cache(maxsize=32)
def association(schedule: Schedule) -> tuple[Tree, ...]:
    """Return the order of additions that leads to each chunk's sum, as a tree by chunk.

    A tree is a rank, or a pair (held, added) of trees. Floats added in this order equal the owner's sum bit
    for bit. A ring's tree is as deep as the ring has ranks; `add_up` walks it without recursion.
    Raises ValueError for a schedule that is for integers only, and for a schedule that deadlocks.

    >>> from oscar.collective.schedules import make_schedule
    >>> association(make_schedule("ring", 3))
    ((2, (1, 0)), (0, (2, 1)), (1, (0, 2)))
    """
    if schedule.integers:
        raise ValueError(
            f"expected a schedule whose owners add, got {schedule.name}: each rank adds its own way"
        )
    ranks = range(schedule.nodes)
    sums: dict[tuple[int, int], Tree] = {
        (rank, chunk): rank if rank < schedule.valued else None
        for rank in ranks
        for chunk in range(schedule.chunks)
    }
    coded: dict[tuple[int, int], Tree] = {}
    programs = [
        [
            a
            for a in schedule.actions(rank)
            if not a.phase and not a.sub and a.op in (Op.ENCODE, Op.DECODE_ADD)
        ]
        for rank in ranks
    ]
    at, moved = [0] * schedule.nodes, True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            for action in program[at[rank] :]:
                if action.op is Op.ENCODE:
                    coded[rank, action.chunk] = sums[rank, action.chunk]
                elif (action.source, action.chunk) in coded:
                    own, arrived = sums[rank, action.chunk], coded[action.source, action.chunk]
                    sums[rank, action.chunk] = arrived if own is None else (own, arrived)
                else:
                    break
                at[rank], moved = at[rank] + 1, True
    if any(place < len(program) for place, program in zip(at, programs, strict=True)):
        raise ValueError(f"schedule {schedule.name} deadlocks; oscar.collective.check says where")
    return tuple(sums[owner, chunk] for chunk, owner in enumerate(schedule.owners))


def add_up(tree: Tree, values: Sequence[Any]) -> Any:
    """Return the sum of `values` (by rank), added in the order of a tree from `association`."""
    stack: list[Tree] = [tree]
    sums: list[Any] = []
    while stack:
        top = stack.pop()
        if top is None:
            added = sums.pop()
            sums.append(sums.pop() + added)
        elif isinstance(top, tuple):
            stack += [None, top[1], top[0]]
        else:
            sums.append(values[top])
    return sums[0]


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
