"""What is dealt to Zen's servers, and how: grains, hashes and partitions.

A grain is what a position stands for: one value or a whole row. A partition says which worker serves a
position. The server adds all workers' values and returns the sums.

Hierarchical hashing deals positions into memory that needs no lock. Hash h0 chooses the server. Hashes h1
.. hk choose a slot of the server's parallel memory. A position whose slots are all taken goes to the
server's serial memory. No position is dropped: if memory is too small, an error is raised. Source: Wang et
al., Zen, arXiv 2309.13254. The hash is the finaliser of splitmix64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError
from oscar.kernels import njit
from oscar.numerics.plans import make_plan


@njit(cache=True, nogil=True)
def _hit(values: Any, starts: Any, widths: Any, out: Any) -> int:
    count = 0
    for g in range(len(starts)):
        for x in values[starts[g] : starts[g] + widths[g]]:
            if x != 0:
                out[count] = g
                count += 1
                break
    return count


@njit(cache=True, nogil=True)
def _hit_values(values: Any, starts: Any, out: Any) -> int:
    count = 0
    for g in range(len(starts)):
        out[count] = g
        count += values[starts[g]] != 0
    return count


@njit(cache=True, nogil=True)
def _values_of(positions: Any, starts: Any, widths: Any, out: Any) -> None:
    at = 0
    for g in positions:
        for j in range(widths[g]):
            out[at] = starts[g] + j
            at += 1


@njit(cache=True, nogil=True)
def _add_rows(into: Any, places: Any, positions: Any, widths: Any, items: Any) -> None:
    """Add the items of `positions` to `into`. places: the first index of each grain in `into`."""
    at = 0
    for g in positions:
        first = places[g]
        for j in range(widths[g]):
            into[first + j] += items[at]
            at += 1


@dataclass(frozen=True, eq=False)
class Grains:
    """The grains of a gradient. starts: first value of each, int64, rising. widths: their values, int64."""

    starts: Array = field(repr=False)
    widths: Array = field(repr=False)

    @classmethod
    def of(cls, offsets: Array, widths: Sequence[int | None]) -> Grains:
        """Return the grains of the tensors that begin at `offsets`.

        widths: values of a grain, for each tensor; None: this tensor has no grains. A tensor's last grain may
        be narrower.
        """
        starts, each = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for first, last, width in zip(offsets[:-1], offsets[1:], widths, strict=True):
            if width is not None:
                begin = np.arange(first, last, width)
                starts.append(begin)
                each.append(np.minimum(width, last - begin))
        return cls(np.concatenate(starts), np.concatenate(each))

    @property
    def size(self) -> int:
        """Number of grains. Positions lie below it."""
        return int(self.starts.size)

    @cached_property
    def width(self) -> int | None:
        """The common width of all grains, or None if widths differ."""
        return int(self.widths[0]) if self.size and (self.widths == self.widths[0]).all() else None

    def hit(self, values: Array) -> Array:
        """Return the sorted positions, int64, of the grains that contain a non-zero value."""
        out = np.empty(self.size + 1, np.int64)
        if self.width == 1:
            return out[: _hit_values(values, self.starts, out)].copy()
        return out[: _hit(values, self.starts, self.widths, out)].copy()

    def values_of(self, positions: Array) -> Array:
        """Return the indices of the grains' values in the flat gradient, int64, grain by grain."""
        if self.width == 1:
            return self.starts[positions]
        out = np.empty(self.count(positions), np.int64)
        _values_of(positions, self.starts, self.widths, out)
        return out

    def count(self, positions: Array) -> int:
        """Return the number of values of the grains at `positions`."""
        return len(positions) * self.width if self.width else int(self.widths[positions].sum())

    def summed(self, sets: Sequence[tuple[Array, Array]], union: Array) -> Array:
        """Return the float32 sums at `union` of sets (positions, items), added in the order given."""
        places = np.zeros(self.size, np.int64)
        widths = self.widths[union]
        places[union] = np.cumsum(widths) - widths
        out = np.zeros(int(widths.sum()), np.float32)
        for positions, items in sets:
            _add_rows(out, places, positions, self.widths, items)
        return out


EMPTY = -1


@njit(cache=True, nogil=True)
def mixed(position: Any, seed: Any) -> Any:
    """Return a hash of 64 bits of a position and a seed (the finaliser of SplitMix64)."""
    z = np.uint64(position) + (seed + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _servers(size: int, nodes: int, seed: Any, out: Any) -> None:
    for position in range(size):
        out[position] = mixed(position, seed) % np.uint64(nodes)


@njit(cache=True, nogil=True)
def _place(positions: Any, server: Any, seed: Any, tries: int, slots: Any, serial: Any, used: Any) -> int:
    """Put every position into its server's memory. Return a position that found no room, or -1."""
    each = np.uint64(slots.shape[1])
    for position in positions:
        owner, done = server[position], False
        for attempt in range(1, tries + 1):
            slot = mixed(position, seed + np.uint64(attempt)) % each
            if slots[owner, slot] == -1:
                slots[owner, slot] = position
                done = True
                break
        if not done:
            if used[owner] == serial.shape[1]:
                return position
            serial[owner, used[owner]] = position
            used[owner] += 1
    return -1


@dataclass(frozen=True)
class Memory:
    """Sizes of the memory, relative to the number of positions.

    slots: slots of all parallel memories together / positions.
    serial: places of a serial memory / slots of the parallel memory of the same server.
    tries: number of hashes that choose a slot.
    least: minimum size of either memory, because a few positions are dealt unevenly.
    """

    slots: float = 2.0
    serial: float = 0.1
    tries: int = 3
    least: int = 64

    def __post_init__(self) -> None:
        if not (
            0 < self.slots <= 64 and 0 <= self.serial <= 64 and 1 <= self.tries <= 16 and self.least >= 0
        ):
            raise ValueError(
                "expected 0 < slots <= 64, 0 <= serial <= 64 and 1 to 16 tries, got "
                f"{self.slots}, {self.serial} and {self.tries}"
            )


def servers(size: int, nodes: int, seed: int) -> Array:
    """Return the server of every position below `size`, int64. It depends on the arguments alone."""
    out = np.empty(size, np.int64)
    _servers(size, nodes, np.uint64(seed), out)
    return out


def deal(positions: Array, server: Array, nodes: int, seed: int, memory: Memory) -> tuple[list[Array], int]:
    """Return the sorted positions of each server, and how many of them are in serial memories.

    Raises GradientError if a server's memory is too small for its positions.
    """
    room = max(1, memory.least, -(-int(memory.slots * len(positions)) // nodes))
    slots = np.full((nodes, room), EMPTY, np.int64)
    serial = np.full((nodes, max(memory.least, int(memory.serial * room))), EMPTY, np.int64)
    used = np.zeros(nodes, np.int64)
    left = _place(positions, server, np.uint64(seed), memory.tries, slots, serial, used)
    if left != -1:
        owner = int(server[left])
        raise GradientError(
            f"hash partition: expected room for {len(positions)} positions, but position {left} found none: "
            f"server {owner} has {room} slots, and all {serial.shape[1]} places of its serial memory are "
            "taken; raise the option slots or serial"
        )
    rows = zip(slots, serial, used, strict=True)
    parts = [np.sort(np.concatenate([row[row != EMPTY], late[:count]])) for row, late, count in rows]
    return parts, int(used.sum())


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
