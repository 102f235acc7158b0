"""Gradients to reduce, float32; the same for the same arguments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Shapes = Sequence[tuple[int, ...]]


def laplace(rank: int, iteration: int, shapes: Shapes) -> list[np.ndarray]:
    """Return one rank's gradient [tensor], Laplace-distributed, of its own."""
    random = np.random.default_rng([rank, iteration])
    return [np.asarray(random.laplace(0, 0.02, shape), np.float32) for shape in shapes]


def related(
    nodes: int, iteration: int, shapes: Shapes, *, power: int = 1, sigma: float = 0.01, grow: float = 1
) -> list[list[np.ndarray]]:
    """Return gradients [node][tensor]: a common part, as of one model, and noise of each node's own.

    power: of the common part's values, 3 for few large and many small ones. grow: factor in the size
    of the common part from tensor to tensor. Every other tensor is laid out in Fortran's order.
    """
    shared = np.random.default_rng([iteration, 1])
    common = [sigma * grow**i * shared.laplace(size=shape) ** power for i, shape in enumerate(shapes)]
    out = []
    for node in range(nodes):
        own = np.random.default_rng([iteration, 2, node])
        tensors = [(part + own.normal(0, sigma, part.shape)).astype(np.float32) for part in common]
        out.append([np.array(t, order="CF"[(i + node) % 2]) for i, t in enumerate(tensors)])
    return out
