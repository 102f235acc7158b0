"""Blocks of encoders on their way to the store, and the CRCs of frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar.kernels import njit
from oscar.timeline.turns import (
    CHUNK,
    CRC,
    CRC_TURN,
    DRAIN,
    HEAD_CRC,
    JUDGE,
    JUDGED,
    KEPT,
    LASTED,
    LATE,
    LATE_CHUNKS,
    NEVER,
    NEXT_DRAIN,
    SETTLED,
    STATES,
    STORED_TURN,
    THREAD_FREE,
    THREADS,
    CodedBlocks,
)

# Places in `Sending.at`. FRAME, BLOCK: what is dealt next; DEALER: when the dealer is free. NEXT: the frame
# whose front is next; BEGAN: when that began; SOUGHT_AT: when memory looked for its last symbol last. MINE,
# JUDGING: the frame and the block that are judged next; JUDGE_AT: when the judge settled a block last.
# RAW_FREE: when the packer of raw blocks is free. CRC_ADDED: when the last CRC is added; CRC_WORDS: words of
# the frame up to its end, -1 for none. LENGTH_AT, HEAD_AT: when the CRCs of the length and of the head are
# asked for; HEAD_FROM: not before. HEAD_FREE: when two bytes of the head may be taken.
FRAME, BLOCK, DEALER, NEXT, BEGAN, SOUGHT_AT, MINE, JUDGING, JUDGE_AT = range(9)
RAW_FREE, CRC_ADDED, CRC_WORDS, LENGTH_AT, HEAD_AT, HEAD_FROM, HEAD_FREE = range(9, 16)


class Sending(NamedTuple):
    """What is under way; times are clocks, NEVER if not known yet.

    Of threads [units, THREADS]: own, the block, -1 for none; place, its next turn; ready, when that may be;
    oldest, the blocks in a ring; freed, when the thread is free. Of units: last, the thread that had a turn
    last; headed, whether that was a header's; sought, eights of rows in which the last symbol is to be looked
    for; given and left, how many blocks were dealt and have left; drain, when the drain is free. Of each
    unit's oldest block: launched, when its drain began; lost [2, units], clocks that words of the head took
    from its words, and from those behind its last turn; stored, when it is in the store. Of blocks: done,
    when the last turn began; settled. Of frames: built, when the build of tables began; deal and judge_from,
    when it may be dealt and judged; learnt; ends, when the first word goes out. at: the numbers above.
    """

    own: Any
    place: Any
    ready: Any
    oldest: Any
    freed: Any
    last: Any
    headed: Any
    sought: Any
    given: Any
    left: Any
    drain: Any
    launched: Any
    lost: Any
    stored: Any
    done: Any
    settled: Any
    built: Any
    deal: Any
    judge_from: Any
    learnt: Any
    ends: Any
    at: Any


@njit(cache=True, nogil=True)
def collect(work: CodedBlocks, s: Sending, u: int, now: float, word: int) -> bool:
    """Drain a unit's oldest block; return whether it left."""
    o, mine = s.oldest[u, s.left[u] % THREADS], int(s.at[MINE])
    kept = work.sizes[o] > 0 and work.raw[o] == 0
    free = s.drain[u] if u else max(s.drain[u], s.at[RAW_FREE])  # raw blocks take the first unit's way out
    if free > now or s.stored[u] < NEVER:
        return False
    if s.launched[u] == NEVER:
        if s.settled[o] < NEVER:
            begins = max(free, s.settled[o] + KEPT)
            if not kept:
                _leave(s, u, begins)
                return True
            s.launched[u] = begins
        elif o == s.at[JUDGING] and o < work.frames[mine + 1] and s.judge_from[mine] <= now:
            # The judge waits for this block, so the drain may begin before its word.
            begins = max(free, s.at[JUDGE_AT] + (o > work.frames[mine]))
            if s.done[o] + JUDGED - JUDGE > begins:
                s.launched[u] = begins
    if s.launched[u] < NEVER and s.settled[o] < NEVER:
        if not kept:
            _leave(s, u, max(s.done[o] + LASTED, s.settled[o] + SETTLED))
            return True
        s.stored[u] = _stored(work, s, u, word)
    return False


@njit(cache=True, nogil=True)
def write_head(work: CodedBlocks, s: Sending, when: float, word: int) -> None:
    """Let a word of the head take the turn of a unit's collector."""
    units = s.last.size
    u = int(when) % units
    if s.launched[u] == NEVER or s.stored[u] < when + STORED_TURN or _first_turn(work, s, u, word) > when:
        return
    s.lost[0, u] += units
    if s.done[s.oldest[u, s.left[u] % THREADS]] < NEVER and _late_turns(work, s, u, word)[0] <= when:
        s.lost[1, u] += units
    if s.stored[u] < NEVER:
        s.stored[u] = _stored(work, s, u, word)


