"""What all sparsifiers share: error feedback, positions gathered from all, values summed at their union.

Every worker adds its residual to its gradient and chooses positions. All positions are gathered and united.
The values at the union are summed, those of workers that did not choose them as well. What was not sent is
the residual: bit for bit, acc = sent + residual. docs/sparse.md, "Sparsifiers".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.coding.index import INDEX_CODECS
from oscar.numerics.quantiser_kernels import hold_within
from oscar.schemes.base import MOST_WAITING, Message, Messages, Scheme, Worker
from oscar.schemes.sparse.gathered import GatheredIndex
from oscar.schemes.sparse.values import BITS, CHANNEL, FORMS, Summed, ValueSum
from oscar.state import PART, Reader, Saved, optional

Controller = Literal["corrected", "released"]
FIRST_DENSITY = 0.25  # of a warm-up
CALM = 0.25  # density at which small models end where uncompressed ones do (docs/results/convergence.md)
Choice = Generator[Message, Any, Array]  # messages, and at the end the positions chosen: int64, sorted


@dataclass(frozen=True)
class SparseOptions:
    """Options of all sparsifiers.

    density: share of all values that are chosen in an iteration, by all workers together. controller: of a
    threshold; "corrected" takes the mean of the workers' exact quantiles, "released" moves it by the
    published rule. values: how they are summed. index: how positions travel. coarseness: step of int8 and
    asc, in root mean squares of the values sent. momentum: of momentum correction (Deep Gradient
    Compression), the optimiser's own is to be 0 then. warmup: iterations in which the density falls from .25.
    """

    density: float = 0.01
    controller: str = "corrected"
    values: str = "fp32"
    index: str = "gaps"
    coarseness: float = 0.25
    momentum: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise ValueError(f"density is a share of all values, above 0 and at most 1, got {self.density}")
        check_one("controller", self.controller, get_args(Controller))
        check_one("values", self.values, FORMS)
        check_one("index", self.index, tuple(INDEX_CODECS))
        if not 0 <= self.momentum < 1 or self.warmup < 0:
            raise ValueError(
                f"expected 0 <= momentum < 1 and warmup >= 0, got {self.momentum} and {self.warmup}"
            )


def check_one(key: str, came: str, known: Sequence[str]) -> None:
    """Raise ValueError unless the option `key` is one of `known`."""
    if came not in known:
        raise ValueError(f"{key} is one of {', '.join(known)}, got {came!r}")


def _read_velocity(worker: Any, saved: Saved) -> Array:
    return saved.array(np.float32, (worker.values,))


class SparseWorker(Worker):
    """What one rank keeps beside its residual: the velocity of momentum correction.

    chosen: its own positions of the last iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Worker.STATE | {"velocity": optional(_read_velocity)}

    def __init__(self, rank: int, values: int) -> None:
        super().__init__(rank, values)
        self.chosen = np.zeros(0, np.int64)
        self.own: Array | None = None  # what it had in the last iteration, of floats that are summed exactly
        self.velocity: Array | None = None
        self._next_velocity: Array | None = None

    def accumulate(self, values: Array, momentum: float) -> Array:
        """Return the gradient, or its velocity, plus the residual: a new array."""
        if not momentum:
            return values.copy() if self.residual is None else values + self.residual
        moved = values if self.velocity is None else values + np.float32(momentum) * self.velocity
        self._next_velocity = moved if moved is not values else values.copy()
        return moved.copy() if self.residual is None else moved + self.residual

    def keep(self, acc: Array, positions: Array, sent: Array) -> None:
        """Let what is left of `acc`, which is written to, become the residual."""
        acc[positions] -= sent
        self.pending = acc
        if self._next_velocity is not None:
            self._next_velocity[positions] = 0  # momentum of what has been applied would push it again

    def commit(self) -> None:
        super().commit()
        if self._next_velocity is not None:
            hold_within(self._next_velocity, MOST_WAITING)
        self.velocity, self._next_velocity = self._next_velocity, None

    def _follow(self) -> None:
        super()._follow()
        self._next_velocity = None


