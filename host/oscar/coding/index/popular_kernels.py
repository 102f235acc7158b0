"""Compiled parts of the index codec `popular`: runs of places of one class, coded by a binary range coder.

Classes are coded one after the other, 15 first. The *rank* of a place is its number among the places of its
class. A class is cut into runs of 2^level places: one bit says whether a run has a hit, and bits of a
bisection find the first. So empty stretches cost little, and no step looks at single places without hits.

A coder's state, int64: low (in a decoder: code - low), range, offset of the next byte, and whether `out` was
too small.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.kernels import njit, part

CLASSES = 16
PRECISION = 22  # bits of a class's hit probability
PRIOR = 32  # weight of the stream's own density in a class's estimate, in sixteenths of a place
HALF, ONE = 1 << 31, 1 << 32
TOP = 1 << 24  # the range never falls below this
MISSING, EXCESS, FULL = -1, -2, -1


@njit(cache=True, nogil=True)
def _advance(classes: Any, start: int, stop: int, places: Any) -> None:
    """Count the places from `start` to `stop` by class; eight at a time if all are of class 0."""
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


@part
def _levels(hits: int, places: int, density: int, empty: Any, second: Any) -> int:
    """Fill the probabilities of a class; return the level of its runs.

    empty[k]: probability that 2^k places have no hit, in 2^-32. second[k]: probability that the first hit of
    2^(k+1) places, at least one of which is hit, lies in the second half, in 2^-16. The level is the largest
    whose run is empty with a probability of 1/2 or more.
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
    """Return the level of the next run: `level`, or lower if fewer than 2^level places are left."""
    while 1 << level > left:
        level -= 1
    return level


@njit(cache=True, nogil=True)
def _put(bit: int, zero: int, state: Any, out: Any) -> None:
    """Code a bit that is 0 with probability zero / 2^16."""
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
            at = 0  # the bytes from here on are discarded
        out[at] = low >> 24
        at += 1
        low = (low << 8) & (ONE - 1)
        span <<= 8
    state[0], state[1], state[2] = low, span, at


@part
def _carry(out: Any, at: int) -> None:
    """Add 1 to the byte before `at`, and carry."""
    at -= 1
    while at >= 0 and out[at] == 255:
        out[at] = 0
        at -= 1
    if at >= 0:
        out[at] += 1


@njit(cache=True, nogil=True)
def _finish(state: Any, out: Any) -> int:
    """Write the shortest end, without trailing zeros; return the number of bytes, or FULL."""
    low, at = state[0], state[2]
    if state[3] or at == len(out):
        return FULL
    if low + state[1] > ONE:  # 2^32 lies in the range: a carry is enough
        _carry(out, at)
    elif low:
        out[at] = (low + TOP - 1) >> 24
        at += 1
    while at > 0 and out[at - 1] == 0:
        at -= 1
    return at


@part
def _get(zero: int, state: Any, body: Any) -> int:
    """Decode the next bit; bytes behind the end are 0."""
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
    """Code ascending int64 `positions` into `out`, uint8; return the number of bytes, or FULL.

    classes: uint8, class of each place; counts: int64 [2][16], learnt hits and places of each class;
    seen: int64 [2][16] of zeros, receives hits and places of this stream.
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
    """Return the index of each class's first hit; class 15 comes first."""
    starts, before = np.empty(CLASSES, np.int64), 0
    for kind in range(CLASSES - 1, -1, -1):
        starts[kind] = before
        before += hits[kind]
    return starts


@njit(cache=True, nogil=True)
def decode(body: Any, classes: Any, counts: Any, positions: Any, seen: Any) -> int:
    """Fill ascending `positions` from `body`; return 0, MISSING or EXCESS. Other arguments as in `encode`."""
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
    """Turn ranks in classes into ascending positions."""
    following, ends = _starts(hits), _starts(hits) + hits
    wanted = np.empty(CLASSES, np.int64)
    for kind in range(CLASSES):
        wanted[kind] = ranks[following[kind]] if following[kind] < ends[kind] else -1
    places, j, placed, size = np.zeros(CLASSES, np.int64), 0, 0, len(classes)
    while placed < len(positions):
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
                positions[placed] = j
                placed += 1
                following[kind] += 1
                wanted[kind] = ranks[following[kind]] if following[kind] < ends[kind] else -1
            places[kind] += 1
            j += 1
