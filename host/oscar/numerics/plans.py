"""Chunk plans: which blocks of the gradient make up which chunk of the ring.

A plan is data. Every node computes it from the same integers, the previous iteration's aggregated sums, so
nodes agree without a message. A collective never knows which rule made the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def _gather(values: Any, places: Any, granule: int, out: Any) -> None:
    for block in range(places.size):
        source = values[block * granule : (block + 1) * granule]
        target = out[places[block] : places[block] + source.size]
        for i in range(source.size):  # an assignment of slices would look for overlaps
            target[i] = source[i]


@njit(cache=True, nogil=True)
def _scatter(values: Any, places: Any, granule: int, out: Any) -> None:
    for block in range(places.size):
        target = out[block * granule : (block + 1) * granule]
        source = values[places[block] : places[block] + target.size]
        for i in range(target.size):
            target[i] = source[i]


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

    def scatter(self, values: np.ndarray) -> np.ndarray:
        """Return `values`, given in plan order, in the natural order."""
        if self.order is None:
            return values.copy()
        out = np.empty(values.shape, values.dtype)
        _scatter(np.ascontiguousarray(values), *self.places, out)
        return out


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


def _check(values: int, nodes: int, granule: int) -> None:
    if values < 0 or nodes < 1 or granule < 1:
        raise ValueError(f"expected values >= 0, nodes >= 1, granule >= 1; got {values}, {nodes}, {granule}")


def _deal(name: str, chunk_of_block: np.ndarray, values: int, nodes: int, granule: int) -> ChunkPlan:
    """Make a plan of a chunk number per block; blocks keep their order within a chunk."""
    blocks = np.argsort(chunk_of_block, kind="stable").astype(np.int64)
    lengths = np.minimum(granule, values - blocks * granule)
    share = np.bincount(chunk_of_block[blocks], weights=lengths, minlength=nodes).astype(np.int64)
    return ChunkPlan(name, blocks, (0, *(int(b) for b in np.cumsum(share))), granule)


def equal(values: int, nodes: int, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Equal contiguous chunks, to the value: what a ring does without OSCAR."""
    return ChunkPlan("equal", None, tuple(values * i // nodes for i in range(nodes + 1)))


def splitter(values: int, nodes: int, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """OSCAR's splitter: contiguous chunks of equal estimated cost, cut between blocks.

    Boundary i is the block edge whose prefix sum is nearest to i/nodes of the total (the lower on ties),
    in exact integers. Without costs (the first iteration) or with none to share, chunks are equal.
    """
    if costs is None or int(costs.sum()) == 0:
        return ChunkPlan("splitter", None, equal(values, nodes, granule, None).bounds)
    prefix = np.concatenate([[0], np.cumsum(costs)]) * nodes
    total = int(prefix[-1]) // nodes
    bounds = [0]
    for i in range(1, nodes):
        goal = i * total
        edge = int(np.searchsorted(prefix, goal))
        if edge > 0 and goal - int(prefix[edge - 1]) <= int(prefix[edge]) - goal:
            edge = int(np.searchsorted(prefix, prefix[edge - 1]))  # before any blocks that cost nothing
        bounds.append(max(bounds[-1], min(values, edge * granule)))
    return ChunkPlan("splitter", None, (*bounds, values))


def interleave(values: int, nodes: int, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Static interleave: block j goes to chunk j mod nodes; needs no statistics at all."""
    blocks = -(-values // granule)
    return _deal("interleave", np.arange(blocks) % nodes, values, nodes, granule)


def snake(values: int, nodes: int, granule: int, costs: np.ndarray | None) -> ChunkPlan:
    """Deal blocks by falling cost: 0, 1, .. N-1, N-1, .. 1, 0, 0, ..; the static interleave without costs."""
    if costs is None:
        return interleave(values, nodes, granule, None)
    rank = np.empty(costs.size, np.int64)
    rank[np.argsort(-costs, kind="stable")] = np.arange(costs.size)
    turn = rank % (2 * nodes)
    return _deal("snake", np.where(turn < nodes, turn, 2 * nodes - 1 - turn), values, nodes, granule)


PlanRule = Callable[[int, int, int, "np.ndarray | None"], ChunkPlan]
PLANS: dict[str, PlanRule] = {"equal": equal, "splitter": splitter, "interleave": interleave, "snake": snake}
USES_COSTS = frozenset({"splitter", "snake"})


def make_plan(
    name: str, values: int, nodes: int, *, granule: int, costs: np.ndarray | None = None
) -> ChunkPlan:
    """Return the plan that rule `name` makes for `values` values on `nodes` nodes.

    granule: values per block; costs: int64 per block from `block_costs`, or None in the first iteration.
    Raises ValueError on an unknown name, a bad size, or costs that do not match the blocks.
    """
    _check(values, nodes, granule)
    if name not in PLANS:
        raise ValueError(f"plan must be one of {', '.join(PLANS)}, got {name!r}")
    if costs is not None and costs.size != -(-values // granule):
        raise ValueError(f"expected a cost for each of {-(-values // granule)} blocks, got {costs.size}")
    return PLANS[name](values, nodes, granule, costs)
