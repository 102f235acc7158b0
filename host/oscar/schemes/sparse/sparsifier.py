"""The base of all sparsifiers: error feedback, gathered positions, values summed at the union.

Every worker adds its residual to its gradient and chooses positions. All positions are gathered and united.
Then all workers' values at the union are summed, chosen or not. Values that were not sent are the residual:
bit for bit, acc = sent + residual. See docs/reference/sparse.md, "Sparsifiers".
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
from oscar.schemes.sparse.values import BITS, CHANNEL, FORMS, GatheredIndex, Summed, ValueSum
from oscar.state import PART, Reader, optional

Controller = Literal["corrected", "released"]
FIRST_DENSITY = 0.25  # density at the begin of a warm-up
CALM = 0.25  # at this density, small models train as well as uncompressed (docs/results/accuracy.md)
Choice = Generator[Message, Any, Array]  # yields messages, returns the sorted chosen positions, int64


@dataclass(frozen=True)
class SparseOptions:
    """Options of all sparsifiers.

    density: chosen values / all values. Raise it if training lags behind uncompressed; lower it for fewer
        bytes.
    controller: how a threshold is set. "corrected" uses the workers' exact quantiles. "released" is the
        published rule, for comparison.
    values: form of the summed values, "fp32", "int8" or "asc". Choose "asc" or "int8" for fewer bytes.
    index: index codec of the positions. "gaps" suits low densities.
    coarseness: step size of int8 and asc / root mean square of the sent values. Lower it for finer values.
    momentum: momentum correction of Deep Gradient Compression. Set the optimiser's own momentum to 0 then.
    warmup: iterations in which the density falls from 0.25 to `density`. Raise it if training is unstable at
        the begin.
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


def check_one(key: str, name: str, known: Sequence[str]) -> None:
    """Raise ValueError unless the option `key` is one of `known`."""
    if name not in known:
        raise ValueError(f"{key} is one of {', '.join(known)}, got {name!r}")


class SparseWorker(Worker):
    """A worker that also keeps the velocity of momentum correction.

    chosen: the positions that it chose in the last iteration.
    """

    STATE: ClassVar[dict[str, Reader]] = Worker.STATE | {
        "velocity": optional(lambda worker, saved: saved.array(np.float32, (worker.values,)))
    }

    def __init__(self, rank: int, values: int) -> None:
        super().__init__(rank, values)
        self.chosen = np.zeros(0, np.int64)
        self.own: Array | None = None  # its gradient of the last iteration, if floats are summed exactly
        self.velocity: Array | None = None
        self._next_velocity: Array | None = None

    def accumulate(self, values: Array, momentum: float) -> Array:
        """Return a new array: the gradient (or its velocity) plus the residual."""
        if not momentum:
            return values.copy() if self.carried is None else values + self.carried
        moved = values if self.velocity is None else values + np.float32(momentum) * self.velocity
        self._next_velocity = moved if moved is not values else values.copy()
        return moved.copy() if self.carried is None else moved + self.carried

    def keep(self, acc: Array, positions: Array, sent: Array) -> None:
        """Subtract `sent` at `positions` from `acc` in place, and make the result the next residual."""
        acc[positions] -= sent
        self.pending = acc
        if self._next_velocity is not None:
            self._next_velocity[positions] = 0  # else the momentum would apply the sent values again

    def bound(self) -> None:
        super().bound()
        if self._spike and self._next_velocity is not None:
            self._shrink(self._next_velocity, self.velocity)

    def forget(self) -> None:
        """See Member.forget. The velocity is forgotten, too."""
        super().forget()
        self.velocity = self._next_velocity = None

    def commit(self) -> None:
        super().commit()
        if self._next_velocity is not None:
            hold_within(self._next_velocity, MOST_WAITING)
        self.velocity, self._next_velocity = self._next_velocity, None

    def _follow(self) -> None:
        super()._follow()
        self._next_velocity = None


class Sparsifier(Scheme):
    """A sparsifier without its rule. Subclasses define `choose`, and `observe` if the rule has state.

    counts: number of positions that each worker chose in the last iteration. united: size of their union.
    """

    Options: ClassVar[type[Any]] = SparseOptions
    patient = True
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
        """The number of values to choose in this iteration: k."""
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
            f"higher density (small models need {CALM:g}), a warmup or a longer training helps"
        )

    @abstractmethod
    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """Return the positions that `worker` chooses from `acc`; `acc` stays unchanged.

        It may yield messages. All workers must yield the same channels.
        """

    def observe(self, counts: Array, united: Array) -> None:
        """Advance the rule's replicated state, given every worker's count and the sorted union."""

    def tell(self, worker: SparseWorker, stream: Array) -> Generator[Message, Any, Sequence[Array]]:
        """Yield the messages that bring every worker's stream to all; return the streams by rank."""
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
        """Return the number of positions in each stream, and their sorted union."""
        sets = self.index.decode(streams)
        return np.array([len(one) for one in sets], np.int64), unite(sets, self.values)

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


def unite(sets: Sequence[Array], size: int) -> Array:
    """Return the sorted union of sorted positions below `size`, int64."""
    if len(sets) == 1:
        return sets[0]
    hit = np.zeros(size, np.bool_)
    for positions in sets:
        hit[positions] = True
    return np.flatnonzero(hit)
