"""Tables of frame sizes: int64 [phase 2, step N-1, rank (the sender) N, sub-frame K], and their checks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.gather import FORWARD, Gather

Sizes = NDArray[np.int64]


@njit(cache=True, nogil=True, inline="always")
def chunk_sent(rank: int, nodes: int, phase: int, step: int, boomerang: bool) -> int:
    """Compiled twin of `ring_chunk_sent`; compares instead of dividing, as it runs per frame."""
    if phase == 0:
        chunk = rank - step
    elif boomerang:
        chunk = rank + 1 + step
    else:
        chunk = rank + 1 - step
    if chunk < 0:
        chunk += nodes
    elif chunk >= nodes:
        chunk -= nodes
    return chunk


@njit(cache=True, nogil=True)
def _spread(per_chunk: Any, boomerang: bool, out: Any) -> None:
    nodes, subs = per_chunk.shape
    for phase in range(2):
        for step in range(nodes - 1):
            for rank in range(nodes):
                chunk = chunk_sent(rank, nodes, phase, step, boomerang)
                for sub in range(subs):
                    out[phase, step, rank, sub] = per_chunk[chunk, sub]


@njit(cache=True, nogil=True)
def _misfit(frame_bytes: Any, counts: Any, boomerang: bool) -> tuple[int, int]:
    """Return which rule the first bad entry breaks (0: none is bad) and its flat index."""
    _, steps, nodes, subs = counts.shape
    index = 0
    for phase in range(2):
        for step in range(steps):
            for rank in range(nodes):
                chunk = chunk_sent(rank, nodes, phase, step, boomerang)
                for sub in range(subs):
                    count = counts[phase, step, rank, sub]
                    size = frame_bytes[phase, step, rank, sub]
                    if count < 0 or size < 0 or (count > 0 and size == 0):
                        return 1, index
                    if count != counts[0, 0, chunk, sub]:
                        return 2, index
                    index += 1
    return 0, 0


def new_sizes(nodes: int, subframes: int) -> Sizes:
    """Return an unset table; NumPy asks for huge pages where compiled code does not, a third of the time."""
    return np.empty((2, nodes - 1, nodes, subframes), np.int64)


def spread(per_chunk: ArrayLike, gather: Gather = FORWARD) -> Sizes:
    """Write per-chunk numbers [N, K] onto every hop: int64 [2, N-1, N, K], indexed by sender."""
    table = np.require(per_chunk, np.int64, ["C", "W"])
    if table.ndim != 2 or table.shape[0] < 1:
        raise ValueError(f"expected one row per chunk, [N, K], got shape {table.shape}")
    out = new_sizes(*table.shape)
    _spread(table, gather.boomerang, out)
    return out


def divide(values: int, parts: int) -> NDArray[np.int64]:
    """Cut `values` into `parts` that differ by one at most, the larger ones first."""
    low, extra = divmod(values, parts)
    return np.where(np.arange(parts) < extra, low + 1, low).astype(np.int64)


def cut_for(frame_bytes: Sizes, counts: Sizes, engines: int) -> tuple[Sizes, Sizes]:
    """Cut every frame into equal parts, each with a header, so that each engine has one; both tables anew.

    A chunk has at most the 64 sub-frames of the protocol. Bits per value stay as they are: how much less
    tables learn, since every engine has its own, is not known.
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
    """Return what each node receives in a ring, int64 [N]: in the reduce-scatter what its left peer sends,
    in the all-gather that of the same, or of its right peer in a boomerang."""
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
    rule, index = _misfit(sizes, values, gather.boomerang)
    if rule:
        at = tuple(int(i) for i in np.unravel_index(index, values.shape))
        found = f"at [phase, step, sender, sub] {list(at)} count {values[at]}, bytes {sizes[at]}"
        if rule == 1:
            raise ValueError(f"expected counts >= 0 and bytes for every frame that has values, got {found}")
        raise ValueError(
            f"expected a chunk to hold the same values on every hop, got {found}; "
            f"index by the sender, and give the gather that sent them (now {gather.name})"
        )
    return sizes, values
