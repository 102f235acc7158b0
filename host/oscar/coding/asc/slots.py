"""The NIC's work for a frame, in slots of 32 clocks, from the classes of its rows (docs/engine.md).

The time model charges a simulated NIC by it; each payload is summarised in at most 256 cells.
"""

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

# Most cells of a frame. A cell has 1,024 values, or a power of two times as many.
CELLS = 256
GROUP = LANES * GROUP_ROWS
# A unit plans the slot behind a group's header while the group's rows still arrive. It leaves the slot empty
# if none of the rows seen by then is live. In the group with a block's seed rows it also does so if few are
# live, and the decoder once more before the seed rows if the first of them is not among the first rows.
# Rows: the encoder has seen rows 0 to 12 by then, the decoder rows 31 down to 22
ENCODER_SEES, DECODER_SEES = 13, 22
ENCODER_NEEDS, DECODER_NEEDS, SOON = 5, 3, 5  # live rows; SOON: rows among which the first seed row should be
SEEDS = 2  # seed rows of most blocks; each takes a slot, even where there are fewer live rows
LEAD = 8  # factor of the decoder's extra slots in a cell's fourth number
_STEPS = np.array([0] + [1] * NARROW_CLASS + [1 - (-k // RAW_STEP) for k in WIDE_SHIFT], np.int64)


def cell_values(count: int) -> int:
    """Return the number of values of a cell in a frame of `count` values."""
    return GROUP << max(0, (-(-count // (CELLS * GROUP)) - 1).bit_length())


def raw_rows(payload: Array, head: int, count: int) -> Array:
    """Return for each row of a frame whether it is in a raw block, bool [rows].

    payload: uint8; head: offset of its directory; count: values of the frame.
    """
    log2 = int(payload[0]) & 31
    entries = payload[head : head + DIRECTORY_BYTES * -(-count >> log2) : DIRECTORY_BYTES]
    return np.asarray(np.repeat(entries & 3 == RAW, (1 << log2) // LANES)[: -(-count // LANES)])


def cells_of(classes: Array, count: int, raw: Array | None = None) -> Array:
    """Return the NIC's work for each cell of a frame, uint16 [cells, 5].

    classes: uint8, classes of the frame's rows; count: its values; raw: from `raw_rows`, None for no raw
    block.
    The columns: slots to encode; slots to decode; live rows outside raw blocks; extra slots of the first live
    group if it has a block's seed rows (to encode, plus LEAD times those to decode); rows in raw blocks,
    which the NIC encodes in vain. A group takes a slot for its classes and one for each step of its rows, or
    two if no row is live.
    """
    groups, each = -(-classes.size // GROUP_ROWS), cell_values(count) // GROUP
    out = np.zeros((-(-groups // each), 5), np.uint16)
    plain = np.zeros(classes.size, np.bool_) if raw is None else raw
    _add_groups(classes, plain, each, out)
    return out


@njit(cache=True, nogil=True)
def _add_groups(classes: Any, raw: Any, each: int, out: Any) -> None:
    """Add the slots of all groups to `out`; each: groups of a cell."""
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
