"""Sums for splitters, and what the host cuts."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np

from oscar.numerics.plans import make_plan

GRANULE_LOG2 = 3
GRANULE = 1 << GRANULE_LOG2


def edges(values: int, nodes: int, costs: np.ndarray) -> list[int] | None:
    """Boundaries of the host's plan as numbers of blocks; None if chunks are equal."""
    if int(costs.sum()) == 0:
        return None
    bounds = make_plan("splitter", values, nodes, granule=GRANULE, costs=costs).bounds[1:-1]
    return [-(-b // GRANULE) for b in bounds]


def pieces(rng: random.Random, values: int) -> list[tuple[int, int]]:
    """Cut a gradient into segments (first, end), in any order, not always at the edges of blocks."""
    cuts = sorted({0, values, *(rng.randrange(values) for _ in range(rng.randrange(6)))})
    if rng.random() < 0.5:
        cuts = sorted({0, values, *(c // GRANULE * GRANULE for c in cuts)})
    out = list(pairwise(cuts))
    if rng.random() < 0.7:
        rng.shuffle(out)
    return out


def gradients(rng: np.random.Generator, values: int, kind: str) -> np.ndarray:
    """Sums of all sizes; layers of different scale; most blocks zero; equal blocks."""
    if kind == "any":
        return (rng.integers(-(1 << 15), 1 << 15, values) >> rng.integers(0, 16, values)).astype(np.int64)
    if kind == "layers":
        scale = np.repeat(np.exp(rng.normal(3, 2, values // 50 + 1)), 50)[:values]
        return np.clip(np.rint(rng.laplace(0, scale)), -32768, 32767).astype(np.int64)
    if kind == "zeros":
        used = np.repeat(rng.random(values // GRANULE + 1) < 0.2, GRANULE)[:values]
        return rng.integers(-3, 4, values) * used
    return np.repeat(rng.choice([0, 5, 5, 5], values // GRANULE + 1), GRANULE)[:values]
