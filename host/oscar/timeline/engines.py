"""Clocks in which a NIC's engines code frames: a block goes to one that is free, in slots (docs/engine.md).

Block b is at bank b mod B of memory, and engines e of e mod B = b mod B code it, eight of them at most.
Clocks count from any multiple of 32 of the NIC's: slots of a bank's first engine begin where they are one,
those of each other TURN clocks before the ones of the engine before it. `Units` are carried from a frame to
the next, so that its blocks wait for what the frame before still holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from oscar.coding.asc.params import GROUP_ROWS
from oscar.coding.asc.slots import LEAD, cell_values

SLOT, TURN = 32, 4  # clocks
AT_BANK = SLOT // TURN  # engines that take turns at a bank
# Encoding: from a block's end to the next that is judged, and to its unit's next job; from a job to the phase
# by which a slot can begin; from the last slot's begin to the end.
SETTLE, AGAIN, DEAL, LAST = 10, 6, 5, 20
CONSTANT = 12  # from a block that is judged to one that is known to be constant
LAUNCH, QUICK = 19, -2  # until a collector takes pairs, one a clock; and then, until its block is settled
GATHER = 20  # from a block's last pair to its CRC
CRC = 6, 16  # to add a block's CRC to the frame's, and more for each 1 in how many words lie between
BUFFER = 1792  # bytes that an encoder keeps of a block before those before it are coded
HEAD = 220, 3  # from the last byte to the frame's first word: header, CRC; and for each block, its entry
# Decoding: clocks of the dealer for a block of zeros, and for another; from a job to its first word of bytes;
# until a unit is free again behind the begin of its last slot.
EMPTY, GIVE, FETCH, FREE = 10, 15, 18, 29
ENOUGH = 128  # bytes that a decoder waits for
LOAD, TAIL = 2, 2  # slots before a block's groups and behind
SUMMED = 40  # clocks from the begin of the last row's slot to its last sum
RAW_SENT, RAW_CODED = -10, 1.6  # to send a raw block, beside its rows; how many times as long it was coded
# To receive one: each 1,024 values, its rows, its bytes, and for each byte a part of the readers' turn.
RAW_GROUP, RAW_ROW, RAW_BYTE, RAW_TURN = 2288, 32, 0.736, 0.0157
# From a command, or a frame's last word, until its blocks may be dealt: tables are built. To send, memory
# finds the last symbol before, in some clocks more for each 1,024 values.
FRONT, SEARCH = (195, 268), 4
# Received: blocks whose entries of the directory are read while tables are built, and clocks for each more.
LISTED, ENTRY = 18, 8
NEXT = 20, 20  # until they may behind the first word of the frame before, or its last block that is dealt
DONE, LEARN = 64, 320  # from the last sum to the end of a command; to learn
WORD, WIDE, MANY = 16, 64, 32  # bytes of a store's word, and in a NIC of more than so many engines


@dataclass
class Units:
    """When the units of a direction are free: engines, the raw unit, the dealer; all since some clock."""

    engines: int
    free: Any = field(init=False)
    # Of encoders' last blocks: when they were settled, when collectors began with them, and their bytes.
    kept: Any = field(init=False)
    last: int = -1  # who had a block last
    raw: float = -1e9  # when the raw unit's last block ends
    dealt: float = -1e9  # when the last block of the frame before was dealt
    ends: Any = field(default_factory=lambda: np.zeros(0))  # when decoders were free of each of its blocks

    def __post_init__(self) -> None:
        self.free = np.full(self.engines, -1e9)
        self.kept = np.full((3, self.engines), -1e9)


@njit(cache=True)
def _turn(units: int) -> int:
    """Return clocks in which each reader of the receiver's store reads a word."""
    return max(units + 1, 5)


