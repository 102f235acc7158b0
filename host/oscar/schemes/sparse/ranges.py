"""Who owns which range of the gradient, so that no position is chosen twice: equal, moved or learnt ranges.

All of it is replicated: ranges follow from the workers' counts and from the union, which all nodes know.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.numerics.plans import make_plan
from oscar.state import Reader, Saved, Stateful

BLOCKS = 1024  # of ExDyna
GRANULE = 128  # values of a learnt block
ALIGNED = 32  # values of ExDyna's blocks are a multiple of this, where there are so many
UNIT = 16  # fraction bits of a running count
WEIGHT = 3  # 2^-WEIGHT is the weight of a new count
IDLE = 1311  # .02 hits in UNIT fraction bits: what a block costs that nobody chooses from


class Ranges(Stateful):
    """Equal ranges: `bounds`, int64 [nodes + 1], are where they begin, and the end."""

    def __init__(self, values: int, nodes: int) -> None:
        self.values, self.nodes = values, nodes

    @property
    def bounds(self) -> Array:
        """Where ranges begin."""
        return np.arange(self.nodes + 1) * self.values // self.nodes

    def observe(self, counts: Array, united: Array) -> None:
        """Move on, given how many positions of each range were chosen, and all of them."""


def _read_edges(ranges: Any, saved: Saved) -> Array:
    edges = saved.array(np.int64, (ranges.nodes + 1,), 0, ranges.blocks)
    if edges[0] != 0 or edges[-1] != ranges.blocks or (np.diff(edges) < 0).any():
        raise saved.refuse(f"edges that rise from 0 to {ranges.blocks}", "others")
    return edges


class MovedRanges(Ranges):
    """ExDyna's: runs of equal blocks; in each iteration neighbours of unequal counts hand over one block.

    edges: int64 [nodes + 1], in blocks; the last block has the remainder.
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

    @property
    def bounds(self) -> Array:
        """Where ranges begin."""
        bounds = self.edges * self.block
        bounds[self.edges == self.blocks] = self.values
        return bounds

    def observe(self, counts: Array, united: Array) -> None:
        """Hand over blocks."""
        self.edges = move_one(self.edges, counts, self.block, self.values)


def move_one(edges: Array, counts: Array, block: int, values: int) -> Array:
    """Return the edges after ExDyna's rule, which looks at neighbours from the first to the last."""
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
    """Ranges of equal running hit counts, cut between blocks by OSCAR's splitter.

    hits: int64 by block, running counts of chosen positions in 2^-16.
    """

    STATE: ClassVar[dict[str, Reader]] = {
        "hits": lambda ranges, saved: saved.array(np.int64, ranges.hits.shape, 0, ranges.granule << UNIT)
    }

    def __init__(self, values: int, nodes: int) -> None:
        super().__init__(values, nodes)
        self.granule = max(1, min(GRANULE, values // (BLOCKS // GRANULE * nodes)))
        self.hits = np.full(-(-values // self.granule), IDLE, np.int64)
        self._follow()

    def _follow(self) -> None:
        plan = make_plan("splitter", self.values, self.nodes, granule=self.granule, costs=self.hits)
        self._bounds = np.array(plan.bounds, np.int64)

    @property
    def bounds(self) -> Array:
        """Where ranges begin."""
        return self._bounds

    def observe(self, counts: Array, united: Array) -> None:
        """Learn from a union."""
        seen = np.bincount(united // self.granule, minlength=self.hits.size) << UNIT
        self.hits = self.hits + ((np.maximum(seen, IDLE) - self.hits) >> WEIGHT)
        self._follow()
