"""Schedules made of routes: a chunk runs up one tree to its owner and down another to all ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule


class Transfer(NamedTuple):
    """The transfer of one chunk over one directed link."""

    chunk: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class Routes:
    """The transfers of an AllReduce, in order: who sends which chunk to whom.

    A port takes its transfers in the order of these lists. docs/reference/schedules.md has the rules;
    `oscar.collective.check` checks them.

    Attributes:
        nodes: Number of ranks.
        owners: Owner's rank by chunk.
        reduce: Transfers towards the owners. A rank sends a chunk once, after all its receives of that
            chunk.
        gather: Transfers from the owners to all. A rank passes a chunk on after it has received it.

    >>> reduce = (Transfer(0, 1, 0), Transfer(0, 2, 0))  # rank 0 owns the only chunk
    >>> gather = (Transfer(0, 0, 1), Transfer(0, 1, 2))
    >>> Routes(3, (0,), reduce, gather).gather[1].sender
    1
    """

    nodes: int
    owners: tuple[int, ...]
    reduce: tuple[Transfer, ...]
    gather: tuple[Transfer, ...]


class Leg(NamedTuple):
    """A transfer with the fields of its actions. depth: transfers in sequence, up to and with this one."""

    phase: Phase
    transfer: Transfer
    step: int
    slot: int
    terms: int
    depth: int


_Piece = tuple[Leg, int]  # a sub-frame of a leg
_Job = tuple[tuple[int, ...], int, Any, int, Callable[[int, Any, int], Iterator[Action]]]


@dataclass(frozen=True)
class Routed(Schedule):
    """A schedule that follows routes; subclasses make the routes.

    Frames of a link that sum equally many workers share a set of tables. Both ends of a link process its
    frames in the same order: by depth, then by sub-frame, then in the order of the routes. Sends that need no
    input therefore come first. An owner codes its sum once and sends the same bytes to all. A rank passes a
    final frame on before it decodes it.
    """

    name: ClassVar[str] = "routed"
    pulls_first: ClassVar[bool] = True

    @cached_property
    def routes(self) -> Routes:
        """The routes, made by a subclass."""
        raise NotImplementedError

    @property
    def owners(self) -> tuple[int, ...]:
        return self.routes.owners

    @property
    def hops(self) -> int:
        return sum(max(depth.values(), default=0) for depth in self.depths)

    @cached_property
    def depths(self) -> tuple[dict[tuple[int, int], int], ...]:
        """For each phase, the number of transfers in sequence until `rank` has `chunk`; absent means 0."""
        phases = []
        for transfers in (self.routes.reduce, self.routes.gather):
            depth: dict[tuple[int, int], int] = defaultdict(int)
            for chunk, sender, receiver in transfers:
                depth[chunk, receiver] = max(depth[chunk, receiver], depth[chunk, sender] + 1)
            phases.append(dict(depth))
        return tuple(phases)

    @cached_property
    def sends(self) -> tuple[int, ...]:
        sent = Counter(leg.sender for leg in (*self.routes.reduce, *self.routes.gather))
        return tuple(sent[rank] * self.subframes for rank in range(self.nodes))

    @cached_property
    def born(self) -> tuple[tuple[int, int], ...]:
        """For each chunk, depth and position of the last leg that its owner needs for the whole sum."""
        last = [(0, 0)] * self.chunks
        for place, leg in enumerate(self.legs[0]):
            if leg.transfer.receiver == self.owners[leg.transfer.chunk]:
                last[leg.transfer.chunk] = max(last[leg.transfer.chunk], (leg.depth, place))
        return tuple(last)

    @cached_property
    def spread(self) -> int:
        """Number of transfers in sequence until the last rank has a final frame."""
        return max(self.depths[1].values(), default=0)

    @cached_property
    def legs(self) -> tuple[tuple[Leg, ...], ...]:
        """The transfers of each phase, with their terms, steps and slots."""
        ranks, whole = range(self.nodes), (1 << self.valued) - 1
        terms = {(chunk, rank): 1 << rank & whole for chunk in range(self.chunks) for rank in ranks}
        slots: dict[tuple[int, int], int] = defaultdict(int)
        phases = []
        for phase, transfers in (
            (Phase.REDUCE_SCATTER, self.routes.reduce),
            (Phase.ALL_GATHER, self.routes.gather),
        ):
            steps: dict[int, int] = defaultdict(int)
            legs = []
            for t in transfers:
                terms_held = whole if phase else terms[t.chunk, t.sender]
                depth = self.depths[phase].get((t.chunk, t.sender), 0) + 1
                legs.append(Leg(phase, t, steps[t.sender], slots[t.sender, t.receiver], terms_held, depth))
                if not phase:
                    terms[t.chunk, t.receiver] |= terms_held
                steps[t.sender] += 1
                slots[t.sender, t.receiver] += 1
            phases.append(tuple(legs))
        return tuple(phases)

    @cached_property
    def _by_rank(self) -> tuple[dict[int, list[Leg]], ...]:
        phases: list[dict[int, list[Leg]]] = []
        for legs in self.legs:
            phases.append(defaultdict(list))
            for leg in legs:
                phases[-1][leg.transfer.sender].append(leg)
                phases[-1][leg.transfer.receiver].append(leg)
        return tuple(phases)

    def legs_of(self, rank: int) -> tuple[list[Leg], list[Leg]]:
        """Return the legs of each phase that begin or end at `rank`, in order."""
        there, back = self._by_rank
        return there.get(rank, []), back.get(rank, [])

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions."""
        if not 0 <= rank < self.nodes:
            raise ValueError(f"expected a rank of 0 to {self.nodes - 1}, got {rank}")
        return _Program(self, rank).actions()


