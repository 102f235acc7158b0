"""What a NIC's engines do for a frame: slots of 32 clocks, from the classes of its rows (docs/engine.md)."""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.asc.params import (
    DIRECTORY_BYTES,
    GROUP_ROWS,
    LANES,
    NARROW_CLASS,
    RAW,
    RAW_STEP,
    WIDE_SHIFT,
    count_step,
)

CELLS = 256  # of a frame at most: 1,024 values each, or a power of two times as many
GROUP = LANES * GROUP_ROWS
# A unit lets a slot pass where it has seen no live row of a group when it plans the slot behind its header.
ENCODER_SEES, DECODER_SEES = 13, 22  # the encoder sees rows 0 to 12 by then, the decoder 31 down to 22
_STEPS = np.array([0] + [1] * NARROW_CLASS + [1 - (-k // RAW_STEP) for k in WIDE_SHIFT], np.int64)


def cell_values(count: int) -> int:
    """Return the values of a cell of a frame of `count` values."""
    return GROUP << max(0, (-(-count // (CELLS * GROUP)) - 1).bit_length())


def raw_rows(payload: Array, head: int, count: int) -> Array:
    """Return which rows of a frame are in raw blocks; head: where the payload's directory begins."""
    log2 = int(payload[0]) & 31
    entries = payload[head : head + DIRECTORY_BYTES * -(-count >> log2) : DIRECTORY_BYTES]
    return np.asarray(np.repeat(entries & 3 == RAW, (1 << log2) // LANES)[: -(-count // LANES)])


def cells_of(classes: Array, count: int, raw: Array | None = None) -> Array:
    """Return what a frame's cells are to engines, uint16 [cells, 5].

    The slots that they take to encode and to decode, those of each that count, and rows in raw blocks, which
    engines encode in vain. classes: of the frame's rows; raw: whether a row is in a raw block. A group takes
    a slot for its classes, one for each live row and raw step. One without a live row takes two. Behind its
    classes a decoder asks to count before it knows whether it will.
    """
    groups = -(-classes.size // GROUP_ROWS)
    padded = np.zeros((2, groups * GROUP_ROWS), np.uint8)
    padded[0, : classes.size] = classes
    padded[1, : classes.size] = 0 if raw is None else raw
    rows, plain = padded.reshape(2, groups, GROUP_ROWS)
    live, each = rows > 0, cell_values(count) // GROUP
    number, kept = live.sum(axis=1), plain[:, 0] == 0
    took = _STEPS[rows].sum(axis=1) + 1
    encode = took + ~live[:, :ENCODER_SEES].any(axis=1)
    decode = (took + ~live[:, DECODER_SEES:].any(axis=1)) * kept
    steps = np.array([count_step(count, n) for n in range(GROUP_ROWS + 1)])[number]
    counted = (live & (np.arange(GROUP_ROWS) % steps[:, None] == 0)).sum(axis=1) + (number > 0)
    parts = (encode, decode, counted, (counted + (number > 0)) * kept, plain.sum(axis=1))
    at = np.arange(0, groups, each)
    columns = [np.add.reduceat(part.astype(np.int64), at) for part in parts]
    return np.stack(columns, axis=1).astype(np.uint16)
