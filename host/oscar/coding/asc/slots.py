"""What a NIC's engines do for a frame: slots of 32 clocks, from the classes of its rows (docs/engine.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

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
    groups, each = -(-classes.size // GROUP_ROWS), cell_values(count) // GROUP
    steps = np.array([count_step(count, n) for n in range(GROUP_ROWS + 1)])
    out = np.zeros((-(-groups // each), 5), np.uint16)
    plain = np.zeros(classes.size, np.bool_) if raw is None else raw
    _add_groups(classes, plain, steps, each, out)
    return out


@njit(cache=True, nogil=True)
def _add_groups(classes: Any, raw: Any, steps: Any, each: int, out: Any) -> None:
    for first in range(0, len(classes), GROUP_ROWS):
        rows, plain = classes[first : first + GROUP_ROWS], raw[first : first + GROUP_ROWS]
        cell = out[first // GROUP_ROWS // each]
        took, live, early, late, uncoded = 1, 0, 0, 0, 0
        for at in range(len(rows)):
            took += _STEPS[rows[at]]
            live += rows[at] > 0
            early += rows[at] > 0 and at < ENCODER_SEES
            late += rows[at] > 0 and at >= DECODER_SEES
            uncoded += plain[at]
        counts = 0
        for at in range(0, len(rows), steps[live]):
            counts += rows[at] > 0
        some = np.int64(live > 0)
        cell[0] += took + (early == 0)
        cell[2] += counts + some
        if not plain[0]:
            cell[1] += took + (late == 0)
            cell[3] += counts + 2 * some
        cell[4] += uncoded
