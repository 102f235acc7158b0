"""Chunk plans: which blocks of the gradient make up which chunk of an AllReduce.

A plan is data. Every node computes it from the same integers, the previous iteration's aggregated sums, so
nodes agree without a message. A collective never knows which rule made the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from oscar.kernels import njit


@njit(cache=True, nogil=True)
def _gather(values: Any, places: Any, granule: int, out: Any) -> None:
    for block in range(places.size):
        source = values[block * granule : (block + 1) * granule]
        target = out[places[block] : places[block] + source.size]
        for i in range(source.size):  # an assignment of slices would look for overlaps
            target[i] = source[i]


@njit(cache=True, nogil=True)
def scatter_range(values: Any, places: Any, granule: int, low: int, high: int, out: Any) -> None:
    """Copy the values `low` to `high` of the natural order, which lie in plan order in `values`, to `out`."""
    while low < high:
        block = low // granule
        end = min(high, (block + 1) * granule)
        first = places[block] + low - block * granule
        source, target = values[first : first + end - low], out[low:end]
        for i in range(target.size):
            target[i] = source[i]
        low = end


@njit(cache=True, nogil=True)
def gather_range(values: Any, places: Any, granule: int, low: int, out: Any) -> None:
    """Copy `values`, those from `low` on in the natural order, to where they lie in plan order in `out`."""
    high, first = low + values.size, low
    while low < high:
        block = low // granule
        end = min(high, (block + 1) * granule)
        place = places[block] + low - block * granule
        target, source = out[place : place + end - low], values[low - first : end - first]
        for i in range(target.size):
            target[i] = source[i]
        low = end


@dataclass(frozen=True)
class ChunkPlan:
    """`order`: the blocks of `granule` values in plan order, int64, or None for the natural order;
    `bounds`: where each of the chunks begins in plan order, and the end of the last (nodes + 1)."""

    name: str
    order: np.ndarray | None
    bounds: tuple[int, ...]
    granule: int = 1

    @cached_property
    def places(self) -> tuple[np.ndarray, int]:
        """Where blocks begin in plan order, int64, by block; and the values in a block.

        The natural order is one block.
        """
        values = self.bounds[-1]
        if self.order is None:
            return np.zeros(min(1, values), np.int64), max(1, values)
        lengths = np.minimum(self.granule, values - self.order * self.granule)
        places = np.empty_like(self.order)
        places[self.order] = np.cumsum(lengths) - lengths
        return places, self.granule

    def gather(self, values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return a copy of `values` in plan order, in which chunks are contiguous.

        out: written to and returned where it has the shape and dtype of `values`.
        """
        if out is None or out.shape != values.shape or out.dtype != values.dtype:
            out = np.empty(values.shape, values.dtype)
        if self.order is None:
            out[:] = values
            return out
        _gather(np.ascontiguousarray(values), *self.places, out)
        return out

    def scatter(self, values: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return a copy of `values`, given in plan order, in the natural order; `out` as in `gather`."""
        if out is None or out.shape != values.shape or out.dtype != values.dtype:
            out = np.empty(values.shape, values.dtype)
        if self.order is None:
            out[:] = values
            return out
        scatter_range(np.ascontiguousarray(values), *self.places, 0, values.size, out)
        return out


def in_order(values: int) -> ChunkPlan:
    """Return the plan of one chunk, in which values lie in their natural order."""
    return ChunkPlan("equal", None, (0, values))


@njit(cache=True, nogil=True)
def _block_costs(sums: Any, granule: int, out: Any) -> None:
    for j in range(len(sums)):
        m = np.int64(sums[j])
        if m == 0:
            continue
        m = m if m > 0 else -m
        c = 1
        while m > 0:
            m >>= 1
            c += 2
        out[j // granule] += c


def block_costs(sums: np.ndarray, granule: int) -> np.ndarray:
    """Return an integer stand-in for the coded size of every block, from sums that every node has.

    A value costs 2 * bit_length(|G|) + [G != 0], in half bits. Nodes see different coded sizes, of
    partial sums and residuals, which must not steer a shared plan. This cost correlates with them above .97.
    """
    out = np.zeros(-(-sums.size // granule), np.int64)
    _block_costs(sums, granule, out)
    return out


SHARE_PARTS = 1 << 20  # shares are counted in these, so that all ranks agree to the value


class Cuts(NamedTuple):
    """Where chunks begin, and the last one ends, in parts of `whole`: how much of all is each one's."""

    edges: tuple[int, ...]
    whole: int

    @property
    def even(self) -> bool:
        """Whether no shares were asked for: every chunk is one part."""
        return self.whole == len(self.edges) - 1

    def of(self, total: int) -> list[int]:
        """Return the edges as whole parts of `total`, rounded down."""
        return [total * edge // self.whole for edge in self.edges]


@lru_cache(maxsize=64)
def cuts_of(shares: tuple[float, ...]) -> Cuts:
    """Return shares as cuts in parts of SHARE_PARTS; a share of 0 has no part.

    Raises ValueError unless shares are finite, not negative, and sum to 1 (to 1e-6).
    """
    wrong = [f"{share!r} for chunk {c}" for c, share in enumerate(shares) if not 0 <= share < math.inf]
    if wrong:
        raise ValueError(f"shares: expected numbers of 0 or more, got {wrong[0]}")
    sums = [Fraction(0)]
    for share in shares:
        sums.append(sums[-1] + Fraction(share))
    if abs(sums[-1] - 1) > Fraction(1, 10**6):
        raise ValueError(f"shares: expected a sum of 1, got {float(sums[-1]):.9g}; divide each by it")
    return Cuts(tuple(round(SHARE_PARTS * at / sums[-1]) for at in sums), SHARE_PARTS)


def _check(values: int, chunks: int, granule: int) -> None:
    if values < 0 or chunks < 1 or granule < 1:
        raise ValueError(
            f"expected values >= 0, chunks >= 1, granule >= 1; got {values}, {chunks}, {granule}"
        )


def _deal(name: str, chunk_of_block: np.ndarray, values: int, chunks: int, granule: int) -> ChunkPlan:
    """Make a plan of a chunk number per block; blocks keep their order within a chunk."""
    blocks = np.argsort(chunk_of_block, kind="stable").astype(np.int64)
    lengths = np.minimum(granule, values - blocks * granule)
    share = np.bincount(chunk_of_block[blocks], weights=lengths, minlength=chunks).astype(np.int64)
    return ChunkPlan(name, blocks, (0, *(int(b) for b in np.cumsum(share))), granule)


def _turns(blocks: int, cuts: Cuts, *, back: bool) -> np.ndarray:
    """Return whose turn it is, a chunk per block: a round robin in which turns are in proportion to shares.

    Each chunk's turns lie evenly spread: turn k of n at (2k + 1) / 2n of the way. back: of turns at one place
    the chunks take every second in falling order. Quotients are rounded alike on all machines.
    """
    counts = np.diff(cuts.of(blocks))
    chunk = np.repeat(np.arange(counts.size), counts)
    turn = np.arange(blocks) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (2 * turn + 1) / counts[chunk]
    order = np.lexsort((np.where(turn % 2, -chunk, chunk) if back else chunk, places))
    return chunk[order]


def equal(values: int, cuts: Cuts, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Contiguous chunks, equal or by the shares, cut at any value: the plan of a ring without OSCAR."""
    return ChunkPlan("equal", None, tuple(cuts.of(values)))


def splitter(values: int, cuts: Cuts, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """OSCAR's splitter: contiguous chunks of equal estimated cost, or of their shares, cut between blocks.

    Each boundary is the block edge whose prefix sum is nearest to its part of the total (the lower on ties),
    in exact integers. Without costs (the first iteration) or with none to share, values count instead.
    """
    if costs is None or int(costs.sum()) == 0:
        return ChunkPlan("splitter", None, equal(values, cuts, granule, None).bounds)
    prefix = np.concatenate([[0], np.cumsum(costs)])
    total, whole = int(prefix[-1]), cuts.whole
    bounds = [0]
    for part in cuts.edges[1:-1]:
        goal = part * total  # in parts of `whole`; beyond 64 bits where costs are large
        edge = int(np.searchsorted(prefix, -(-goal // whole)))
        if edge > 0 and goal - int(prefix[edge - 1]) * whole <= int(prefix[edge]) * whole - goal:
            edge = int(np.searchsorted(prefix, prefix[edge - 1]))  # before any blocks that cost nothing
        low = values if part == whole else edge * granule  # nothing is left for those after
        bounds.append(max(bounds[-1], min(values, low)))
    return ChunkPlan("splitter", None, (*bounds, values))


def interleave(values: int, cuts: Cuts, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Static interleave: block j goes to chunk j mod chunks, or in turns by share; needs no statistics."""
    blocks, chunks = -(-values // granule), len(cuts.edges) - 1
    turns = np.arange(blocks) % chunks if cuts.even else _turns(blocks, cuts, back=False)
    return _deal("interleave", turns, values, chunks, granule)


def snake(values: int, cuts: Cuts, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Deal blocks by falling cost: 0, 1, .. N-1, N-1, .. 1, 0, 0, ..; the static interleave without costs.

    With shares, in turns like the interleave's, of which those at one place change direction, too.
    """
    if costs is None:
        return interleave(values, cuts, granule, None)
    chunks = len(cuts.edges) - 1
    rank = np.empty(costs.size, np.int64)
    rank[np.argsort(-costs, kind="stable")] = np.arange(costs.size)
    if not cuts.even:
        return _deal("snake", _turns(costs.size, cuts, back=True)[rank], values, chunks, granule)
    turn = rank % (2 * chunks)
    return _deal("snake", np.where(turn < chunks, turn, 2 * chunks - 1 - turn), values, chunks, granule)


PlanRule = Callable[[int, Cuts, int, "np.ndarray | None"], ChunkPlan]
PLANS: dict[str, PlanRule] = {"equal": equal, "splitter": splitter, "interleave": interleave, "snake": snake}
USES_COSTS = frozenset({"splitter", "snake"})


def make_plan(
    name: str,
    values: int,
    chunks: int,
    *,
    granule: int,
    costs: np.ndarray | None = None,
    shares: Sequence[float] | None = None,
) -> ChunkPlan:
    """Return the plan that rule `name` makes for `values` values in `chunks` chunks.

    granule: values per block; costs: int64 per block from `block_costs`, or None in the first iteration.
    shares: how much of the cost (of the values, for rules or iterations without costs) each chunk has, not
    negative, sum 1; None: equal chunks. Raises ValueError on an unknown name, a bad size, costs that do not
    match the blocks, or shares that do not match the chunks or do not sum to 1.
    """
    _check(values, chunks, granule)
    if name not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {name!r}")
    if costs is not None and costs.size != -(-values // granule):
        raise ValueError(f"expected a cost for each of {-(-values // granule)} blocks, got {costs.size}")
    if shares is not None and len(shares) != chunks:
        raise ValueError(f"shares: expected one for each of {chunks} chunks, got {len(shares)}")
    cuts = Cuts(tuple(range(chunks + 1)), chunks) if shares is None else cuts_of(tuple(shares))
    return PLANS[name](values, cuts, granule, costs)
