"""Ranges of the gradient, one for each rank, so that no position is chosen twice: equal, moved or learnt.

Ranges are replicated state: they follow from the workers' counts and the union, which all nodes know.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.plans import Cuts, splitter
from oscar.state import Reader, Saved, Stateful

BLOCKS = 1024  # ExDyna's number of blocks
GRANULE = 128  # values of a block of LearntRanges
ALIGNED = 32  # ExDyna's blocks have a multiple of so many values, if they have as many
UNIT = 16  # fraction bits of a running count
WEIGHT = 2  # the weight of a new count is 2^-WEIGHT
LEAST, MOST = 1 << (UNIT - 2), 1 << (UNIT + 2)  # limits of an activity: 1/4 and 4
IDLE = 1311  # 0.02 hits with UNIT fraction bits: the cost of a block without a chosen position


class Ranges(Stateful):
    """Equal ranges. Rank r owns range (t + r) mod N in iteration t."""

    def __init__(self, values: int, nodes: int) -> None:
        self.values, self.nodes = values, nodes

    def bounds(self, iteration: int) -> Array:
        """Return the first position of each range and the end of the last one, int64 [nodes + 1]."""
        return np.arange(self.nodes + 1) * self.values // self.nodes

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """Advance the state, given each rank's number of chosen positions and the union of positions."""


def _read_edges(ranges: Any, saved: Saved) -> Array:
    edges = saved.array(np.int64, (ranges.nodes + 1,), 0, ranges.blocks)
    if edges[0] != 0 or edges[-1] != ranges.blocks or (np.diff(edges) < 0).any():
        raise saved.refuse(f"edges that rise from 0 to {ranges.blocks}", "others")
    return edges


class MovedRanges(Ranges):
    """ExDyna's ranges: runs of equal blocks. Neighbours of unequal counts hand over a block per iteration.

    edges: int64 [nodes + 1], in blocks. The last block has the remainder.
    """

    STATE: ClassVar[dict[str, Reader]] = {"edges": _read_edges}

    def __init__(self, values: int, nodes: int, blocks: int = 0) -> None:
        super().__init__(values, nodes)
        if blocks > values:
            raise ValueError(
                f"expected at most as many blocks as there are values, {values}, got {blocks}; leave "
                "blocks at 0 to have as many as fit"
            )
        self.blocks = blocks or min(BLOCKS, values)
        each = values // max(1, self.blocks)
        self.block = each // ALIGNED * ALIGNED or each
        self.edges = np.arange(nodes + 1) * self.blocks // nodes

    def bounds(self, iteration: int) -> Array:
        """See Ranges."""
        bounds = self.edges * self.block
        bounds[self.edges == self.blocks] = self.values
        return bounds

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """See Ranges."""
        by_range = np.roll(counts, iteration % self.nodes)
        self.edges = move_one(self.edges, by_range, self.block, self.values)


def move_one(edges: Array, counts: Array, block: int, values: int) -> Array:
    """Return the edges after ExDyna's rule, which visits neighbours in order. counts: by range."""
    edges, running = edges.copy(), counts.astype(np.float64)
    nodes, total = len(counts), int(counts.sum())
    mean, moved = total / nodes, block * total / max(1, values)
    least = max(1, int(edges[-1]) // (4 * nodes))
    for i in range(nodes - 1):
        j = i + 1
        if running[i] > 1.05 * mean and running[j] < mean / 1.05 and edges[j] - edges[i] > least:
            edges[j] -= 1
            running[i], running[j] = running[i] - moved, running[j] + moved
        elif running[j] > 1.05 * mean and running[i] < mean / 1.05 and edges[j + 1] - edges[j] > least:
            edges[j] += 1
            running[i], running[j] = running[i] + moved, running[j] - moved
    return edges


class LearntRanges(Ranges):
    """Ranges of equal expected counts, cut between blocks by the chunk plan's splitter.

    hits: int64 by block, running counts of chosen positions, in 2^-16. activity: int64 by rank, running count
    of its choices / mean over ranks, in 2^-16. Some ranks have larger gradients for a while.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hits": lambda ranges, saved: saved.array(np.int64, ranges.hits.shape, 0, ranges.granule << UNIT),
        "activity": lambda ranges, saved: saved.array(np.int64, (ranges.nodes,), LEAST, MOST),
    }

    def __init__(self, values: int, nodes: int) -> None:
        super().__init__(values, nodes)
        self.granule = max(1, min(GRANULE, values // (BLOCKS // GRANULE * nodes)))
        self.hits = np.full(-(-values // self.granule), IDLE, np.int64)
        self.activity = np.full(nodes, 1 << UNIT, np.int64)

    def bounds(self, iteration: int) -> Array:
        """See Ranges. A rank that chooses many values gets a range with few hits."""
        weights = np.roll((1 << 2 * UNIT) // self.activity, iteration % self.nodes)
        edges = (0, *np.cumsum(weights).tolist())
        plan = splitter(self.values, Cuts(edges, edges[-1]), self.granule, self.hits)
        return np.array(plan.bounds, np.int64)

    def observe(self, iteration: int, counts: Array, united: Array) -> None:
        """See Ranges."""
        seen = np.bincount(united // self.granule, minlength=self.hits.size) << UNIT
        self.hits = self.hits + ((np.maximum(seen, IDLE) - self.hits) >> WEIGHT)
        share = (self.nodes * counts << UNIT) // max(1, int(counts.sum()))
        moved = self.activity * share.clip(LEAST, MOST) >> UNIT
        self.activity = (self.activity + ((moved - self.activity) >> WEIGHT)).clip(LEAST, MOST)
