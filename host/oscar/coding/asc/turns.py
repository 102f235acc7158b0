"""The NIC's work for a frame, in turns of its units, from the classes of its rows (docs/develop/engine.md).

The time model charges a NIC by it; each payload is summarised in at most 256 cells.
"""

from __future__ import annotations

from typing import Any

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
from oscar.kernels import njit

# Most cells of a frame. A cell has 1,024 values, or a power of two times as many.
CELLS = 256
GROUP = LANES * GROUP_ROWS
COLUMNS = 4
_TURNS = np.array([0] + [1] * NARROW_CLASS + [1 - (-k // RAW_STEP) for k in WIDE_SHIFT], np.int64)


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
    """Return the NIC's work for each cell of a frame, uint16 [cells, 4].

    classes: uint8, classes of the frame's rows; count: its values; raw: from `raw_rows`, None for no raw
    block.
    The columns: turns of rows, one for each live row and each of its raw steps; groups with a live row; live
    rows outside raw blocks; rows in raw blocks, which the NIC encodes in vain.
    """
    groups, each = -(-classes.size // GROUP_ROWS), cell_values(count) // GROUP
    out = np.zeros((-(-groups // each), COLUMNS), np.uint16)
    plain = np.zeros(classes.size, np.bool_) if raw is None else raw
    _add_groups(classes, plain, each, out)
    return out


@njit(cache=True, nogil=True)
def _add_groups(classes: Any, raw: Any, each: int, out: Any) -> None:
    """Add the turns of all groups to `out`; each: groups of a cell."""
    for first in range(0, len(classes), GROUP_ROWS):
        rows, plain = classes[first : first + GROUP_ROWS], raw[first : first + GROUP_ROWS]
        cell = out[first // GROUP_ROWS // each]
        live = 0
        for at in range(len(rows)):
            live += rows[at] > 0
            cell[0] += _TURNS[rows[at]]
            cell[3] += plain[at]
        cell[1] += live > 0
        if not plain[0]:
            cell[2] += live
