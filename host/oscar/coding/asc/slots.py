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
)

CELLS = 256  # of a frame at most: 1,024 values each, or a power of two times as many
GROUP = LANES * GROUP_ROWS
# A unit lets a slot pass where it has seen no live row of a group when it plans the slot behind its header.
# In the group with a block's seeds it does so where it has seen few, and the decoder again before the seeds
# if the first of them is not among the first rows.
ENCODER_SEES, DECODER_SEES = 13, 22  # the encoder sees rows 0 to 12 by then, the decoder 31 down to 22
ENCODER_NEEDS, DECODER_NEEDS, SOON = 5, 3, 5
SEEDS = 2  # of most blocks; each takes a slot, even if there are fewer rows
LEAD = 8  # slots of such a group to decode are told in units of so many
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

    The slots that they take to encode and to decode, live rows that are not in raw blocks, slots more that
    the first live group takes if it has a block's seeds (encoding, and LEAD times decoding), and rows in raw
    blocks, which engines encode in vain. classes: of the frame's rows; raw: whether a row is in a raw block.
    A group takes a slot for its classes, one for each live row and raw step; two if no row is live.
    """
    groups = -(-classes.size // GROUP_ROWS)
    padded = np.zeros((2, groups * GROUP_ROWS), np.uint8)
    padded[0, : classes.size] = classes
    padded[1, : classes.size] = 0 if raw is None else raw
    rows, plain = padded.reshape(2, groups, GROUP_ROWS)
    live, each = rows > 0, cell_values(count) // GROUP
    number, kept = live.sum(axis=1), plain[:, 0] == 0
    took = _STEPS[rows].sum(axis=1) + 1
    listed = np.zeros(-(-groups // each) * each, np.int64)
    listed[:groups] = number
    upto = np.cumsum(listed.reshape(-1, each), axis=1).reshape(-1)[:groups]
    first = (upto == number) & (number > 0)
    seen = live[:, :ENCODER_SEES].sum(axis=1), live[:, DECODER_SEES - 1 :].sum(axis=1)
    none = ~live[:, :ENCODER_SEES].any(axis=1), ~live[:, DECODER_SEES:].any(axis=1)
    encode, decode = took + none[0], (took + none[1]) * kept
    lead = [
        np.maximum(SEEDS - number, 0) + ((n < needs) & ~no)
        for n, needs, no in zip(seen, (ENCODER_NEEDS, DECODER_NEEDS), none, strict=True)
    ]
    lead[1] = lead[1] + ~live[:, :SOON].any(axis=1)
    at = np.arange(0, groups, each)
    parts = encode, decode, number * kept, first * (lead[0] + LEAD * lead[1]), plain.sum(axis=1)
    columns = [np.add.reduceat(part.astype(np.int64), at) for part in parts]
    return np.stack(columns, axis=1).astype(np.uint16)
