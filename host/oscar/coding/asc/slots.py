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
    groups, each = -(-classes.size // GROUP_ROWS), cell_values(count) // GROUP
    out = np.zeros((-(-groups // each), 5), np.uint16)
    plain = np.zeros(classes.size, np.bool_) if raw is None else raw
    _add_groups(classes, plain, each, out)
    return out


@njit(cache=True, nogil=True)
def _add_groups(classes: Any, raw: Any, each: int, out: Any) -> None:
    begun = False
    for first in range(0, len(classes), GROUP_ROWS):
        rows, plain = classes[first : first + GROUP_ROWS], raw[first : first + GROUP_ROWS]
        group = first // GROUP_ROWS
        cell = out[group // each]
        begun = begun and group % each != 0
        took, live, early, late, later, soon, uncoded = 1, 0, 0, 0, 0, 0, 0
        for at in range(len(rows)):
            some = rows[at] > 0
            took += _STEPS[rows[at]]
            live += some
            early += some and at < ENCODER_SEES
            late += some and at >= DECODER_SEES
            later += some and at >= DECODER_SEES - 1
            soon += some and at < SOON
            uncoded += plain[at]
        cell[0] += took + (early == 0)
        if not plain[0]:
            cell[1] += took + (late == 0)
            cell[2] += live
        if live and not begun:
            begun, missing = True, max(SEEDS - live, 0)
            cell[3] = missing + (early != 0 and early < ENCODER_NEEDS)
            cell[3] += LEAD * (missing + (late != 0 and later < DECODER_NEEDS) + (soon == 0))
        cell[4] += uncoded
