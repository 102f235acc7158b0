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
from numba import njit
from numpy.typing import NDArray

from oscar.collective.actions import SENDS, Op, Phase
from oscar.collective.schedule import Schedule
from oscar.timeline.driver import DESK, fetch, give
from oscar.timeline.link import LinkModel
from oscar.timeline.sizes import cut_tables, dense_tables

_ENCODE, _DECODE, _SEND, _WAIT = range(4)
Ints = NDArray[np.int64]


class Lowered(NamedTuple):
    """Rank 0's actions as arrays [action], those that make room left out.

    kind: encode, decode, send, wait. needs: the action whose result it uses, or -1. wakes: of a send, the
    WAIT that the frame of the same distance ends. sums: a number for phase, chunk and sub-frame. loads: of
    one that is the first to need the rank's own values; last: of one whose result is the final one.
    """

    kind: Ints
    needs: Ints
    wakes: Ints
    sums: Ints
    phase: Ints
    sub: Ints
    terms: Ints
    loads: Ints
    last: Ints


@lru_cache(maxsize=32)
def lowered(schedule: Schedule) -> Lowered:
    """Return the actions of rank 0 of a schedule that is the same for all ranks."""
    n = schedule.nodes
    held: dict[tuple[int, int, int, int], int] = {}
    summed: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int, int, int], int] = {}
    numbers: dict[tuple[int, int, int], int] = {}
    rows: list[tuple[int, ...]] = []
    added: list[int] = []
    sends: list[tuple[int, tuple[int, int, int, int]]] = []
    for op, phase, _, chunk, sub, peer, source, _, terms, _ in schedule.actions(0):
        if op is Op.POST_RECV:
            continue
        at, frame = len(rows), (phase, source, chunk, sub)
        kind, needs, loads = _DECODE, held.get(frame, -1), False
        if op is Op.WAIT:  # at distance -peer from its sender, whose chunk it is turned by peer
            waits[phase, -peer % n, (chunk - peer) % n, sub] = held[frame] = at
            kind, needs = _WAIT, -1
        elif op is Op.ENCODE:
            kind, needs = _ENCODE, summed.get((chunk, sub), -1)
            held[frame], loads = at, needs < 0
        elif op in SENDS:
            kind = _SEND
            sends.append((at, (phase, peer, chunk, sub)))
        else:
            loads = op is Op.DECODE_ADD and (chunk, sub) not in summed
            added.append(summed.get((chunk, sub), -1))
            summed[chunk, sub] = at
        number = numbers.setdefault((phase, chunk, sub), len(numbers))
        rows.append((kind, needs, number, phase, sub, terms.bit_count(), loads))
    wakes = np.full(len(rows), -1, np.int64)
    for at, key in sends:
        wakes[at] = waits[key]
    kinds, needed, sums, phases, subs, every, loading = np.array(rows, np.int64).reshape(-1, 7).T.copy()
    last = np.ones(len(rows) + 1, np.int64)
    last[needed[phases == Phase.REDUCE_SCATTER]] = last[added] = 0
    return Lowered(kinds, needed, wakes, sums, phases, subs, every, loading, last[:-1])


def symmetric_time(
    schedule: Schedule, count: Ints, sizes: Mapping[int, Ints], link: LinkModel, *, coded: bool = True
) -> float:
    """Return the seconds of a schedule that is the same for all ranks and chunks.

    count: values of every sub-frame, int64 [K]. sizes: bytes of every sub-frame [K], by how many workers'
    values it sums; without values none. Equal to the replay of such frames to the bit.
    """
    codec = link.codec(coded)
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
    if codec.driver is not None:
        queue, queues = np.zeros_like(unit), 1
    order = codes[np.argsort(queue[codes], kind="stable")]
    starts = np.searchsorted(queue[order], np.arange(queues + 1))
    room_s = 0.0
    for _ in range(int(((do.kind == _WAIT) & (counts[0, do.sub] > 0)).sum()) if link.message_s else 0):
        room_s += link.message_s
    values, held = counts[0, do.sub], holds[0, do.sub]
    bytes_ = table[row[do.terms], do.sub]
    costs = (link.seconds_per_byte, link.latency_s, room_s, *codec[:-3])
    driven, driver = (plain[0, do.sub], do.loads, do.last), codec.driver and codec.driver.costs
    return float(_play(*do[:5], values, held, bytes_, unit, order, starts, costs, driven, driver))


@njit(cache=True, nogil=True)
def _code(
    at: int, ready: float, unit: int, kind: Any, sums: Any, counts: Any, holds: Any, free: Any, last: Any,
    costs: Any,
) -> float:  # fmt: skip
    """Do one encode or decode on its unit and return when its result is there, as `programs.Unit` does."""
    _, _, _, busy, _, encode, encoded, hop, hopped, decode, decoded = costs[:11]
    front, between, least, front_in, between_in, least_in = costs[11:]
    count, held = counts[at], holds[at]
    if kind[at] == _DECODE:
        start = max(ready + front_in, free[unit])
        done = start + count * decode + decoded
        free[unit] = done if busy else start + max(held * decode + between_in, least_in)
        last[unit, 0], last[unit, 1] = sums[at], start
        return float(done)
    start = max(ready + front, free[unit])
    done = start + count * encode + encoded
    if busy and last[unit, 0] == sums[at]:
        done = last[unit, 1] + count * hop + hopped
    free[unit] = done if busy else start + max(held * encode + between, least)
    last[unit, 0] = -1.0
    return float(done)


@njit(cache=True, nogil=True)
def _play(
    kind: Any, needs: Any, wakes: Any, sums: Any, phase: Any, counts: Any, holds: Any, sizes: Any, units: Any,
    order: Any, starts: Any, costs: Any, driven: Any, driver: Any,
) -> float:  # fmt: skip
    """Return when the rank finishes; what is ready leaves the port as in `ports`, pulls first.

    starts: where each queue begins in `order`. driven: values, loads, last of each action; driver: the
    costs of what gives commands, or None.
    """
    per_byte, latency, room_s, done = costs[0], costs[1], costs[2], np.full(kind.size, -1.0)
    number = units.max() + 1 if units.size else 1
    free, last, desk = np.zeros(number), np.full((number, 2), -1.0), np.zeros(DESK)
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
                        if driver is not None:
                            noticed = needs[at] >= 0
                            own, loads = driven[0][at], driven[1][at] > 0
                            ready = give(desk, ready, own, noticed, loads, driver)
                        done[at] = _code(at, ready, units[at], kind, sums, counts, holds, free, last, costs)
                        if kind[at] == _DECODE:
                            finish = max(finish, done[at])
                        if driver is not None and kind[at] == _DECODE and driven[2][at]:
                            finish = max(finish, fetch(desk, done[at], driven[0][at], driver))
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
