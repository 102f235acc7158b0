"""Exchanges of sparse gradients: who sends which part of its positions and values to whom.

An exchange is a generator of messages that every worker runs. All workers end with the same union and sums.
The names come from Zen's design space (docs/reference/sparse.md, "Exchanges"). Sums are added in the order of
ranks. Recursive doubling is the exception: it adds pairs of groups.

Sparsifiers of own sets stand on the gather: their workers send only their own chosen values, not all values
at the union. A worker's chosen positions and the applied positions may differ. The residual loses only
applied values.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.index import IndexCodec, Popular, make_index
from oscar.errors import FrameError, GradientError
from oscar.schemes.base import Message, Messages, handed
from oscar.schemes.sparse.partitions import Grains, Memory, Partition, deal
from oscar.schemes.sparse.sparsifier import SparseOptions, SparseWorker, Sparsifier, unite

Set = tuple[Array, Array]  # sorted positions, int64; their values, float32, grain by grain
Run = Generator[Message, Any, Set]
_LENGTH = struct.Struct("<I")  # bytes of the stream of positions, in front of it


@dataclass(frozen=True, eq=False)
class SparseExchange(ABC):
    """The base of all exchanges. index: the index codec of the positions that workers send."""

    grains: Grains
    nodes: int
    index: IndexCodec

    @abstractmethod
    def run(self, worker: SparseWorker, own: Set, scheme: Any) -> Run:
        """Yield messages; return the union and its sums. scheme: the scheme whose `once` workers share."""

    @abstractmethod
    def busiest(self, sets: Sequence[Array]) -> int:
        """Return the bytes at the busiest port, given all workers' positions. Frame headers do not count."""

    def pack(self, index: IndexCodec, positions: Array, size: int, items: Array) -> Array:
        """Return a set as bytes: length of the stream, stream of positions below `size`, values."""
        stream = index.encode(positions, size)
        head = np.frombuffer(_LENGTH.pack(stream.size), np.uint8)
        return np.concatenate([head, stream, np.ascontiguousarray(items, "<f4").view(np.uint8)])

    def unpack(self, index: IndexCodec, data: Array, members: Array | None, source: int) -> Set:
        """Return the set that `pack` packed at rank `source`. Raises FrameError for invalid bytes.

        members: the positions that the stream's numbers stand for; None: a number is a position.
        """
        size = self.grains.size if members is None else members.size
        if data.size < _LENGTH.size:
            raise FrameError(
                f"rank {source} sent {data.size} bytes, expected a stream of positions and values"
            )
        (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
        rest = data[_LENGTH.size :]
        try:
            result = index.decode(rest[:length].copy(), size)
        except FrameError as error:
            raise FrameError(f"rank {source} sent positions that cannot be read: {error}") from None
        positions = result if members is None else members[result]
        items = rest[length:]
        expected = 4 * self.grains.count(positions)
        if items.size != expected:
            raise FrameError(
                f"rank {source} sent {items.size} bytes of values for {positions.size} positions, expected "
                f"{expected}: all ranks must exchange the same tensors"
            )
        return positions, items.copy().view("<f4").astype(np.float32, copy=False)

    def add(self, sets: Sequence[Set]) -> Set:
        """Return the union of sets, and their sums in the order given."""
        union = unite([positions for positions, _ in sets], self.grains.size)
        return union, self.grains.summed(sets, union)

    def _bytes(self, index: IndexCodec, positions: Array, size: int) -> int:
        return _LENGTH.size + len(index.encode(positions, size)) + 4 * self.grains.count(positions)


@dataclass(frozen=True, eq=False)
class AllGather(SparseExchange):
    """AGsparse: every worker's set reaches all workers, and each worker adds all sets."""

    def run(self, worker: SparseWorker, own: Set, scheme: Any) -> Run:
        """See Exchange.run."""
        packed = self.pack(self.index, own[0], self.grains.size, own[1])
        every = yield Message("sets", packed, "gather", bits=8)
        sets = scheme.once(
            "sets", lambda: [self.unpack(self.index, data, None, rank) for rank, data in enumerate(every)]
        )
        return scheme.once("sum of sets", lambda: self.add(sets))

    def busiest(self, sets: Sequence[Array]) -> int:
        """See Exchange.busiest."""
        sizes = [self._bytes(self.index, positions, self.grains.size) for positions in sets]
        return sum(sizes) - min(sizes)


@dataclass(frozen=True, eq=False)
class Doubling(SparseExchange):
    """SparCML: pairs of ranks, then pairs of groups, exchange and add their sums.

    Ranks beyond a power of two first hand their set to a partner, and receive the sums at the end.
    """

    @property
    def _even(self) -> int:
        return 1 << (self.nodes.bit_length() - 1)

    def _pairs(self, rank: int) -> list[tuple[str, int | None, int | None]]:
        """Return the stages of `rank`: name, destination or None, source or None."""
        even, folded = self._even, rank + self._even
        stages: list[tuple[str, int | None, int | None]] = []
        if even < self.nodes:
            to, source = (rank - even if rank >= even else None), (folded if folded < self.nodes else None)
            stages.append(("fold", to, source))
        for bit in range(even.bit_length() - 1):
            partner = rank ^ (1 << bit) if rank < even else None
            stages.append((f"double {bit}", partner, partner))
        if even < self.nodes:
            to, source = (folded if folded < self.nodes else None), (rank - even if rank >= even else None)
            stages.append(("unfold", to, source))
        return stages

    def run(self, worker: SparseWorker, own: Set, scheme: Any) -> Run:
        """See Exchange.run."""
        partial, size = own, self.grains.size
        for name, to, source in self._pairs(worker.rank):
            nothing = np.zeros(0, np.uint8)
            packed = nothing if to is None else self.pack(self.index, partial[0], size, partial[1])
            parts = tuple(packed.size if rank == to else 0 for rank in range(self.nodes))
            received = yield Message(name, packed, "exchange", bits=8, parts=parts)
            if source is None:
                continue
            theirs = self.unpack(self.index, received[source], None, source)
            partial = theirs if name == "unfold" else self.add([partial, theirs])
        return partial

    def busiest(self, sets: Sequence[Array]) -> int:
        """See Exchange.busiest: the sum over the stages of the largest set sent."""
        unions, total = list(sets), 0
        for stage in range(len(self._pairs(0))):
            pairs = [self._pairs(rank)[stage] for rank in range(self.nodes)]
            sizes = [
                0 if to is None else self._bytes(self.index, unions[rank], self.grains.size)
                for rank, (_, to, _) in enumerate(pairs)
            ]
            total += max(sizes)
            unions = [
                unions[rank] if source is None else unite([unions[rank], unions[source]], self.grains.size)
                for rank, (_, _, source) in enumerate(pairs)
            ]
        return total


@dataclass(frozen=True, eq=False)
class PointToPoint(SparseExchange):
    """Every position has a server. All workers push to it, it adds, and all workers pull the sums.

    Zen's hash partition balances the servers. With ranges of blocks, this is OmniReduce.

    back: index codec of the pulled positions. memory: sizes of Zen's memory, for the hash partition.
    """

    partition: Partition
    back: IndexCodec
    memory: Memory | None = None
    seed: int = 0

    def split(self, positions: Array) -> list[Array]:
        """Return sorted positions by server."""
        if self.memory is None:
            return self.partition.split(positions)
        parts, _ = deal(positions, self.partition.owner, self.nodes, self.seed, self.memory)
        return parts

    def run(self, worker: SparseWorker, own: Set, scheme: Any) -> Run:
        """See Exchange.run."""
        members = scheme.once("members", lambda: self.partition.members)
        try:
            packed = self._push(own)
        except GradientError as error:
            raise GradientError(f"rank {worker.rank}: {error}") from None
        pushed = yield handed("push", packed)
        mine = members[worker.rank]
        sets = [self.unpack(self.index, data, mine, rank) for rank, data in enumerate(pushed)]
        positions, sums = self.add(sets)
        local = self.partition.local[positions]
        answer = self.pack(self.back, local, mine.size, sums)
        parts = (answer.size,) * self.nodes
        answers = yield Message("pull", np.tile(answer, self.nodes), "exchange", bits=8, parts=parts)

        def pulled() -> Set:
            parts = zip(answers, members, strict=True)
            return self.add(
                [self.unpack(self.back, data, places, rank) for rank, (data, places) in enumerate(parts)]
            )

        return scheme.once("pulled", pulled)

    def _push(self, own: Set) -> list[Array]:
        positions, items = own
        places = np.cumsum(np.append(0, self.grains.widths[positions]))
        packed = []
        for server, part in enumerate(self.split(positions)):
            at = np.searchsorted(positions, part)
            held = _slices(items, places[at], self.grains.widths[part])
            size = self.partition.members[server].size
            packed.append(self.pack(self.index, self.partition.local[part], size, held))
        return packed

    def busiest(self, sets: Sequence[Array]) -> int:
        """See Exchange.busiest: the sum of push and pull."""
        members, local = self.partition.members, self.partition.local
        push = np.array(
            [
                [
                    self._bytes(self.index, local[part], members[server].size)
                    for server, part in enumerate(self.partition.split(positions))
                ]
                for positions in sets
            ]
        )
        np.fill_diagonal(push, 0)
        union = unite(sets, self.grains.size)
        sums = [
            self._bytes(self.back, local[part], members[server].size)
            for server, part in enumerate(self.partition.split(union))
        ]
        pull = max(max(sums) * (self.nodes - 1), sum(sums) - min(sums))
        return int(max(push.sum(axis=0).max(), push.sum(axis=1).max()) + pull)


def _slices(items: Array, starts: Array, widths: Array) -> Array:
    """Return the runs of `items` that begin at `starts` and have `widths` items, concatenated."""
    if not len(starts):
        return items[:0]
    ends = np.cumsum(widths)
    at = np.arange(ends[-1]) + np.repeat(starts - (ends - widths), widths)
    return items[at]


@dataclass(frozen=True)
class OwnSetsOptions(SparseOptions):
    """SparseOptions with fp32 values only, and without the index `popular`, which learns from gathers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values != "fp32" or self.index == Popular.name:
            raise ValueError(
                "workers send sets of their own: expected values: fp32, and an index other than "
                f"{Popular.name}, got {self.values!r} and {self.index!r}"
            )


class OwnSets(Sparsifier):
    """A sparsifier whose subclasses define `choose` and `deliver`. `sets` packs positions and values."""

    Options: ClassVar[type[Any]] = OwnSetsOptions

    def _setup(self) -> None:
        super()._setup()
        grains = Grains.of(np.array([0, self.values]), [1])
        self.sets = AllGather(grains, self.nodes, make_index(self.options.index))

    @abstractmethod
    def deliver(self, worker: SparseWorker, own: Set) -> Generator[Message, Any, Set]:
        """Yield messages; return the sorted applied positions and their sums, equal on all workers."""

    def messages(self, worker: SparseWorker, values: Array) -> Messages:
        acc = worker.accumulate(values, self.options.momentum)
        worker.chosen = yield from self.choose(worker, acc)
        applied = yield from self.deliver(worker, (worker.chosen, acc[worker.chosen]))
        own = np.intersect1d(worker.chosen, applied[0], assume_unique=True)
        worker.keep(acc, own, acc[own])
        self.once("applied", lambda: applied)

    def finish(self, totals: Sequence[Any]) -> Array:
        union, sums = self._memory["applied"]
        mean = np.zeros(self.values, np.float32)
        mean[union] = sums / np.float32(self.nodes)
        self.united = union.size
        self.iteration += 1
        return mean
