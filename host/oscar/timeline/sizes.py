"""Sizes of frames: cut for cores, and what units take for them."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.frames import Frames, Key
from oscar.collective.schedule import Schedule
from oscar.timeline.clocks import Engaged, dense_cells
from oscar.timeline.link import Pipeline

Sizes = NDArray[np.int64]
_Schedule = TypeVar("_Schedule", bound=Schedule)


def divide(values: int, parts: int) -> NDArray[np.int64]:
    """Cut `values` into `parts` that differ by one at most, the larger ones first."""
    low, extra = divmod(values, parts)
    return np.where(np.arange(parts) < extra, low + 1, low).astype(np.int64)


def cut(frame_bytes: Sizes, counts: Sizes, subframes: int, cores: int) -> tuple[Sizes, Sizes]:
    """Return bytes and counts, int64 [.., frame], with every frame cut into equal parts: one for each core.

    Each part has a header. A chunk has at most MAX_SUBFRAMES sub-frames after the cut. Bits per value
    stay as they are: each core has tables of its own, and how much less these learn is not known.
    """
    parts = min(-(-cores // subframes), MAX_SUBFRAMES // subframes)
    if parts <= 1:
        return frame_bytes, counts
    edges = counts[..., None] * np.arange(parts + 1) // parts
    payload = np.maximum(frame_bytes - HEADER_BYTES, 0)[..., None]
    own = np.diff(edges)
    sizes = np.where(own > 0, HEADER_BYTES + np.diff(payload * edges // np.maximum(counts, 1)[..., None]), 0)
    shape = *counts.shape[:-1], counts.shape[-1] * parts
    return sizes.reshape(shape), own.reshape(shape)


def cut_for(schedule: _Schedule, frames: Frames, cores: int) -> tuple[_Schedule, Frames]:
    """Return both with every frame cut as `cut` does."""
    sizes, counts = cut(
        frames.rows["bytes"][:, None], frames.rows["count"][:, None], schedule.subframes, cores
    )
    parts = counts.shape[1] if len(frames) else 1
    if parts == 1:
        return schedule, frames
    rows = np.repeat(frames.rows, parts)
    rows["sub"] = rows["sub"] * parts + np.tile(np.arange(parts), len(frames))
    rows["count"], rows["bytes"] = counts.ravel(), sizes.ravel()
    return replace(schedule, subframes=schedule.subframes * parts), Frames.of(rows[rows["count"] > 0])


Works = tuple[dict[Key, Engaged], dict[Key, Engaged]]
_WORKS = deque[tuple[Frames, Pipeline, Works]](maxlen=8)


def unit_work(frames: Frames, nic: Pipeline) -> Works:
    """Return what encoding and decoding every frame takes, by its key.

    Frames whose cells are not known count as dense. The last results are kept, since the same frames are
    timed at many rates.
    """
    for known, known_nic, works in tuple(_WORKS):
        if known is frames and known_nic == nic:
            return works
    cells, encode, decode = frames.work(), dict[Key, Engaged](), dict[Key, Engaged]()
    ways: dict[
        tuple[int, int], tuple[Engaged, Engaged]
    ] = {}  # a frame that goes to several has the same cells
    for key, (count, _) in frames.sizes().items():
        frame = id(cells.get(key)), count
        if frame not in ways:
            ways[frame] = nic.engaged(cells[key] if key in cells else dense_cells(count), count)
        encode[key], decode[key] = ways[frame]
    _WORKS.append((frames, nic, (encode, decode)))
    return encode, decode


def dense_work(counts: Sizes, nic: Pipeline) -> Sizes:
    """Return how long dense frames engage a NIC, int64 [encode or decode, work or hold, frame]."""
    ways = [
        nic.engaged(dense_cells(count), count) if count else ((0, 0), (0, 0)) for count in counts.tolist()
    ]
    return np.array(ways, np.int64).reshape(-1, 2, 2).transpose(1, 2, 0)
