"""Sizes of frames: cut for engines, and the dense tables of rings.

A table is int64 [phase 2, step N-1, rank (the sender) N, sub-frame K].
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.frames import KEY, ROW, Frames, Key
from oscar.collective.ring import Ring, ring_chunks
from oscar.collective.schedule import Schedule
from oscar.timeline.engines import NEXT, SLOT, EngineFrame, received, sent

Sizes = NDArray[np.int64]
NIC_BLOCK = 1 << 12  # values of the dense blocks by which work is told
ENCODE_SLOTS, DECODE_SLOTS = 134, 136  # of such a block
FRAMES = 8  # that are modelled: two are under way at a time, so gaps between results go to and fro
_Schedule = TypeVar("_Schedule", bound=Schedule)


def divide(values: int, parts: int) -> NDArray[np.int64]:
    """Cut `values` into `parts` that differ by one at most, the larger ones first."""
    low, extra = divmod(values, parts)
    return np.where(np.arange(parts) < extra, low + 1, low).astype(np.int64)


def cut_for(schedule: _Schedule, frames: Frames, engines: int) -> tuple[_Schedule, Frames]:
    """Return both with every frame cut into equal parts, each with a header: one for each engine.

    A chunk has at most the 64 sub-frames of the protocol. Bits per value stay as they are: each engine has
    tables of its own, and how much less these learn is not known.
    """
    parts = min(-(-engines // schedule.subframes), MAX_SUBFRAMES // schedule.subframes)
    if parts <= 1:
        return schedule, frames
    part = np.tile(np.arange(parts), len(frames))
    rows = np.repeat(frames.rows, parts)
    counts, payload = rows["count"], np.maximum(rows["bytes"] - HEADER_BYTES, 0)
    low, high = counts * part // parts, counts * (part + 1) // parts
    ends = [payload * edge // np.maximum(counts, 1) for edge in (low, high)]
    rows["sub"] = rows["sub"] * parts + part
    rows["count"], rows["bytes"] = high - low, HEADER_BYTES + ends[1] - ends[0]
    return replace(schedule, subframes=schedule.subframes * parts), Frames.of(rows[high > low])


def cut_tables(frame_bytes: Sizes, counts: Sizes, engines: int) -> tuple[Sizes, Sizes]:
    """Return the tables of `cut_for`."""
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


def ring_tables(schedule: Ring, frames: Frames) -> tuple[Sizes, Sizes]:
    """Return the bytes and counts of a ring's frames as tables; those never sent have 0.

    Raises ValueError for frames that `schedule` does not send, with the first one.
    """
    rows, n = frames.rows, schedule.nodes
    shape = (2, n - 1, n, schedule.subframes)
    sizes, counts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    at = rows["phase"], rows["step"], rows["sender"], rows["sub"]
    misfit = np.zeros(len(rows), bool)
    for index, most in zip(at, shape, strict=True):
        misfit |= (index < 0) | (index >= most)
    if not misfit.any() and len(rows):
        chunk, back = ring_chunks(n, schedule.gather), rows["phase"] * bool(schedule.gather.boomerang)
        misfit |= rows["chunk"] != chunk[at[:3]]
        misfit |= rows["receiver"] != (rows["sender"] + 1 - 2 * back) % n
    if misfit.any():
        first = ", ".join(f"{name} {rows[misfit.argmax()][name]}" for name in ROW.names or ())
        raise ValueError(
            f"expected frames of {schedule.describe()}, got one of {first}; give the schedule that ran"
        )
    sizes[at], counts[at] = rows["bytes"], rows["count"]
    if counts.size and _unequal(counts, chunk_table(schedule)):
        raise ValueError(
            f"expected frames of {schedule.describe()} whose chunks hold the same values on every hop, got "
            "others; give all frames of one AllReduce"
        )
    return sizes, counts


def idle_share(counts: Sizes, engines: int, block: int) -> NDArray[np.float64]:
    """Return by how much frames of so many values take longer than if all engines had the same work."""
    blocks = np.maximum(-(-counts // block), 1)
    return np.asarray(engines * -(-blocks // engines) / blocks)


class Engaged(NamedTuple):
    """How long a frame takes the engines, in values of dense frames, if all engines code them all the time.

    work: until its result is there; hold: from one result to the next of many such frames, one behind the
    other. Blocks of a frame are coded beside the last ones of the frame before, so hold may be less.
    """

    work: int
    hold: int


def engine_work(frames: Frames, engines: int, block: int) -> tuple[dict[Key, Engaged], dict[Key, Engaged]]:
    """Return what encoding and decoding every frame takes, by its key.

    block: values of a block. Frames whose cells are not known count as dense, and as one after another.
    """
    sizes, cells = frames.sizes(), frames.work()
    counts = np.array([count for count, _ in sizes.values()], np.int64)
    dense = np.round(counts * idle_share(counts, engines, block)).astype(np.int64).tolist()
    encode = {key: Engaged(work, work) for key, work in zip(sizes, dense, strict=True)}
    decode = dict(encode)
    known: dict[int, tuple[Engaged, Engaged]] = {}  # a frame that goes to several has the same cells
    added = _added_alike(frames)
    for key, found in cells.items():
        if id(found) not in known:
            known[id(found)] = frame_work(found, *sizes[key], engines, block, alike=key in added)
        encode[key], decode[key] = known[id(found)]
    return encode, decode


def _added_alike(frames: Frames) -> set[Key]:
    """Return the keys of frames that a receiver adds to the same rows as another's: direct's pushes."""
    names = "phase", "receiver", "chunk", "sub"
    places = list(zip(*(frames.rows[name].tolist() for name in names), strict=True))
    most = Counter(places)
    keys = zip(*(frames.rows[name].tolist() for name in KEY), strict=True)
    return {key for key, place in zip(keys, places, strict=True) if most[place] > 1}


def frame_work(
    cells: Sizes, count: int, size: int, engines: int, block: int, *, alike: bool = False
) -> tuple[Engaged, Engaged]:
    """Return what encoding and decoding a frame takes; arguments as of `engine_work`.

    alike: frames behind each other are added to the same rows, so a block waits for the same one before.
    """
    behind = -(-count // (LANES * GROUP_ROWS)) * GROUP_ROWS  # the first row of the next frame in memory
    many = [EngineFrame(cells, count, size, None, row * behind) for row in range(FRAMES)]
    came = [replace(frame, row=0) for frame in many] if alike else many

    def engaged(ends: list[float], slots: int, gap: float) -> Engaged:
        values = engines * NIC_BLOCK / (SLOT * slots)  # of dense frames, in a clock
        each = (ends[-1] - ends[1]) / (FRAMES - 2) - gap
        return Engaged(round(ends[0] * values), max(0, round(each * values)))

    return (
        engaged(sent(many, engines, block, 0.0), ENCODE_SLOTS, NEXT[0]),
        engaged(received(came, engines, block, 0.0), DECODE_SLOTS, NEXT[1]),
    )


def work_tables(counts: Sizes, frames: Frames, engines: int, block: int) -> tuple[Sizes, Sizes]:
    """Return works and holds of a ring's frames in the places of their counts; of both ways, the more."""
    rows, tables = frames.rows, (counts.copy(), counts.copy())
    both = engine_work(frames, engines, block)
    keys = list(zip(*(rows[name].tolist() for name in KEY), strict=True))
    for field, table in enumerate(tables):
        table[rows["phase"], rows["step"], rows["sender"], rows["sub"]] = [
            max(way[key][field] for way in both) for key in keys
        ]
    return tables


def _unequal(counts: Sizes, chunks: Sizes) -> bool:
    """Whether a chunk holds other values on some hop; a phase may have no frames at all, as of a gather."""
    sent = [phase for phase in range(2) if counts[phase].any()]
    by_chunk = np.zeros(counts.shape[2:], np.int64)
    for phase in sent[:1]:
        by_chunk[chunks[phase, 0]] = counts[phase, 0]
    return any((counts[phase] != by_chunk[chunks[phase]]).any() for phase in sent)


def chunk_table(schedule: Ring) -> Sizes:
    """Return the chunk that each rank sends, int64 [phase 2, step N-1, rank N]."""
    return np.asarray(ring_chunks(schedule.nodes, schedule.gather))
