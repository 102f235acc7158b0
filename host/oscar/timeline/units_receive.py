"""Turns of decoders, and how they are dealt to and fed, until sums are there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oscar.kernels import njit
from oscar.timeline.turns import (
    BEGUN,
    BEHIND_SENT,
    BUILD,
    CHUNK,
    COLUMN,
    DONE,
    ENOUGH,
    FED,
    FETCH,
    FREE,
    GIVE,
    LEARN,
    LEARN_ASKED,
    LEARN_FRONT,
    LEARN_READ,
    LEARN_UNIT,
    LEARNT,
    LEVEL_LOOK,
    LOOK_EVERY,
    NEVER,
    NEXT_DONE,
    NEXT_FRONT,
    OVER,
    QUIET,
    ROOM,
    ROOM_LOOK,
    START,
    TABLES_BUILT,
    TAKEN,
    THREADS,
    TURN,
    CodedBlocks,
    learn_end,
    waits_for,
)

# Places in `Receiving.at`. FRAME, BLOCK: what is dealt next; DEALER: when the dealer is free. ENDED: frames
# that are over. RAW_END, RAW_FRAME: when the last raw block is received, and its frame. DEALT: blocks so far.
# HEAD_FRAME: the frame whose head was read last; HEAD_DONE, chunks of it; HEAD_BEGIN, when its front began.
FRAME, BLOCK, DEALER, ENDED, RAW_END, RAW_FRAME, DEALT, HEAD_FRAME, HEAD_DONE, HEAD_BEGIN = range(10)


class Receiving(NamedTuple):
    """What is under way; times are clocks, NEVER if not known yet.

    Of threads [units, THREADS]: own, the block, -1 for none; place, its next turn; ready, when that may be;
    enough, whether its bytes are there; room, a bit for each look, the last one lowest: whether there was
    room for more; fed and owed, bytes that are there and that are to come; takes and began, [2, units,
    THREADS], bytes of the last two turns and when they began; feeds, from when on lines may come; free. puts:
    clocks of the last deals. Of units: last and line, the threads that had a turn and a line last; chosen,
    when that line was; coming, bytes of it that do not count yet. Of frames: under_way, blocks; deal, when
    they may be dealt; built, when the build of their tables began; end, the last sum; over, learnt. at: the
    numbers above.
    """

    own: Any
    place: Any
    ready: Any
    enough: Any
    room: Any
    fed: Any
    owed: Any
    takes: Any
    began: Any
    feeds: Any
    free: Any
    puts: Any
    last: Any
    line: Any
    chosen: Any
    coming: Any
    under_way: Any
    deal: Any
    built: Any
    end: Any
    over: Any
    learnt: Any
    at: Any


@njit(cache=True, nogil=True)
def receive_ends(
    work: CodedBlocks, asked: Any, listed: Any, tables: int, units: int, begin: float, word: int
) -> Any:  # fmt: skip
    """Return the clocks, float64 [frames], in which the last sums are there; arguments as of `send_ends`.

    Clocks from a frame's front, as of `HeadReads`: asked, float64 [frames, chunks]; listed, float64 [frames];
    tables.
    """
    count, threads = listed.size, (units, THREADS)
    s = Receiving(
        np.full(threads, -1), np.zeros(threads, np.int64), np.full(threads, NEVER),
        np.zeros(threads, np.bool_), np.zeros(threads, np.int64), np.zeros(threads), np.zeros(threads),
        np.zeros((2, *threads)), np.full((2, *threads), -NEVER), np.full(threads, NEVER), np.zeros(threads),
        np.full(THREADS, -NEVER),
        np.zeros(units, np.int64), np.zeros(units, np.int64), np.full(units, -NEVER), np.zeros(units),
        np.zeros(count, np.int64), np.full(count, NEVER), np.zeros(count), np.zeros(count),
        np.full(count, NEVER), np.full(count, NEVER), np.zeros(10),
    )  # fmt: skip
    s.at[DEALER] = s.at[RAW_END] = s.deal[0] = begin
    s.at[HEAD_DONE], s.built[0] = asked.shape[1], begin - max(TABLES_BUILT[1], listed[0] - tables)
    now = int(np.ceil(begin / TURN) * TURN)
    while s.at[ENDED] < count:
        _deal(work, s, now)
        _end(s, listed, tables, begin, now)
        _list(s, asked, begin)
        for clock in range(now - LEVEL_LOOK - TURN + 1, now - LEVEL_LOOK + 1):
            _feed(work, s, asked, clock - FED, word)
            _come(work, s, clock - FED, word)
            _look(work, s, clock)
        for u in range(units):
            _turn(work, s, u, now)
        now += TURN
    return s.end


@njit(cache=True, nogil=True)
def _deal(work: CodedBlocks, s: Receiving, now: int) -> None:
    """Deal blocks to threads that are free; raw ones wait until nobody has a block of another frame."""
    frame, b = int(s.at[FRAME]), int(s.at[BLOCK])
    while b < work.sizes.size and s.deal[frame] <= now:
        u, when = work.unit[b], max(s.at[DEALER], s.deal[frame])
        if work.turns[b + 1] > work.turns[b]:
            first = NEVER
            for k in range(THREADS):
                if s.own[u, k] < 0:
                    first = min(first, s.free[u, k])
            when = max(when, first)
            if s.at[RAW_FRAME] < frame:
                when = max(when, s.at[RAW_END])
            if when > now:
                break
            t = 0
            while s.own[u, t] >= 0 or s.free[u, t] > when:
                t += 1
            _begin(work, s, u, t, b, when)
            s.under_way[frame] += 1
        elif when > now:
            break
        elif work.raw[b] > 0:
            if frame and s.over[frame - 1] == NEVER:
                break
            when = max(when, s.at[RAW_END], s.over[frame - 1] if frame else 0.0)
            s.at[RAW_END], s.at[RAW_FRAME] = when + work.raw[b], frame
            s.end[frame] = max(s.end[frame], s.at[RAW_END])
        s.at[DEALER] = when + GIVE
        b += 1
        if b == work.frames[frame + 1]:
            s.at[DEALER] = when + BEHIND_SENT
            frame += 1
            break
    s.at[FRAME], s.at[BLOCK] = frame, b


@njit(cache=True, nogil=True)
def _begin(work: CodedBlocks, s: Receiving, u: int, t: int, b: int, when: float) -> None:
    """Begin a block on a thread."""
    s.own[u, t], s.place[u, t], s.ready[u, t] = b, work.turns[b], when + START
    s.fed[u, t], s.owed[u, t], s.feeds[u, t] = 0.0, work.sizes[b], when + FETCH
    s.enough[u, t], s.room[u, t], s.takes[:, u, t], s.began[:, u, t] = False, -1, 0.0, -NEVER
    s.puts[int(s.at[DEALT]) % THREADS] = when + 1
    s.at[DEALT] += 1


@njit(cache=True, nogil=True)
def _end(s: Receiving, listed: Any, tables: int, begin: float, now: int) -> None:
    """End frames whose blocks are done, in their order, and say when the next one may be dealt."""
    frame, n, units = int(s.at[FRAME]), int(s.at[ENDED]), s.last.size
    while n < s.deal.size and frame > n and s.under_way[n] == 0 and s.end[n] <= now:
        s.end[n] = max(s.end[n], s.end[n - 1] + NEXT_DONE if n else 0.0, s.deal[n])
        s.over[n] = s.end[n] + DONE
        s.learnt[n] = learn_end(s.over[n] + LEARN_ASKED[1], s.learnt[n - 1] if n else 0.0, units, 1)
        n += 1
    s.at[ENDED] = n
    ahead = waits_for(frame, units)
    if frame < s.deal.size and s.deal[frame] == NEVER and (ahead < 0 or s.over[ahead] < NEVER):
        front = _front(s, frame, ahead, begin)
        built = max(front + tables, s.built[frame - 1] + BUILD)
        dealt = max(s.at[DEALER], front + listed[frame])
        if ahead >= 0:
            built, dealt = max(built, s.learnt[ahead] - LEARN_READ), max(dealt, s.learnt[ahead] + LEARNT[1])
        s.built[frame], s.deal[frame] = built, max(dealt, built + TABLES_BUILT[1])


@njit(cache=True, nogil=True)
def _front(s: Receiving, frame: int, ahead: int, begin: float) -> float:
    """Return when a frame's front begins: the one before is dealt, the one IN_FLIGHT ahead is learnt now."""
    front = max(s.deal[frame - 1] + NEXT_FRONT[1], begin)
    if ahead < 0:
        return front
    return max(front, s.learnt[ahead] - LEARN[1] - LEARN_UNIT * s.last.size + LEARN_FRONT[1])


