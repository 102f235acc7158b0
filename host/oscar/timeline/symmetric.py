"""Time of a schedule in which all ranks do the same at the same time: one rank, its own peer, models all.

Turning the ranks by one turns such a schedule into itself: direct does. With equal chunks at a switch of
equal ports, what a rank receives at distance d arrives when its own frame to distance d does. Frames never
meet at a port where they arrive: their senders' ports, all alike, have put them one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.collective.actions import SENDS, Op
from oscar.collective.schedule import Schedule
from oscar.kernels import njit
from oscar.timeline.driver import DESK, fetch, give, read_order
from oscar.timeline.link import LinkModel
from oscar.timeline.sizes import cut_tables, dense_tables

_ENCODE, _DECODE, _SEND, _WAIT = range(4)
Ints = NDArray[np.int64]


class Lowered(NamedTuple):
    """Rank 0's actions as arrays [action], those that make room left out.

    kind: encode, decode, send, wait. needs: the action whose result it uses, or -1. wakes: of a send, the
    WAIT that the frame of the same distance ends. sums: a number for phase, chunk and sub-frame. chunk: as
    the rank that owns it. owns: of one that needs the rank's own values. reads [chunks K]: the decode, the
    last of its sum, behind which each part is read.
    """

    kind: Ints
    needs: Ints
    wakes: Ints
    sums: Ints
    phase: Ints
    sub: Ints
    terms: Ints
    chunk: Ints
    owns: Ints
    reads: Ints


@lru_cache(maxsize=32)
def lowered(schedule: Schedule) -> Lowered:
    """Return the actions of rank 0 of a schedule that is the same for all ranks."""
    n = schedule.nodes
    held: dict[tuple[int, int, int, int], int] = {}
    summed: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int, int, int], int] = {}
    numbers: dict[tuple[int, int, int], int] = {}
    rows: list[tuple[int, ...]] = []
    sends: list[tuple[int, tuple[int, int, int, int]]] = []
    for op, phase, _, chunk, sub, peer, source, _, terms, _ in schedule.actions(0):
        if op is Op.POST_RECV:
            continue
        at, frame = len(rows), (phase, source, chunk, sub)
        kind, needs, owns = _DECODE, held.get(frame, -1), op is Op.DECODE_ADD
        if op is Op.WAIT:  # at distance -peer from its sender, whose chunk it is turned by peer
            waits[phase, -peer % n, (chunk - peer) % n, sub] = held[frame] = at
            kind, needs = _WAIT, -1
        elif op is Op.ENCODE:
            kind, needs = _ENCODE, summed.get((chunk, sub), -1)
            held[frame], owns = at, needs < 0
        elif op in SENDS:
            kind = _SEND
            sends.append((at, (phase, peer, chunk, sub)))
        else:
            summed[chunk, sub] = at
        number = numbers.setdefault((phase, chunk, sub), len(numbers))
        rows.append((kind, needs, number, phase, sub, terms.bit_count(), chunk, owns))
    wakes = np.full(len(rows), -1, np.int64)
    for at, key in sends:
        wakes[at] = waits[key]
    columns = np.array(rows, np.int64).reshape(-1, 8).T.copy()
    reads = [summed[part] for part in read_order(schedule, 0) if part in summed]
    return Lowered._make([*columns[:2], wakes, *columns[2:], np.array(reads, np.int64)])


def symmetric_time(
    schedule: Schedule, count: Ints, sizes: Mapping[int, Ints], link: LinkModel, *, coded: bool = True
) -> float:
    """Return the seconds of a schedule that is the same for all ranks and chunks.

    count: values of every sub-frame, int64 [K]. sizes: bytes of every sub-frame [K], by how many workers'
    values it sums; without values none. Equal to the replay of such frames to the bit.
    """
    link, codec = link.wired(coded), link.codec(coded)
    terms = list(sizes)
    table = np.stack([sizes[number] for number in terms])[None, None]
    counts = np.broadcast_to(count, table.shape)
    table, counts = (whole[0, 0] for whole in cut_tables(table, counts, codec.cores))
    plain = holds = counts
    if codec.sharing:
        counts, holds = dense_tables(counts, codec.sharing, codec.block)
    do = lowered(replace(schedule, subframes=counts.shape[1]))
    row = np.zeros(schedule.nodes + 1, np.int64)
    row[terms] = np.arange(len(terms))
    core = do.sub % codec.cores
    unit = core if codec.busy else core + codec.cores * (do.kind == _DECODE)
    codes = np.flatnonzero(do.kind <= _DECODE)
    queue, queues = unit, codec.cores * (1 if codec.busy else 2)
    order = codes[np.argsort(queue[codes], kind="stable")]
    starts = np.searchsorted(queue[order], np.arange(queues + 1))
    room_s = 0.0
    for _ in range(int(((do.kind == _WAIT) & (counts[0, do.sub] > 0)).sum()) if link.message_s else 0):
        room_s += link.message_s
    values, held = counts[0, do.sub], holds[0, do.sub]
    bytes_ = table[row[do.terms], do.sub]
    work = *do[:5], values, held, bytes_, unit
    costs = link.seconds_per_byte, link.latency_s, room_s, codec._replace(driver=None)
    if codec.driver is None:
        return float(_play(*work, *costs, order, starts))
    parts = {(chunk, sub): int(n) for chunk in range(schedule.nodes) for sub, n in enumerate(plain[0])}
    when = codec.driver.loaded(schedule, 0, parts)
    loaded = np.array([when[part] for part in zip(do.chunk.tolist(), do.sub.tolist(), strict=True)])
    driven = np.where(do.owns > 0, loaded, 0.0), plain[0, do.sub], do.reads
    return float(_attend(*work, *costs, *driven, codec.driver.costs))


@njit(cache=True, nogil=True)
def _code(
    at: int, ready: float, unit: int, kind: Any, sums: Any, counts: Any, holds: Any, free: Any, last: Any,
    codec: Any,
) -> float:  # fmt: skip
    """Do one encode or decode on its unit and return when its result is there, as `programs.Unit` does."""
    count, held = counts[at], holds[at]
    if kind[at] == _DECODE:
        start = max(ready + codec.decode_front, free[unit])
        done = start + count * codec.decode_each + codec.decode_once
        hold = held * codec.decode_each + codec.decode_between
        free[unit] = done if codec.busy else start + max(hold, codec.decode_least)
        last[unit, 0], last[unit, 1] = sums[at], start
        return float(done)
    start = max(ready + codec.encode_front, free[unit])
    done = start + count * codec.encode_each + codec.encode_once
    if codec.busy and last[unit, 0] == sums[at]:
        done = last[unit, 1] + count * codec.hop_each + codec.hop_once
    hold = held * codec.encode_each + codec.encode_between
    free[unit] = done if codec.busy else start + max(hold, codec.encode_least)
    last[unit, 0] = -1.0
    return float(done)


@njit(cache=True, nogil=True)
def _play(
    kind: Any, needs: Any, wakes: Any, sums: Any, phase: Any, counts: Any, holds: Any, sizes: Any, units: Any,
    per_byte: float, latency: float, room_s: float, codec: Any, order: Any, starts: Any,
) -> float:  # fmt: skip
    """Return when the rank finishes; what is ready leaves the port as in `ports`, pulls first.

    starts: where each queue begins in `order`.
    """
    done = np.full(kind.size, -1.0)
    number = units.max() + 1 if units.size else 1
    free, last = np.zeros(number), np.full((number, 2), -1.0)
    head = starts[:-1].copy()
    first, following = np.full(kind.size, -1), np.full(kind.size, -1)  # sends by what they need
    for at in range(kind.size):
        if kind[at] == _SEND and counts[at] > 0:
            following[at], first[needs[at]] = first[needs[at]], at
    later, now = [(0.0, 0, -1)], [(0, -1)]
    later.pop()
    now.pop()
    clock = finish = 0.0
    while True:
        moved = True
        while moved:
            moved = False
            for queue in range(head.size):
                while head[queue] < starts[queue + 1]:
                    at = order[head[queue]]
                    ready = done[needs[at]] if needs[at] >= 0 else 0.0
                    if counts[at] > 0:
                        if ready < 0:
                            break
                        done[at] = _code(at, ready, units[at], kind, sums, counts, holds, free, last, codec)
                        if kind[at] == _DECODE:
                            finish = max(finish, done[at])
                        send = first[at]
                        while send >= 0:
                            heappush(later, (max(done[at], room_s), -phase[send], send))
                            send = following[send]
                    head[queue] += 1
                    moved = True
        while len(later) and later[0][0] <= clock:
            _, turn, at = heappop(later)
            heappush(now, (turn, at))
        if len(now):
            _, at = heappop(now)
            clock += sizes[at] * per_byte
            finish = max(finish, clock)
            done[wakes[at]] = clock + latency
        elif len(later):
            clock = later[0][0]
        else:
            return max(finish, room_s)


@njit(cache=True, nogil=True)
def _attend(
    kind: Any, needs: Any, wakes: Any, sums: Any, phase: Any, counts: Any, holds: Any, sizes: Any, units: Any,
    per_byte: float, latency: float, room_s: float, codec: Any, loaded: Any, values: Any, reads: Any,
    driver: Any,
) -> float:  # fmt: skip
    """Return when the rank finishes whose driver gives commands as `programs.Attendant` does.

    loaded: when own values of each action are, 0 of those that need none. values: of its frame. reads: as of
    Lowered. driver: DriverCosts of what gives commands.
    """
    notice, end = driver.notice_s, driver.end_s
    number = units.max() + 1 if units.size else 1
    free, last, desk = np.zeros(number), np.full((number, 2), -1.0), np.zeros(DESK)
    done, whole = np.zeros(kind.size), np.zeros(kind.size)  # whole, missing: by number of a sum
    missing, sender = np.zeros(kind.size, np.int64), np.full(kind.size, -1)
    first, following = np.full(kind.size, -1), np.full(kind.size, -1)  # what needs an action's result
    due, later, now = [(0.0, -1)][:0], [(0.0, 0, -1)][:0], [(0, -1)][:0]
    for at in range(kind.size):
        if counts[at] == 0:
            continue
        if kind[at] == _ENCODE and needs[at] < 0:
            heappush(due, (loaded[at], at))
        elif kind[at] == _ENCODE:
            sender[sums[needs[at]]] = at
        elif kind[at] != _WAIT:
            following[at], first[needs[at]] = first[needs[at]], at
            missing[sums[at]] += kind[at] == _DECODE
    clock = finish = 0.0
    while len(due) or len(later) or len(now):
        port = clock if len(now) else max(clock, later[0][0]) if len(later) else np.inf
        if len(due) and due[0][0] <= port:
            when, at = heappop(due)
            ready = give(desk, when, values=0, noticed=False, loads=False, costs=driver)
            done[at] = _code(at, ready, units[at], kind, sums, counts, holds, free, last, codec)
            if kind[at] == _DECODE:
                finish, part = max(finish, done[at] + end), sums[at]
                whole[part] = max(whole[part], done[at])
                missing[part] -= 1
                if not missing[part] and sender[part] >= 0:
                    heappush(due, (whole[part] + notice, sender[part]))
        else:
            clock = port
            while len(later) and later[0][0] <= clock:
                _, turn, at = heappop(later)
                heappush(now, (turn, at))
            _, send = heappop(now)
            clock += sizes[send] * per_byte
            finish, at = max(finish, clock + end), wakes[send]
            done[at] = clock + latency
        then = first[at]
        while then >= 0:
            if kind[then] == _SEND:
                heappush(later, (max(done[at], room_s), -phase[then], then))
            else:
                heappush(due, (max(done[at] + notice, loaded[then]), then))
            then = following[then]
    for at in reads:
        if counts[at] > 0:
            finish = max(finish, fetch(desk, whole[sums[at]], values[at], driver))
    return max(finish, room_s)
