"""What the host does of a frame that a device decodes: it reads prefix, sent rows and directory, and learns.

These are some KiB, and they are on the host anyhow. The device gets a list of blocks that are checked: its
kernels meet no length and no offset that a sender made up.
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

    hist: int32 [32][16], what frequencies are made from; coded, plain: int32 [blocks][6], see `_fields`;
    coded_at, plain_at: int64, where the bytes of each begin in the payload.
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
    """Return the blocks of a payload of `count` > 0 values; raises FrameError where no sender wrote it so."""
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
    if at + size > data.size:
        raise FrameError("payload ends inside a block: frame damaged")
    return data[at : at + size].tobytes()


def _sent_row(code: bytes) -> list[int]:
    """Return the histogram row that stands for a row of octave levels."""
    row = int.from_bytes(code, "little")
    levels = [row >> (4 * s) & 15 for s in range(SYMBOLS)]
    return [1 << (level - 1) if level else 0 for level in levels]


def _check_entries(entries: np.ndarray, values: np.ndarray, width: int, plain: int) -> np.ndarray:
    """Return the bytes of each block; raises FrameError at the first entry that no sender writes.

    values: of each block; plain: bits that those of blocks which are not coded fit, under the frame's shift.
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
    """Return int32 rows: index, bytes; seed rows, first and last group of a coded block, 0.

    Of another block 0, the bits of a raw value or 0, the constant or 0, 0 behind index and bytes.
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
    """Let the histograms of `state` learn what a device counted, integers [32][16] or flat."""
    fresh = counts.reshape(TABLE_ROWS, SYMBOLS)
    scale = [max(0, int(total).bit_length() - COUNT_BITS) for total in fresh.sum(axis=1)]
    fade = (state.hist.sum(axis=1) > FADE_ABOVE).astype(np.int64)
    state.hist[:] = (state.hist >> fade[:, None]) + (fresh >> np.array(scale)[:, None])
