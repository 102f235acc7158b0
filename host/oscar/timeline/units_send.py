"""Turns of encoders, and what becomes of their blocks, until frames go out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES
from oscar.coding.frame import HEADER_BYTES
from oscar.timeline.turns import (
    BEHIND,
    BUFFER,
    BUILD,
    BUILT,
    BEGUN_SEND as BEGUN,
    CALLED_SEND as CALLED,
    CHUNK,
    CRC,
    CRC_TURN,
    DEAL,
    DEALT,
    DRAIN,
    ENTRY_WORD,
    FIRST,
    FOUND,
    FRAME_GAP,
    HEAD_CRC,
    HEAD_DONE,
    HEADED,
    HEAD_MADE_AFTER,
    JUDGE,
    JUDGED,
    KEPT,
    LASTED,
    LATE,
    LATE_CHUNKS,
    LEARN,
    LENGTH_CRC,
    LOOKED,
    NEVER,
    NEXT_DRAIN,
    NEXT_JUDGED,
    OUT,
    PAD,
    QUERIED,
    RAW_CODED,
    RAW_SENT,
    SETTLED,
    STATES,
    STORED_TURN,
    THREAD_FREE,
    THREADS,
    TURN,
    CodedBlocks,
    waits_for,
)

# Places in `Sending.at`. FRAME, BLOCK: what is dealt next; DEALER: when the dealer is free. MINE, JUDGING:
# the frame and the block that are judged next; JUDGE_AT: when the judge settled a block last. RAW_FREE: when
# the packer of raw blocks is free. CRC_ADDED: when the last CRC is added; CRC_WORDS: words of the frame up to
# its end, -1 for none. LENGTH_AT, HEAD_AT: when the CRCs of the length and of the head are asked for.
FRAME, BLOCK, DEALER, MINE, JUDGING, JUDGE_AT, RAW_FREE, CRC_ADDED, CRC_WORDS, LENGTH_AT, HEAD_AT = range(11)
FRONT, STARTED, SOUGHT, HEAD_MADE = range(11, 15)


class Sending(NamedTuple):
    """What is under way; times are clocks, NEVER if not known yet.

    Of threads [units, THREADS]: own, the block, -1 for none; place, its next turn; ready, when that may be;
    oldest, the blocks in a ring. Of units: last, the thread that had a turn last; given and left, how many
    blocks were dealt and have left; freed and drain, when a thread and the drain are free. Of each unit's
    oldest block: launched, when its drain began; lost, clocks that words of the head took since; stored, when
    it is in the store. Of blocks: done, when the last turn began; settled. Of frames: deal and judge_from,
    when it may be dealt and judged; learnt; ends, when the first word goes out. at: the numbers above.
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
    lost: Any
    stored: Any
    done: Any
    settled: Any
    deal: Any
    judge_from: Any
    learnt: Any
    ends: Any
    built: Any
    headed: Any
    left_eights: Any
    at: Any


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
        np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(units, np.int64), np.zeros(threads),
        np.full(units, begin), np.full(units, NEVER), np.zeros((2, units)), np.full(units, NEVER),
        np.full(blocks, NEVER), np.full(blocks, NEVER), np.full(count, NEVER), np.full(count, NEVER),
        np.full(count, -NEVER), np.zeros(count), np.zeros(count),
        np.zeros(units, np.bool_), np.zeros(units, np.int64), np.zeros(15),
    )  # fmt: skip
    for n in (DEALER, RAW_FREE):
        s.at[n] = begin
    s.deal[0], s.built[0] = begin, begin - BUILT - BEGUN
    s.at[FRONT], s.at[STARTED] = 1, NEVER
    _judge_next(work, s, begin)
    now = np.ceil(begin / TURN) * TURN
    while s.at[MINE] < count:
        _front(s, known, eights)
        _deal(work, s, now)
        _judge(work, s, now, word)
        for u in range(units):
            while s.left[u] < s.given[u] and _collect(work, s, u, now, word):
                pass
        _add_crcs(work, s, now, word)
        _end(work, s, word)
        for u in range(units):
            s.headed[u] = False
            _turn(work, s, u, now, word)
        _seek(s, now)
        now += TURN
    return s.ends


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
def _front(s: Sending, known: Any, eights: Any) -> None:
    """Take the next frame through the first stage, and say when it may be dealt, once that is known.

    It begins when the frame before is dealt, and the one IN_FLIGHT ahead is out. Its blocks may be dealt when
    its tables are built, all blocks of the frame before are dealt, and that one is learnt.
    """
    frame, units = int(s.at[FRONT]), s.last.size
    ahead = waits_for(frame, units)
    if frame == s.deal.size:
        return
    if s.at[STARTED] == NEVER:
        if s.deal[frame - 1] < NEVER and (ahead < 0 or s.at[MINE] > ahead):
            s.at[STARTED] = max(s.deal[frame - 1] + DEALT, s.ends[ahead] + CALLED if ahead >= 0 else 0.0)
            s.at[SOUGHT] = -NEVER
            s.left_eights[:] = eights[frame]
        return
    if s.left_eights.any() or s.at[FRAME] < frame:
        return
    sought = s.at[SOUGHT] + FOUND
    asked = s.at[STARTED] + QUERIED if known[frame] else sought
    learnt = s.learnt[ahead] if ahead >= 0 else 0.0
    s.built[frame] = max(asked, s.built[frame - 1] + BUILD)
    s.deal[frame] = max(s.at[DEALER], max(s.built[frame] + BUILT, sought + 1) + BEGUN, learnt)
    s.at[FRONT], s.at[STARTED] = frame + 1, NEVER