class Sparsifier(Scheme):
    """A sparsifier but for its rule: `choose`, and what follows from everybody's counts, `observe`.

    counts: positions that each worker chose in the last iteration; united: how many those were together.
    """

    Options: ClassVar[type[Any]] = SparseOptions
    STATE: ClassVar[dict[str, Reader]] = Scheme.STATE | {"sum": PART, "index": PART}

    def _setup(self) -> None:
        o = self.options
        self.sum = ValueSum(
            o.values, [self.values], self.nodes, coarseness=o.coarseness, density=min(1.0, o.density)
        )
        self.index = GatheredIndex(o.index, self.values, self.nodes)
        self.counts = np.zeros(self.nodes, np.int64)
        self.united = 0

    def make_worker(self, rank: int) -> SparseWorker:
        return SparseWorker(rank, self.values)

    @property
    def count(self) -> int:
        """Values that all workers together are to choose in this iteration: k."""
        o = self.options
        density = o.density
        if self.iteration < o.warmup:
            first = max(FIRST_DENSITY, density)
            density = first * (density / first) ** (self.iteration / o.warmup)
        return min(self.values, max(1, int(density * self.values))) if self.values else 0

    def caution(self) -> str | None:
        density = self.options.density
        if density >= CALM:
            return None
        return (
            f"at density {density:g} most values wait for many iterations until they are chosen: a short "
            "training ends worse than uncompressed, and with an optimiser's momentum it may diverge. A "
            f"higher density (small models ask for {CALM:g}), a warmup or a longer training helps"
        )

    @abstractmethod
    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """Return the positions that `worker` chooses of `acc`, which it does not write to.

        It may yield messages, the same ones as all other workers.
        """

    def observe(self, counts: Array, united: Array) -> None:
        """Move the rule's replicated state, given every worker's count and the union, sorted."""

    def tell(self, worker: SparseWorker, stream: Array) -> Generator[Message, Any, Sequence[Array]]:
        """Yield what brings everybody's stream of positions to all workers; return the streams by rank."""
        return (yield Message("index", stream, "gather", bits=8))

    def messages(self, worker: SparseWorker, values: Array) -> Messages:
        acc = worker.accumulate(values, self.options.momentum)
        worker.chosen = yield from self.choose(worker, acc)
        stream = self.index.encode(worker.rank, worker.chosen)
        streams = yield from self.tell(worker, stream)
        _, union = self.once("union", lambda: self._unite(streams))
        context = lambda: self.once("context", lambda: self.sum.classes(union))  # noqa: E731
        summed: Summed = yield from self.sum.messages(acc, union, context)
        worker.saturation = summed.lost
        worker.keep(acc, union, summed.sent)
        self.once("summed", lambda: summed)

    def _unite(self, streams: Sequence[Array]) -> tuple[Array, Array]:
        """Return how many positions each stream holds, and all of them together, sorted."""
        every = self.index.decode(streams)
        return np.array([len(one) for one in every], np.int64), unite(every, self.values)

    def finish(self, totals: Sequence[Any]) -> Array:
        counts, union = self._memory["union"]
        summed: Summed = self._memory["summed"]
        mean = np.zeros(self.values, np.float32)
        mean[union] = summed.mean
        self.sum.observe(summed, union)
        self.index.observe(union)
        self.observe(counts, union)
        self.counts, self.united = counts, union.size
        self.iteration += 1
        return mean

    def coded_channels(self) -> dict[str, int]:
        return {CHANNEL: BITS} if self.options.values == "asc" else {}


def unite(every: Sequence[Array], size: int) -> Array:
    """Return the sorted union of sorted positions below `size`, int64."""
    if len(every) == 1:
        return every[0]
    hit = np.zeros(size, np.bool_)
    for positions in every:
        hit[positions] = True
    return np.flatnonzero(hit)