class _Program:
    """The program of one rank, made from its legs: ordered by depth, then by sub-frame.

    Later sub-frames are so coded while the first one is under way. Both ends of a link use the same order.
    """

    def __init__(self, schedule: Routed, rank: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.reduce, self.gather = schedule.legs_of(rank)
        self.fed: dict[int, list[Leg]] = defaultdict(list)  # received partial sums, by chunk
        links: dict[int, list[_Piece]] = defaultdict(list)  # received partial sums, by sender
        for leg in self.reduce:
            if leg.transfer.receiver == rank:
                self.fed[leg.transfer.chunk].append(leg)
                links[leg.transfer.sender] += [(leg, sub) for sub in range(schedule.subframes)]
        self.left = {
            sender: sorted(pieces, key=lambda piece: self._coded(*piece), reverse=True)
            for sender, pieces in links.items()
        }
        self.onward: dict[int, list[Leg]] = defaultdict(list)  # final frames that this rank sends, by chunk
        self.came: dict[int, Leg] = {}  # final frames that this rank receives, by chunk
        for leg in self.gather:
            if leg.transfer.sender == rank:
                self.onward[leg.transfer.chunk].append(leg)
            else:
                self.came[leg.transfer.chunk] = leg
        self.added: set[_Piece] = set()
        self.waited: set[tuple[int, int]] = set()

    def actions(self) -> Iterator[Action]:
        """Yield all actions of the rank."""
        if self.schedule.nodes == 1:
            return
        subs = range(self.schedule.subframes)
        for leg in (*self.reduce, *self.gather):
            for sub in subs if leg.transfer.receiver == self.rank else ():
                yield self._act(Op.POST_RECV, leg, sub)
        for _, chunk, leg, sub, do in sorted(chain(*map(self._jobs, subs)), key=itemgetter(0)):
            yield from do(chunk, leg, sub)

    def _jobs(self, sub: int) -> Iterator[_Job]:
        """Yield the jobs of a sub-frame: (sort key, arguments, method).

        The order at equal depths is: sums on their way to owners, whole sums, frames to pass on, frames to
        decode.
        """
        for leg in self.reduce:
            if leg.transfer.sender == self.rank:
                yield self._coded(leg, sub), leg.transfer.chunk, leg, sub, self._add
        for chunk, owner in enumerate(self.schedule.owners):
            depth, place = self.schedule.born[chunk]
            if owner == self.rank:
                yield (depth, sub, 1, place), chunk, None, sub, self._add
        arrived = set()
        for at, leg in enumerate(self.gather):
            chunk = leg.transfer.chunk
            depth, place = self.schedule.born[chunk]
            if leg.transfer.receiver == self.rank:  # decoded in its owner's coding order
                arrived.add(chunk)
                yield (depth + self.schedule.spread, sub, 3, place, at), chunk, leg, sub, self._take
            elif chunk in arrived:
                yield (depth + leg.depth - 1, sub, 2, at), chunk, leg, sub, self._pass_on

    def _coded(self, leg: Leg, sub: int) -> tuple[int, ...]:
        """Return the sort key of a leg's encoding at its sender."""
        return leg.depth - 1, sub, 0, leg.step

    def _act(self, op: Op, leg: Leg, sub: int) -> Action:
        """Return an action on the frame of `leg`."""
        chunk, sender, receiver = leg.transfer
        source = self.schedule.owners[chunk] if leg.phase else sender
        table = leg.terms.bit_count() - 1
        peer = sender if receiver == self.rank else receiver
        if leg.phase and op in (Op.ENCODE, Op.ADOPT):
            peer = -1  # all receivers get the same frame
        return Action(op, leg.phase, leg.step, chunk, sub, peer, source, table, leg.terms, leg.slot)

    def _add(self, chunk: int, onward: Leg | None, sub: int) -> Iterator[Action]:
        """Add the sums received for a chunk, and send the result: to the owner, or from the owner to all.

        A sum waits only for its own terms, and for earlier frames on the same links.
        """
        for fed in self.fed.get(chunk, ()):
            while (fed, sub) not in self.added:
                piece = self.left[fed.transfer.sender].pop()
                yield self._act(Op.WAIT, *piece)
                yield self._act(Op.DECODE_ADD, *piece)
                self.added.add(piece)
        legs = self.onward[chunk] if onward is None else [onward]
        for place, leg in enumerate(legs):
            if place == 0:
                yield self._act(Op.ENCODE, leg, sub)
            yield self._act(Op.SEND, leg, sub)
        if onward is None and self.schedule.adopt and legs and self.rank < self.schedule.valued:
            yield self._act(Op.ADOPT, legs[0], sub)

    def _wait(self, chunk: int, sub: int) -> Iterator[Action]:
        if (chunk, sub) not in self.waited:
            self.waited.add((chunk, sub))
            yield self._act(Op.WAIT, self.came[chunk], sub)

    def _pass_on(self, chunk: int, onward: Leg, sub: int) -> Iterator[Action]:
        """Pass a final frame on; it is decoded later."""
        yield from self._wait(chunk, sub)
        yield self._act(Op.FORWARD, onward, sub)

    def _take(self, chunk: int, arrived: Leg, sub: int) -> Iterator[Action]:
        """Decode a final frame. An owner's frames are decoded in coding order."""
        yield from self._wait(chunk, sub)
        yield self._act(Op.DECODE, arrived, sub)