@njit(cache=True, nogil=True)
def _seek(s: Sending, now: float) -> None:
    """Let memory look for the last symbol: at eight rows of a bank twice a turn, but beside a header."""
    if s.at[STARTED] == NEVER:
        return
    for u in range(s.last.size):
        if not s.headed[u]:
            for clock in (now - 1, now):
                if s.left_eights[u] > 0 and clock >= s.at[STARTED] + LOOKED + u:
                    s.left_eights[u] -= 1
                    s.at[SOUGHT] = max(s.at[SOUGHT], clock)


@njit(cache=True, nogil=True)
def _judge_next(work: CodedBlocks, s: Sending, when: float) -> None:
    """Let the judge take the next frame, from then on. The CRCs of its head come last."""
    mine = int(s.at[MINE])
    s.judge_from[mine] = max(when, s.deal[mine]) + NEXT_JUDGED
    s.at[JUDGE_AT] = s.judge_from[mine]
    s.at[CRC_WORDS] = -1
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
        left = word - place % word if j < work.frames[mine + 1] else DIRECTORY_BYTES  # of a word of the head
        if left <= DIRECTORY_BYTES:
            made = s.judge_from[mine] + HEAD_MADE_AFTER + (place + left) // 2
            _write_head(work, s, max(made, when + ENTRY_WORD + left // 2), word)
        if j == work.frames[mine + 1]:
            s.at[LENGTH_AT] = when + LENGTH_CRC
            s.at[HEAD_MADE] = when + HEAD_DONE + max(1, -(place + DIRECTORY_BYTES) % word // 2)
    s.at[JUDGING] = j


@njit(cache=True, nogil=True)
def _write_head(work: CodedBlocks, s: Sending, when: float, word: int) -> None:
    """Let a word of the head take the turn of a unit's collector."""
    units = s.last.size
    u = int(when) % units
    if s.launched[u] == NEVER or s.stored[u] < when + STORED_TURN or _first_turn(work, s, u, word) > when:
        return
    s.lost[0, u] += units
    if s.stored[u] < NEVER:
        if _late_turns(work, s, u, word)[0] <= when:
            s.lost[1, u] += units
        s.stored[u] = _stored(work, s, u, word)


@njit(cache=True, nogil=True)
def _first_turn(work: CodedBlocks, s: Sending, u: int, word: int) -> float:
    """Return the turn in which a unit's collector gives the first word of the block that it drains."""
    chunk = work.places[s.oldest[u, s.left[u] % THREADS]] % word // CHUNK  # of its word
    return _turn_of(u, s.launched[u] + DRAIN + max(1, word // CHUNK) - chunk, s.last.size)


@njit(cache=True, nogil=True)
def _late_turns(work: CodedBlocks, s: Sending, u: int, word: int) -> tuple[float, float]:
    """Return the turns of the first and the last word of the oldest block that have bytes of its last turn."""
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
def _collect(work: CodedBlocks, s: Sending, u: int, now: float, word: int) -> bool:
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
def _every(s: Sending, word: int) -> float:
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
def _add_crcs(work: CodedBlocks, s: Sending, now: float, word: int) -> None:
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
            head = max(when + HEAD_CRC, s.at[HEAD_MADE])
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


@njit(cache=True, nogil=True)
def _end(work: CodedBlocks, s: Sending, word: int) -> None:
    """End the frame that is judged when all its blocks have left, and begin with the next."""
    mine, j = int(s.at[MINE]), int(s.at[JUDGING])
    if j < work.frames[mine + 1] or s.at[LENGTH_AT] < NEVER or s.at[HEAD_AT] < NEVER:
        return
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
    s.learnt[mine] = max(s.at[JUDGE_AT], s.learnt[mine - 1] if mine else 0.0) + LEARN[0] + LEARN[1] * s.last.size
    mine += 1
    s.at[MINE] = mine
    if mine < s.deal.size:
        _judge_next(work, s, out)


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
                made -= min(made, (now - s.launched[u]) * _every(s, word))
            if made > BUFFER:
                continue
        s.last[u], s.headed[u] = t, work.gaps[s.place[u, t]] == HEADED[0]
        s.ready[u, t] = now + work.gaps[s.place[u, t]]
        s.place[u, t] += 1
        if s.place[u, t] == work.turns[o + 1]:
            s.done[o], s.ready[u, t] = now, NEVER
        return
