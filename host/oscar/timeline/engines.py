"""Clocks in which a NIC's engines code a frame: blocks dealt in turn, slot by slot (docs/engine.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.slots import cell_values

SLOT = 32  # clocks
BEFORE = 2, 6  # slots of a block to encode and to decode, beside its groups'
DEAL = 4, 14  # clocks from one block that is given to an engine to the next
SETTLE = 28  # from one block that is found finished to the next
HEAD = 350, 10  # from the last byte to the frame's first word: header, CRC; and for each block, its entry
RAW_ROW = 64, 143  # clocks of a row in a raw block, which one unit for each direction does
BUFFER = 1792  # bytes that an encoder keeps of a block before those before it are coded


@njit(cache=True, nogil=True)
def encoding(
    slots: Any, raw: Any, each: int, sizes: Any, engines: int, before: int, deal: float, settle: float,
) -> Any:  # fmt: skip
    """Return clocks until all blocks are coded, and until their bytes are collected.

    slots, raw [cells]: of slots, and clocks of raw rows; each: cells of a block; sizes: bytes of
    blocks. before: slots of a block beside its cells'. deal, settle: clocks between two blocks that are
    dealt, or that are found finished.
    """
    blocks = sizes.size
    block, free = np.full(engines, -1), np.zeros(engines)
    done, total = np.zeros(engines), np.zeros(engines)
    ends = np.full(blocks, -1.0)
    following, judged, dealt, at = 0, 0, 0.0, 0
    clock, collected, plain = 0.0, 0.0, 0.0
    while judged < blocks:
        now = float(SLOT * at)
        while following < blocks and block[following % engines] < 0 and following - judged < engines:
            u = following % engines
            dealt = max(dealt, free[u]) + deal
            if dealt > now:
                dealt -= deal
                break
            first = following * each
            block[u], done[u] = following, 0.0
            total[u] = before + slots[first : first + each].sum()
            following += 1
        for u in range(engines):
            b = block[u]
            if b < 0 or done[u] >= total[u]:
                continue
            if b == judged or sizes[b] * (done[u] + 1) <= BUFFER * total[u]:
                done[u] += 1
                if done[u] >= total[u]:
                    ends[b] = now + SLOT
        at += 1
        now = float(SLOT * at)
        while judged < blocks and ends[judged] >= 0:
            found = max(ends[judged], clock)
            if found > now:
                break
            place = clock
            alone = raw[judged * each : (judged + 1) * each].sum()
            if alone:
                found = max(found, plain)
                plain = found + settle + alone
                collected = max(collected, plain)
            clock = found + settle
            collected = max(collected, max(ends[judged], place + sizes[judged] / 2))
            free[judged % engines], block[judged % engines] = clock, -1
            judged += 1
    return clock, max(collected, clock)


@njit(cache=True, nogil=True)
def decoding(slots: Any, counted: Any, raw: Any, each: int, engines: int, before: int, deal: float) -> float:
    """Return clocks until all blocks are decoded; arguments as of `encoding`. Empty blocks take nobody."""
    blocks = -(-slots.size // each)
    block, free = np.full(engines, -1), np.zeros(engines)
    done, total = np.zeros(engines), np.zeros(engines)
    following, open_, dealt, at, end, plain = 0, 0, 0.0, 0, 0.0, 0.0
    while following < blocks or open_:
        now = float(SLOT * at)
        while following < blocks and block[following % engines] < 0:
            u, first = following % engines, following * each
            if not counted[first : first + each].sum():
                following, dealt = following + 1, dealt + deal
                alone = raw[first : first + each].sum()
                if alone:
                    dealt = max(dealt, plain)  # the unit is busy, and the next block waits for it
                    plain = dealt + alone
                    end = max(end, plain)
                continue
            start = max(dealt, free[u]) + deal
            if start > now:
                break
            dealt = start
            block[u], done[u] = following, 0.0
            total[u] = before + slots[first : first + each].sum()
            following, open_ = following + 1, open_ + 1
        for u in range(engines):
            if block[u] < 0:
                continue
            done[u] += 1
            if done[u] >= total[u]:
                block[u], free[u], open_ = -1, now + SLOT, open_ - 1
                end = max(end, now + SLOT)
        at += 1
    return end


def encode_clocks(
    cells: Any, count: int, size: int, engines: int, block: int, sizes: Any = None
) -> tuple[float, float]:
    """Return clocks until the blocks of a frame are coded, and until its first word goes out.

    cells: of `asc.slots.cells_of`; block: values of a block. sizes: bytes of blocks; None: as their slots
    share the frame's `size`.
    """
    slots, counted, raw, each = _blocks(cells, 0, count, block)
    if sizes is None:
        share = np.add.reduceat(counted, np.arange(0, slots.size, each))
        sizes = size * share / max(1.0, share.sum())
    coded, kept = encoding(slots, raw, each, np.asarray(sizes, float), engines, BEFORE[0], DEAL[0], SETTLE)
    return coded, kept + HEAD[0] + HEAD[1] * len(sizes)


def decode_clocks(cells: Any, count: int, engines: int, block: int) -> float:
    """Return clocks until all blocks of a frame are decoded; arguments as of `encode_clocks`."""
    slots, counted, raw, each = _blocks(cells, 1, count, block)
    return float(decoding(slots, counted, raw, each, engines, BEFORE[1], DEAL[1]))


def _blocks(cells: Any, way: int, count: int, block: int) -> tuple[Any, Any, Any, int]:
    values = cell_values(count)
    number = -(-count // values)
    each = max(1, block // values)
    part = np.asarray(cells[:number], float)
    return part[:, way].copy(), part[:, 2 + way].copy(), RAW_ROW[way] * part[:, 4], each
