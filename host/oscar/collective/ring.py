"""The ring schedules: ring, boomerang and duplex (docs/reference/protocol.md, "Schedule").

One generator of actions drives the in-process cluster, the transports, the RTL and the time model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.collective.actions import Action, Op, Phase
from oscar.collective.frames import ROW, Frames
from oscar.collective.schedule import Schedule

GatherName = Literal["forward", "boomerang", "duplex"]


@dataclass(frozen=True)
class Gather:
    """The way in which a ring returns its sums, and the work of codecs in it.

    name: "forward" passes final frames on unchanged, in the direction of the reduce-scatter. "boomerang" runs
        against that direction and sends each node the sum of the terms that it lacks. "duplex" runs a
        boomerang at the same time as the reduce-scatter.
    adopt: owners decode their own final frames, so that a lossy codec leaves all nodes identical.
    coded: an entropy coder works on the frames; otherwise coding costs nothing.

    Raises ValueError for an unknown name, and for `adopt` with a gather that sends no final frames.
    """

    name: GatherName = "forward"
    adopt: bool = False
    coded: bool = True

    def __post_init__(self) -> None:
        if self.name not in get_args(GatherName):
            raise ValueError(f"gather must be one of {', '.join(get_args(GatherName))}, got {self.name!r}")
        if self.adopt and self.boomerang:
            raise ValueError(f"adopt: the {self.name} gather sends no final frames; take the forward one")

    @property
    def boomerang(self) -> bool:
        """Whether the second half runs against the ring and sends the terms that each receiver lacks."""
        return self.name != "forward"

    @property
    def duplex(self) -> bool:
        """Whether both halves run at the same time."""
        return self.name == "duplex"


FORWARD, BOOMERANG, DUPLEX = (Gather(name) for name in get_args(GatherName))
RAW = Gather(coded=False)  # fp32 around a ring, as any library sends it


def ring_chunk_sent(rank: Any, nodes: int, phase: Phase, step: Any, gather: Gather = FORWARD) -> Any:
    """Return the chunk that `rank` sends at `step` of `phase`. rank, step: int, or int arrays.

    A rank receives the chunk that its upstream peer sends.
    """
    if phase is Phase.REDUCE_SCATTER:
        return (rank - step) % nodes
    return (rank + 1 + step) % nodes if gather.boomerang else (rank + 1 - step) % nodes


def ring_chunks(nodes: int, gather: Gather = FORWARD) -> Array:
    """Return the chunk that each rank sends, int64 [phase 2, step N-1, rank N]."""
    step, rank = np.arange(nodes - 1)[:, None], np.arange(nodes)
    return np.stack([ring_chunk_sent(rank, nodes, phase, step, gather) for phase in Phase])


def ring_frames(counts: Array, sizes: Array) -> Frames:
    """Return the frames of a ring. counts, sizes: values and bytes of each chunk, int64 [chunk]."""
    nodes = counts.size
    chunks = ring_chunks(nodes) if nodes > 1 else np.zeros((2, 0, 1), np.int64)
    rows = np.zeros(chunks.shape, ROW)
    rows["phase"], rows["step"] = np.arange(2)[:, None, None], np.arange(max(0, nodes - 1))[:, None]
    rows["sender"], rows["receiver"] = np.arange(nodes), (np.arange(nodes) + 1) % nodes
    rows["chunk"], rows["count"], rows["bytes"] = chunks, counts[chunks], sizes[chunks]
    rows["terms"] = np.where(rows["phase"] == 0, rows["step"] + 1, nodes)
    return Frames.of(rows[rows["count"] > 0])


def passed_on(counts: Array, sizes: Array) -> Frames:
    """Return the frames of an all-gather around a ring: every rank's buffer takes N - 1 hops."""
    rows = ring_frames(np.roll(counts, 1), np.roll(sizes, 1)).rows  # each rank first sends its own
    return Frames.of(rows[rows["phase"] == Phase.ALL_GATHER])


@dataclass(frozen=True)
class Ring(Schedule):
    """Reduce-scatter and all-gather around a ring, rank -> rank+1. Final frames are passed on unchanged.

    A rank decodes, adds, encodes and sends a received sub-frame before it waits for the next one, so that
    transfers overlap with coding.
    """

    name: ClassVar[str] = "ring"
    alike: ClassVar[bool] = True
    gather: ClassVar[Gather] = FORWARD

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.adopt and self.apart:
            raise ValueError(f"adopt: a {self.name} sends no final frames; take the ring")

    @property
    def owners(self) -> tuple[int, ...]:
        return tuple((chunk - 1) % self.nodes for chunk in range(self.nodes))

    @property
    def form(self) -> Gather:
        """The ring's gather, with this schedule's `adopt`."""
        return replace(self.gather, adopt=self.adopt)

    @cached_property
    def sends(self) -> tuple[int, ...]:
        return (2 * (self.nodes - 1) * self.subframes,) * self.nodes

    def actions(self, rank: int) -> Iterator[Action]:
        """See Schedule.actions."""
        if not 0 <= rank < self.nodes:
            raise ValueError(f"expected a rank of 0 to {self.nodes - 1}, got {rank}")
        if self.nodes > 1:
            yield from _Rank(rank, self.nodes, self.subframes, self.form).actions()


