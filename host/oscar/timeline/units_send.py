"""Turns of barrel encoders, and what becomes of their blocks, until frames go out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oscar.timeline.turns import (
    BUFFER,
    CRC,
    DEAL,
    DRAIN,
    FIRST,
    GATHERED,
    HEAD,
    JUDGE,
    JUDGED,
    LEARN,
    LEFT,
    NEVER,
    NEXT,
    RAW_CODED,
    RAW_SENT,
    SETTLE,
    THREADS,
    TURN,
    CodedBlocks,
)

FRAME, BLOCK, DEALER, MINE, JUDGING, JUDGE_AT, RAW_FREE, PLACE, CRC_AT, CRC_PLACE, OUT = range(11)  # of `at`


class Sending(NamedTuple):
    """What is under way.

    Of threads: own block, place in its turns, when the next may be; oldest: their blocks in a ring. Of units:
    who had a turn last, blocks given and left, when one left, when the drain is free, began with the oldest
    block, and has it. Of blocks: when all turns are done, when it is settled. Of frames: when they may be
    dealt and judged, when learnt, when the first word goes out. at: see the numbers above.
    """

    own: Any
    place: Any
    ready: Any
    oldest: Any
    last: Any
    given: Any
    left: Any
    freed: Any
    drain: Any
    launched: Any
    gathered: Any
    done: Any
    settled: Any
    deal: Any
    take: Any
    learnt: Any
    ends: Any
    at: Any


@njit(cache=True, nogil=True)
def send_ends(work: CodedBlocks, fronts: Any, units: int, begin: float, word: int) -> Any:
    """Return when the first word of each frame goes out; fronts: clocks of each; word: bytes of the bus."""
    blocks, count, threads = work.sizes.size, fronts.size, (units, THREADS)
    s = Sending(
        np.full(threads, -1), np.zeros(threads, np.int64), np.full(threads, NEVER), np.full(threads, -1),
        np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(units),
        np.full(units, begin), np.full(units, NEVER), np.full(units, NEVER), np.full(blocks, NEVER),
        np.full(blocks, NEVER), np.full(count, NEVER), np.full(count, NEVER), np.full(count, -NEVER),
        np.zeros(count), np.zeros(11),
    )  # fmt: skip
    for n in (DEALER, JUDGE_AT, RAW_FREE, CRC_AT):
        s.at[n] = begin
    s.deal[0] = s.take[0] = begin
    every = min(16.0, word / units)  # bytes a clock of a drain
    now = np.ceil(begin / TURN) * TURN
    while s.at[MINE] < count:
        _deal(work, s, fronts, now)
        _judge(work, s, now)
        for u in range(units):
            if s.left[u] < s.given[u]:
                _collect(work, s, u, now, every, word)
        _end(work, s, fronts)
        for u in range(units):
            _turn(work, s, u, now, every)
        now += TURN
    return s.ends


@njit(cache=True, nogil=True)
def _deal(work: CodedBlocks, s: Sending, fronts: Any, now: float) -> None:
    """Deal blocks to threads, which have them in a ring."""
    frame, b = int(s.at[FRAME]), int(s.at[BLOCK])
    while b < work.sizes.size and s.deal[frame] <= now:
        u = work.unit[b]
        when = max(s.at[DEALER], s.deal[frame], s.freed[u] if s.given[u] >= THREADS else 0.0)
        if s.given[u] - s.left[u] == THREADS or when > now:
            break
        t = s.given[u] % THREADS
        s.own[u, t] = s.oldest[u, t] = b
        s.place[u, t], s.ready[u, t] = work.turns[b], when + FIRST
        s.given[u] += 1
        s.at[DEALER] = when + DEAL
        b += 1
        if b == work.frames[frame + 1]:
            frame += 1
            if frame < fronts.size:
                _open(s, fronts, frame)
            break
    s.at[FRAME], s.at[BLOCK] = frame, b


@njit(cache=True, nogil=True)
def _open(s: Sending, fronts: Any, frame: int) -> None:
    """Say when a frame may be dealt, if that is known: the one before is dealt, and is judged."""
    if s.deal[frame] == NEVER and s.take[frame - 1] < NEVER:
        before = s.learnt[frame - 2] if frame > 1 else 0.0
        s.deal[frame] = max(s.at[DEALER] + NEXT[0], s.take[frame - 1] + fronts[frame], before)


@njit(cache=True, nogil=True)
def _judge(work: CodedBlocks, s: Sending, now: float) -> None:
    """Settle blocks in the order of the frame."""
    mine, j = int(s.at[MINE]), int(s.at[JUDGING])
    while j < work.frames[mine + 1] and s.take[mine] <= now and s.done[j] + JUDGED <= now:
        if s.at[JUDGE_AT] > now:
            break
        when = max(s.at[JUDGE_AT], s.done[j] + JUDGED, s.take[mine])
        if work.raw[j] > 0:
            when = max(when, s.at[RAW_FREE])
            s.at[RAW_FREE] = when + RAW_SENT[0] + RAW_SENT[1] * work.raw[j]
        s.at[JUDGE_AT] = when + JUDGE
        s.settled[j] = s.at[JUDGE_AT] + SETTLE
        j += 1
    s.at[JUDGING] = j


@njit(cache=True, nogil=True)
def _collect(work: CodedBlocks, s: Sending, u: int, now: float, every: float, word: int) -> None:
    """Drain a unit's blocks in their order, and add their CRCs."""
    t, mine, judge = s.left[u] % THREADS, int(s.at[MINE]), s.at[JUDGE_AT]
    o = s.oldest[u, t]
    free = s.drain[u] if u else max(s.drain[u], s.at[RAW_FREE])  # raw blocks take the first unit's way out
    if s.launched[u] == NEVER and free <= now:
        if s.settled[o] < NEVER:
            s.launched[u] = max(free, s.settled[o])
        elif o == s.at[JUDGING] and s.take[mine] <= now and judge <= now:
            s.launched[u] = max(free, judge, s.take[mine])
    if s.launched[u] < NEVER and s.settled[o] < NEVER and s.gathered[u] == NEVER:
        s.gathered[u] = s.settled[o]
        if work.sizes[o] > 0 and work.raw[o] == 0:
            end = max(s.launched[u] + work.sizes[o] / every, s.done[o]) + DRAIN + GATHERED
            s.at[PLACE] += work.sizes[o] / word
            s.gathered[u] = max(end, s.settled[o], s.at[CRC_AT])  # its CRC is added beside the next drain
            s.at[CRC_AT] = s.gathered[u] + CRC[0]
            far = abs(int(s.at[PLACE]) - int(s.at[CRC_PLACE]))
            while far:
                s.at[CRC_AT] += CRC[1] if far & 15 else CRC[2]
                far >>= 4
            s.at[CRC_PLACE] = max(s.at[CRC_PLACE], s.at[PLACE])
    if s.gathered[u] <= now:
        s.at[OUT] = max(s.at[OUT], s.gathered[u])
        s.drain[u] = s.freed[u] = s.gathered[u] + LEFT
        s.own[u, t] = -1
        s.left[u] += 1
        s.launched[u] = s.gathered[u] = NEVER


