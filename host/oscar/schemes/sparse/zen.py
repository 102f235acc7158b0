"""Zen: exchange only the non-zeros of tensors with sparse gradients (arXiv 2309.13254).

A non-zero value is a hit. The first iteration counts every worker's values and rows with a hit, for each
tensor. Sparse tensors are exchanged by position; the others are summed densely. With `exchange: auto`, the
next iterations gather all sets. So every worker can compute the cost of each exchange, and all choose the
cheapest. Floats are not quantised: the result equals a dense sum in the order of ranks. With `values: asc`,
rows with a hit on some worker are summed as coded integers, with the dense tensors. docs/reference/sparse.md
has the formats.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.coding.index import INDEX_CODECS, make_index
from oscar.kernels import njit
from oscar.numerics.tensors import cut
from oscar.schemes.base import Message, Messages, Scheme
from oscar.schemes.grid import Attempt, Grid
from oscar.schemes.sparse.exchanges import AllGather, Doubling, PointToPoint, SparseExchange
from oscar.schemes.sparse.partitions import NAMES, Grains, Memory, PartitionName, make_partition
from oscar.schemes.sparse.sparsifier import SparseWorker, check_one, unite
from oscar.schemes.sparse.values import CHANNEL, GatheredIndex, Summed, ValueSum
from oscar.state import PART, Reader, Saved, optional, optional_integers

ExchangeName = Literal["balanced", "doubling", "all-gather", "blocks", "dense"]
EXCHANGES: tuple[ExchangeName, ...] = get_args(ExchangeName)
CODED: tuple[ExchangeName, ...] = ("all-gather", "dense")  # the exchanges that can code values
GRAINS = "auto", "value", "row"
PATIENCE = 16  # iterations to wait for a first hit in every tensor before sparse tensors are chosen
FLOAT = 4  # bytes of a value


@dataclass(frozen=True)
class ZenOptions:
    """Options of the scheme `zen`.

    exchange: "balanced" (Zen), "doubling" (SparCML), "all-gather" (AGsparse), "blocks" (OmniReduce) or
        "dense" (all values). "auto" gathers for `profile` iterations, then takes the cheapest; start with it.
    partition: how positions are dealt to servers: "hash", "range", "interleave" or "learnt". "hash" balances
        any gradient.
    grain: "value" or "row": what a position stands for. "auto" takes rows if they cost fewer bytes.
    below: a tensor counts as sparse if a smaller share of its values is hit. Lower it to sum more densely.
    block: values of a block of the exchange "blocks".
    profile: iterations before "auto" decides. Raise it if hits vary much between iterations.
    push, pull: index codecs of the sets that workers and servers send. "coo" suits few positions, "bitmap"
        many.
    slots, serial, tries: memory of the hash partition, see `hashing.Memory`. Raise slots or serial if an
        error says that a position found no room.
    values: "fp32" is exact. "asc" sums coded integers, for fewer bytes.
    bits, coarseness, error_feedback: the integers of `values: asc`. Raise bits if a saturation warning
        appears. Lower coarseness for finer values. Switch error_feedback on for training.
    """

    exchange: str = "auto"
    partition: str = "hash"
    grain: str = "auto"
    below: float = 0.25
    block: int = 256
    profile: int = 2
    push: str = "coo"
    pull: str = "bitmap"
    slots: float = 2.0
    serial: float = 0.1
    tries: int = 3
    values: str = "fp32"
    bits: int = 12
    coarseness: float = 0.125
    error_feedback: bool = False

    def __post_init__(self) -> None:
        check_one("exchange", self.exchange, ("auto", *EXCHANGES))
        check_one("partition", self.partition, NAMES)
        check_one("grain", self.grain, GRAINS)
        check_one("push", self.push, tuple(INDEX_CODECS))
        check_one("pull", self.pull, tuple(INDEX_CODECS))
        check_one("values", self.values, ("fp32", "asc"))
        if self.values != "asc" and "popular" in (self.push, self.pull):
            raise ValueError(
                "index popular learns from gathered sets: take values: asc, or another index in push and pull"
            )
        if self.error_feedback and self.values == "fp32":
            raise ValueError("values: fp32 loses nothing: leave error_feedback out, or take values: asc")
        if self.values == "asc" and self.exchange not in ("auto", *CODED):
            raise ValueError(
                f"values: asc sums rows by the schedule: exchange is auto, {' or '.join(CODED)} there, "
                f"got {self.exchange!r}"
            )
        if not 0 <= self.below <= 1 or self.profile < 1 or self.block < 1:
            raise ValueError(
                "expected 0 <= below <= 1, profile >= 1 and block >= 1, got "
                f"{self.below}, {self.profile} and {self.block}"
            )
        if not 8 <= self.bits <= 16:
            raise ValueError(f"integers have 8 to 16 bits, got bits={self.bits}")
        self.memory  # noqa: B018 - raises for sizes that are none

    @property
    def memory(self) -> Memory:
        """The memory sizes of the hash partition."""
        return Memory(self.slots, self.serial, self.tries)


@njit(cache=True, nogil=True)
def _traits(values: Any, width: int) -> Any:
    """Return the number of values, and of rows of `width` values, with a hit."""
    result, rows = 0, 0
    for first in range(0, len(values), width):
        before = result
        for x in values[first : first + width]:
            result += x != 0
        rows += result != before
    return result, rows


def _read_widths(zen: Any, saved: Saved) -> list[int | None]:
    result = optional_integers(saved, len(zen.sizes), 1, 1 << 40)
    if any(width is not None and width > max(1, size) for width, size in zip(result, zen.sizes, strict=True)):
        raise saved.refuse("widths of grains within their tensors", "wider ones")
    return result


def _read_name(zen: Any, saved: Saved) -> str:
    name = saved.text()
    asked = zen.options.exchange
    known = EXCHANGES if asked == "auto" else (asked,)
    if name not in known:
        raise saved.refuse(f"one of {', '.join(known)}")
    return name


class Zen(Scheme):
    """Exchange sparse tensors by position and sum the others densely.

    taken: the chosen exchange, or None before the choice. index: codec of gathered positions, for coded
    values. hits: running count of hits of every grain, in 1/256, for the learnt partition.
    """

    name: ClassVar[str] = "zen"
    Options: ClassVar[type[Any]] = ZenOptions
    STATE: ClassVar[dict[str, Reader]] = Scheme.STATE | {
        "widths": optional(_read_widths),
        "taken": optional(_read_name),
        "hits": optional(
            lambda zen, saved: saved.array(np.int64, (zen.grains.size,), 0, 256),
            when=lambda zen: zen.options.partition == "learnt",
        ),
        "sum": PART,
        "index": PART,
    }

    def _setup(self) -> None:
        o = self.options
        self._exchanges: dict[str, SparseExchange] = {}
        self.index = GatheredIndex(o.push, 0, self.nodes)
        self.widths = None
        self.taken: str | None = None if o.exchange == "auto" else o.exchange
        self.hits: Array | None = None
        self._mean: Array | None = None  # the last one, of floats
        self.sum = ValueSum(o.values, self.sizes, self.nodes, coarseness=o.coarseness, bits=o.bits)
        self.push, self.pull = make_index(o.push), make_index(o.pull)

    def make_worker(self, rank: int) -> SparseWorker:
        return SparseWorker(rank, self.values)

    def coded_channels(self) -> dict[str, int]:
        return {CHANNEL: self.options.bits} if self.options.values == "asc" else {}

    @property
    def widths(self) -> list[int | None] | None:
        """Values of a grain for each tensor, None for a dense tensor. None before tensors were measured."""
        return self._widths

    @widths.setter
    def widths(self, widths: list[int | None] | None) -> None:
        """Set the widths and rebuild everything that depends on them, so that later loaded state fits."""
        self._widths = widths
        known: Sequence[int | None] = [None] * len(self.sizes) if widths is None else widths
        self.grains = Grains.of(self.offsets, known)
        dense = [width is None for width in known]
        self.dense = np.flatnonzero(np.repeat(dense, self.sizes))
        if self.index.size != self.grains.size:
            self.index = GatheredIndex(self.options.push, self.grains.size, self.nodes)
        self._exchanges.clear()

    def _follow(self) -> None:
        self._exchanges.clear()

    def _row(self, tensor: int) -> int:
        shape = self.shapes[tensor]
        return max(1, self.sizes[tensor] // shape[0]) if len(shape) > 1 and shape[0] else 1

    def _lay_out(self, all_traits: Sequence[Array]) -> None:
        """Set the grain of each tensor from all workers' counts.

        Wait until every tensor was hit, at most PATIENCE iterations: some tensors have a zero gradient at
        first.
        """
        total = np.sum([traits.view("<i8") for traits in all_traits], axis=0).reshape(-1, 2)
        unhit = any(size and not hits for size, hits in zip(self.sizes, total[:, 0], strict=True))
        if unhit and self.iteration < PATIENCE:
            return
        self.widths = [self._width(t, int(hits), int(rows)) for t, (hits, rows) in enumerate(total)]

    def _width(self, tensor: int, hits: int, rows: int) -> int | None:
        o, size, width = self.options, self.sizes[tensor], self._row(tensor)
        if not size or self.taken == "dense" or hits >= o.below * size * self.nodes:
            return None
        if self.taken == "blocks":
            return min(o.block, size)
        by_row = rows * (width + 1) < hits * 2 if o.grain == "auto" else o.grain == "row"
        return width if by_row else 1

    def _exchange(self, name: str) -> SparseExchange:
        """Return the exchange `name` of the grains; make it at first use."""
        if name not in self._exchanges:
            self._exchanges[name] = self._make_exchange(name)
        return self._exchanges[name]

    def _make_exchange(self, name: str) -> SparseExchange:
        grains, nodes, o = self.grains, self.nodes, self.options
        if name == "all-gather":
            return AllGather(grains, nodes, self.push)
        if name == "doubling":
            return Doubling(grains, nodes, self.push)
        kind: PartitionName = "range" if name == "blocks" else o.partition
        partition = make_partition(kind, grains.size, nodes, seed=self.seed, hits=self.hits)
        memory = o.memory if kind == "hash" else None
        back = self.push if name == "blocks" else self.pull
        return PointToPoint(grains, nodes, self.push, partition, back, memory, self.seed)

    def messages(self, worker: SparseWorker, values: Array) -> Messages:
        corrected = worker.accumulate(values, 0.0) if self.options.error_feedback else values
        if self.widths is None:
            # Hit values and hit rows of each tensor, int64 [2 * tensors], as bytes.
            result = [
                _traits(part, self._row(t)) if part.size else (0, 0)
                for t, part in enumerate(cut(corrected, self.offsets))
            ]
            traits = np.array(result, "<i8").reshape(-1).view(np.uint8)
            all_traits = yield Message("traits", traits, "agree", bits=8)
            self.once("layout", lambda: self._lay_out(all_traits))
        if self.options.values == "asc":
            yield from self._coded(worker, corrected)
        else:
            yield from self._floats(worker, corrected)

    def _floats(self, worker: SparseWorker, corrected: Array) -> Messages:
        grains = self.grains
        worker.own = corrected
        mean = self.once("mean", lambda: np.zeros(self.values, np.float32))
        worker.chosen = grains.hit(corrected)
        if grains.size:
            name = self.taken or "all-gather"
            exchange = self.once("exchange", lambda: self._exchange(name))
            items = corrected[grains.values_of(worker.chosen)]
            union, sums = yield from exchange.run(worker, (worker.chosen, items), self)
            mean[grains.values_of(union)] = sums / np.float32(self.nodes)
            self.once("union", lambda: union)
        if self.dense.size:
            total = yield Message("dense", corrected[self.dense])
            mean[self.dense] = total / np.float32(self.nodes)

    def is_exact(self, workers: Sequence[Any]) -> bool:
        """Whether the sums of sparse tensors equal, bit for bit, the sums in the order of ranks.

        Integers and dense tensors are not compared here. Dense tensors have their own channel.
        """
        if self._mean is None or any(worker.own is None for worker in workers):
            return False
        at = self.grains.values_of(np.arange(self.grains.size))
        total = np.zeros(at.size, np.float32)
        for worker in workers:
            total += worker.own[at]
        return bool(np.array_equal(self._mean[at], total / np.float32(self.nodes)))

    def _coded(self, worker: SparseWorker, corrected: Array) -> Messages:
        def attempt(grid: Grid) -> Attempt:
            summed = yield from self._integers(worker, corrected, grid)
            assert summed.ride is not None
            return summed.ride

        yield from self.sum.steps.settle(corrected, self.sum.limit, attempt, self.again)

    def _integers(
        self, worker: SparseWorker, corrected: Array, grid: Grid
    ) -> Generator[Message, Any, Summed]:
        """Yield the messages of the integers of `corrected` on `grid`; return their sum."""
        grains = self.grains
        integers, worker.saturation = grid.quantise(corrected, self.sum.limit)
        worker.chosen = grains.hit(integers)  # values below half a step quantise to 0 and are not sent
        if grains.size:
            stream = self.index.encode(worker.rank, worker.chosen)
            streams = yield Message("index", stream, "gather", bits=8)
            sets = self.once("sets", lambda: self.index.decode(streams))
            self.once("union", lambda: unite(sets, grains.size))
        at = self.once("places", self._places)
        context = lambda: self.once("context", lambda: self.sum.classes(at))  # noqa: E731
        parts = integers[at], grid.ride(corrected, worker.saturation), worker.saturation
        summed: Summed = yield from self.sum.integers(grid, *parts, at, context)
        if self.options.error_feedback:
            worker.keep(corrected.copy(), at, summed.sent)
        self.once("summed", lambda: summed)
        return summed

    def _places(self) -> Array:
        """Return the positions of the coded values: dense tensors, and grains with a hit."""
        if not self.grains.size:
            return self.dense
        chosen = np.zeros(self.values, np.bool_)
        chosen[self.dense] = True
        chosen[self.grains.values_of(self._memory["union"])] = True
        return np.flatnonzero(chosen)

    def finish(self, totals: Sequence[Any]) -> Array:
        if self.options.values == "asc":
            at, summed = self._memory["places"], self._memory["summed"]
            mean = np.zeros(self.values, np.float32)
            mean[at] = summed.mean
            self.sum.observe(summed, at)
            if self.grains.size:
                self.index.observe(self._memory["union"])
        else:
            mean = self._mean = self._memory["mean"]
            if self.grains.size:
                self._learn(self._memory["union"])
        self.iteration += 1
        return mean

    def _learn(self, union: Array) -> None:
        """Update the hit counts, and choose the exchange when it is time."""
        if self.options.partition == "learnt":
            hit = np.zeros(self.grains.size, np.int64)
            hit[union] = 256
            self.hits = hit if self.hits is None else self.hits + ((hit - self.hits) >> 1)
            self._exchanges.clear()
        if self.taken is None and self.iteration + 1 >= self.options.profile:
            sets = [positions for positions, _ in self._memory["sets"]]
            costs = {name: self._exchange(name).busiest(sets) for name in ("balanced", "doubling")}
            costs["dense"] = 2 * (self.nodes - 1) * FLOAT * int(self.grains.widths.sum()) // self.nodes
            self.taken = min(costs, key=lambda name: (costs[name], name))
            if self.taken == "dense":
                self.widths = [None] * len(self.sizes)
