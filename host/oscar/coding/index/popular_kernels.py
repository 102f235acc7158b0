"""The compiled twin of `popular`: hits of one class after the other, in runs, by a binary range coder.

Ranks number the places of a class. A coder's state is low (in a decoder the code less low), range, the place
of the next byte, and whether room ran out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

CLASSES = 16
PRECISION = 22  # bits of a class's hit probability
PRIOR = 32  # sixteenths of a place with this stream's own density stand for a class that was never seen
HALF, ONE = 1 << 31, 1 << 32
TOP = 1 << 24  # a range is never below this
MISSING, EXCESS, FULL = -1, -2, -1


@njit(cache=True, nogil=True)
def _advance(classes: Any, start: int, stop: int, places: Any) -> None:
    """Count the places from `start` to `stop`; those of class 0, which are most, eight at a time."""
    j = start
    while j + 8 <= stop:
        c = classes[j : j + 8]
        if c[0] | c[1] | c[2] | c[3] | c[4] | c[5] | c[6] | c[7]:
            for k in range(8):
                places[c[k]] += 1
        else:
            places[0] += 8
        j += 8
    while j < stop:
        places[classes[j]] += 1
        j += 1


@njit(cache=True, nogil=True)
def _levels(hits: int, places: int, density: int, empty: Any, second: Any) -> int:
    """Fill the probabilities of a class; return the level of its runs.

    empty[k]: that 2^k places have no hit, in 1/2^32. second[k]: that the first hit of 2^(k+1) places, of
    which at least one is hit, lies in the second half, in 1/2^16.
    """
    hit = ((hits << PRECISION) + density * PRIOR) // (places + PRIOR)
    hit = min(max(hit, 1), (1 << PRECISION) - 1)
    level = 0
    empty[0] = ONE - (hit << (32 - PRECISION))
    while True:
        q = empty[level]
        second[level] = (q << 16) // (ONE + q)
        following = np.int64((np.uint64(q) * np.uint64(q)) >> np.uint64(32))
        if following < HALF:
            return level
        level += 1
        empty[level] = following


@njit(cache=True, nogil=True)
def _length(left: int, level: int) -> int:
    """Return the level of the next run: 2^level places, or the largest power of two that is left."""
    while 1 << level > left:
        level -= 1
    return level


@njit(cache=True, nogil=True)
def _put(bit: int, zero: int, state: Any, out: Any) -> None:
    """Code a bit whose probability to be 0 is zero / 2^16."""
    low, span, at = state[0], state[1], state[2]
    bound = span * min(max(zero, 1), 65535) >> 16
    if bit:
        low += bound
        span -= bound
        if low >= ONE:
            low -= ONE
            _carry(out, at)
    else:
        span = bound
    while span < TOP:
        if at == len(out):
            state[3] = 1
            at = 0  # what is written from here on is thrown away
        out[at] = low >> 24
        at += 1
        low = (low << 8) & (ONE - 1)
        span <<= 8
    state[0], state[1], state[2] = low, span, at


@njit(cache=True, nogil=True)
def _carry(out: Any, at: int) -> None:
    at -= 1
    while at >= 0 and out[at] == 255:
        out[at] = 0
        at -= 1
    if at >= 0:
        out[at] += 1


@njit(cache=True, nogil=True)
def _finish(state: Any, out: Any) -> int:
    """Write the shortest end, without zeros; return the bytes, or FULL."""
    low, at = state[0], state[2]
    if state[3] or at == len(out):
        return FULL
    if low + state[1] > ONE:  # 2^32 lies in the range: nothing but a carry
        _carry(out, at)
    elif low:
        out[at] = (low + TOP - 1) >> 24
        at += 1
    while at > 0 and out[at - 1] == 0:
        at -= 1
    return at


@njit(cache=True, nogil=True)
def _get(zero: int, state: Any, body: Any) -> int:
    """Return the next bit; behind the end there are zeros."""
    code, span, at = state[0], state[1], state[2]
    bound = span * min(max(zero, 1), 65535) >> 16
    bit = 0
    if code >= bound:
        code -= bound
        span -= bound
        bit = 1
    else:
        span = bound
    while span < TOP:
        code = code << 8 | (np.int64(body[at]) if at < len(body) else 0)
        at += 1
        span <<= 8
    state[0], state[1], state[2] = code, span, at
    return bit


@njit(cache=True, nogil=True)
def encode(positions: Any, classes: Any, counts: Any, out: Any, seen: Any) -> int:
    """Code ascending positions into `out`; return the bytes, or FULL.

    counts: [2][16], what was learnt. seen: [2][16] zeros, returns hits and places of this stream.
    """
    total = len(positions)
    kinds, ranks = np.empty(total, np.uint8), np.empty(total, np.int64)
    hits, places, before = seen[0], seen[1], 0
    for j in range(total):
        _advance(classes, before, positions[j], places)
        before = positions[j] + 1
        kind = classes[positions[j]]
        kinds[j], ranks[j] = kind, places[kind]
        places[kind] += 1
        hits[kind] += 1
    _advance(classes, before, len(classes), places)
    starts, sorted_ranks = _starts(hits), np.empty(total, np.int64)
    for j in range(total):
        sorted_ranks[starts[kinds[j]]] = ranks[j]
        starts[kinds[j]] += 1
    if total == 0:
        return 0
    state = np.array([0, ONE, 0, 0], np.int64)
    empty, second = np.empty(PRECISION + 2, np.int64), np.empty(PRECISION + 2, np.int64)
    density = (total << PRECISION) // len(classes)
    j = 0
    for kind in range(CLASSES - 1, -1, -1):
        end = j + hits[kind]
        most = _levels(counts[0, kind], counts[1, kind], density, empty, second)
        at = 0
        while at < places[kind] and j < total:
            level = _length(places[kind] - at, most)
            if j == end or sorted_ranks[j] >= at + (1 << level):
                _put(0, empty[level] >> 16, state, out)
                at += 1 << level
                continue
            _put(1, empty[level] >> 16, state, out)
            while level > 0:
                level -= 1
                later = sorted_ranks[j] >= at + (1 << level)
                _put(not later, second[level], state, out)
                if later:
                    at += 1 << level
            at += 1
            j += 1
    return _finish(state, out)


@njit(cache=True, nogil=True)
def _starts(hits: Any) -> Any:
    """Return where the hits of each class begin; class 15 comes first."""
    starts, before = np.empty(CLASSES, np.int64), 0
    for kind in range(CLASSES - 1, -1, -1):
        starts[kind] = before
        before += hits[kind]
    return starts


@njit(cache=True, nogil=True)
def decode(body: Any, classes: Any, counts: Any, positions: Any, seen: Any) -> int:
    """Fill ascending `positions` from `body`; return 0, or MISSING or EXCESS. See `encode`."""
    total = len(positions)
    hits, places = seen[0], seen[1]
    _advance(classes, 0, len(classes), places)
    if total == 0:
        return 0 if len(body) == 0 else EXCESS
    ranks = np.empty(total, np.int64)
    code = 0
    for k in range(4):
        code = code << 8 | (np.int64(body[k]) if k < len(body) else 0)
    state = np.array([code, ONE, 4], np.int64)
    empty, second = np.empty(PRECISION + 2, np.int64), np.empty(PRECISION + 2, np.int64)
    density = (total << PRECISION) // len(classes)
    j = 0
    for kind in range(CLASSES - 1, -1, -1):
        most = _levels(counts[0, kind], counts[1, kind], density, empty, second)
        at, first = 0, j
        while at < places[kind] and j < total:
            level = _length(places[kind] - at, most)
            if not _get(empty[level] >> 16, state, body):
                at += 1 << level
                continue
            while level > 0:
                level -= 1
                if not _get(second[level], state, body):
                    at += 1 << level
            ranks[j] = at
            at += 1
            j += 1
        hits[kind] = j - first
    if j < total:
        return MISSING
    if len(body) > state[2] - 3 or (len(body) > 0 and body[-1] == 0):
        return EXCESS
    _place(classes, ranks, hits, positions)
    return 0


@njit(cache=True, nogil=True)
def _place(classes: Any, ranks: Any, hits: Any, positions: Any) -> None:
    """Turn ranks of classes into positions, which come out in ascending order."""
    following, ends = _starts(hits), _starts(hits) + hits
    wanted = np.empty(CLASSES, np.int64)
    for kind in range(CLASSES):
        wanted[kind] = ranks[following[kind]] if following[kind] < ends[kind] else -1
    places, j, found, size = np.zeros(CLASSES, np.int64), 0, 0, len(classes)
    while found < len(positions):
        stop = min(j + 8, size)
        if stop == j + 8 and not 0 <= wanted[0] < places[0] + 8:
            c = classes[j:stop]
            if not (c[0] | c[1] | c[2] | c[3] | c[4] | c[5] | c[6] | c[7]):
                places[0] += 8
                j = stop
                continue
        while j < stop:
            kind = classes[j]
            if places[kind] == wanted[kind]:
                positions[found] = j
                found += 1
                following[kind] += 1
                wanted[kind] = ranks[following[kind]] if following[kind] < ends[kind] else -1
            places[kind] += 1
            j += 1
