"""Clocks in which a NIC's units code frames, turn by turn (docs/engine.md, "Barrel units").

Block b of memory is coded by unit b mod U, in one of its eight threads. Every four clocks a unit has a turn
for the next thread in a ring that may go on. Frames of a direction share units: the blocks of a frame are
dealt beside the last ones of the frame before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc.params import DIRECTORY_BYTES, GROUP_ROWS, LANES, PREFIX_BYTES
from oscar.coding.asc.turns import GROUP, cell_values
from oscar.coding.frame import HEADER_BYTES
from oscar.timeline.turns import (
    AGAIN,
    CHUNK,
    CLASSES,
    COMMANDED,
    FINAL,
    HEADED,
    KNOWN_DEAL,
    NEVER,
    RAW_GROUP,
    RAW_ROW,
    SEED_TURNS,
    SEEDS,
    SOUGHT,
    SOUGHT_FROM,
    SOUGHT_ROWS,
    STATES,
    TABLES_ASKED,
    TABLES_BUILT,
    TURN,
    WHOLE,
    CodedBlocks,
)
from oscar.timeline.units_head import head_reads
from oscar.timeline.units_receive import receive_ends
from oscar.timeline.units_send import send_ends


@dataclass(frozen=True)
class UnitFrame:
    """A frame to model.

    cells: int64 [cells, 4], of `asc.turns.cells_of`. count: values. size: bytes. sizes: bytes of each block;
    None: blocks share the frame's bytes by their rows. row: its first row in memory. seeds: seed rows of each
    block; None: SEEDS. last: its last symbol; None: that of the frame before. takes: of each coded block the
    bytes of each step, in a decoder's order; None: all rows of a block take the same.
    """

    cells: Any
    count: int
    size: int
    sizes: Any
    row: int
    seeds: Any = None
    last: int | None = None
    takes: Sequence[Sequence[int]] | None = None


def sent(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return the clocks in which frames' first words go out, one frame right after the other.

    block: values of a block. begin: the clock from which blocks of the first frame may be dealt. bus: bytes
    of a word; 0: of the narrowest bus with which all units have eight bytes a clock.

    A frame's front begins when the frame before is dealt, and the one IN_FLIGHT ahead is out. Its blocks are
    dealt when the front is done, and that one is learnt.
    """
    work = blocks_of(frames, units, block, 0)
    pairs = pairwise([frames[0], *frames])
    known = np.array([_same(before, frame) for before, frame in pairs])
    eights = np.array([_eights(frame, units, block) for frame in frames])
    found = send_ends(work, known, eights, units, begin, bus or bus_bytes(units))
    return [float(end) for end in found]


