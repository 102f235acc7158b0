"""Clocks in which a NIC's barrel units code frames, turn by turn (docs/engine.md, "Barrel units").

Block b of memory is coded by unit b mod U, in one of its eight threads. Every four clocks a unit has a turn
for the next thread in a ring that may go on. Frames of a direction share units: the blocks of a frame are
dealt beside the last ones of the frame before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.asc.turns import GROUP, cell_values
from oscar.timeline.turns import (
    AGAIN,
    ENTRY,
    FINAL,
    FRONT,
    HEADED,
    LISTED,
    RAW_GROUP,
    RAW_ROW,
    SEARCH,
    SEED_TURNS,
    CodedBlocks,
)
from oscar.timeline.units_receive import receive_ends
from oscar.timeline.units_send import send_ends


@dataclass(frozen=True)
class UnitFrame:
    """A frame to model.

    cells: of `asc.turns.cells_of`. count: values; size: bytes; sizes: of its blocks, None: as their rows
    share the frame's. row: the first one in memory.
    """

    cells: Any
    count: int
    size: int
    sizes: Any
    row: int


def sent(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return when the first word of each goes out, of frames one right after the other.

    block: values of a block. begin: when blocks of the first may be dealt. Those of another are when the one
    before is dealt and its front is done, which begins when the one before is collected; and the one before
    that is learnt. bus: bytes of a word; 0: of the narrowest with which all units have eight a clock.
    """
    work = blocks_of(frames, units, block, 0)
    fronts = np.array([send_front(frame.count, units) for frame in frames], float)
    found = send_ends(work, fronts, units, begin, bus or bus_bytes(units))
    return [float(end) for end in found]


def received(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return when the last sum of each is there; arguments as of `sent`.

    Blocks of a frame are dealt when those of the one before are, and when its front is done: this begins
    when the one before is dealt, and one before that is done and learnt.
    """
    work = blocks_of(frames, units, block, 1)
    fronts = np.array([receive_front(frame.count, block) for frame in frames], float)
    found = receive_ends(work, fronts, units, begin, bus or bus_bytes(units))
    return [float(end) for end in found]


def send_front(count: int, units: int) -> int:
    """Return clocks from the command to send a frame of `count` values until its blocks may be dealt."""
    return FRONT[0] + -(-SEARCH * count // (GROUP * units))


def receive_front(count: int, block: int) -> int:
    """Return clocks from the last word of a frame of `count` values until its blocks may be dealt."""
    return FRONT[1] + ENTRY * max(0, -(-count // block) - LISTED)


def bus_bytes(units: int) -> int:
    """Return the bytes of a word of the narrowest bus with which all units have eight bytes a clock."""
    return max(16, 8 * units)


def blocks_of(frames: Sequence[UnitFrame], units: int, block: int, way: int) -> CodedBlocks:
    """Return the blocks of frames; way: 0 to encode, 1 to decode."""
    every = [_frame_blocks(frame, units, block, way) for frame in frames]
    gaps, turns, sizes, raw, unit = (np.concatenate(part) for part in zip(*every, strict=True))
    ends = np.cumsum([0, *(len(one[1]) for one in every)])
    return CodedBlocks(gaps, np.append(0, np.cumsum(turns)), sizes, raw, unit, ends)


def _frame_blocks(frame: UnitFrame, units: int, block: int, way: int) -> tuple[Any, ...]:
    """Return gaps, and of each block: turns, bytes, rows or clocks if it is raw, its unit."""
    values = cell_values(frame.count)
    number, each = -(-frame.count // values), max(1, block // values)
    part = np.zeros((-(-number // each) * each, 5), np.int64)
    part[:number, :4] = frame.cells[:number]
    part[:number, 4] = values // GROUP
    rows, live, plain_rows, raw, groups = (x.reshape(-1, each) for x in part.T)
    live_rows, plain = plain_rows + raw, raw.sum(axis=1)
    some = live > 0
    any_live = some.any(axis=1)
    begun = np.cumsum(some, axis=1) > 0
    inside = begun & (np.cumsum(some[:, ::-1], axis=1)[:, ::-1] > 0)
    first = some & (np.cumsum(some, axis=1) == 1)
    # Classes of a dead group are coded where live ones are before and behind it.
    classes = np.where(some, live, inside)
    if way:
        others = rows * inside
        others[:, -1] += FINAL  # the first cell that is decoded
        counts = np.stack([others, classes], axis=2)[:, ::-1, ::-1] * (any_live & (plain == 0))[:, None, None]
        pattern = HEADED[1], AGAIN[1]
    else:
        others = rows + np.minimum(SEED_TURNS, live_rows) * first + classes
        others[:, -1] += np.where(any_live, FINAL, 1)
        counts = np.stack([groups, others], axis=2)
        pattern = HEADED[0], AGAIN[0]
    gaps = np.repeat(np.resize(np.array(pattern, np.uint8), counts.size), counts.reshape(-1))
    sizes = frame.sizes
    if sizes is None:
        sizes = frame.size * live_rows.sum(axis=1) / max(1, live_rows.sum())
    sizes = np.asarray(sizes, float)
    if way:
        comes = np.maximum(LANES * plain, sizes)
        plain = (RAW_GROUP * -(-plain // GROUP_ROWS) + RAW_ROW * plain + comes) * (plain > 0)
    unit = (frame.row // (block // LANES) + np.arange(len(sizes))) % units
    return gaps, counts.sum(axis=(1, 2)), sizes, plain.astype(float), unit
