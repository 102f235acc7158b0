"""Turns of barrel decoders, and how they are dealt to and fed, until sums are there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oscar.timeline.turns import (
    BEGUN,
    DONE,
    ENOUGH,
    FETCH,
    FINAL,
    FREE,
    GIVE,
    LEARN,
    NEVER,
    NEXT,
    ROOM,
    STATES,
    SUMMED,
    THREADS,
    TURN,
    CodedBlocks,
)

FRAME, BLOCK, DEALER, ENDED, RAW_END, RAW_FRAME = range(6)  # of `at`


class Receiving(NamedTuple):
    """What is under way.

    Of threads: own block, place in its turns, when the next may be, bytes there and to come, when they begin
    to come, when the thread is free. Of units: who had a turn last, a line last, lines to spare. Of frames:
    blocks under way, when they may be dealt, the last sum, when they are over and learnt. at: see the numbers
    above.
    """

    own: Any
    place: Any
    ready: Any
    fed: Any
    owed: Any
    feeds: Any
    free: Any
    last: Any
    line: Any
    spare: Any
    under_way: Any
    deal: Any
    end: Any
    over: Any
    learnt: Any
    at: Any


@njit(cache=True, nogil=True)
def receive_ends(work: CodedBlocks, fronts: Any, units: int, begin: float, word: int) -> Any:
    """Return when the last sum of each frame is there; arguments as of `send_ends`."""
    count, threads = fronts.size, (units, THREADS)
    s = Receiving(
        np.full(threads, -1), np.zeros(threads, np.int64), np.full(threads, NEVER), np.zeros(threads),
        np.zeros(threads), np.zeros(threads), np.zeros(threads), np.zeros(units, np.int64),
        np.zeros(units, np.int64), np.zeros(units), np.zeros(count, np.int64), np.full(count, NEVER),
        np.zeros(count), np.full(count, NEVER), np.full(count, NEVER), np.zeros(6),
    )  # fmt: skip
    s.at[DEALER] = s.at[RAW_END] = s.deal[0] = begin
    now = np.ceil(begin / TURN) * TURN
    while s.at[ENDED] < count:
        _deal(work, s, now)
        _end(s, fronts, begin, now)
        for u in range(units):
            _feed(s, u, now, word)
            _turn(work, s, u, now)
        now += TURN
    return s.end


@njit(cache=True, nogil=True)
def _deal(work: CodedBlocks, s: Receiving, now: float) -> None:
    """Deal blocks to threads that are free; raw ones wait until nobody has a block of another frame."""
    frame, b = int(s.at[FRAME]), int(s.at[BLOCK])
    while b < work.sizes.size and s.deal[frame] <= now:
        u, when = work.unit[b], max(s.at[DEALER], s.deal[frame]) + GIVE
        if work.turns[b + 1] > work.turns[b]:
            t = -1
            for k in range(THREADS):
                if t < 0 and s.own[u, k] < 0 and s.free[u, k] <= max(when, now):
                    t = k
            if t < 0 or (s.at[RAW_END] > when and s.at[RAW_FRAME] < frame):
                if when <= now:
                    s.at[DEALER] = max(s.at[DEALER], now + TURN - GIVE)
                break
            when = max(when, s.free[u, t])
            s.own[u, t], s.place[u, t], s.ready[u, t] = b, work.turns[b], when
            s.fed[u, t], s.owed[u, t], s.feeds[u, t] = 0.0, work.sizes[b], when + FETCH
            s.under_way[frame] += 1
        elif work.raw[b] > 0:
            if frame and s.over[frame - 1] == NEVER:
                break
            when = max(when, s.at[RAW_END], s.over[frame - 1] if frame else 0.0)
            s.at[RAW_END], s.at[RAW_FRAME] = when + work.raw[b], frame
            s.end[frame] = max(s.end[frame], s.at[RAW_END])
        s.at[DEALER] = when
        b += 1
        if b == work.frames[frame + 1]:
            frame += 1
            break
    s.at[FRAME], s.at[BLOCK] = frame, b


@njit(cache=True, nogil=True)
def _end(s: Receiving, fronts: Any, begin: float, now: float) -> None:
    """End frames whose blocks are done, in their order, and say when the next one may be dealt."""
    frame, n = int(s.at[FRAME]), int(s.at[ENDED])
    while n < fronts.size and frame > n and s.under_way[n] == 0 and s.end[n] <= now:
        s.end[n] = max(s.end[n], s.end[n - 1] if n else 0.0, s.deal[n])
        s.over[n] = s.end[n] + DONE
        s.learnt[n] = max(s.over[n], s.learnt[n - 1] if n else 0.0) + LEARN
        n += 1
    s.at[ENDED] = n
    if frame < fronts.size and s.deal[frame] == NEVER and (frame < 2 or s.over[frame - 2] < NEVER):
        front = max(s.deal[frame - 1], s.over[frame - 2] if frame > 1 else begin) + fronts[frame]
        learnt = s.learnt[frame - 2] if frame > 1 else 0.0
        s.deal[frame] = max(s.at[DEALER] + NEXT[1], front, learnt)


@njit(cache=True, nogil=True)
def _feed(s: Receiving, u: int, now: float, word: int) -> None:
    """Give lines of the store to the unit's threads, in a ring."""
    chunks = max(1, word // 16)  # of sixteen bytes, of a line
    lines = TURN / max(s.last.size, 2 * chunks)  # of a unit in a turn
    s.spare[u] = min(s.spare[u] + lines, lines + 1)
    tries = 0
    while s.spare[u] >= 1 and tries < THREADS:
        tries += 1
        s.line[u] = (s.line[u] + 1) % THREADS
        t = s.line[u]
        if s.own[u, t] >= 0 and s.owed[u, t] > 0 and s.feeds[u, t] <= now and s.fed[u, t] < ROOM:
            some = min(s.owed[u, t], 16.0 * chunks)
            s.fed[u, t] += some
            s.owed[u, t] -= some
            s.spare[u] -= 1
            tries = 0


@njit(cache=True, nogil=True)
def _turn(work: CodedBlocks, s: Receiving, u: int, now: float) -> None:
    """Give the unit's turn to the next thread that may go on and has the bytes for it."""
    for k in range(1, THREADS + 1):
        t = (s.last[u] + k) % THREADS
        o = s.own[u, t]
        if o < 0 or s.ready[u, t] > now:
            continue
        need = BEGUN if s.place[u, t] == work.turns[o] else ENOUGH
        if s.owed[u, t] > 0 and s.fed[u, t] < need:
            continue
        s.last[u] = t
        number = work.turns[o + 1] - work.turns[o]
        if s.place[u, t] < work.turns[o] + FINAL:
            s.fed[u, t] -= STATES / FINAL
        else:
            s.fed[u, t] -= (work.sizes[o] - STATES) / max(1, number - FINAL)
        s.ready[u, t] = now + work.gaps[s.place[u, t]]
        s.place[u, t] += 1
        if s.place[u, t] == work.turns[o + 1]:
            s.own[u, t], s.free[u, t] = -1, now + FREE
            frame = np.searchsorted(work.frames, o, side="right") - 1
            s.end[frame] = max(s.end[frame], now + SUMMED)
            s.under_way[frame] -= 1
        return