@njit(cache=True, nogil=True)
def _end(work: CodedBlocks, s: Sending, fronts: Any) -> None:
    """End the frame that is judged when all its blocks have left, and begin with the next."""
    mine, j = int(s.at[MINE]), s.at[JUDGING]
    if j < work.frames[mine + 1] or s.take[mine] == NEVER:
        return
    for u in range(s.left.size):
        if s.left[u] < s.given[u] and s.oldest[u, s.left[u] % THREADS] < j:
            return
    over = max(s.at[OUT], s.at[JUDGE_AT], s.at[RAW_FREE], s.at[CRC_AT])
    s.ends[mine] = over + HEAD[0] + HEAD[1] * (work.frames[mine + 1] - work.frames[mine])
    s.learnt[mine] = max(over, s.learnt[mine - 1] if mine else 0.0) + LEARN
    mine += 1
    s.at[MINE] = mine
    if mine < fronts.size:
        if s.at[FRAME] >= mine:
            _open(s, fronts, mine)
        s.take[mine] = max(s.ends[mine - 1] + NEXT[0], s.deal[mine])
        s.at[JUDGE_AT] = max(s.at[JUDGE_AT], s.take[mine])
        s.at[PLACE] = s.at[CRC_PLACE] = 0.0
        if mine + 1 < fronts.size and s.at[FRAME] == mine + 1:
            _open(s, fronts, mine + 1)


@njit(cache=True, nogil=True)
def _turn(work: CodedBlocks, s: Sending, u: int, now: float, every: float) -> None:
    """Give the unit's turn to the next thread that may go on and has room for its bytes."""
    for k in range(1, THREADS + 1):
        t = (s.last[u] + k) % THREADS
        o = s.own[u, t]
        if o < 0 or s.ready[u, t] > now:
            continue
        size = work.sizes[o] * RAW_CODED if work.raw[o] > 0 else work.sizes[o]
        if size > BUFFER:
            made = size * (s.place[u, t] - work.turns[o]) / (work.turns[o + 1] - work.turns[o])
            if o == s.oldest[u, s.left[u] % THREADS] and s.launched[u] <= now:
                made -= min(made, (now - s.launched[u]) * every)
            if made > BUFFER:
                continue
        s.last[u] = t
        s.ready[u, t] = now + work.gaps[s.place[u, t]]
        s.place[u, t] += 1
        if s.place[u, t] == work.turns[o + 1]:
            s.done[o], s.ready[u, t] = now, NEVER
        return
