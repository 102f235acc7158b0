"""An invertible sketch: a table of sums from which every value can be recovered ("peeled") by known keys.

Every key adds its value, with a sign, to one cell in each of a few sub-tables. A cell with a single key shows
that key's value. Removing the key from its other cells may leave further cells with a single key. All nodes
know the keys, because the index has been combined. So the order of peeling, and the keys that no order
reaches, are known before any value is sent.

Blocks of keys may share a hash. The block chooses the bucket, and the key's place in the block chooses the
slot in the bucket. The cells of one slot then form a table of their own. See docs/reference/schemes.md,
"Peeling".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.kernels import njit, part

u64 = np.uint64
MAX_HASHES = 8


@part(inline="always")
def _mix(block: Any, row: Any, seed: Any) -> Any:
    """Return 64 hashed bits of a block in one sub-table. Bit 63 is the sign; bits 0 .. 31 pick the bucket."""
    x = u64(block) * u64(0x9E3779B97F4A7C15) + u64(seed) + (u64(row) + u64(1)) * u64(0xD1B54A32D192ED03)
    x = (x ^ (x >> u64(32))) * u64(0xD6E8FEB86659FD93)
    x = (x ^ (x >> u64(32))) * u64(0xD6E8FEB86659FD93)
    return x ^ (x >> u64(32))


@njit(cache=True, nogil=True, inline="always")
def _cell(h: Any, row: Any, key: Any, buckets: Any, slots: Any) -> Any:
    bucket = ((h & u64(0xFFFFFFFF)) * u64(buckets)) >> u64(32)
    return (np.int64(row) * buckets + np.int64(bucket)) * slots + key % slots


@njit(cache=True, nogil=True)
def _encode(keys: Any, values: Any, hashes: int, buckets: int, slots: int, seed: Any, cells: Any) -> None:
    for i in range(len(keys)):
        v = values[i]
        if v == 0:
            continue
        for row in range(hashes):
            h = _mix(keys[i] // slots, row, seed)
            c = _cell(h, row, keys[i], buckets, slots)
            cells[c] += -v if h >> u64(63) else v


@njit(cache=True, nogil=True)
def _order(keys: Any, hashes: int, buckets: int, slots: int, seed: Any, places: Any, rows: Any) -> int:
    """Find the order of peeling. Return how many keys can be peeled.

    Writes each such key's place in `keys` to `places`, and the sub-table to read it from to `rows`. `held`
    counts the keys of a cell. `mixed` is the exclusive or of their places: the place itself for a single key.
    """
    held = np.zeros(hashes * buckets * slots, np.int32)
    mixed = np.zeros(len(held), np.int64)
    for i in range(len(keys)):
        for row in range(hashes):
            c = _cell(_mix(keys[i] // slots, row, seed), row, keys[i], buckets, slots)
            held[c] += 1
            mixed[c] ^= i
    queue = np.empty(len(held), np.int64)
    head, tail, done = 0, 0, 0
    for c in range(len(held)):
        if held[c] == 1:
            queue[tail] = c
            tail += 1
    while head < tail:
        c = queue[head]
        head += 1
        if held[c] != 1:
            continue
        i = mixed[c]
        places[done], rows[done] = i, c // (buckets * slots)
        done += 1
        for row in range(hashes):
            other = _cell(_mix(keys[i] // slots, row, seed), row, keys[i], buckets, slots)
            held[other] -= 1
            mixed[other] ^= i
            if held[other] == 1:  # counts only fall, so a cell enters the queue once
                queue[tail] = other
                tail += 1
    return done


@njit(cache=True, nogil=True)
def _decode(
    keys: Any, places: Any, rows: Any, hashes: int, buckets: int, slots: int, seed: Any, cells: Any, out: Any
) -> None:
    for k in range(len(places)):
        i = places[k]
        key = keys[i]
        h = _mix(key // slots, rows[k], seed)
        v = cells[_cell(h, rows[k], key, buckets, slots)]
        v = -v if h >> u64(63) else v
        out[i] = v
        if v == 0:
            continue
        for row in range(hashes):
            h = _mix(key // slots, row, seed)
            cells[_cell(h, row, key, buckets, slots)] -= -v if h >> u64(63) else v


@dataclass(frozen=True)
class PeelingTable:
    """A table of `hashes` sub-tables of `buckets` buckets of `slots` cells. The seed picks its hashes."""

    hashes: int
    buckets: int
    slots: int
    seed: int

    def __post_init__(self) -> None:
        if not 2 <= self.hashes <= MAX_HASHES or self.buckets < 1 or self.slots < 1:
            raise ValueError(
                f"tables have 2 to {MAX_HASHES} hashes and at least one bucket and slot, got {self.hashes} "
                f"hashes, {self.buckets} buckets, {self.slots} slots"
            )

    @classmethod
    def sized(
        cls, keys: int, *, ratio: float, spare: int, hashes: int, slots: int, seed: int
    ) -> PeelingTable:
        """Return a table with at least `ratio * keys + spare` cells."""
        wanted = int(ratio * keys) + spare
        return cls(hashes, max(1, -(-wanted // (hashes * slots))), slots, seed)

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.hashes * self.buckets * self.slots

    def encode(self, keys: Array, values: Array) -> Array:
        """Return the cells, int32, of int32 `values` at distinct `keys`, int64. The map is linear."""
        out = np.zeros(self.cells, np.int32)
        _encode(keys, values, self.hashes, self.buckets, self.slots, u64(self.seed), out)
        return out

    def plan(self, keys: Array) -> Peeling:
        """Return the order of peeling for these distinct keys, int64."""
        places, rows = np.empty(keys.size, np.int64), np.empty(keys.size, np.uint8)
        done = _order(keys, self.hashes, self.buckets, self.slots, u64(self.seed), places, rows)
        stuck = np.ones(keys.size, bool)
        stuck[places[:done]] = False
        return Peeling(self, keys, places[:done], rows[:done], np.flatnonzero(stuck))


@dataclass(frozen=True)
class Peeling:
    """The order in which a table of `keys` is peeled.

    places: places in `keys`, in the order of peeling. rows: the sub-table to read each of them from.
    stuck: places in `keys` that cannot be peeled.
    """

    table: PeelingTable
    keys: Array = field(repr=False)
    places: Array = field(repr=False)
    rows: Array = field(repr=False)
    stuck: Array = field(repr=False)

    def decode(self, cells: Array, kept: Array) -> Array:
        """Return the values, int32, in the order of `keys`, from summed cells.

        kept: the summed values at `stuck`, which travel beside the cells.
        """
        t = self.table
        out = np.zeros(self.keys.size, np.int32)
        out[self.stuck] = kept
        _decode(
            self.keys, self.places, self.rows, t.hashes, t.buckets, t.slots, u64(t.seed), cells.copy(), out
        )
        return out
