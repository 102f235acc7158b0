"""Clocks that a NIC takes to encode or decode a frame: coefficients times what the units have to do.

Block b of a frame is coded by unit b mod U, in one of its eight threads. A unit has a turn every four clocks,
a thread every AGAIN clocks at most. The turns of a block follow from its rows (docs/develop/engine.md,
"Barrel units"). The coefficients are fitted to RTL: `oscar_sim.step_clocks` writes them into the NIC's file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.asc.turns import COLUMNS, GROUP, cell_values
from oscar.coding.costs import is_number

TURN = 4  # clocks from a unit's turn to its next one
AGAIN = 20, 28  # clocks from a thread's turn to its next one, of an encoder and of a decoder
SEED_TURNS, FINAL_TURNS = 4, 2  # more turns of an encoder's block with live rows; turns for final states
Floats = NDArray[np.float64]


class Terms(NamedTuple):
    """What the clocks of a frame are made of, or clocks for each of these.

    Attributes:
        bound: Clocks of the busiest unit or of the longest block, whichever takes longer without waiting.
        busiest: Turns of the unit that has most.
        longest: Turns of the longest block.
        mean: Turns of a unit on average.
        blocks: Blocks of the frame.
        raw_rows: Rows in raw blocks.
        raw_turns: Turns of raw blocks, which are encoded in vain, one after another.
        once: 1.
    """

    bound: float = 0.0
    busiest: float = 0.0
    longest: float = 0.0
    mean: float = 0.0
    blocks: float = 0.0
    raw_rows: float = 0.0
    raw_turns: float = 0.0
    once: float = 0.0


class Stage(NamedTuple):
    """Clocks of a NIC's encoders, or of its decoders.

    Attributes:
        front: From a frame (or its command) until its blocks begin. The frame before may be under way.
        result: From there to the result, for each term of the frame.
        hold: From there until blocks of the next frame may begin, for each term of the frame.
    """

    front: float
    result: Terms
    hold: Terms

    def check(self, name: str) -> None:
        """Raise ValueError for clocks that are negative or no numbers; name: of the stage."""
        parts = {"result": self.result, "hold": self.hold}
        every = {
            f"{part}.{term}": clocks for part, of in parts.items() for term, clocks in of._asdict().items()
        }
        for place, clocks in {"front": self.front, **every}.items():
            if not is_number(clocks) or clocks < 0:
                raise ValueError(f"{name}.{place}: expected clocks of 0 or more, got {clocks!r}")

    def without(self, *, rows: bool) -> Stage:
        """Return a stage whose clocks for a frame's rows (or those for every frame) are 0."""
        if rows:
            return Stage(self.front, *(Terms(once=part.once) for part in (self.result, self.hold)))
        return Stage(0.0, self.result._replace(once=0.0), self.hold._replace(once=0.0))


class Engaged(NamedTuple):
    """How long a frame engages the encoders or decoders, in clocks.

    Attributes:
        work: Until its result is there.
        hold: Until blocks of the next frame may begin.
    """

    work: int
    hold: int


def dense_cells(count: int) -> NDArray[np.int64]:
    """Return the cells (`asc.turns.cells_of`) of a frame whose rows all take one turn."""
    values = cell_values(count)
    cells = np.tile(
        np.array([values // LANES, values // GROUP, values // LANES, 0]), (-(-count // values), 1)
    )
    rest = -(-(count % values or values) // LANES)
    cells[-1] = rest, -(-rest // GROUP_ROWS), rest, 0
    assert cells.shape[1] == COLUMNS
    return cells


def block_turns(cells: NDArray[np.integer], count: int, block: int) -> tuple[Floats, Floats, Floats]:
    """Return of every block the turns to encode it, the turns to decode it, and its rows if it is raw.

    Args:
        cells: Of the frame, [cells, 4], as `asc.turns.cells_of` returns them.
        count: Values of the frame.
        block: Values of a block.
    """
    values = cell_values(count)
    per_block, per_cell = max(1, block // values), max(1, values // block)
    parts = np.zeros((-(-len(cells) // per_block) * per_block, COLUMNS))
    parts[: len(cells)] = cells
    # A cell of a long frame has several blocks; these share its work.
    sums = np.repeat(parts.reshape(-1, per_block, COLUMNS).sum(axis=1) / per_cell, per_cell, axis=0)
    blocks = -(-count // block)
    rows, live, _, raw = sums[:blocks].T
    groups = -(-np.minimum(block, count - block * np.arange(blocks)) // GROUP)
    encode = groups + rows + live + np.where(live > 0, SEED_TURNS + FINAL_TURNS, 1)
    decode = np.where((live > 0) & (raw == 0), rows + live + FINAL_TURNS, 0)
    return encode, decode, raw


def frame_terms(cells: NDArray[np.integer], count: int, units: int, block: int) -> tuple[Terms, Terms]:
    """Return the terms of a frame to encode and to decode; arguments as of `block_turns`."""
    encode, decode, raw = block_turns(cells, count, block)

    def terms(turns: Floats, again: int) -> Terms:
        if not turns.size:
            return Terms()
        of_units = np.bincount(np.arange(turns.size) % units, turns, units)
        busiest, longest = float(of_units.max()), float(turns.max())
        return Terms(
            max(TURN * busiest, again * longest), busiest, longest, float(of_units.mean()),
            float(turns.size), float(raw.sum()), float(encode[raw > 0].sum()), 1.0,
        )  # fmt: skip

    return terms(encode, AGAIN[0]), terms(decode, AGAIN[1])


def engaged(terms: Terms, stage: Stage) -> Engaged:
    """Return how long a frame with these terms engages a stage.

    No frame holds the units for less than its turns, unless values take a stage no time at all: larger
    frames than were measured keep to that.
    """
    least = TURN * terms.mean if any(stage.hold[:-1]) else 0.0
    hold = max(least, float(np.dot(terms, stage.hold)))
    return Engaged(round(float(np.dot(terms, stage.result))), round(hold))
