"""Checks of gradients before any value is read, and of the mean: it has to fit float32.

All ranks raise alike and name the ranks of the largest values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import GradientError, GradientOverflowError
from oscar.numerics.quantiser_kernels import all_finite
from oscar.reducers.wire import Wire
from oscar.schemes.base import Message

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
        for index, (actual, expected) in enumerate(zip(theirs, shapes, strict=True)):
            if actual != expected:
                raise GradientError(
                    f"node {rank}, tensor {index} has shape {actual}, on node 0 it has {expected}: "
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


NAMED = 4  # most ranks that an error names
ADVICE = "; skip this iteration, or lower the loss scale or the learning rate"


def check_means(
    wire: Wire, means: Sequence[Array], tensors: Sequence[Sequence[Array]], kept: Any = None
) -> None:
    """Raise GradientOverflowError unless the means, and all floats of the replicated state, are finite.

    means: float32 [tensor]. tensors: the inputs [rank][tensor] of the wire's own ranks. kept: a snapshot of
    the replicated state. Means and state are equal on all ranks, so all ranks decide alike. Before an error,
    one more collective tells every rank how large the values of the others are.
    """
    if all(all_finite(each.reshape(-1)) for each in (*means, *_floats(kept))):
        return
    bad = [np.flatnonzero(~np.isfinite(mean)) for mean in means]
    tensor = next((t for t, places in enumerate(bad) if places.size), -1)
    largest = _largest(
        wire, [gradients if tensor < 0 else gradients[tensor : tensor + 1] for gradients in tensors]
    )
    if tensor < 0:
        what = f"the state that follows from the mean of {wire.nodes} ranks is beyond float32"
    else:
        what = (
            f"the mean of {wire.nodes} ranks is beyond float32 in {bad[tensor].size} of "
            f"{means[tensor].size} values, the first at flat index {bad[tensor][0]}"
        )
    what += f"; the largest values that came are {largest}; all state is as before the call"
    raise GradientOverflowError(what, tensor=tensor, advice=ADVICE)


def _largest(wire: Wire, tensors: Sequence[Sequence[Array]]) -> str:
    """Return in words the largest magnitudes and their ranks; collective."""
    mine = [
        np.float32(max((np.abs(part).max(initial=0) for part in gradients), default=0))
        for gradients in tensors
    ]
    messages = [Message("largest values", np.frombuffer(one.tobytes(), np.uint8), "agree") for one in mine]
    magnitudes = np.concatenate(wire.combine(messages)[0]).view(np.float32)
    order = np.argsort(-magnitudes, kind="stable")[:NAMED]
    more = " and others" if magnitudes.size > NAMED else ""
    return ", ".join(f"{magnitudes[rank]:.3g} of rank {rank}" for rank in order) + more


def _floats(snapshot: Any) -> Iterator[Array]:
    """Yield the arrays of floats in a snapshot."""
    if isinstance(snapshot, np.ndarray):
        if snapshot.dtype == np.float32:
            yield snapshot
    elif isinstance(snapshot, (dict, list)):
        for each in snapshot.values() if isinstance(snapshot, dict) else snapshot:
            yield from _floats(each)