@dataclass(frozen=True)
class Boomerang(Ring):
    """A ring whose all-gather runs backwards, rank -> rank-1, and sends the sum of the missing terms."""

    name: ClassVar[str] = "boomerang"
    apart: ClassVar[bool] = True
    integers: ClassVar[bool] = True
    gather: ClassVar[Gather] = BOOMERANG


@dataclass(frozen=True)
class Duplex(Ring):
    """A boomerang whose two phases run at the same time. It takes N-1 hops instead of 2(N-1).

    The reduce-scatter sums over the beginning of the ring (prefixes). The all-gather sums over its end
    (suffixes) and needs no prefix. A node's result is its prefix, own values included, plus the suffix that
    it received; either may arrive first. Each node splits the sum at another place. The results are identical
    for integers only, whose addition is exact in any order.
    """

    name: ClassVar[str] = "duplex"
    apart: ClassVar[bool] = True
    integers: ClassVar[bool] = True
    gather: ClassVar[Gather] = DUPLEX

    @property
    def hops(self) -> int:
        return self.nodes - 1


@dataclass(frozen=True)
class _Rank:
    """The program of one rank in the ring."""

    rank: int
    nodes: int
    subframes: int
    gather: Gather

    def actions(self) -> Iterator[Action]:
        """Yield all actions of the rank."""
        for phase in Phase:  # every arriving frame finds room
            source, _ = self._peers(phase)
            for step in range(self.nodes - 1):
                for sub in range(self.subframes):
                    yield self._frame(Op.POST_RECV, phase, step, sub, source, source)
        if self.gather.duplex:
            yield from self._sums(*Phase)
            return
        yield from self._sums(Phase.REDUCE_SCATTER)
        if self.gather.boomerang:
            yield from self._sums(Phase.ALL_GATHER)
        else:
            yield from self._forward()

    def _peers(self, phase: Phase) -> tuple[int, int]:
        """Return the ranks that this rank receives from and sends to in a phase."""
        left, right = (self.rank - 1) % self.nodes, (self.rank + 1) % self.nodes
        return (right, left) if self.gather.boomerang and phase is Phase.ALL_GATHER else (left, right)

    def _frame(self, op: Op, phase: Phase, step: int, sub: int, sender: int, peer: int = -1) -> Action:
        """Return an action on the frame that `sender` sends at `step`."""
        chunk = ring_chunk_sent(sender, self.nodes, phase, step, self.gather)
        source, table = sender, step
        if phase is Phase.ALL_GATHER:
            table = (
                self.nodes - 1 + (step if self.gather.boomerang else 0)
            )  # forwarded frames share one table
            if not self.gather.boomerang:
                source = (chunk - 1) % self.nodes  # the chunk's owner
        terms, slot = self._terms(phase, step, chunk), step << 1 | phase
        return Action(op, phase, step, chunk, sub, peer, source, table, terms, slot)

    def _terms(self, phase: Phase, step: int, chunk: int) -> int:
        """Return the ranks whose values a frame sums, as bits; each step adds one rank."""
        all_ranks = (1 << self.nodes) - 1
        if phase is Phase.ALL_GATHER and not self.gather.boomerang:
            return all_ranks
        first = (chunk if phase is Phase.REDUCE_SCATTER else chunk - 1 - step) % self.nodes
        run = ((1 << step + 1) - 1) << first
        return (run | run >> self.nodes) & all_ranks

    def _sums(self, *phases: Phase) -> Iterator[Action]:
        """Run `phases` at the same time. Every hop adds its own values to a received sum and sends it on.

        Partial sums of the reduce-scatter travel to the right. Sums of a boomerang's all-gather travel to the
        left: a chunk's owner starts with its own local values, so a frame sums only terms that its receiver
        lacks. Two phases take turns by sub-frame: a frame of one phase is sent while a frame of the other is
        coded.
        """
        for step in range(self.nodes):
            for sub in range(self.subframes):
                for phase in phases:
                    source, target = self._peers(phase)
                    if step > 0:
                        yield self._frame(Op.WAIT, phase, step - 1, sub, source, source)
                        yield self._frame(Op.DECODE_ADD, phase, step - 1, sub, source, source)
                    if step < self.nodes - 1:
                        yield self._frame(Op.ENCODE, phase, step, sub, self.rank, target)
                        yield self._frame(Op.SEND, phase, step, sub, self.rank, target)

    def _forward(self) -> Iterator[Action]:
        """Code this rank's final sums once, then forward and decode the frames of other owners."""
        phase = Phase.ALL_GATHER
        left, right = self._peers(phase)
        for step in range(self.nodes):
            for sub in range(self.subframes):
                if step == 0:
                    yield self._frame(Op.ENCODE, phase, 0, sub, self.rank)
                    yield self._frame(Op.SEND, phase, 0, sub, self.rank, right)
                    if self.gather.adopt:
                        yield self._frame(Op.ADOPT, phase, 0, sub, self.rank)
                    continue
                yield self._frame(Op.WAIT, phase, step - 1, sub, left, left)
                if step < self.nodes - 1:
                    yield self._frame(Op.FORWARD, phase, step, sub, self.rank, right)
                yield self._frame(Op.DECODE, phase, step - 1, sub, left, left)
