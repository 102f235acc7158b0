"""Clocks in which a NIC's barrel units code frames, turn by turn (docs/engine.md, "Barrel units").

Block b of memory is coded by unit b mod U, in one of its eight threads. Every four clocks a unit has a turn
for the next thread in a ring that may go on. Frames of a direction share units: the blocks of a frame are
dealt beside the last ones of the frame before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.asc.turns import GROUP, cell_values

TURN, THREADS = 4, 8  # clocks; threads of a unit
# Clocks from a thread's turn to its next one, and behind a header (decoding: classes).
AGAIN, HEADED = (20, 28), (24, 36)
SEED_TURNS = 4  # of an encoder, beside one for each seed row: most blocks have 1 to 5 such rows, and 3 to 5
FINAL = 2  # turns for the final states
# Encoding: clocks of the dealer for a block; from there to its first turn; from its last turn's begin until
# the judge finds it; of the judge for a block, and until its bytes may be drained.
DEAL, FIRST, JUDGED, JUDGE, SETTLE = 3, 14, 20, 4, 4
# From a drain's begin to its first word; from its last word, or the last turn, until all is collected; until
# its thread is free.
DRAIN, GATHERED, LEFT = 8, 12, 4
BUFFER = 112 * 16  # bytes of a thread's block beyond which it waits to be drained
CRC = 3, 11, 1  # to add a block's CRC, and for each digit of how many words lie between, of 16: not 0, or 0
HEAD = 140, 3  # from the last byte to the frame's first word: header, CRC; and for each block, its entry
# Decoding: clocks of the dealer for a block; from there until its first line of bytes counts; from its last
# turn's begin until its thread is free.
GIVE, FETCH, FREE = 7, 30, 52
ENOUGH, BEGUN, ROOM = 128, 64, 384  # bytes for a turn, for a block's first one, that a thread takes
STATES = 96  # bytes of the final states
SUMMED = 34  # clocks from a turn's begin to its last sum
RAW_SENT, RAW_CODED = (110, 53), 1.6  # to send a raw block, and its rows; how many times as long it was coded
# To receive one: each 1,024 values, its rows, its bytes.
RAW_GROUP, RAW_ROW, RAW_BYTE = 2350, 32, 0.595
# From a command, or a frame's last word, until its blocks may be dealt: tables are built, and spread. To
# send, memory finds the last symbol before, in some clocks more for each 1,024 values of a bank.
FRONT, SEARCH = (583, 250), 8
# Received: blocks whose entries of the directory are read while tables are built, and clocks for each more.
LISTED, ENTRY = 18, 8
NEXT = 20, 20  # until they may behind the first word of the frame before, or its last block that is dealt
DONE, LEARN = 20, 300  # from the last sum to the end of a command; to learn
NEVER = 1e18


@dataclass(frozen=True)
class UnitFrame:
    """A frame to model.

    cells: of `asc.turns.cells_of`. count: values; size: bytes; sizes: of its blocks, None: as their rows
    share the frame's. row: the first one in memory.
    """

    cells: Any
    count: int
    size: int
    sizes: Any
    row: int


@dataclass(frozen=True)
class Blocks:
    """The blocks of frames, one frame behind the other.

    gaps: uint8, of every turn the clocks to the thread's next one. turns: int64 [blocks + 1], where each
    block's begin. sizes: bytes. raw: rows of raw blocks (sent), or their clocks (received). unit: who does
    each. frames: int64 [frames + 1], where each frame's begin.
    """

    gaps: Any
    turns: Any
    sizes: Any
    raw: Any
    unit: Any
    frames: Any


def sent(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return when the first word of each goes out, of frames one right after the other.

    block: values of a block. begin: when blocks of the first may be dealt. Those of another are when the one
    before is dealt and its front is done, which begins when the one before is collected; and the one before
    that is learnt. bus: bytes of a word; 0: of the narrowest with which all units have eight a clock.
    """
    work = blocks_of(frames, units, block, 0)
    fronts = np.array([send_front(frame.count, units) for frame in frames], float)
    found = _sent(
        work.gaps, work.turns, work.sizes, work.raw, work.unit, work.frames, fronts, units, begin,
        bus or bus_bytes(units),
    )  # fmt: skip
    return [float(end) for end in found]


