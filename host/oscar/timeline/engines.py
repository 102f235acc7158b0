"""Clocks in which a NIC's engines code frames: blocks dealt in turn, each in slots (docs/engine.md).

Clocks count from any multiple of 32 of the NIC's: slots begin where they are one. `Units` are carried from a
frame to the next, so that its blocks wait for what the frame before still holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.slots import LEAD, cell_values
from oscar.coding.asc.params import GROUP_ROWS

SLOT = 32  # clocks
# Encoding: from a block that is found finished to the next that is, and to its unit's next job; from a job to
# the phase by which a slot can begin; from the last slot's begin to the end.
SETTLE, AGAIN, DEAL, LAST = 22, 6, 4, 20
LAUNCH, GATHER = 10, 20  # clocks until a collector takes pairs, one a clock; from the last to its block's CRC
CRC = 8, 14  # clocks to add a block's CRC to the frame's, and more for each 1 in the number of its words
BUFFER = 1792  # bytes that an encoder keeps of a block before those before it are coded
HEAD = 180, 10  # from the last byte to the frame's first word: header, CRC; and for each block, its entry
# Decoding: clocks of the dealer for a block of zeros, and for another; from a job to its first word of bytes;
# until a unit is free again behind the begin of its last slot.
EMPTY, GIVE, FETCH, FREE = 10, 15, 18, 28
ENOUGH = 128  # bytes that a decoder waits for
LOAD, TAIL = 2, 2  # slots before a block's groups and behind
SUMMED = 40  # clocks from the begin of the last row's slot to its last sum
RAW_SENT = 50  # clocks to send a row of a raw block
RAW_GROUP, RAW_ROW, RAW_BYTE = 2288, 32, 0.8  # to receive one: each 1,024 values, and for its rows and bytes
WORD = 16  # bytes of a store's word


@dataclass
class Units:
    """When the units of a direction are free: engines, the raw unit, the dealer; all since some clock."""

    engines: int
    free: Any = field(init=False)
    raw: float = -1e9  # when the raw unit's last block ends
    dealt: float = -1e9  # when the last block of the frame before was dealt

    def __post_init__(self) -> None:
        self.free = np.full(self.engines, -1e9)


@njit(cache=True, nogil=True)
def encoding(slots: Any, sizes: Any, raw: Any, free: Any, first: int, begin: float, word: int) -> Any:
    """Return clocks at which all blocks are coded, at which their bytes are collected and added up.

    slots, sizes, raw [blocks]: slots, bytes coded, rows if a block goes raw. free [engines]: when each can
    take a job; kept up to date. first: the unit of the first block. word: bytes of a word of the store.
    """
    blocks, units = sizes.size, free.size
    lanes = min(units, word // 2)
    busy, open_ = np.full(lanes, -1e9), np.full(blocks, -1e9)
    dealt, judged, summed, plain, coded = begin, begin, begin, begin, begin
    for b in range(blocks):
        u = (first + b) % units
        lane = u % lanes
        dealt = max(dealt, free[u]) + DEAL
        if b >= units:
            dealt = max(dealt, open_[b - units] + AGAIN + DEAL)
        start = np.ceil((dealt + 3) / SLOT) * SLOT
        launched = max(judged, busy[lane]) + LAUNCH
        took = SLOT * slots[b]
        share = min(1.0, BUFFER / max(1.0, sizes[b]))
        end = start + took * share
        if share < 1:
            end = np.ceil(max(end, launched) / SLOT) * SLOT + took * (1 - share)
        end += LAST
        free[u] = end + 2
        judged = max(end, launched) + SETTLE
        coded = max(coded, end)
        if raw[b] > 0:
            plain = max(plain, judged, busy[0]) + LAUNCH + raw[b] * RAW_SENT
            judged = max(judged, busy[0]) + 2 * LAUNCH
            taken, lane = plain, 0
        else:
            taken = max(end, launched + sizes[b] / 2)
        open_[b] = judged
        if sizes[b] > 0:
            ones, words = 0, int(sizes[b] // word)
            while words:
                ones += words & 1
                words >>= 1
            summed = max(summed, taken + GATHER) + CRC[0] + CRC[1] * max(1, ones)
            busy[lane] = summed
    return coded, max(summed, judged)


@njit(cache=True, nogil=True)
def decoding(
    slots: Any, sizes: Any, raw: Any, free: Any, first: int, begin: float, plain: float, word: int
) -> Any:
    """Return clocks at which all blocks are decoded, at which the last was dealt, the raw unit's last end.

    slots, sizes, raw [blocks]: slots (0: nobody does it), bytes, and clocks of one that is raw. free: as of
    `encoding`. plain: when the raw unit's last block ends, of the frame before.
    """
    units = free.size
    turn = max(units + 1, 5)
    turn *= np.ceil(word / 2 / turn)  # a word's pairs go out one a clock
    before = free.max()
    dealt, end, mine = begin, begin, plain
    for b in range(slots.size):
        dealt += EMPTY
        if raw[b] > 0:
            dealt = max(dealt, mine, before) + GIVE - EMPTY
            mine = dealt + raw[b]
            end = max(end, mine)
        elif slots[b] > 0:
            u = (first + b) % units
            given = max(dealt, free[u], plain)
            dealt = given + GIVE - EMPTY
            bytes_there = given + FETCH + turn * np.ceil(min(sizes[b], ENOUGH) / word)
            start = np.ceil(bytes_there / SLOT) * SLOT
            last = start + SLOT * (LOAD + slots[b] - 1)
            free[u] = last + SLOT * TAIL + FREE
            end = max(end, last + SUMMED)
    return end, dealt, mine


def encode_clocks(
    cells: Any, count: int, size: int, engines: int, block: int, sizes: Any = None, *,
    units: Units | None = None, first: int = 0, begin: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """Return clocks at which the blocks of a frame are coded, and at which its first word goes out.

    cells: of `asc.slots.cells_of`; block: values of a block. sizes: bytes of blocks; None: as their rows
    share the frame's `size`. units: as other frames left them. first: unit of the first block.
    """
    units = units or Units(engines)
    work = _blocks(cells, 0, count, size, block, sizes)
    coded, kept = encoding(*work, units.free, first, begin, WORD)
    return coded, kept + HEAD[0] + HEAD[1] * len(work[0])


def decode_clocks(
    cells: Any, count: int, engines: int, block: int, size: int = 0, sizes: Any = None, *,
    units: Units | None = None, first: int = 0, begin: float = 0.0,
) -> float:  # fmt: skip
    """Return clocks at which all blocks of a frame are decoded; arguments as of `encode_clocks`."""
    units = units or Units(engines)
    work = _blocks(cells, 1, count, size, block, sizes)
    end, units.dealt, units.raw = decoding(*work, units.free, first, begin, units.raw, WORD)
    return float(end)


def _blocks(
    cells: Any, way: int, count: int, size: int, block: int, sizes: Any
) -> tuple[Any, Any, Any]:
    """Return slots, bytes, and rows (sent) or clocks (received) of raw ones, of each block."""
    values = cell_values(count)
    number, each = -(-count // values), max(1, block // values)
    part = np.zeros((-(-number // each) * each, 5))
    part[:number] = cells[:number]
    slots, live, more, raw = part[:, way], part[:, 2] + part[:, 4], part[:, 3], part[:, 4]
    slots, live, more, raw = (x.reshape(-1, each) for x in (slots, live, more, raw))
    some = live > 0
    first = some & (np.cumsum(some, axis=1) == 1)
    if way:  # cells before the first live one and behind the last take no slot
        slots = slots * (np.cumsum(some, axis=1) > 0) * (np.cumsum(some[:, ::-1], axis=1)[:, ::-1] > 0)
    total = slots.sum(axis=1) + (first * (more // LEAD if way else more % LEAD)).sum(axis=1)
    plain = raw.sum(axis=1)
    if sizes is None:
        share = live.sum(axis=1)
        sizes = size * share / max(1.0, share.sum())
    if way:
        total = total * (plain == 0) * (live.sum(axis=1) > 0)
        plain = RAW_GROUP * np.ceil(plain / GROUP_ROWS) + RAW_ROW * plain + RAW_BYTE * sizes * (plain > 0)
    else:
        total = total + 2  # header, end
    return total, np.asarray(sizes, float), plain
