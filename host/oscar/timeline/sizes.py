"""Sizes of frames: cut for cores, and what units take for them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.asc.turns import COLUMNS, GROUP, cell_values
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.frames import KEY, Frames, Key
from oscar.collective.schedule import Schedule
from oscar.timeline.turns import TURN
from oscar.timeline.units import UnitFrame, received, sent

Sizes = NDArray[np.int64]
NIC_BLOCK = 1 << 12  # values of the dense blocks by which work is told
ENCODE_TURNS, DECODE_TURNS = 142, 134  # of such a block
FRAMES = 8  # that are modelled: up to four are under way at a time, so gaps between results go to and fro
DENSE_SIZES = 32  # of dense frames that are played turn by turn
DENSE_BITS = 5  # of a value of a frame whose rows are not known
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


class Engaged(NamedTuple):
    """How long a frame takes the units, in values of dense frames, if all units have a turn all the time.

    work: until its result is there; hold: from one result to the next of many such frames, one behind the
    other. Blocks of a frame are coded beside the last ones of the frame before, so hold may be less.
    """

    work: int
    hold: int


Works = tuple[dict[Key, Engaged], dict[Key, Engaged]]
_WORKS = deque[tuple[Frames, int, int, Works]](maxlen=8)


def unit_work(frames: Frames, units: int, block: int) -> Works:
    """Return what encoding and decoding every frame takes, by its key.

    block: values of a block. Frames whose cells are not known count as dense. The last ones are kept: the
    same frames are timed at many rates.
    """
    for known, *how, works in tuple(_WORKS):
        if known is frames and how == [units, block]:
            return works
    found = _unit_work(frames, units, block)
    _WORKS.append((frames, units, block, found))
    return found


def _unit_work(frames: Frames, units: int, block: int) -> Works:
    """See `unit_work`."""
    sizes, cells = frames.sizes(), frames.work()
    encode = {key: dense_work(count, units, block) for key, (count, _) in sizes.items()}
    decode = dict(encode)
    known: dict[int, tuple[Engaged, Engaged]] = {}  # a frame that goes to several has the same cells
    added = _added_alike(frames)
    for key, found in cells.items():
        if id(found) not in known:
            known[id(found)] = frame_work(found, *sizes[key], units, block, alike=key in added)
        encode[key], decode[key] = known[id(found)]
    return encode, decode


def _added_alike(frames: Frames) -> set[Key]:
    """Return the keys of frames that a receiver adds to the same rows as another's: direct's pushes."""
    names = "phase", "receiver", "chunk", "sub"
    places = list(zip(*(frames.rows[name].tolist() for name in names), strict=True))
    most = Counter(places)
    keys = zip(*(frames.rows[name].tolist() for name in KEY), strict=True)
    return {key for key, place in zip(keys, places, strict=True) if most[place] > 1}


@lru_cache(maxsize=4096)
def dense_work(count: int, units: int, block: int) -> Engaged:
    """Return what a frame of dense rows takes, the slower of both ways."""
    if not count:
        return Engaged(0, 0)
    values = cell_values(count)
    each = values // GROUP  # groups of a cell
    cells = np.tile(np.array([values // LANES, each, values // LANES, 0]), (-(-count // values), 1))
    assert cells.shape[1] == COLUMNS
    rest = -(-(count % values or values) // LANES)
    cells[-1] = rest, -(-rest // GROUP_ROWS), rest, 0
    ways = frame_work(cells, count, count * DENSE_BITS // 8, units, block)
    return Engaged(*(max(found) for found in zip(*ways, strict=True)))


def dense_tables(counts: Sizes, units: int, block: int) -> tuple[Sizes, Sizes]:
    """Return works and holds of dense frames of so many values, in arrays like `counts`.

    Of more than DENSE_SIZES sizes, those between are interpolated: each that is played takes milliseconds.
    """
    if not counts.size:
        return counts.copy(), counts.copy()
    different, at = np.unique(counts, return_inverse=True)
    few = different[np.unique(np.linspace(0, different.size - 1, DENSE_SIZES).round().astype(int))]
    played = few if different.size > DENSE_SIZES else different
    found = np.array([dense_work(int(count), units, block) for count in played], np.int64).reshape(-1, 2)
    ways = (np.interp(different, played, found[:, way]).round().astype(np.int64) for way in range(2))
    work, hold = (np.ascontiguousarray(way[at].reshape(counts.shape)) for way in ways)
    return work, hold


def frame_work(
    cells: Sizes, count: int, size: int, units: int, block: int, *, alike: bool = False
) -> tuple[Engaged, Engaged]:
    """Return what encoding and decoding a frame takes; arguments as of `unit_work`.

    alike: frames behind each other have the same rows, so the same units do their blocks. A frame that is
    longer than a NIC's counts as so many of those.
    """
    longer = cell_values(count) // GROUP
    if longer > 1:
        cells, count, size = cells // longer, -(-count // longer), size // longer
        cells = cells[: -(-count // GROUP)]
    behind = -(-count // block) * (block // LANES)  # the first row of the next frame in memory
    many = [UnitFrame(cells, count, size, None, row * behind) for row in range(FRAMES)]
    came = [replace(frame, row=0) for frame in many] if alike else many

    def engaged(ends: list[float], turns: int) -> Engaged:
        values = units * NIC_BLOCK / (TURN * turns)  # of dense frames, in a clock
        hold = min(ends[0], (ends[-1] - ends[1]) / (FRAMES - 2))
        return Engaged(round((ends[0] + (longer - 1) * hold) * values), round(hold * longer * values))

    return (
        engaged(sent(many, units, block, 0.0), ENCODE_TURNS),
        engaged(received(came, units, block, 0.0), DECODE_TURNS),
    )