def received(
    frames: Sequence[UnitFrame], units: int, block: int, begin: float, *, bus: int = 0
) -> list[float]:  # fmt: skip
    """Return when the last sum of each is there; arguments as of `sent`.

    Blocks of a frame are dealt when those of the one before are, and when its front is done: this begins
    when the one before is dealt, and one before that is done and learnt.
    """
    work = blocks_of(frames, units, block, 1)
    fronts = np.array([receive_front(frame.count, block) for frame in frames], float)
    found = _received(
        work.gaps, work.turns, work.sizes, work.raw, work.unit, work.frames, fronts, units, begin,
        bus or bus_bytes(units),
    )  # fmt: skip
    return [float(end) for end in found]


def send_front(count: int, units: int) -> int:
    """Return clocks from the command to send a frame of `count` values until its blocks may be dealt."""
    return FRONT[0] + -(-SEARCH * count // (GROUP * units))


def receive_front(count: int, block: int) -> int:
    """Return clocks from the last word of a frame of `count` values until its blocks may be dealt."""
    return FRONT[1] + ENTRY * max(0, -(-count // block) - LISTED)


def bus_bytes(units: int) -> int:
    """Return the bytes of a word of the narrowest bus with which all units have eight bytes a clock."""
    return max(16, 8 * units)


def blocks_of(frames: Sequence[UnitFrame], units: int, block: int, way: int) -> Blocks:
    """Return the blocks of frames; way: 0 to encode, 1 to decode."""
    every = [_frame_blocks(frame, units, block, way) for frame in frames]
    gaps, turns, sizes, raw, unit = (np.concatenate(part) for part in zip(*every, strict=True))
    ends = np.cumsum([0, *(len(one[1]) for one in every)])
    return Blocks(gaps, np.append(0, np.cumsum(turns)), sizes, raw, unit, ends)


def _frame_blocks(frame: UnitFrame, units: int, block: int, way: int) -> tuple[Any, ...]:
    """Return gaps, and of each block: turns, bytes, rows or clocks if it is raw, its unit."""
    values = cell_values(frame.count)
    number, each = -(-frame.count // values), max(1, block // values)
    part = np.zeros((-(-number // each) * each, 5), np.int64)
    part[:number, :4] = frame.cells[:number]
    part[:number, 4] = values // GROUP
    rows, live, plain_rows, raw, groups = (x.reshape(-1, each) for x in part.T)
    live_rows, plain = plain_rows + raw, raw.sum(axis=1)
    some = live > 0
    any_live = some.any(axis=1)
    begun = np.cumsum(some, axis=1) > 0
    inside = begun & (np.cumsum(some[:, ::-1], axis=1)[:, ::-1] > 0)
    first = some & (np.cumsum(some, axis=1) == 1)
    # Classes of a dead group are coded where live ones are before and behind it.
    classes = np.where(some, live, inside)
    if way:
        others = rows * inside
        others[:, -1] += FINAL  # the first cell that is decoded
        counts = np.stack([others, classes], axis=2)[:, ::-1, ::-1] * (any_live & (plain == 0))[:, None, None]
        pattern = HEADED[1], AGAIN[1]
    else:
        others = rows + np.minimum(SEED_TURNS, live_rows) * first + classes
        others[:, -1] += np.where(any_live, FINAL, 1)
        counts = np.stack([groups, others], axis=2)
        pattern = HEADED[0], AGAIN[0]
    gaps = np.repeat(np.resize(np.array(pattern, np.uint8), counts.size), counts.reshape(-1))
    sizes = frame.sizes
    if sizes is None:
        sizes = frame.size * live_rows.sum(axis=1) / max(1, live_rows.sum())
    sizes = np.asarray(sizes, float)
    if way:
        plain = (RAW_GROUP * -(-plain // GROUP_ROWS) + RAW_ROW * plain + RAW_BYTE * sizes) * (plain > 0)
    unit = (frame.row // (block // LANES) + np.arange(len(sizes))) % units
    return gaps, counts.sum(axis=(1, 2)), sizes, plain.astype(float), unit


@njit(cache=True, nogil=True)
def _sent(
    gaps: Any, turns: Any, sizes: Any, raw: Any, unit: Any, frames: Any, fronts: Any, units: int,
    begin: float, word: int,
) -> Any:  # fmt: skip
    """Return when the first word of each frame goes out; arguments: fields of Blocks, clocks."""
    blocks, count = sizes.size, fronts.size
    ends = np.zeros(count)
    # Of threads: their block, the next turn, when it may be. Threads have blocks in a ring.
    own, at = np.full((units, THREADS), -1), np.zeros((units, THREADS), np.int64)
    ready, last = np.full((units, THREADS), NEVER), np.zeros(units, np.int64)
    given, left = np.zeros(units, np.int64), np.zeros(units, np.int64)
    freed = np.zeros(units)  # when the oldest thread was freed
    # Of blocks: when all turns are done, when it is settled.
    done, settled = np.full(blocks, NEVER), np.full(blocks, NEVER)
    # Of units: when the drain is free, when it began with the oldest block, when that is collected.
    drain, launched, gathered = np.full(units, begin), np.full(units, NEVER), np.full(units, NEVER)
    oldest = np.full((units, THREADS), -1)
    every = word / units if word < 16 * units else 16.0  # bytes a clock
    # The dealer's frame and block, the judge's; what is known of frames.
    frame, b, dealer = 0, 0, begin
    mine, j, judge, raw_free, place = 0, 0, begin, begin, 0.0
    deal, take, learnt = np.full(count, NEVER), np.full(count, NEVER), np.full(count, -NEVER)
    deal[0] = take[0] = begin
    crc_at, crc_place, out = begin, 0.0, 0.0
    now = np.ceil(begin / TURN) * TURN
    while mine < count:
        # Deal.
        while b < blocks and deal[frame] <= now:
            u = unit[b]
            if given[u] - left[u] == THREADS:
                break
            when = max(dealer, deal[frame], freed[u] if given[u] >= THREADS else 0.0)
            if when > now:
                break
            t = given[u] % THREADS
            own[u, t], at[u, t], ready[u, t] = b, turns[b], when + FIRST
            oldest[u, t] = b
            given[u] += 1
            dealer = when + DEAL
            b += 1
            if b == frames[frame + 1]:
                frame += 1
                if frame < count and take[frame - 1] < NEVER:
                    before = learnt[frame - 2] if frame > 1 else 0.0
                    deal[frame] = max(dealer + NEXT[0], take[frame - 1] + fronts[frame], before)
                break
        # Judge.
        while j < frames[mine + 1] and take[mine] <= now and done[j] + JUDGED <= now and judge <= now:
            when = max(judge, done[j] + JUDGED, take[mine])
            if raw[j] > 0:
                when = max(when, raw_free)
                raw_free = when + RAW_SENT[0] + RAW_SENT[1] * raw[j]
            judge = when + JUDGE
            settled[j] = judge + SETTLE
            j += 1
        # Drain and collect, in the order of each unit's blocks.
        for u in range(units):
            if left[u] == given[u]:
                continue
            t = left[u] % THREADS
            o = oldest[u, t]
            own_free = drain[u] if u else max(drain[u], raw_free)  # raw blocks take the first unit's way out
            if launched[u] == NEVER and own_free <= now:
                if settled[o] < NEVER:
                    launched[u] = max(own_free, settled[o])
                elif o == j and take[mine] <= now and judge <= now:
                    launched[u] = max(own_free, judge, take[mine])
            if launched[u] < NEVER and settled[o] < NEVER and gathered[u] == NEVER:
                if sizes[o] > 0 and raw[o] == 0:
                    end = max(launched[u] + DRAIN + sizes[o] / every, done[o] + DRAIN) + GATHERED
                    end = max(end, settled[o])
                    place += sizes[o] / word
                    gathered[u] = max(crc_at, end)  # its CRC is added beside the next drain
                    crc_at, far = gathered[u] + CRC[0], abs(int(place) - int(crc_place))
                    while far:
                        crc_at += CRC[1] if far & 15 else CRC[2]
                        far >>= 4
                    crc_place = max(crc_place, place)
                else:
                    gathered[u] = settled[o]
            if gathered[u] <= now:
                drain[u] = gathered[u] + LEFT
                freed[u] = drain[u]
                out = max(out, gathered[u])
                own[u, t] = -1
                left[u] += 1
                launched[u] = gathered[u] = NEVER
        # A frame ends when all its blocks have left.
        if j == frames[mine + 1] and take[mine] < NEVER:
            whole = True
            for u in range(units):
                if left[u] < given[u] and oldest[u, left[u] % THREADS] < j:
                    whole = False
            if whole:
                done_at = max(out, judge, raw_free, crc_at)
                ends[mine] = done_at + HEAD[0] + HEAD[1] * (frames[mine + 1] - frames[mine])
                learnt[mine] = max(done_at, learnt[mine - 1] if mine else 0.0) + LEARN
                mine += 1
                if mine < count:
                    before = learnt[mine - 2] if mine > 1 else 0.0
                    if frame >= mine and deal[mine] == NEVER:
                        deal[mine] = max(dealer + NEXT[0], take[mine - 1] + fronts[mine], before)
                    take[mine] = max(ends[mine - 1] + NEXT[0], deal[mine])
                    judge = max(judge, take[mine])
                    crc_place = place = 0.0
                    if frame == mine + 1 and frame < count and deal[frame] == NEVER:
                        deal[frame] = max(dealer + NEXT[0], take[mine] + fronts[frame], learnt[mine - 1])
        # Turns.
        for u in range(units):
            for k in range(1, THREADS + 1):
                t = (last[u] + k) % THREADS
                if own[u, t] < 0 or ready[u, t] > now:
                    continue
                o = own[u, t]
                size = sizes[o] * RAW_CODED if raw[o] > 0 else sizes[o]
                if size > BUFFER:
                    made = size * (at[u, t] - turns[o]) / (turns[o + 1] - turns[o])
                    if o == oldest[u, left[u] % THREADS] and launched[u] <= now:
                        made -= min(made, (now - launched[u]) * every)
                    if made > BUFFER:
                        continue
                last[u] = t
                ready[u, t] = now + gaps[at[u, t]]
                at[u, t] += 1
                if at[u, t] == turns[o + 1]:
                    done[o], ready[u, t] = now, NEVER
                break
        now += TURN
    return ends


@njit(cache=True, nogil=True)
def _received(
    gaps: Any, turns: Any, sizes: Any, raw: Any, unit: Any, frames: Any, fronts: Any, units: int,
    begin: float, word: int,
) -> Any:  # fmt: skip
    """Return when the last sum of each frame is there; arguments as of `_sent`."""
    blocks, count = sizes.size, fronts.size
    own, at = np.full((units, THREADS), -1), np.zeros((units, THREADS), np.int64)
    ready, last = np.full((units, THREADS), NEVER), np.zeros(units, np.int64)
    fed, owed = np.zeros((units, THREADS)), np.zeros((units, THREADS))  # bytes in a ring, still to come
    feeds, line = np.zeros((units, THREADS)), np.zeros(units, np.int64)
    free, end = np.zeros((units, THREADS)), np.zeros(count)
    chunks = max(1, word // 16)  # of sixteen bytes, of a line
    lines = TURN / max(units, 2 * chunks)  # of a unit in a turn
    spare = np.zeros(units)
    open_blocks, raw_end, raw_frame = np.zeros(count, np.int64), begin, 0
    deal, learnt, over = np.full(count, NEVER), np.full(count, NEVER), np.full(count, NEVER)
    deal[0] = begin
    frame, b, dealer, ended = 0, 0, begin, 0
    now = np.ceil(begin / TURN) * TURN
    while ended < count:
        while b < blocks and deal[frame] <= now:
            u, when = unit[b], max(dealer, deal[frame]) + GIVE
            if turns[b + 1] > turns[b]:
                t = -1
                for k in range(THREADS):
                    if own[u, k] < 0 and free[u, k] <= max(when, now):
                        t = k
                        break
                if t < 0 or (raw_end > when and raw_frame < frame):
                    if max(when, now) > now:
                        break
                    dealer = max(dealer, now + TURN - GIVE)
                    break
                when = max(when, free[u, t])
                own[u, t], at[u, t] = b, turns[b]
                fed[u, t], owed[u, t] = 0.0, sizes[b]
                feeds[u, t], ready[u, t] = when + FETCH, when
                open_blocks[frame] += 1
                dealer = when
            elif raw[b] > 0:
                alone = when
                if frame and over[frame - 1] == NEVER:
                    break
                alone = max(alone, raw_end, over[frame - 1] if frame else 0.0)
                raw_end, raw_frame = alone + raw[b], frame
                end[frame] = max(end[frame], raw_end)
                dealer = alone
            else:
                dealer = when
            b += 1
            if b == frames[frame + 1]:
                frame += 1
                break
        # A frame is over when its blocks are; then the next front may begin.
        while ended < count and frame > ended and open_blocks[ended] == 0 and end[ended] <= now:
            before = end[ended - 1] if ended else 0.0
            end[ended] = max(end[ended], before, deal[ended])
            over[ended] = end[ended] + DONE
            learnt[ended] = max(over[ended], learnt[ended - 1] if ended else 0.0) + LEARN
            ended += 1
        if frame < count and deal[frame] == NEVER and (frame < 2 or over[frame - 2] < NEVER):
            front = max(deal[frame - 1], over[frame - 2] if frame > 1 else begin) + fronts[frame]
            deal[frame] = max(dealer + NEXT[1], front, learnt[frame - 2] if frame > 1 else 0.0)
        for u in range(units):
            # Lines of the store.
            spare[u] = min(spare[u] + lines, lines + 1)
            tries = 0
            while spare[u] >= 1 and tries < THREADS:
                tries += 1
                line[u] = (line[u] + 1) % THREADS
                t = line[u]
                if own[u, t] >= 0 and owed[u, t] > 0 and feeds[u, t] <= now and fed[u, t] < ROOM:
                    some = min(owed[u, t], 16.0 * chunks)
                    fed[u, t] += some
                    owed[u, t] -= some
                    spare[u] -= 1
                    tries = 0
            for k in range(1, THREADS + 1):
                t = (last[u] + k) % THREADS
                if own[u, t] < 0 or ready[u, t] > now:
                    continue
                o = own[u, t]
                need = BEGUN if at[u, t] == turns[o] else ENOUGH
                if owed[u, t] > 0 and fed[u, t] < need:
                    continue
                last[u] = t
                number = turns[o + 1] - turns[o]
                if at[u, t] < turns[o] + FINAL:
                    fed[u, t] -= STATES / FINAL
                else:
                    fed[u, t] -= (sizes[o] - STATES) / max(1, number - FINAL)
                ready[u, t] = now + gaps[at[u, t]]
                at[u, t] += 1
                if at[u, t] == turns[o + 1]:
                    own[u, t], free[u, t] = -1, now + FREE
                    of = 0
                    while frames[of + 1] <= o:
                        of += 1
                    end[of] = max(end[of], now + SUMMED)
                    open_blocks[of] -= 1
                break
        now += TURN
    return end