@njit(cache=True, nogil=True)
def _pick(free: Any, now: float, last: int, block: int) -> tuple[int, float]:
    """Return the first engine at the block's bank, behind `last`, that is free at `now` or next, and when."""
    banks = _banks(free.size)
    now = max(now, free[block % banks :: banks].min())
    for n in range(1, free.size + 1):
        u = (last + n) % free.size
        if u % banks == block % banks and free[u] <= now:
            break
    return u, now


@njit(cache=True)
def _banks(engines: int) -> int:
    return -(-engines // AT_BANK)


@njit(cache=True, nogil=True)
def _slot(u: int, clock: float, banks: int) -> float:
    """Return when the first slot of engine u begins that does not begin before `clock`."""
    ahead = TURN * (u // banks)
    return np.ceil((clock + ahead) / SLOT) * SLOT - ahead


@njit(cache=True, nogil=True)
def encoding(
    slots: Any, sizes: Any, raw: Any, free: Any, kept: Any, u: int, deal: float, begin: float, word: int
) -> Any:
    """Return clocks at which the last block is dealt, all are coded, their bytes are collected and added up.

    slots, sizes, raw [blocks]: slots, bytes, rows if a block goes raw. free [engines]: when each can take a
    job; kept: see `Units`; both kept up to date. u: who had a block last. deal, begin: when blocks may be
    dealt, when they may be collected. word: bytes of a word of the store.
    """
    blocks, units, banks = sizes.size, free.size, _banks(free.size)
    lanes = min(units, word // 2)
    taken, place, busy = np.full(lanes, np.inf), np.zeros(lanes), np.full(lanes, begin)  # of collectors
    crc = np.array([begin, 0.0])
    dealt, judged, plain, coded, at = deal, begin, begin, begin, 0.0
    for b in range(blocks):
        u, dealt = _pick(free, dealt, u, b)
        lane, dealt = u % lanes, dealt + DEAL
        start = _slot(u, dealt + 1, banks)
        add_up(taken, place, busy, crc, lane)
        launched = max(judged, busy[lane]) + LAUNCH
        length = sizes[b] * RAW_CODED if raw[b] > 0 else sizes[b]
        end = start + SLOT * slots[b]
        settled, before, held = kept[:, u]
        # What does not fit waits until the block before, and then this one, is collected.
        for room, until in ((BUFFER - held, before), (float(BUFFER), launched)):
            if until > start and length > room:
                end = max(end, _slot(u, until, banks) + SLOT * slots[b] * (1 - max(0.0, room) / length))
        end += LAST
        coded = max(coded, end)
        judged = max(end + SETTLE, launched + QUICK if sizes[b] > 0 else judged + CONSTANT)
        gathered = max(end, launched + length / 2)
        if raw[b] > 0:  # its bytes are dropped, and collector 0 takes others
            lane = 0
            add_up(taken, place, busy, crc, 0)
            judged = max(max(judged, gathered), max(plain, busy[0])) + LAUNCH
            gathered = plain = judged + RAW_SENT + raw[b] * min(48.0, 37 + sizes[b] / raw[b] / 3)
        free[u] = max(end, settled) + AGAIN
        kept[0, u], kept[1, u], kept[2, u] = judged, launched, length
        at += sizes[b] / word
        if sizes[b] > 0:
            taken[lane], place[lane] = gathered + GATHER, at
    for lane in range(lanes):
        add_up(taken, place, busy, crc, lane)
    return dealt, coded, max(crc[0], judged), u


@njit(cache=True, nogil=True)
def add_up(taken: Any, place: Any, busy: Any, crc: Any, lane: int) -> None:
    """Add CRCs of blocks that collectors have `taken` (inf: none) until collector `lane` is not busy.

    place: where each block ends, in words; crc: when the last was added, and up to which word.
    """
    while taken[lane] < np.inf:
        one = taken.argmin()
        ones, left = 0, abs(int(place[one]) - int(crc[1]))
        while left:
            ones += left & 1
            left >>= 1
        crc[0] = max(crc[0], taken[one]) + CRC[0] + CRC[1] * max(1, ones)
        crc[1] = max(crc[1], place[one])
        busy[one], taken[one] = crc[0], np.inf


@njit(cache=True, nogil=True)
def decoding(
    slots: Any, sizes: Any, raw: Any, free: Any, u: int, twins: Any, begin: float, plain: float, word: int
) -> Any:
    """Return clocks at which all blocks are decoded, at which the last was dealt, the raw unit's last end.

    The last results: when decoders are free of each block, and who had the last.

    slots, sizes, raw [blocks]: slots (0: nobody does it), bytes, and clocks of one that is raw. free: as of
    `encoding`. twins: when they are free of the frame before's blocks of the same rows, as many as there are.
    plain: when the raw unit's last block ends, of the frame before.
    """
    units = free.size
    turn = _turn(units)
    turn *= np.ceil(word / 2 / turn)  # a word's pairs go out one a clock
    before = free.max()
    dealt, end, mine, ends = begin, begin, plain, np.full(slots.size, -1e9)
    for b in range(slots.size):
        dealt += EMPTY
        if raw[b] > 0:
            dealt = max(dealt, mine, before) + GIVE - EMPTY
            mine = dealt + raw[b]
            end = max(end, mine)
        elif slots[b] > 0:
            u, given = _pick(free, max(dealt, plain, twins[b] if b < twins.size else plain), u, b)
            dealt = given + GIVE - EMPTY
            bytes_there = given + FETCH + turn * np.ceil(min(sizes[b], ENOUGH) / word)
            start = _slot(u, bytes_there, _banks(units))
            last = start + SLOT * (LOAD + slots[b] - 1)
            free[u] = ends[b] = last + SLOT * TAIL + FREE
            end = max(end, last + SUMMED)
    return end, dealt, mine, ends, u


def encode_clocks(
    cells: Any, count: int, size: int, engines: int, block: int, sizes: Any = None, *,
    units: Units | None = None, deal: float = 0.0, begin: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """Return clocks at which the blocks of a frame are coded, and at which its first word goes out.

    cells: of `asc.slots.cells_of`; block: values of a block. sizes: bytes of blocks; None: as their rows
    share the frame's `size`. units: as other frames left them. deal, begin: when blocks may be dealt, and
    collected.
    """
    units = units or Units(engines)
    work = _blocks(cells, 0, count, size, engines, block, sizes)
    units.dealt, coded, collected, units.last = encoding(
        *work, units.free, units.kept, units.last, deal, max(deal, begin), _word(engines)
    )
    return coded, collected + HEAD[0] + HEAD[1] * len(work[0])


def decode_clocks(
    cells: Any, count: int, engines: int, block: int, size: int = 0, sizes: Any = None, *,
    units: Units | None = None, again: bool = False, begin: float = 0.0,
) -> float:  # fmt: skip
    """Return clocks at which a frame's last sum is there.

    again: its rows are those of the frame before. begin: when its blocks may be dealt.
    """
    units = units or Units(engines)
    work = _blocks(cells, 1, count, size, engines, block, sizes)
    twins = units.ends if again else np.zeros(0)
    end, units.dealt, units.raw, units.ends, units.last = decoding(
        *work, units.free, units.last, twins, begin, units.raw, _word(engines)
    )
    return float(end)


@dataclass(frozen=True)
class EngineFrame:
    """A frame to model: arguments of `encode_clocks`, and the first row in memory."""

    cells: Any
    count: int
    size: int
    sizes: Any
    row: int


def sent(frames: Sequence[EngineFrame], engines: int, block: int, begin: float) -> list[float]:
    """Return when the first word of each goes out, of frames one right after the other.

    begin: when blocks of the first may be dealt. Those of another are when the one before is dealt and its
    front is done, which begins when the one before is collected; and the one before that is learnt.
    """
    units, ends, learnt, deal = Units(engines), list[float](), [-1e9, -1e9], begin
    for n, frame in enumerate(frames):
        if n:
            deal = max(units.dealt + NEXT[0], begin + send_front(frame.count), learnt[n])
            begin = max(deal, ends[-1] + NEXT[0])
        args = frame.cells, frame.count, frame.size, engines, block, frame.sizes
        ends.append(encode_clocks(*args, units=units, deal=deal, begin=begin)[1])
        head = HEAD[0] + HEAD[1] * -(-frame.count // block)  # made beside the learning
        learnt.append(max(ends[-1] - head, learnt[-1]) + LEARN)
    return ends


def send_front(count: int) -> int:
    """Return clocks from the command to send a frame of `count` values until its blocks may be dealt."""
    return FRONT[0] + SEARCH * -(-count // 1024)


def receive_front(count: int, block: int) -> int:
    """Return clocks from the last word of a frame of `count` values until its blocks may be dealt."""
    return FRONT[1] + ENTRY * max(0, -(-count // block) - LISTED)


def received(frames: Sequence[EngineFrame], engines: int, block: int, begin: float) -> list[float]:
    """Return when the last sum of each is there; arguments as of `sent`, but they overlap.

    Blocks of a frame are dealt when those of the one before are, and when its front is done: this begins
    when the one before is dealt, and one before that is done and learnt.
    """
    units, ends, learnt = Units(engines), list[float](), [-1e9, -1e9]
    for n, frame in enumerate(frames):
        if n:
            front = max(begin, ends[n - 2] + DONE if n > 1 else begin) + receive_front(frame.count, block)
            begin = max(units.dealt + NEXT[1], front, learnt[n])
        again = n > 0 and frames[n - 1].row == frame.row
        args = frame.cells, frame.count, engines, block, frame.size, frame.sizes
        end = decode_clocks(*args, units=units, again=again, begin=begin)
        ends.append(max(end, ends[-1] if ends else end))
        learnt.append(max(ends[-1] + DONE, learnt[-1]) + LEARN)
    return ends


def _word(engines: int) -> int:
    return WIDE if engines > MANY else WORD


def _blocks(
    cells: Any, way: int, count: int, size: int, engines: int, block: int, sizes: Any
) -> tuple[Any, Any, Any]:
    """Return slots, bytes, and rows (sent) or clocks (received) of raw ones, of each block."""
    values = cell_values(count)
    number, each = -(-count // values), max(1, block // values)
    part = np.zeros((-(-number // each) * each, 5))
    part[:number] = cells[:number]
    slots, live, more, raw = part[:, way], part[:, 2] + part[:, 4], part[:, 3], part[:, 4]
    slots, live, more, raw = (x.reshape(-1, each) for x in (slots, live, more, raw))
    some = live > 0
    begun, goes_on = np.cumsum(some, axis=1) > 0, np.cumsum(some[:, ::-1], axis=1)[:, ::-1] > 0
    first = some & (np.cumsum(some, axis=1) == 1)
    if way:  # cells before the first live one and behind the last take no slot
        slots = slots * begun * goes_on
    else:  # classes of those between are held back, and coded when another live one comes
        dead = begun & goes_on & ~some
        slots = slots + 2 * dead
        slots[:, 1:] += 2 * (dead[:, 1:] & ~dead[:, :-1])
        slots[:, -1] -= (slots > 0)[:, -1] & begun[:, -1] & ~some[:, -1]
    total = slots.sum(axis=1) + (first * (more // LEAD if way else more % LEAD)).sum(axis=1)
    plain = raw.sum(axis=1)
    if sizes is None:
        share = live.sum(axis=1)
        sizes = size * share / max(1.0, share.sum())
    if way:
        total = total * (plain == 0) * (live.sum(axis=1) > 0)
        each_byte = RAW_BYTE + RAW_TURN * _turn(engines)
        plain = RAW_GROUP * np.ceil(plain / GROUP_ROWS) + RAW_ROW * plain + each_byte * sizes * (plain > 0)
    else:
        total = total + (live.sum(axis=1) > 0)  # a header; none behind it if nothing is live
    return total, np.asarray(sizes, float), plain
