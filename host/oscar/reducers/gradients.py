"""Checks numbers and shapes of gradients[node][tensor] before any value is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oscar.errors import GradientError

MAX_NODES = 256  # ranks; message tags have no room for more


def check_gradients(gradients: Sequence[Sequence[np.ndarray]]) -> list[tuple[int, ...]]:
    """Return the tensors' shapes, which must be equal on all nodes.

    gradients: arrays of any dtype, [node][tensor]. Raises TypeError unless `gradients` is a sequence of
    lists; GradientError unless there are 1 to 256 nodes with equal numbers of tensors and equal shapes.
    """
    if not isinstance(gradients, (Sequence, np.ndarray)):
        raise TypeError(f"expected gradients[node][tensor], got {type(gradients).__name__}")
    for rank, node in enumerate(gradients):
        check_list(node, f"gradients[node][tensor], with a list of arrays for node {rank}")
    if not 1 <= len(gradients) <= MAX_NODES:
        raise GradientError(f"expected gradients of 1 to {MAX_NODES} nodes, got {len(gradients)}")
    shapes = [tuple(np.shape(tensor)) for tensor in gradients[0]]
    for rank, node in enumerate(gradients):
        theirs = [tuple(np.shape(tensor)) for tensor in node]
        if len(theirs) != len(shapes):
            raise GradientError(
                f"node {rank} has {len(theirs)} tensors, node 0 has {len(shapes)}: "
                "all nodes must run the same model"
            )
        for index, (came, expected) in enumerate(zip(theirs, shapes, strict=True)):
            if came != expected:
                raise GradientError(
                    f"node {rank}, tensor {index} has shape {came}, on node 0 it has {expected}: "
                    "all nodes must run the same model"
                )
    return shapes


def check_list(tensors: Any, expected: str) -> None:
    """Raise TypeError unless `tensors` is a list of tensors; one array is probably a list left out."""
    if hasattr(tensors, "shape"):
        if len(tensors.shape) < 2:
            raise TypeError(
                f"expected {expected}, got one array of shape {list(tensors.shape)}; write [array]"
            )
    elif isinstance(tensors, (str, bytes)) or not isinstance(tensors, Sequence):
        raise TypeError(f"expected {expected}, got {type(tensors).__name__}")