@njit(cache=True, nogil=True)
def _first_turn(work: CodedBlocks, s: Sending, u: int, word: int) -> float:
    """Return the turn in which a unit's collector gives the first word of the block that it drains."""
    chunk = work.places[s.oldest[u, s.left[u] % THREADS]] % word // CHUNK  # of its word
    return _turn_of(u, s.launched[u] + DRAIN + max(1, word // CHUNK) - chunk, s.last.size)


@njit(cache=True, nogil=True)
def _late_turns(work: CodedBlocks, s: Sending, u: int, word: int) -> tuple[float, float]:
    """Return the turns of the oldest block's first word that has bytes of its last turn, and of its last."""
    o, units, columns = s.oldest[u, s.left[u] % THREADS], s.last.size, max(1, word // CHUNK)
    place, end = work.places[o], work.places[o] + work.sizes[o]
    late = place + (work.sizes[o] - STATES[0] - 1) // CHUNK * CHUNK
    final = LATE_CHUNKS + int(place % CHUNK + (work.sizes[o] - 1) % CHUNK >= CHUNK)
    behind = columns - 1 - late // CHUNK % columns  # chunks of its word
    if late // word == (end - 1) // word:
        behind = final
    first = _turn_of(u, s.done[o] + LATE + behind, units)
    last = first + ((end - 1) // word - late // word) * units
    return first, max(last, _turn_of(u, s.done[o] + LATE + final, units))


@njit(cache=True, nogil=True)
def _stored(work: CodedBlocks, s: Sending, u: int, word: int) -> float:
    """Return when a block that is drained and settled is in the store: its last word has had its turn."""
    o, units = s.oldest[u, s.left[u] % THREADS], s.last.size
    words = np.ceil((work.places[o] % word + work.sizes[o]) / word)
    given = _first_turn(work, s, u, word) + (words - 1) * units + s.lost[0, u]
    late = _late_turns(work, s, u, word)[1] + s.lost[1, u]
    return max(max(given, late) + STORED_TURN, s.settled[o] + SETTLED)


@njit(cache=True, nogil=True)
def _turn_of(u: int, when: float, units: int) -> float:
    """Return the unit's next turn at the store, from then on."""
    return when + (u - when) % units


@njit(cache=True, nogil=True)
def drained(s: Sending, word: int) -> float:
    """Return the bytes a clock of a drain."""
    return min(float(CHUNK), word / s.last.size)


@njit(cache=True, nogil=True)
def _leave(s: Sending, u: int, when: float) -> None:
    """Let a unit's oldest block leave."""
    t = s.left[u] % THREADS
    s.own[u, t] = -1
    s.left[u] += 1
    s.drain[u], s.freed[u, t] = when + NEXT_DRAIN, when + THREAD_FREE
    s.launched[u] = s.stored[u] = NEVER
    s.lost[:, u] = 0.0


@njit(cache=True, nogil=True)
def add_crcs(work: CodedBlocks, s: Sending, now: float, word: int) -> None:
    """Add CRCs of blocks that are in the store, and of the head, as they were asked for."""
    mine, units = int(s.at[MINE]), s.last.size
    blocks = work.frames[mine + 1] - work.frames[mine]
    head = min(s.at[LENGTH_AT], s.at[HEAD_AT])
    while True:
        asked = head
        for u in range(units):
            asked = min(asked, s.stored[u])
        when = max(asked, s.at[CRC_ADDED] - 1)
        u = int(when - CRC_TURN) % units  # whose turn it is; the head asks in the turns of those who do not
        who = u if s.stored[u] <= when else -1
        while who < 0 and head > when and when < now:
            when += 1
            u = int(when - CRC_TURN) % units
            who = u if s.stored[u] <= when else -1
        if when >= now or (who < 0 and head > when):
            return
        when += 1
        if who >= 0:
            o = s.oldest[who, s.left[who] % THREADS]
            end = np.ceil((work.places[o] + work.sizes[o]) / word)
            _leave(s, who, when)
        elif s.at[LENGTH_AT] < NEVER:
            end = np.ceil(HEADER_BYTES / word)
            head = max(when + HEAD_CRC, s.at[HEAD_FROM])
            s.at[LENGTH_AT], s.at[HEAD_AT] = NEVER, head
        else:
            end = np.ceil((HEADER_BYTES + PREFIX_BYTES + DIRECTORY_BYTES * blocks) / word)
            head = s.at[HEAD_AT] = NEVER
        far = int(abs(end - s.at[CRC_WORDS]))
        if s.at[CRC_WORDS] < 0 or not far:
            s.at[CRC_ADDED] = when + CRC[0]
        else:
            s.at[CRC_ADDED] = when + CRC[1] + CRC[2] * (far // 64 + far // 8 % 8 + far % 8)
        s.at[CRC_WORDS] = max(s.at[CRC_WORDS], end)
