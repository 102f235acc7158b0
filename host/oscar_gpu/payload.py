"""The host's part in decoding on a device: read and check prefix, sent rows and directory, and learn.

These parts have a few KiB and arrive on the host. The kernels get a list of checked blocks: no length and no
offset in it can lead them outside the payload.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oscar.coding.asc.params import (
    CODED,
    CONSTANT,
    COUNT_BITS,
    DIRECTORY_BYTES,
    FADE_ABOVE,
    FLUSH_BYTES,
    GROUP,
    MASK_BYTES,
    MAX_BLOCK_LOG2,
    MIN_BLOCK_LOG2,
    MOST_SEED_ROWS,
    PREFIX_BYTES,
    RAW,
    SENT_ROW_BYTES,
    SYMBOLS,
    TABLE_ROWS,
)
from oscar.coding.asc.state import TableState
from oscar.errors import FrameError


@dataclass(frozen=True)
class Blocks:
    """The blocks of a payload, checked against it.

    log2: log2 of the values of a block; shift: F of the prefix; last: last symbol of the frame
    hist: int32 [32][16], histograms that the frequencies are made from, sent rows included
    coded, plain: int32 [blocks][6], coded blocks and raw or constant ones; see `_fields`
    coded_at, plain_at: int64 [blocks], offset of each block's bytes in the payload
    """

    log2: int
    shift: int
    last: int
    hist: np.ndarray
    coded: np.ndarray
    coded_at: np.ndarray
    plain: np.ndarray
    plain_at: np.ndarray


def parse(payload: bytes | memoryview, count: int, width: int, hist: np.ndarray) -> Blocks:
    """Return the blocks of a payload of `count` > 0 values of `width` bits.

    hist: int64 [32][16] of the table set. Raises FrameError on a payload that no sender writes.
    """
    data = np.frombuffer(payload, np.uint8)
    prefix = int.from_bytes(_take(data, 0, PREFIX_BYTES), "little")
    log2, shift, last, at = prefix & 31, prefix >> 5 & 31, prefix >> 11 & 15, PREFIX_BYTES
    if prefix >> 15 or not MIN_BLOCK_LOG2 <= log2 <= MAX_BLOCK_LOG2 or shift > max(0, width - 16):
        raise FrameError(f"payload starts with 0x{prefix:04x}, which no sender writes")
    rows = hist.astype(np.int32)
    if prefix >> 10 & 1:
        mask = int.from_bytes(_take(data, at, MASK_BYTES), "little")
        at += MASK_BYTES
        for q in range(TABLE_ROWS):
            if mask >> q & 1:
                rows[q] = _sent_row(_take(data, at, SENT_ROW_BYTES))
                at += SENT_ROW_BYTES
    blocks = -(-count >> log2)
    size = blocks * DIRECTORY_BYTES
    codes = np.frombuffer(_take(data, at, size), np.uint8).reshape(blocks, DIRECTORY_BYTES).astype(np.int64)
    entries = (codes << 8 * np.arange(DIRECTORY_BYTES)).sum(axis=1)
    values = np.full(blocks, 1 << log2, np.int64)
    values[-1] = count - ((blocks - 1) << log2)
    sizes = _check_entries(entries, values, width, min(width, 16 + shift))
    offsets = at + size + np.cumsum(sizes) - sizes
    end = int(offsets[-1] + sizes[-1])
    if end > data.size:
        raise FrameError("payload ends inside a block: frame damaged")
    if end < data.size:
        raise FrameError(f"{data.size - end} bytes follow the last block: frame damaged")
    fields, coded = _fields(entries, sizes), entries & 3 == CODED
    return Blocks(log2, shift, last, rows, fields[coded], offsets[coded], fields[~coded], offsets[~coded])


def _take(data: np.ndarray, at: int, size: int) -> bytes:
    """Return `size` bytes from `at` on; raises FrameError where the payload ends before."""
    if at + size > data.size:
        raise FrameError("payload ends inside a block: frame damaged")
    return data[at : at + size].tobytes()


def _sent_row(code: bytes) -> list[int]:
    """Return the histogram row that a sent row of 16 levels stands for."""
    row = int.from_bytes(code, "little")
    levels = [row >> (4 * s) & 15 for s in range(SYMBOLS)]
    return [1 << (level - 1) if level else 0 for level in levels]


def _check_entries(entries: np.ndarray, values: np.ndarray, width: int, plain: int) -> np.ndarray:
    """Return the bytes of each block; raises FrameError at the first entry that no sender writes.

    values: number of values of each block; plain: most bits of a value in a raw or constant block.
    """
    kind, sizes, limit = entries & 3, entries >> 24, 1 << (plain - 1)
    constants = (entries >> 16).astype(np.int32)
    constant = (kind == CONSTANT) & (entries >> 2 & 0x3FFF == 0)
    constant &= (constants >= -limit) & (constants < limit)
    bits = entries >> 2 & 63
    raw = (kind == RAW) & (entries >> 8 & 0xFFFF == 0) & (bits >= 1) & (bits <= plain)
    raw &= sizes == (values * bits + 7) // 8
    first, last = entries >> 5 & 127, entries >> 12 & 127
    coded = (kind == CODED) & (entries >> 19 & 31 == 0) & (entries >> 2 & 7 <= MOST_SEED_ROWS)
    coded &= (first <= last) & (last < -(-values // GROUP)) & (sizes >= FLUSH_BYTES)
    coded &= sizes < (values * width + 7) // 8
    wrong = np.flatnonzero(~(constant | raw | coded))
    if wrong.size:
        raise FrameError(f"block {wrong[0]} has the entry 0x{entries[wrong[0]]:012x}, which no sender writes")
    return np.where(kind == CONSTANT, 0, sizes)


def _fields(entries: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return int32 [blocks][6], by kind of block.

    coded: index, bytes, seed rows, first group, last group, 0
    raw: index, bytes, 0, bits of a value, 0, 0
    constant: index, 0, 0, 0, the value, 0
    """
    coded, raw = entries & 3 == CODED, entries & 3 == RAW
    columns = [
        np.arange(entries.size),
        sizes,
        np.where(coded, entries >> 2 & 7, 0),
        np.where(coded, entries >> 5 & 127, np.where(raw, entries >> 2 & 63, 0)),
        np.where(coded, entries >> 12 & 127, np.where(raw, 0, entries >> 16)),
        np.zeros(entries.size, np.int64),
    ]
    return np.stack(columns, axis=1).astype(np.int32)


def learned(state: TableState, counts: np.ndarray) -> None:
    """Add a device's counts, integers [32][16] or flat, to the histograms of `state`."""
    fresh = counts.reshape(TABLE_ROWS, SYMBOLS)
    scale = [max(0, int(total).bit_length() - COUNT_BITS) for total in fresh.sum(axis=1)]
    fade = (state.hist.sum(axis=1) > FADE_ABOVE).astype(np.int64)
    state.hist[:] = (state.hist >> fade[:, None]) + (fresh >> np.array(scale)[:, None])
