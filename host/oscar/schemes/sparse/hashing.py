"""Zen's hierarchical hashing: deal positions to servers by a hash, into memory that needs no lock.

Hash h0 chooses the server. Hashes h1 .. hk choose a slot of the server's parallel memory. A position whose
slots are all taken goes to the server's serial memory. No position is dropped: if memory is too small, an
error is raised. Source: Wang et al., Zen, arXiv 2309.13254. The hash is the finaliser of splitmix64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError
from oscar.kernels import njit

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

    slots: slots of all parallel memories together / positions. serial: places of a serial memory / slots of
    the parallel memory of the same server. tries: number of hashes that choose a slot. least: minimum size of
    either memory, because a few positions are dealt unevenly.
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
