"""Turns of encoders, and what becomes of their blocks, until frames go out."""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar.kernels import njit
from oscar.timeline.turns import (
    BEHIND,
    BUFFER,
    BUILD,
    DEAL,
    ENTRY_PAIR,
    FIRST,
    FRAME_GAP,
    HEAD_BEGUN,
    HEAD_MADE,
    HEAD_WORD,
    HEADED,
    JUDGE,
    JUDGED,
    KNOWN_DEAL,
    LEARN,
    LEARN_ASKED,
    LEARN_FRONT,
    LEARN_READ,
    LEARN_UNIT,
    LEARNT,
    LENGTH_CRC,
    NEVER,
    NEXT_FRONT,
    NEXT_JUDGED,
    OUT,
    PAD,
    RAW_CODED,
    RAW_SENT,
    SENT_FRONT,
    SOUGHT,
    SOUGHT_FROM,
    TABLES_ASKED,
    TABLES_BUILT,
    THREADS,
    TURN,
    CodedBlocks,
    learn_end,
    waits_for,
)
from oscar.timeline.units_store import (
    BEGAN,
    BLOCK,
    CRC_ADDED,
    CRC_WORDS,
    DEALER,
    FRAME,
    HEAD_AT,
    HEAD_FREE,
    HEAD_FROM,
    JUDGE_AT,
    JUDGING,
    LENGTH_AT,
    MINE,
    NEXT,
    RAW_FREE,
    SOUGHT_AT,
    Sending,
    add_crcs,
    collect,
    drained,
    write_head,
)


@njit(cache=True, nogil=True)
def send_ends(work: CodedBlocks, known: Any, eights: Any, units: int, begin: float, word: int) -> Any:
    """Return the clocks, float64 [frames], in which the first words go out.

    known: bool [frames], the last symbol is that of the frame before. eights: int64 [frames, units], eight
    rows each, in which memory looks for it. begin: clock from which blocks of the first frame may be dealt.
    word: bytes of the bus.
    """
    blocks, count, threads = work.sizes.size, known.size, (units, THREADS)
    s = Sending(
        np.full(threads, -1), np.zeros(threads, np.int64), np.full(threads, NEVER), np.full(threads, -1),
        np.zeros(threads),
        np.zeros(units, np.int64), np.zeros(units, np.bool_), np.zeros(units, np.int64),
        np.zeros(units, np.int64), np.zeros(units, np.int64), np.full(units, begin),
        np.full(units, NEVER), np.zeros((2, units)), np.full(units, NEVER),
        np.full(blocks, NEVER), np.full(blocks, NEVER),
        np.zeros(count), np.full(count, NEVER), np.full(count, NEVER), np.zeros(count), np.zeros(count),
        np.zeros(16),
    )  # fmt: skip
    for n in (DEALER, RAW_FREE):
        s.at[n] = begin
    s.deal[0], s.built[0] = begin, begin - TABLES_BUILT[0]
    s.at[NEXT], s.at[BEGAN] = 1, NEVER
    _judge_next(work, s, begin, word)
    now = np.ceil(begin / TURN) * TURN
    while s.at[MINE] < count:
        _front(s, known, eights)
        _deal(work, s, now)
        _judge(work, s, now, word)
        for u in range(units):
            while s.left[u] < s.given[u] and collect(work, s, u, now, word):
                pass
        add_crcs(work, s, now, word)
        _end(work, s, word)
        for u in range(units):
            s.headed[u] = False
            _turn(work, s, u, now, word)
        _seek(s, now)
        now += TURN
    return s.ends