@njit(cache=True, nogil=True)
def _list(s: Receiving, asked: Any, begin: float) -> None:
    """Let the head of the next frame in the store be read, when its front begins."""
    frame = int(s.at[HEAD_FRAME]) + 1
    ahead = waits_for(frame, s.last.size)
    if frame < s.deal.size and s.deal[frame - 1] < NEVER and (ahead < 0 or s.over[ahead] < NEVER):
        done = int(s.at[HEAD_DONE])
        if done == asked.shape[1] or asked[frame - 1, done] == NEVER:
            s.at[HEAD_FRAME], s.at[HEAD_DONE], s.at[HEAD_BEGIN] = frame, 0, _front(s, frame, ahead, begin)


@njit(cache=True, nogil=True)
def _head_reads(s: Receiving, asked: Any, clock: int) -> bool:
    """Whether the next frame's front takes the turn at the store, for a chunk of its head."""
    frame, done = int(s.at[HEAD_FRAME]), int(s.at[HEAD_DONE])
    if done == asked.shape[1] or clock < s.at[HEAD_BEGIN] + asked[frame, done]:
        return False
    s.at[HEAD_DONE] += 1
    return True


@njit(cache=True, nogil=True)
def _feed(work: CodedBlocks, s: Receiving, asked: Any, clock: int, word: int) -> None:
    """Give a line of the store to a thread of the unit whose turn it is, in a ring."""
    chunks, units = max(1, word // CHUNK), s.last.size
    if _head_reads(s, asked, clock):
        return
    u = clock % max(units, COLUMN * chunks)
    if u >= units:
        return
    for put in s.puts:
        if put == clock:
            return
    just = s.chosen[u] == clock - max(units, COLUMN * chunks)
    for k in range(1, THREADS if just else THREADS + 1):
        t = (s.line[u] + k) % THREADS
        known, newest = clock - ROOM_LOOK - t, clock + FED - 1 - t  # looks in between are not seen yet
        looks = newest // LOOK_EVERY - known // LOOK_EVERY
        if s.own[u, t] >= 0 and s.owed[u, t] > 0 and s.feeds[u, t] <= clock and s.room[u, t] >> looks & 1:
            behind = work.places[s.own[u, t]] + s.owed[u, t] - 1
            # Blocks begin and end anywhere in lines.
            s.coming[u] = min(s.owed[u, t], behind % (CHUNK * chunks) + 1)
            s.line[u], s.chosen[u] = t, clock
            return


@njit(cache=True, nogil=True)
def _come(work: CodedBlocks, s: Receiving, clock: int, word: int) -> None:
    """Let a column of each unit's line count, the last one first."""
    chunks = max(1, word // CHUNK)
    for u in range(s.last.size):
        if s.coming[u] > 0:
            t = s.line[u]
            behind = work.places[s.own[u, t]] + s.owed[u, t] - 1
            if clock == s.chosen[u] + COLUMN * (chunks - 1 - behind // CHUNK % chunks):
                some = min(s.coming[u], behind % CHUNK + 1)
                s.fed[u, t] += some
                s.owed[u, t] -= some
                s.coming[u] -= some


@njit(cache=True, nogil=True)
def _look(work: CodedBlocks, s: Receiving, clock: int) -> None:
    """See whether bytes of a turn are there, of a thread of each unit."""
    t = clock % LOOK_EVERY
    for u in range(s.last.size):
        if s.own[u, t] >= 0 and s.feeds[u, t] <= clock:
            level = s.fed[u, t]
            for n in range(2):
                if s.began[n, u, t] + TAKEN > clock:
                    level += s.takes[n, u, t]
            s.room[u, t] = s.room[u, t] << 1 | int(level < ROOM)
            need = BEGUN if s.place[u, t] == work.turns[s.own[u, t]] else ENOUGH
            s.enough[u, t] = s.owed[u, t] <= 0 or level >= need


@njit(cache=True, nogil=True)
def _turn(work: CodedBlocks, s: Receiving, u: int, now: int) -> None:
    """Give the unit's turn to the next thread that may go on and has the bytes for it."""
    for k in range(1, THREADS + 1):
        t = (s.last[u] + k) % THREADS
        o = s.own[u, t]
        if o < 0 or s.ready[u, t] > now or not s.enough[u, t]:
            continue
        s.last[u] = t
        s.takes[1, u, t], s.began[1, u, t] = s.takes[0, u, t], s.began[0, u, t]
        s.takes[0, u, t], s.began[0, u, t] = work.takes[s.place[u, t]], now
        s.fed[u, t] -= s.takes[0, u, t]
        s.ready[u, t] = now + work.gaps[s.place[u, t]]
        s.place[u, t] += 1
        if s.place[u, t] == work.turns[o + 1]:
            over = now + OVER
            s.own[u, t], s.free[u, t] = -1, over + (t - over) % LOOK_EVERY + FREE
            frame = np.searchsorted(work.frames, o, side="right") - 1
            s.end[frame] = max(s.end[frame], s.free[u, t] + QUIET - DONE)
            s.under_way[frame] -= 1
        return
