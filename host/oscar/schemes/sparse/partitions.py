"""Partitions: which worker serves a position. The server adds all workers' values and returns the sum."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.kernels import njit
from oscar.numerics.plans import make_plan
from oscar.schemes.sparse.hashing import servers

PartitionName = Literal["range", "interleave", "hash", "learnt"]
NAMES: tuple[PartitionName, ...] = get_args(PartitionName)
BLOCK = 8  # grains per block of "interleave"


@njit(cache=True, nogil=True)
def _local(owner: Any, nodes: int, out: Any) -> Any:
    counts = np.zeros(nodes, np.int64)
    for position in range(len(owner)):
        out[position] = counts[owner[position]]
        counts[owner[position]] += 1
    return counts


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition. owner: server of every position, int64 [size]. A server numbers its positions from 0."""

    name: str
    nodes: int
    owner: Array = field(repr=False)

    @property
    def size(self) -> int:
        """Number of positions."""
        return int(self.owner.size)

    @cached_property
    def local(self) -> Array:
        """The number of every position among its owner's positions, int64."""
        out = np.empty(self.size, np.int64)
        _local(self.owner, self.nodes, out)
        return out

    @cached_property
    def members(self) -> list[Array]:
        """The sorted positions of every owner."""
        order = np.argsort(self.owner, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.owner, minlength=self.nodes))[:-1])

    def split(self, positions: Array) -> list[Array]:
        """Return the sorted `positions` of each owner, sorted."""
        owner = self.owner[positions]
        return [positions[owner == node] for node in range(self.nodes)]


def make_partition(
    name: PartitionName, size: int, nodes: int, *, seed: int = 0, hits: Array | None = None
) -> Partition:
    """Return a partition of `size` positions among `nodes` servers.

    name: "range" gives equal runs, "interleave" blocks in turn, "hash" Zen's hash, and "learnt" the plan
    "snake" with hit counts as costs. hits: for "learnt", hits of every position, int64 >= 0, or None.
    Raises ValueError for an unknown name.
    """
    positions = np.arange(size)
    if name == "range":
        owner = positions * nodes // max(1, size)
    elif name == "interleave":
        owner = positions // BLOCK % nodes
    elif name == "hash":
        owner = servers(size, nodes, seed)
    elif name == "learnt":
        owner = _learnt(size, nodes, hits)
    else:
        raise ValueError(f"partition is one of {', '.join(NAMES)}, got {name!r}")
    return Partition(name, nodes, owner)


def _learnt(size: int, nodes: int, hits: Array | None) -> Array:
    if not size:
        return np.zeros(0, np.int64)
    costs = None if hits is None else hits + 1  # positions without a hit are dealt evenly, too
    plan = make_plan("snake", size, nodes, granule=1, costs=costs)
    order = np.arange(size) if plan.order is None else plan.order
    owner = np.empty(size, np.int64)
    owner[order] = np.repeat(np.arange(nodes), np.diff(plan.bounds))
    return owner
