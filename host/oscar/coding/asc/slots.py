"""What a NIC's engines do for a frame: slots of 32 clocks, from the classes of its rows (docs/engine.md)."""

from __future__ import annotations

import numpy as np

from oscar.array import Array
from oscar.coding.asc.params import GROUP_ROWS, LANES, NARROW_CLASS, RAW_STEP, WIDE_SHIFT, count_step

CELLS = 64  # of a frame: 1,024 values each, or a power of two times as many
GROUP = LANES * GROUP_ROWS
# A unit lets a slot pass where it has seen no live row of a group when it plans the slot behind its header.
ENCODER_SEES, DECODER_SEES = 13, 22  # the encoder sees rows 0 to 12 by then, the decoder 31 down to 22
_STEPS = np.array([0] + [1] * NARROW_CLASS + [1 - (-k // RAW_STEP) for k in WIDE_SHIFT], np.int64)


def cell_values(count: int) -> int:
    """Return the values of a cell of a frame of `count` values."""
    return GROUP << max(0, (-(-count // (CELLS * GROUP)) - 1).bit_length())


def cells_of(classes: Array, count: int) -> Array:
    """Return the slots of a frame's cells, uint16 [CELLS, 4]: encoding, decoding, and of each those that count.

    classes: of its rows. A group takes a slot for its classes, one for each live row and raw step. One
    without a live row takes two. Behind its classes a decoder asks to count before it knows whether it will.
    """
    groups = -(-classes.size // GROUP_ROWS)
    padded = np.zeros(groups * GROUP_ROWS, np.uint8)
    padded[: classes.size] = classes
    rows = padded.reshape(groups, GROUP_ROWS)
    live, each = rows > 0, cell_values(count) // GROUP
    number = live.sum(axis=1)
    took = _STEPS[rows].sum(axis=1) + 1
    encode = took + ~live[:, :ENCODER_SEES].any(axis=1)
    decode = took + ~live[:, DECODER_SEES:].any(axis=1)
    steps = np.array([count_step(count, n) for n in range(GROUP_ROWS + 1)])[number]
    counted = (live & (np.arange(GROUP_ROWS) % steps[:, None] == 0)).sum(axis=1) + (number > 0)
    cells, at = np.zeros((CELLS, 4), np.uint16), np.arange(0, groups, each)
    for column, part in enumerate((encode, decode, counted, counted + (number > 0))):
        cells[: at.size, column] = np.add.reduceat(part, at)
    return cells