@njit(cache=True, nogil=True)
def _front(s: Sending, known: Any, eights: Any) -> None:
    """Take the next frame through its front, and say when it may be dealt, once that is known.

    It begins when the frame before is dealt, and the one IN_FLIGHT ahead is out and is being learnt. The
    frame's blocks may be dealt when its tables are built, all blocks of the frame before are dealt, and the
    one IN_FLIGHT ahead is learnt.
    """
    frame, units = int(s.at[NEXT]), s.last.size
    ahead = waits_for(frame, units)
    if frame == s.deal.size:
        return
    if s.at[BEGAN] == NEVER:
        if s.deal[frame - 1] < NEVER and (ahead < 0 or s.at[MINE] > ahead):
            s.at[BEGAN] = s.deal[frame - 1] + NEXT_FRONT[0]
            if ahead >= 0:
                learns = s.learnt[ahead] - LEARN[0] - LEARN_UNIT * units
                s.at[BEGAN] = max(s.at[BEGAN], s.ends[ahead] + SENT_FRONT, learns + LEARN_FRONT[0])
            s.at[SOUGHT_AT], s.sought[:] = 0.0, eights[frame]
        return
    if s.sought.any() or s.at[FRAME] < frame:
        return
    found = s.at[SOUGHT_AT] + SOUGHT
    built = max(s.at[BEGAN] + TABLES_ASKED if known[frame] else found, s.built[frame - 1] + BUILD)
    dealt = max(s.at[DEALER], found + KNOWN_DEAL)
    if ahead >= 0:
        built, dealt = max(built, s.learnt[ahead] - LEARN_READ), max(dealt, s.learnt[ahead] + LEARNT[0])
    s.built[frame], s.deal[frame] = built, max(dealt, built + TABLES_BUILT[0])
    s.at[NEXT], s.at[BEGAN] = frame + 1, NEVER


@njit(cache=True, nogil=True)
def _seek(s: Sending, now: float) -> None:
    """Let each bank look for the last symbol twice a turn, but not beside a header."""
    if s.at[BEGAN] == NEVER:
        return
    for u in range(s.last.size):
        for clock in (now - 1, now):
            if s.sought[u] > 0 and not s.headed[u] and clock >= s.at[BEGAN] + SOUGHT_FROM + u:
                s.sought[u] -= 1
                s.at[SOUGHT_AT] = max(s.at[SOUGHT_AT], clock)


@njit(cache=True, nogil=True)
def _deal(work: CodedBlocks, s: Sending, now: float) -> None:
    """Deal blocks to threads, which have them in a ring."""
    frame, b = int(s.at[FRAME]), int(s.at[BLOCK])
    while b < work.sizes.size and s.deal[frame] <= now:
        u = work.unit[b]
        when = max(s.at[DEALER], s.deal[frame], s.freed[u, s.given[u] % THREADS])
        if s.given[u] - s.left[u] == THREADS or when > now:
            break
        t = s.given[u] % THREADS
        s.own[u, t] = s.oldest[u, t] = b
        s.place[u, t], s.ready[u, t] = work.turns[b], when + FIRST
        s.given[u] += 1
        s.at[DEALER] = when + DEAL
        b += 1
        if b == work.frames[frame + 1]:
            s.at[DEALER] = when + BEHIND
            frame += 1
            break
    s.at[FRAME], s.at[BLOCK] = frame, b


@njit(cache=True, nogil=True)
def _judge_next(work: CodedBlocks, s: Sending, when: float, word: int) -> None:
    """Let the judge take the next frame, from then on. The CRCs of its head come last."""
    mine = int(s.at[MINE])
    s.judge_from[mine] = max(when, s.deal[mine]) + NEXT_JUDGED
    s.at[JUDGE_AT] = s.judge_from[mine]
    s.at[CRC_WORDS] = -1
    head = HEADER_BYTES + PREFIX_BYTES
    s.at[HEAD_FREE] = s.judge_from[mine] + HEAD_BEGUN + head // 2 + head // word * (HEAD_WORD - 1)
    s.at[LENGTH_AT] = s.at[HEAD_AT] = NEVER
    if work.frames[mine] == work.frames[mine + 1]:
        s.at[LENGTH_AT] = s.judge_from[mine] + LENGTH_CRC