def received(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return the clocks in which frames' last sums are there; arguments as of `sent`.

    A frame's front begins when the frame before is dealt and the one IN_FLIGHT ahead is done. Its blocks are
    dealt when the front is done, and that one has learnt.
    """
    work = blocks_of(frames, units, block, 1)
    word = bus or bus_bytes(units)
    # A frame begins at a word of the store, so with a narrow bus inside a chunk.
    starts = word * np.cumsum([0, *(-(-frame.size // word) for frame in frames[:-1])])
    work = work._replace(places=work.places + np.repeat(starts, np.diff(work.frames)))
    heads = [
        head_reads(-(-frame.count // block), word, start % CHUNK)
        for frame, start in zip(frames, starts.tolist(), strict=True)
    ]
    asked = np.full((len(heads), max(len(head.asked) for head in heads)), NEVER)
    for n, head in enumerate(heads):
        asked[n, : len(head.asked)] = head.asked
    listed = np.array([head.listed for head in heads], float)
    found = receive_ends(work, asked, listed, heads[0].tables, units, begin, word)
    return [float(end) for end in found]


def _same(before: UnitFrame, frame: UnitFrame) -> bool:
    return frame.last is None or frame.last == before.last


def _eights(frame: UnitFrame, units: int, block: int) -> Any:
    """Return of each unit's bank how many eights of rows a frame has, the last one of a block not whole."""
    first = np.arange(0, frame.count, block)
    eights = -(-np.minimum(block, frame.count - first) // (SOUGHT_ROWS * LANES))
    return np.bincount(_unit_of(frame, units, block, len(first)), eights, units).astype(np.int64)


def _unit_of(frame: UnitFrame, units: int, block: int, blocks: int) -> Any:
    return (frame.row // (block // LANES) + np.arange(blocks)) % units


def send_front(frame: UnitFrame, units: int, block: int, command: int, *, known: bool = True) -> int:
    """Return clocks from a command to send, in clock `command`, until the frame's blocks may be dealt.

    known: its last symbol is that of the frame before. No unit has a block meanwhile.
    """
    front, found = command + COMMANDED, 0
    for u, eights in enumerate(_eights(frame, units, block)):
        clock, left = front + SOUGHT_FROM + u, eights
        while left:  # memory looks in the last clock of a turn, and in the first one of the next
            left -= clock % TURN in (0, TURN - 1)
            clock += 1
        found = max(found, clock - 1 + SOUGHT)
    built = front + TABLES_ASKED if known else found
    return max(built + TABLES_BUILT[0], found + KNOWN_DEAL) - command


def received_front(size: int, bus: int) -> int:
    """Return clocks from the last word of a frame of `size` bytes until its blocks may be dealt.

    bus: bytes of a word. The CRC goes back over the bytes that the last one lacks.
    """
    lacks = -size % bus
    return WHOLE + lacks // 4 + lacks % 4


def bus_bytes(units: int) -> int:
    """Return the bytes of a word of the narrowest bus with which all units have eight bytes a clock."""
    return max(16, 8 * units)


def blocks_of(frames: Sequence[UnitFrame], units: int, block: int, way: int) -> CodedBlocks:
    """Return the blocks of frames; way: 0 to encode, 1 to decode; block: values of a block."""
    every = [_frame_blocks(frame, units, block, way) for frame in frames]
    gaps, takes, turns, sizes, places, raw, unit = (np.concatenate(part) for part in zip(*every, strict=True))
    ends, begins = np.cumsum([0, *(len(one[2]) for one in every)]), np.append(0, np.cumsum(turns))
    return CodedBlocks(gaps, takes, begins, sizes, places, raw, unit, ends)


class _Cells(NamedTuple):
    """The cells of a frame's blocks: arrays [blocks, cells], but for seeds.

    rows: turns of rows. groups: groups of rows. classes: turns for classes. first (bool): the cell is the
    first live one of its block, so it has the seed rows; found: how many it has. inside (bool): the cell is
    not a dead one before the first live one or behind the last. seeds [blocks]: most seed rows of a block.
    """

    rows: Any
    groups: Any
    classes: Any
    first: Any
    inside: Any
    found: Any
    seeds: Any


def _frame_blocks(frame: UnitFrame, units: int, block: int, way: int) -> tuple[Any, ...]:
    """Return a frame's part of CodedBlocks: gaps, takes, turns of each block, sizes, places, raw, unit."""
    values = cell_values(frame.count)
    number, each = -(-frame.count // values), max(1, block // values)
    part = np.zeros((-(-number // each) * each, 5), np.int64)
    part[:number, :4] = frame.cells[:number]
    part[:number, 4] = values // GROUP
    rows, live, plain_rows, raw, groups = (x.reshape(-1, each) for x in part.T)
    live_rows, plain = plain_rows + raw, raw.sum(axis=1)
    some = live > 0
    begun = np.cumsum(some, axis=1) > 0
    inside = begun & (np.cumsum(some[:, ::-1], axis=1)[:, ::-1] > 0)
    # Classes of a dead group are coded where live ones are before and behind it.
    classes = np.where(some, live, inside)
    first = some & (np.cumsum(some, axis=1) == 1)
    seeds = np.full(len(plain), SEEDS) if frame.seeds is None else np.asarray(frame.seeds)
    found = np.minimum(seeds[:, None], live_rows) * first
    cells = _Cells(rows, groups, classes, first, inside, found, seeds)
    sizes = frame.sizes
    if sizes is None:
        sizes = frame.size * live_rows.sum(axis=1) / max(1, live_rows.sum())
    sizes = np.asarray(sizes, float)
    ends = np.cumsum(sizes) + HEADER_BYTES + PREFIX_BYTES + DIRECTORY_BYTES * len(sizes)
    if way:
        counts, pattern, takes = _decoded(cells, (plain == 0) & (sizes > 0), sizes, frame.takes)
        comes = np.maximum(LANES * plain, sizes)
        plain = (RAW_GROUP * -(-plain // GROUP_ROWS) + RAW_ROW * plain + comes) * (plain > 0)
    else:
        counts, pattern = _encoded(cells)
        takes = np.zeros(0)
    gaps = np.repeat(np.tile(np.array(pattern, np.uint8), len(plain)), counts.reshape(-1))
    unit = _unit_of(frame, units, block, len(sizes))
    return gaps, takes, counts.sum(axis=1), sizes, ends - sizes, plain.astype(float), unit


def _encoded(cells: _Cells) -> tuple[Any, list[int]]:
    """Return counts [blocks, kinds], turns of each kind in a block, and of each kind the clocks behind it."""
    blocks, each = cells.rows.shape
    others = cells.rows + cells.found * (np.array(SEED_TURNS)[cells.seeds] - 1)[:, None] + cells.classes
    others[:, -1] += np.where(cells.first.any(axis=1), FINAL, 1)
    return np.stack([cells.groups, others], axis=2).reshape(blocks, -1), [HEADED[0], AGAIN[0]] * each


def _decoded(cells: _Cells, coded: Any, sizes: Any, told: Any) -> tuple[Any, list[int], Any]:
    """Return the same as `_encoded`, and the bytes of each turn.

    coded: bool [blocks], neither raw nor constant. sizes: bytes [blocks]. told: UnitFrame.takes.
    """
    blocks, each = cells.rows.shape
    rows = (cells.rows - cells.found) * cells.inside
    final = np.ones((blocks, FINAL), np.int64)
    pairs = np.stack([cells.classes, rows], axis=2)[:, ::-1].reshape(blocks, -1)
    counts = np.hstack([final, pairs, np.maximum(cells.seeds, 1)[:, None]])
    counts *= (cells.first.any(axis=1) & coded)[:, None]
    left = np.maximum(0, sizes - sum(STATES) - CLASSES * cells.classes.sum(axis=1))
    kinds = np.zeros(counts.shape)  # bytes of a turn; seed rows take none
    kinds[:, :FINAL] = STATES
    kinds[:, FINAL:-1:2] = CLASSES
    kinds[:, FINAL + 1 : -1 : 2] = (left / np.maximum(1, rows.sum(axis=1)))[:, None]
    takes, turns = np.repeat(kinds.reshape(-1), counts.reshape(-1)), counts.sum(axis=1)
    if told is not None:
        begins = (np.cumsum(turns) - turns)[turns > 0] + FINAL
        for begin, steps in zip(begins, told, strict=True):
            takes[begin : begin + len(steps)] = steps
    return counts, [AGAIN[1]] * FINAL + [HEADED[1], AGAIN[1]] * each + [AGAIN[1]], takes
