"""Tables of frame sizes: int64 [phase 2, step N-1, rank (the sender) N, sub-frame K], and their checks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.gather import Gather
from oscar.collective.ring import ring_chunks

Sizes = NDArray[np.int64]


def divide(values: int, parts: int) -> NDArray[np.int64]:
    """Cut `values` into `parts` that differ by one at most, the larger ones first."""
    low, extra = divmod(values, parts)
    return np.where(np.arange(parts) < extra, low + 1, low).astype(np.int64)


def cut_for(frame_bytes: Sizes, counts: Sizes, engines: int) -> tuple[Sizes, Sizes]:
    """Return both tables with every frame cut into equal parts, each with a header: one for each engine.

    A chunk has at most the 64 sub-frames of the protocol. Bits per value stay as they are: each engine has
    tables of its own, and how much less these learn is not known.
    """
    subs = counts.shape[3]
    parts = min(-(-engines // subs), MAX_SUBFRAMES // subs)
    if parts <= 1:
        return frame_bytes, counts
    edges = counts[..., None] * np.arange(parts + 1) // parts
    payload = np.maximum(frame_bytes - HEADER_BYTES, 0)[..., None]
    ends = payload * edges // np.maximum(counts, 1)[..., None]
    own = np.diff(edges)
    sizes = np.where(own > 0, HEADER_BYTES + np.diff(ends), 0)
    shape = (*counts.shape[:3], subs * parts)
    return np.ascontiguousarray(sizes.reshape(shape)), np.ascontiguousarray(own.reshape(shape))


def received_bytes(frame_bytes: Sizes, gather: Gather) -> Sizes:
    """Return the bytes that each node receives in a ring, int64 [N].

    In the reduce-scatter its left peer sends them, in the all-gather the same, or its right peer in a
    boomerang.
    """
    there, back = frame_bytes.sum(axis=(1, 3))
    return np.asarray(np.roll(there, 1) + np.roll(back, -1 if gather.boomerang else 1))


def checked_sizes(frame_bytes: ArrayLike, counts: ArrayLike, gather: Gather) -> tuple[Sizes, Sizes]:
    """Return both tables as contiguous int64 [2, N-1, N, K].

    A chunk holds the same values on every hop; checking so catches tables indexed by receiver.
    Raises TypeError unless both hold integers, ValueError when they do not describe one ring AllReduce.
    """
    pair = (np.asarray(frame_bytes), np.asarray(counts))
    for name, array in zip(("frame_bytes", "counts"), pair, strict=True):
        if array.dtype.kind not in "iu":
            raise TypeError(f"{name}: expected integers, got {array.dtype}; round bytes up")
        shape = array.shape
        if len(shape) != 4 or shape[0] != 2 or shape[1] != shape[2] - 1 or shape[3] < 1:
            raise ValueError(f"{name}: expected shape [2, N-1, N, K], N and K at least 1, got {shape}")
    if pair[0].shape != pair[1].shape:
        raise ValueError(f"expected frame_bytes shaped like counts, {pair[1].shape}, got {pair[0].shape}")
    sizes, values = (np.require(array, np.int64, ["C", "W"]) for array in pair)
    no_frame = (values < 0) | (sizes < 0) | ((values > 0) & (sizes == 0))
    misfit = no_frame.copy()
    if values.size:
        misfit |= values != values[0, 0][ring_chunks(values.shape[2], gather)]
    if misfit.any():
        at = tuple(int(i) for i in np.unravel_index(misfit.argmax(), values.shape))
        found = f"at [phase, step, sender, sub] {list(at)} count {values[at]}, bytes {sizes[at]}"
        if no_frame[at]:
            raise ValueError(f"expected counts >= 0 and bytes for every frame that has values, got {found}")
        raise ValueError(
            f"expected a chunk to hold the same values on every hop, got {found}; "
            f"index by the sender, and give the gather that sent them (now {gather.name})"
        )
    return sizes, values