@njit(cache=True, nogil=True)
def _judge(work: CodedBlocks, s: Sending, now: float, word: int) -> None:
    """Settle blocks in the order of the frame."""
    mine, j = int(s.at[MINE]), int(s.at[JUDGING])
    while j < work.frames[mine + 1] and s.judge_from[mine] <= now:
        when = max(s.at[JUDGE_AT] + JUDGE, s.done[j] + JUDGED)
        if work.raw[j] > 0:
            when = max(when, s.at[RAW_FREE])
        if when > now:
            break
        if work.raw[j] > 0:
            s.at[RAW_FREE] = when + RAW_SENT[0] + RAW_SENT[1] * work.raw[j]
        s.at[JUDGE_AT] = s.settled[j] = when
        place = DIRECTORY_BYTES * (j - work.frames[mine]) + HEADER_BYTES + PREFIX_BYTES
        j += 1
        last = j == work.frames[mine + 1]
        for n in range(DIRECTORY_BYTES // 2):  # pairs of bytes of the entry
            place += 2
            pair = max(when + ENTRY_PAIR + n, s.at[HEAD_FREE])
            s.at[HEAD_FREE] = pair + 1
            if place % word == 0 or (last and n == DIRECTORY_BYTES // 2 - 1):
                s.at[HEAD_FREE] = pair + HEAD_WORD
                write_head(work, s, pair + HEAD_WORD, word)
        if last:
            s.at[LENGTH_AT] = when + LENGTH_CRC
            s.at[HEAD_FROM] = s.at[HEAD_FREE] + HEAD_MADE + max(1, -place % word // 2)
    s.at[JUDGING] = j


@njit(cache=True, nogil=True)
def _end(work: CodedBlocks, s: Sending, word: int) -> None:
    """End the frame that is judged when all its blocks have left, and begin with the next."""
    mine, j = int(s.at[MINE]), int(s.at[JUDGING])
    if j < work.frames[mine + 1] or s.at[LENGTH_AT] < NEVER or s.at[HEAD_AT] < NEVER:
        return
    if mine + 1 < s.deal.size and s.deal[mine + 1] == NEVER:
        return  # when the judge takes the next frame is not known yet
    for u in range(s.left.size):
        if s.left[u] < s.given[u] and s.oldest[u, s.left[u] % THREADS] < j:
            return
    size = work.places[j - 1] + work.sizes[j - 1] if j > work.frames[mine] else float(HEADER_BYTES)
    pad = int(-size % word)
    out = max(s.at[CRC_ADDED], s.at[RAW_FREE]) + OUT + (1 + PAD * (pad // 8 + pad % 8) if pad else 0)
    if mine:
        before = work.frames[mine] - 1
        words = np.ceil((work.places[before] + work.sizes[before]) / word)
        out = max(out, s.ends[mine - 1] + words + FRAME_GAP)
    s.ends[mine] = out
    units = s.last.size
    s.learnt[mine] = learn_end(s.at[JUDGE_AT] + LEARN_ASKED[0], s.learnt[mine - 1] if mine else 0.0, units, 0)
    out = max(out, s.learnt[mine] - LEARN[0] - LEARN_UNIT * units + 1)  # the judge waits for that
    mine += 1
    s.at[MINE] = mine
    if mine < s.deal.size:
        _judge_next(work, s, out, word)


@njit(cache=True, nogil=True)
def _turn(work: CodedBlocks, s: Sending, u: int, now: float, word: int) -> None:
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
                made -= min(made, (now - s.launched[u]) * drained(s, word))
            if made > BUFFER:
                continue
        s.last[u], s.headed[u] = t, work.gaps[s.place[u, t]] == HEADED[0]
        s.ready[u, t] = now + work.gaps[s.place[u, t]]
        s.place[u, t] += 1
        if s.place[u, t] == work.turns[o + 1]:
            s.done[o], s.ready[u, t] = now, NEVER
        return
