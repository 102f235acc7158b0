"""Zen's hierarchical hashing: positions dealt to servers by a hash, and put into memory without a lock.

h0 chooses the server. h1 .. hk choose a slot of the server's parallel memory; a position that finds all its
slots taken goes to the server's serial memory. Nothing is ever dropped: a memory that is too small raises.
(Wang et al., Zen, arXiv 2309.13254; the hash is the finaliser of splitmix64.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from oscar.array import Array
from oscar.errors import GradientError

EMPTY = -1


@njit(cache=True, nogil=True)
def mixed(position: Any, seed: Any) -> Any:
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
    """Put every position into the memory of its server; return a position without room, or -1."""
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
    """Sizes of the memory, for `count` positions to deal.

    slots: of all servers' parallel memory together, per position. serial: of a server's serial memory, per
    slot of its parallel one. tries: hashes of a slot. least: places of either, however few the positions are:
    the few are dealt unevenly.
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
    """Return the server of every position below `size`, int64: the same on all workers, and for ever."""
    out = np.empty(size, np.int64)
    _servers(size, nodes, np.uint64(seed), out)
    return out


def deal(positions: Array, server: Array, nodes: int, seed: int, memory: Memory) -> tuple[list[Array], int]:
    """Return the sorted positions of each server, and how many took the serial memory.

    Raises GradientError where a server's memory cannot hold what falls to it.
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
            "taken; give the option slots or serial more"
        )
    rows = zip(slots, serial, used, strict=True)
    parts = [np.sort(np.concatenate([row[row != EMPTY], late[:count]])) for row, late, count in rows]
    return parts, int(used.sum())
