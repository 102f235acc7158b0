"""The exchange schedule: groups exchange their sums, and both sides add."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, product
from typing import ClassVar, NamedTuple

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule


class _Leg(NamedTuple):
    """One chunk over one directed link."""

    phase: Phase
    chunk: int
    sender: int
    receiver: int
    step: int
    slot: int
    terms: int

    def act(self, op: Op, sub: int) -> Action:
        """Return an action with this leg's frame. A partial sum's encoder belongs to its first receiver."""
        peer = self.receiver if op in (Op.ENCODE, Op.SEND) else self.sender
        if op is Op.ENCODE and self.phase:
            peer = -1  # the whole group gets the same frame
        table = self.terms.bit_count() - 1
        return Action(
            op, self.phase, self.step, self.chunk, sub, peer, self.sender, table, self.terms, self.slot
        )


@dataclass(frozen=True)
class ExchangeSchedule(Schedule):
    """An AllReduce in groups of `group` consecutive ranks. Each group has one collector for each chunk.

    A rank sends a chunk to the collector of its group. The collectors of a chunk send each other the sums of
    their groups, add the sums that they receive, and send the total to their own group. A link between groups
    so carries the sum of one group only; the frame of a larger sum would be larger. Each of G groups sends
    G - 1 sums of a chunk, so the schedule suits two groups best. Collectors add in different orders, so it
    takes integers only. The last group may be smaller.

    owners: rank c owns chunk c. The other collectors of the chunk have its sum as early.
    """

    name: ClassVar[str] = "exchange"
    integers: ClassVar[bool] = True
    pulls_first: ClassVar[bool] = True

    group: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.group <= self.nodes:
            raise ValueError(
                f"schedule exchange: expected groups of 1 to {self.nodes} ranks, got {self.group}; "
                "set schedule.group to such a number, or to null for about the root of the ranks"
            )
        if self.adopt:
            raise ValueError(
                "schedule exchange: expected a lossless codec, got adopt: collectors would code sums that "
                "differ; take direct or hierarchical"
            )

    @property
    def owners(self) -> tuple[int, ...]:
        return tuple(range(self.nodes))

    @property
    def hops(self) -> int:
        return 2 * (self.group > 1) + (len(self.groups) > 1)

    @cached_property
    def groups(self) -> tuple[range, ...]:
        """The ranks of each group."""
        n, g = self.nodes, self.group
        return tuple(range(first, min(n, first + g)) for first in range(0, n, g))

    def collectors(self, chunk: int) -> list[int]:
        """Return the collector of a chunk in each group.

        Its position in the group equals the owner's position in the owner's group, modulo the group's size.
        """
        return [ranks[chunk % self.group % len(ranks)] for ranks in self.groups]

    @cached_property
    def sends(self) -> tuple[int, ...]:
        stages = (self._inside(towards=True), self._between(), self._inside(towards=False))
        sent = Counter(sender for _, sender, _ in chain(*stages))
        return tuple(sent[rank] * self.subframes for rank in range(self.nodes))

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions."""
        if not 0 <= rank < self.nodes:
            raise ValueError(f"expected a rank of 0 to {self.nodes - 1}, got {rank}")
        return _Program(self, rank).actions()

    @cached_property
    def legs(self) -> tuple[dict[int, list[_Leg]], ...]:
        """The legs that begin or end at a rank, by stage (pushes, group sums, whole sums) and rank."""
        slots: dict[tuple[int, int], int] = defaultdict(int)
        steps: dict[tuple[Phase, int], int] = defaultdict(int)
        stages: list[dict[int, list[_Leg]]] = []
        for phase, transfers in (
            (Phase.REDUCE_SCATTER, self._inside(towards=True)),
            (Phase.REDUCE_SCATTER, self._between()),
            (Phase.ALL_GATHER, self._inside(towards=False)),
        ):
            stages.append(defaultdict(list))
            sent = self._terms(len(stages))
            for chunk, sender, receiver in transfers:
                link = sender, receiver
                leg = _Leg(phase, chunk, *link, steps[phase, sender], slots[link], sent[sender])
                steps[phase, sender] += 1
                slots[link] += 1
                for rank in link:
                    stages[-1][rank].append(leg)
        return tuple(stages)

    def _terms(self, stage: int) -> list[int]:
        """Return the terms that each rank sends in stage 1, 2 or 3."""
        if stage == 1:
            return [1 << rank for rank in range(self.nodes)]
        if stage == 3:
            return [(1 << self.nodes) - 1] * self.nodes
        return [sum(1 << rank for rank in ranks) for ranks in self.groups for _ in ranks]

    def _inside(self, *, towards: bool) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, sender, receiver) inside groups, in rotated order, towards or from collectors."""
        for block, turn, ranks in product(self.groups, range(1, self.group), self.groups):
            for at, sender in enumerate(ranks if turn < len(ranks) else ()):
                to = (at + turn) % len(ranks)
                collected = block[to if towards else at :: len(ranks)]  # as `collectors` has it
                yield from ((chunk, sender, ranks[to]) for chunk in collected)

    def _between(self) -> Iterator[tuple[int, int, int]]:
        """Yield (chunk, sender, receiver) between groups, in rotated order."""
        count = len(self.groups)
        for chunk in range(self.nodes):
            ranks = self.collectors(chunk)
            for turn in range(1, count):
                yield from ((chunk, ranks[at], ranks[(at + turn) % count]) for at in range(count))


class _Program:
    """The program of one rank, made from its legs."""

    def __init__(self, schedule: ExchangeSchedule, rank: int) -> None:
        self.schedule, self.rank = schedule, rank
        self.stages = [legs.get(rank, []) for legs in schedule.legs]
        self.mine = [chunk for chunk in range(schedule.nodes) if rank in schedule.collectors(chunk)]

    def actions(self) -> Iterator[Action]:
        """Yield all actions, stage by stage: sends that need no input come first, final frames last."""
        if self.schedule.nodes == 1:
            return
        subs = self.schedule.subframes
        for legs in self.stages:
            for leg in legs:
                for sub in range(subs) if leg.receiver == self.rank else ():
                    yield leg.act(Op.POST_RECV, sub)
        for sub in range(subs):
            for leg in self.stages[0]:
                if leg.sender == self.rank:
                    yield from (leg.act(op, sub) for op in (Op.ENCODE, Op.SEND))
        for sub in range(subs):
            yield from self._sum(sub, 0, 1)
        for sub in range(subs):
            yield from self._sum(sub, 1, 2)
        for sub in range(subs):
            for leg in self.stages[2]:
                if leg.receiver == self.rank:
                    yield from (leg.act(op, sub) for op in (Op.WAIT, Op.DECODE))

    def _sum(self, sub: int, stage: int, onward: int) -> Iterator[Action]:
        """Add the sums received in a stage, chunk by chunk, and send the result in the next stage."""
        for chunk in self.mine:
            for leg in self.stages[stage]:
                if leg.chunk == chunk and leg.receiver == self.rank:
                    yield from (leg.act(op, sub) for op in (Op.WAIT, Op.DECODE_ADD))
            coded = False
            for leg in self.stages[onward]:
                if leg.chunk == chunk and leg.sender == self.rank:
                    if not coded:
                        yield leg.act(Op.ENCODE, sub)
                    coded = True
                    yield leg.act(Op.SEND, sub)
