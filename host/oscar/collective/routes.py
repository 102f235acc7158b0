"""Schedules made of routes: every chunk runs up a tree to its owner and down another to all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule

AHEAD = 1  # sub-frames whose first sends leave before the oldest one's arrivals are waited for


class Transfer(NamedTuple):
    """One chunk over one directed link."""

    chunk: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class Routes:
    """Who sends which chunk to whom, in order.

    owners: rank by chunk. reduce: a rank sends a chunk once, on towards its owner, after all that it receives
    of it, in the order of this list. gather: from the owner to all; a rank sends on what it has received
    before. Both lists are in the order in which a port takes them; docs/schedules.md has the rules, and
    `oscar.collective.check` holds them.
    """

    nodes: int
    owners: tuple[int, ...]
    reduce: tuple[Transfer, ...]
    gather: tuple[Transfer, ...]


class Leg(NamedTuple):
    """A transfer with all that its actions need to know; depth: transfers in sequence up to this one."""

    phase: Phase
    transfer: Transfer
    step: int
    slot: int
    terms: int
    depth: int


@dataclass(frozen=True)
class Routed(Schedule):
    """Routes as a schedule.

    Frames of a link share tables where they sum equally many workers. Both its ends take them in one order:
    by the transfers in sequence up to them, then in order of the routes. Sends that need no input come first,
    AHEAD sub-frames before the arrivals that they meet. An owner codes its sum once and sends the same bytes
    to all; a rank passes a final frame on before it decodes it.

    eager: sends that need no input come before everything else, and final frames are decoded last. No frame
    then waits behind one that is not there yet; only schedules without FORWARDs may do so.
    """

    name: ClassVar[str] = "routed"
    pulls_first: ClassVar[bool] = True
    eager: ClassVar[bool] = False

    @cached_property
    def routes(self) -> Routes:
        """The routes; a subclass makes them."""
        raise NotImplementedError

    @property
    def owners(self) -> tuple[int, ...]:
        return self.routes.owners

    @property
    def hops(self) -> int:
        return sum(max(depth.values(), default=0) for depth in self.depths)

    @cached_property
    def depths(self) -> tuple[dict[tuple[int, int], int], ...]:
        """For each phase, how many transfers in sequence bring (chunk, rank) there; absent: none."""
        phases = []
        for transfers in (self.routes.reduce, self.routes.gather):
            depth: dict[tuple[int, int], int] = defaultdict(int)
            for chunk, sender, receiver in transfers:
                depth[chunk, receiver] = max(depth[chunk, receiver], depth[chunk, sender] + 1)
            phases.append(dict(depth))
        return tuple(phases)

    @cached_property
    def born(self) -> tuple[tuple[int, int], ...]:
        """When the sum of each chunk is whole: depth and place of the last leg that its owner needs."""
        last = [(0, 0)] * self.chunks
        for place, leg in enumerate(self.legs[0]):
            if leg.transfer.receiver == self.owners[leg.transfer.chunk]:
                last[leg.transfer.chunk] = max(last[leg.transfer.chunk], (leg.depth, place))
        return tuple(last)

    @cached_property
    def legs(self) -> tuple[tuple[Leg, ...], ...]:
        """The transfers of each phase with their terms and their places on sender and link."""
        terms = {(chunk, rank): 1 << rank for chunk in range(self.chunks) for rank in range(self.nodes)}
        slots: dict[tuple[int, int], int] = defaultdict(int)
        every = (1 << self.nodes) - 1
        phases = []
        for phase, transfers in (
            (Phase.REDUCE_SCATTER, self.routes.reduce),
            (Phase.ALL_GATHER, self.routes.gather),
        ):
            steps: dict[int, int] = defaultdict(int)
            legs = []
            for t in transfers:
                held = every if phase else terms[t.chunk, t.sender]
                depth = self.depths[phase].get((t.chunk, t.sender), 0) + 1
                legs.append(Leg(phase, t, steps[t.sender], slots[t.sender, t.receiver], held, depth))
                if not phase:
                    terms[t.chunk, t.receiver] |= held
                steps[t.sender] += 1
                slots[t.sender, t.receiver] += 1
            phases.append(tuple(legs))
        return tuple(phases)

    @cached_property
    def _by_rank(self) -> tuple[dict[int, list[Leg]], ...]:
        every: list[dict[int, list[Leg]]] = []
        for legs in self.legs:
            every.append(defaultdict(list))
            for leg in legs:
                every[-1][leg.transfer.sender].append(leg)
                every[-1][leg.transfer.receiver].append(leg)
        return tuple(every)

    def legs_of(self, rank: int) -> tuple[list[Leg], list[Leg]]:
        """Return the legs of each phase that `rank` has an end of, in order."""
        there, back = self._by_rank
        return there.get(rank, []), back.get(rank, [])

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions."""
        if not 0 <= rank < self.nodes:
            raise ValueError(f"expected a rank of 0 to {self.nodes - 1}, got {rank}")
        return _Program(self, rank).actions()


