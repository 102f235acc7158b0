"""Ok-Topk: sums by regions of equal load, then a balanced gather of the k largest sums (PPoPP 2022).

Every rank owns a region of positions. Ranks send their chosen values to the owner of the region. The owner
adds them and keeps the sums above a shared threshold. The kept sums are dealt evenly to ranks and gathered. A
value that was sent and not applied stays in the residual. See docs/reference/sparse.md, "Ok-Topk".
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.errors import FrameError
from oscar.schemes.base import Message, handed
from oscar.schemes.selection import largest
from oscar.schemes.sparse.exchanges import OwnSets, OwnSetsOptions, Set
from oscar.schemes.sparse.sparsifier import Choice, SparseWorker, Sparsifier
from oscar.state import Reader, Saved, optional

NONE = np.zeros(0, np.int64)
SLACK = 4 / 3  # a "corrected" threshold that misses k by more than this factor is renewed before it counts


@dataclass(frozen=True)
class OkTopkOptions(OwnSetsOptions):
    """Options of the scheme `oktopk`: OwnSetsOptions and the times between renewals.

    reuse: iterations for which a threshold is kept. `controller: corrected` renews it at once where it would
        select a third too many values or a quarter too few. Raise it to save time in choosing.
    regions: iterations for which the regions are kept. Lower it if the load of regions drifts.
    uneven: largest number of kept sums on a rank / mean over ranks. Beyond it, the sums are dealt evenly
        first. Lower it for slow links; raise it for high latency.
    """

    reuse: int = 32
    regions: int = 64
    uneven: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reuse < 1 or self.regions < 1 or not self.uneven >= 1:
            raise ValueError(
                "expected reuse >= 1, regions >= 1 and uneven >= 1, got "
                f"{self.reuse}, {self.regions} and {self.uneven}"
            )


def _read_cut(owner: Any, saved: Saved) -> float:
    return saved.number(0.0, float(np.finfo(np.float32).max))


def _read_bounds(scheme: Any, saved: Saved) -> Array:
    bounds = saved.array(np.int64, (scheme.nodes + 1,), 0, scheme.values)
    if bounds[0] != 0 or bounds[-1] != scheme.values or (np.diff(bounds) < 0).any():
        raise saved.refuse("bounds that rise from 0 to the number of values", "others")
    return bounds


class OkTopkWorker(SparseWorker):
    """A worker with its own threshold. cut: the threshold of its values; None: find a new one."""

    STATE: ClassVar[dict[str, Reader]] = SparseWorker.STATE | {"cut": optional(_read_cut)}

    def __init__(self, rank: int, values: int) -> None:
        super().__init__(rank, values)
        self.cut: float | None = None
        self.next_cut: float | None = None

    def commit(self) -> None:
        super().commit()
        self.cut = self.next_cut


def cut_of(magnitudes: Array, count: int) -> float:
    """Return the `count`-th largest magnitude, or 0 if there are no more than `count`."""
    if count >= magnitudes.size:
        return 0.0
    return float(magnitudes[largest(magnitudes, count)].min())


def reached(values: Array, cut: float) -> Array:
    """Return the sorted places of non-zero `values` of at least `cut` in magnitude."""
    magnitudes = np.abs(values)
    return np.flatnonzero((magnitudes >= np.float32(cut)) & (magnitudes > 0))


class OkTopk(OwnSets):
    """Sum by regions, then gather the largest sums.

    bounds: of the ranks' regions, int64 [nodes + 1]. cut: the threshold of sums; None: find a new one.
    """

    name: ClassVar[str] = "oktopk"
    Options: ClassVar[type[Any]] = OkTopkOptions
    STATE: ClassVar[dict[str, Reader]] = Sparsifier.STATE | {
        "bounds": optional(_read_bounds),
        "cut": optional(_read_cut),
    }

    def _setup(self) -> None:
        super()._setup()
        self.bounds: Array | None = None
        self.cut: float | None = None

    def make_worker(self, rank: int) -> OkTopkWorker:
        return OkTopkWorker(rank, self.values)

    def _misses(self, selected: int) -> bool:
        """Whether a threshold that selects so many values needs to be renewed before it counts."""
        fits = self.count / SLACK <= selected <= self.count * SLACK
        return self.options.controller == "corrected" and not fits

    def _later(self, cut: float) -> float | None:
        """Return `cut`, or None if the next iteration needs a new one."""
        return None if (self.iteration + 1) % self.options.reuse == 0 else cut

    def choose(self, worker: SparseWorker, acc: Array) -> Choice:
        """See Sparsifier.choose."""
        assert isinstance(worker, OkTopkWorker)
        cut = worker.cut
        if cut is None or self._misses(reached(acc, cut).size):
            cut = cut_of(np.abs(acc), self.count)
        worker.next_cut = self._later(cut)
        return reached(acc, cut)
        yield  # a generator without messages

    def deliver(self, worker: SparseWorker, own: Set) -> Generator[Message, Any, Set]:
        """See OwnSets.deliver."""
        bounds = yield from self._regions(worker, own[0])
        mine = np.arange(bounds[worker.rank], bounds[worker.rank + 1])
        parts = [self._part(own, first, last) for first, last in pairwise(bounds)]
        came = yield handed("push", parts)
        sets = [self.sets.unpack(self.sets.index, data, mine, rank) for rank, data in enumerate(came)]
        positions, sums = self.sets.add(sets)
        kept, sizes = yield from self._kept(sums)
        held = yield from self._dealt(worker, (positions[kept], sums[kept]), sizes)
        packed = self.sets.pack(self.sets.index, held[0], self.values, held[1])
        every = yield Message("sums", packed, "gather", bits=8)
        return self.once("gathered", lambda: self._joined(every))

    def _kept(self, sums: Array) -> Generator[Message, Any, Set]:
        """Return the places of this rank's sums to apply, and the number of these on every rank."""
        cut, kept, sizes = self.cut, NONE, NONE
        if cut is not None:
            kept, sizes = yield from self._counted("sizes", sums, cut)
        if cut is None or self._misses(int(sizes.sum())):
            magnitudes = np.abs(sums).astype("<f4").view(np.uint8)
            every = yield Message("magnitudes", magnitudes, "gather", bits=8)
            cut = self.once("cut", lambda: cut_of(np.concatenate(every).view("<f4"), self.count))
            channel = "sizes" if self.cut is None else "sizes again"
            kept, sizes = yield from self._counted(channel, sums, cut)
        self.once("next cut", lambda: self._later(cut))
        return kept, sizes

    def _counted(self, channel: str, sums: Array, cut: float) -> Generator[Message, Any, Set]:
        """Return the places of this rank's sums that reach `cut`, and the number of these on every rank."""
        places = reached(sums, cut)
        every = yield Message(channel, np.array([places.size], "<i8").view(np.uint8), "agree", bits=8)
        return places, np.concatenate(every).view("<i8")

    def _regions(self, worker: SparseWorker, chosen: Array) -> Generator[Message, Any, Array]:
        """Return the bounds of the regions. When renewal is due: the mean of every rank's best bounds."""
        if self.bounds is not None and self.iteration % self.options.regions:
            return self.bounds
        nodes, ranks = self.nodes, np.arange(1, self.nodes)
        even = ranks * self.values // nodes
        suits = chosen[ranks * chosen.size // nodes] if chosen.size >= nodes else even
        every = yield Message("regions", suits.astype("<i8").view(np.uint8), "gather", bits=8)

        def mean() -> Array:
            inner = np.sum([one.view("<i8") for one in every], axis=0) // nodes
            return np.concatenate([[0], inner, [self.values]]).astype(np.int64)

        return self.once("bounds", mean)

    def _part(self, own: Set, first: int, last: int) -> Array:
        """Return the part of `own` from `first` to `last`, packed for the owner of this region."""
        low, high = np.searchsorted(own[0], [first, last])
        local = own[0][low:high] - first
        return self.sets.pack(self.sets.index, local, int(last - first), own[1][low:high])

    def _dealt(self, worker: SparseWorker, held: Set, sizes: Array) -> Generator[Message, Any, Set]:
        """Return this rank's even share of all kept sums, or `held` if ranks hold about the same."""
        nodes, total = self.nodes, int(sizes.sum())
        if sizes.max() * nodes <= self.options.uneven * total:
            return held
        begin = int(sizes[: worker.rank].sum())
        ends = [np.clip(total * rank // nodes - begin, 0, len(held[0])) for rank in range(nodes + 1)]
        parts = [
            self.sets.pack(self.sets.index, held[0][low:high], self.values, held[1][low:high])
            for low, high in pairwise(ends)
        ]
        came = yield handed("deal", parts)
        return self._joined(came)

    def _joined(self, every: Sequence[Array]) -> Set:
        """Return consecutive sets joined as one set. Raises FrameError if their positions do not rise."""
        sets = [self.sets.unpack(self.sets.index, data, None, rank) for rank, data in enumerate(every)]
        positions = np.concatenate([one for one, _ in sets])
        if (np.diff(positions) <= 0).any():
            raise FrameError(
                "expected sums of consecutive regions, got positions that do not rise: ranks are out of step"
            )
        return positions, np.concatenate([items for _, items in sets])

    def finish(self, totals: Sequence[Any]) -> Array:
        self.bounds = self._memory.get("bounds", self.bounds)
        self.cut = self._memory["next cut"]
        return super().finish(totals)