class _Program:
    """What one rank does, from its legs."""

    def __init__(self, schedule: Routed, rank: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.reduce, self.gather = schedule.legs_of(rank)
        self.fed: dict[int, list[Leg]] = defaultdict(list)  # what comes, by chunk
        for leg in self.reduce:
            if leg.transfer.receiver == rank:
                self.fed[leg.transfer.chunk].append(leg)
        self.onward: dict[int, list[Leg]] = defaultdict(list)  # final frames that this rank sends, by chunk
        for leg in self.gather:
            if leg.transfer.sender == rank:
                self.onward[leg.transfer.chunk].append(leg)
        self.first = [leg for leg in self.reduce if leg.transfer.chunk not in self.fed]  # need no input
        self.rest = [leg for leg in self.reduce if leg.transfer.chunk in self.fed]
        self.links: dict[int, list[Leg]] = defaultdict(list)  # what comes, by sender, in order of its coding
        for leg in sorted(self.reduce, key=lambda leg: (leg.depth, leg.step)):
            if leg.transfer.receiver == rank:
                self.links[leg.transfer.sender].append(leg)

    def actions(self) -> Iterator[Action]:
        """Yield all actions of the rank."""
        if self.schedule.nodes == 1:
            return
        subs = self.schedule.subframes
        for leg in (*self.reduce, *self.gather):
            for sub in range(subs) if leg.transfer.receiver == self.rank else ():
                yield self._act(Op.POST_RECV, leg, sub)
        lag = subs if self.schedule.eager else AHEAD
        for turn in range(subs + 2 * lag):
            if turn < subs:
                for leg in self.first:
                    yield from self._push(leg, turn)
            if 0 <= turn - lag < subs:
                yield from self._own(turn - lag)
            if 0 <= turn - 2 * lag < subs:
                yield from self._pass_on(turn - 2 * lag)

    def _act(self, op: Op, leg: Leg, sub: int) -> Action:
        """Return an action with the frame of `leg`."""
        chunk, sender, receiver = leg.transfer
        source = self.schedule.owners[chunk] if leg.phase else sender
        table = leg.terms.bit_count() - 1
        peer = sender if receiver == self.rank else receiver
        if leg.phase and op in (Op.ENCODE, Op.ADOPT):
            peer = -1  # one frame for all
        return Action(op, leg.phase, leg.step, chunk, sub, peer, source, table, leg.terms, leg.slot)

    def _push(self, leg: Leg, sub: int) -> Iterator[Action]:
        yield self._act(Op.ENCODE, leg, sub)
        yield self._act(Op.SEND, leg, sub)

    def _own(self, sub: int) -> Iterator[Action]:
        """Add what comes, send sums on, and send the sum of an own chunk to all as soon as it is whole.

        A sum waits for what it holds, and for what came before that on the same links; for nothing else.
        """
        left = {sender: list(reversed(legs)) for sender, legs in self.links.items()}
        added: set[Leg] = set()
        for chunk, onward in self.sums:
            for fed in self.fed.get(chunk, ()):
                while fed not in added:
                    leg = left[fed.transfer.sender].pop()
                    yield self._act(Op.WAIT, leg, sub)
                    yield self._act(Op.DECODE_ADD, leg, sub)
                    added.add(leg)
            yield from self._pull(chunk, sub) if onward is None else self._push(onward, sub)

    @cached_property
    def sums(self) -> list[tuple[int, Leg | None]]:
        """The sums that this rank makes: (chunk, the leg that takes it on; None where it owns the chunk).

        Those with fewer hops before them first; of equal ones those that go on, in order of the routes.
        """
        out: list[tuple[tuple[int, ...], int, Leg | None]] = []
        for leg in self.rest:
            if leg.transfer.sender == self.rank:
                out.append(((leg.depth - 1, 0, leg.step), leg.transfer.chunk, leg))
        for chunk, owner in enumerate(self.schedule.owners):
            if owner == self.rank:
                depth, place = self.schedule.born[chunk]
                out.append(((depth, 1, place), chunk, None))
        return [(chunk, leg) for _, chunk, leg in sorted(out, key=lambda one: one[0])]

    def _pull(self, chunk: int, sub: int) -> Iterator[Action]:
        """Code an own chunk's sum once and send it to all that this rank sends it to."""
        legs = self.onward[chunk]
        for place, leg in enumerate(legs):
            if place == 0:
                yield self._act(Op.ENCODE, leg, sub)
            yield self._act(Op.SEND, leg, sub)
        if self.schedule.adopt and legs:
            yield self._act(Op.ADOPT, legs[0], sub)

    def _pass_on(self, sub: int) -> Iterator[Action]:
        """Pass final frames on, in order of the routes, then decode all in the order of their coding."""
        came: dict[int, Leg] = {}
        waited = set()
        for leg in self.gather:
            chunk = leg.transfer.chunk
            if leg.transfer.receiver == self.rank:
                came[chunk] = leg
            elif chunk in came:
                if chunk not in waited:
                    waited.add(chunk)
                    yield self._act(Op.WAIT, came[chunk], sub)
                yield self._act(Op.FORWARD, leg, sub)
        for chunk in sorted(came, key=self.schedule.born.__getitem__):
            if chunk not in waited:
                yield self._act(Op.WAIT, came[chunk], sub)
            yield self._act(Op.DECODE, came[chunk], sub)
