"""Compiled code that plays the actions of one AllReduce in order of time.

An action waits for its input, and for what comes before it in the queue of its coder. It does not wait for
other WAITs of its rank: a frame that is late stops only those that need it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from oscar.kernels import njit, part
from oscar.timeline.driver import DESK, fetch, give
from oscar.timeline.link import CodecTime
from oscar.timeline.lowering import (
    ADD,
    BY_ARRIVAL,
    ENCODE,
    IN_ORDER,
    SEND,
    TAKE,
    WAIT,
    Desks,
    Load,
    Program,
    Ways,
)

CODES, ARRIVES, SENDS_NEXT = range(3)  # kinds of events; of events at once the lowest kind comes first
ENCODED, DECODED, WAITED, SENT = range(4)  # stages of bars
ROUNDING = 1e-12  # of a time: a frame that follows another without a gap does not wait


class PlayInput(NamedTuple):
    """One AllReduce to be played.

    do, load: the actions, and their frames.
    ways, codec, desks: the ports, seconds of coding (`link.CodecTime`), the drivers.
    pulls_first: as of `Schedule`.
    spans: whether to keep what nodes and ports did.
    """

    do: Program
    load: Load
    ways: Ways
    codec: CodecTime
    desks: Desks
    pulls_first: bool
    spans: bool


class Played(NamedTuple):
    """What has happened so far, and what will.

    done, ready: when an action's result is there, and since when a send may leave; -1 before it is known.
    first, following, blocked: chains of the actions that wait for one's result, and the queue that does.
    free, last_sum, last_start: of a coder, with the sum it decoded last and since when.
    port_free, idle: since when ports are free, and ways idle.
    turn: of a way that sends in order.
    finish, desks: of a rank; desks as of `driver.give`.
    whole, missing, sender: of a rank's parts, for a driver that goes by what arrives: when all of a sum is
        decoded, how many frames it lacks, and what encodes it.
    count, events: of all events ever; (when, kind, order, count, action or group, leave).
    queues: that may go on.
    later, now: sends of a way, not yet and already ready.
    bars, carried: (stage, action, start, duration), and (port, start, end, action).
    """

    done: Any
    ready: Any
    first: Any
    following: Any
    blocked: Any
    free: Any
    last_sum: Any
    last_start: Any
    port_free: Any
    idle: Any
    turn: Any
    finish: Any
    desks: Any
    whole: Any
    missing: Any
    sender: Any
    count: Any
    events: Any
    queues: Any
    later: Any
    now: Any
    bars: Any
    carried: Any


@part
def _code(at: int, ready: float, call: Any, s: Any) -> float:
    """Encode or decode a frame whose input is there at `ready`; return when its result is.

    A NIC's stage is free again before its result is out; a core is busy until then. A core that has just
    decoded a sum codes it in the same go.
    """
    do, load, codec = call.do, call.load, call.codec
    unit, free = load.unit[at], s.free[load.unit[at]]
    if do.kind[at] == ENCODE:
        start, cost = max(ready + codec.encode_front, free), load.work[at] * codec.encode_each
        done = start + cost + codec.encode_once
        if codec.busy and s.last_sum[unit] == do.sums[at]:
            done = s.last_start[unit] + load.work[at] * codec.hop_each + codec.hop_once
        if codec.busy:
            start, cost = min(start, done), max(0.0, done - start)
        held = cost if codec.busy else load.hold[at] * codec.encode_each
        s.free[unit] = done if codec.busy else start + held
        s.last_sum[unit] = -1
    else:
        start, cost = max(ready + codec.decode_front, free), load.work[at] * codec.decode_each
        done = start + cost + codec.decode_once
        if codec.busy:
            cost = done - start
        held = cost if codec.busy else load.hold[at] * codec.decode_each
        s.free[unit] = done if codec.busy else start + held
        s.last_sum[unit], s.last_start[unit] = do.sums[at], start
        if call.spans and not do.adopts[at]:
            s.bars.append((WAITED, at, free, ready - free))
    if call.spans:
        s.bars.append((ENCODED if do.kind[at] == ENCODE else DECODED, at, start, min(cost, held)))
    return float(done)


@part
def _push_event(when: float, kind: int, order: int, what: int, leave: float, s: Any) -> None:
    """Let something happen at `when`; of events at once by kind, then by order, then as they were added."""
    heappush(s.events, (when, kind, order, s.count[0], what, leave))
    s.count[0] += 1


@part
def _wake(way: int, when: float, ways: Any, s: Any) -> None:
    """Look at a way, and at all that share ports with it, at `when`."""
    group = ways.group[way]
    _push_event(when, SENDS_NEXT, ways.rank[ways.members[ways.member_ends[group]]], group, 0.0, s)


@part
def _complete(at: int, when: float, call: Any, s: Any) -> None:
    """Note a result, and let those go on that wait for it."""
    do, ways, desks = call.do, call.ways, call.desks
    s.done[at] = when
    then = s.first[at]
    while then >= 0:
        if do.kind[then] == SEND:
            s.ready[then] = max(when, desks.room[do.rank[then]])
            if call.pulls_first:
                heappush(s.later[ways.way[then]], (s.ready[then], -do.phase[then], then))
            _wake(ways.way[then], s.ready[then], ways, s)
        else:  # a command, given once the driver knows of its input
            known = when + desks.costs.notice_s
            if do.kind[then] == ADD:
                known = max(known, desks.loaded[do.rank[then], do.part[then]])
            _push_event(known, CODES, then, then, 0.0, s)
        then = s.following[then]
    if s.blocked[at] >= 0:
        s.queues.append(s.blocked[at])
        s.blocked[at] = -1


@part
def _run_coders(heads: Any, call: Any, s: Any) -> None:
    """Let coders work as far as their inputs allow, in the order of their queues."""
    do, load, desks = call.do, call.load, call.desks
    while len(s.queues):
        queue = s.queues.pop()
        while heads[queue] < load.starts[queue + 1]:
            at = load.order[heads[queue]]
            needs, rank = do.needs[at], do.rank[at]
            if load.values[at] > 0:
                ready = 0.0 if needs < 0 or load.values[needs] == 0 else s.done[needs]
                if ready < 0:
                    s.blocked[needs] = queue
                    break
                if desks.mode == IN_ORDER:
                    ready = give(
                        s.desks[rank], ready, load.values[at], noticed=needs >= 0, loads=do.loads[at] > 0,
                        costs=desks.costs,
                    )  # fmt: skip
                done = _code(at, ready, call, s)
                if do.kind[at] != ENCODE:
                    s.finish[rank] = max(s.finish[rank], done + desks.costs.end_s)
                    if desks.mode == IN_ORDER and do.final[at]:  # counts once the host has read it
                        fetched = fetch(s.desks[rank], done, load.values[at], desks.costs)
                        s.finish[rank] = max(s.finish[rank], fetched)
                heads[queue] += 1
                if s.blocked[at] >= 0:  # what waits for this result goes first: put this queue back below it
                    s.queues.append(queue)
                    _complete(at, done, call, s)
                    break
                _complete(at, done, call, s)
            else:
                heads[queue] += 1


@part
def _command(at: int, now: float, call: Any, s: Any) -> float:
    """Give the command of a frame whose input is there; return when its result is."""
    do, load, desks = call.do, call.load, call.desks
    rank, part = do.rank[at], do.part[at]
    given = give(s.desks[rank], now, load.values[at], noticed=False, loads=False, costs=desks.costs)
    done = _code(at, given, call, s)
    if do.kind[at] != ENCODE:
        s.finish[rank] = max(s.finish[rank], done + desks.costs.end_s)
        s.whole[rank, part] = done if do.kind[at] == TAKE else max(done, s.whole[rank, part])
    if do.kind[at] == ADD:
        s.missing[rank, part] -= 1
        if not s.missing[rank, part] and s.sender[rank, part] >= 0:
            encodes = s.sender[rank, part]
            _push_event(s.whole[rank, part] + desks.costs.notice_s, CODES, encodes, encodes, 0.0, s)
    return done


@part
def _next_send(way: int, now: float, sends: Any, pulls_first: bool, s: Any) -> int:
    """Return the send that a way makes next, if it can leave at `now`; -1: none.

    It takes what is ready, frames of the all-gather before others, then in order. Or it sends in order alone,
    so that a frame that is not ready holds back those after it.
    """
    if not pulls_first:
        order, starts = sends
        if starts[way] + s.turn[way] == starts[way + 1]:
            return -1
        at = order[starts[way] + s.turn[way]]
        return at if 0 <= s.ready[at] <= now else -1
    while len(s.later[way]) and s.later[way][0][0] <= now:
        _, phase, at = heappop(s.later[way])
        heappush(s.now[way], (phase, at))
    return s.now[way][0][1] if len(s.now[way]) else -1


@part
def _send(at: int, now: float, call: Any, s: Any) -> None:
    """Put a frame on the wire."""
    do, load, ways = call.do, call.load, call.ways
    way, begin = ways.way[at], now + ways.message_s
    if call.pulls_first:
        heappop(s.now[way])
    s.turn[way] += 1
    leave = begin
    for place in range(ways.out_ends[way], ways.out_ends[way + 1]):
        port = ways.out[place]
        s.port_free[port] = begin + load.bytes[at] * ways.cost[port]
        leave = max(leave, s.port_free[port])
        if call.spans:
            s.carried.append((port, now, s.port_free[port], at))
        if s.port_free[port] > now:
            _wake(way, s.port_free[port], ways, s)
    s.idle[way] = s.done[at] = leave
    s.finish[do.rank[at]] = max(s.finish[do.rank[at]], leave + call.desks.costs.end_s)
    if call.spans:
        s.bars.append((SENT, at, now, leave - now))
    _push_event(begin + ways.latency[ways.link[at]], ARRIVES, 0, at, leave, s)


@part
def _arrive(at: int, first: float, leave: float, call: Any, s: Any) -> tuple[float, float]:
    """Let a first bit in at the receiver's ports; return when the last one is in, and how long it waited."""
    load, ways = call.load, call.ways
    link = ways.link[at]
    alone = leave + ways.latency[link]
    into = ways.into[ways.into_ends[link] : ways.into_ends[link + 1]]
    cost = 0.0
    for port in into:
        cost = max(cost, ways.cost[port])
    if first + load.bytes[at] * cost > alone * (1 + ROUNDING):
        alone = first + load.bytes[at] * cost
    arrival = alone
    for port in into:
        end = max(s.port_free[port], first) + load.bytes[at] * ways.cost[port]
        if end > arrival * (1 + ROUNDING):
            arrival = end
    for port in into:
        if call.spans:
            s.carried.append((port, max(s.port_free[port], first), arrival, at))
        s.port_free[port] = arrival
    return arrival, arrival - alone


@part
def _link_actions(number: int, call: Any, s: Any) -> Any:
    """Link the actions that wait for each result; return all ways' sends in order, and where each begins."""
    do, load, ways, desks = call.do, call.load, call.ways, call.desks
    starts = np.zeros(number + 1, np.int64)
    for at in range(do.kind.size - 1, -1, -1):
        kind, needs = do.kind[at], do.needs[at]
        if load.values[at] == 0 or kind == WAIT:
            continue
        if kind == SEND:
            starts[ways.way[at] + 1] += 1
        if kind == SEND or (desks.mode == BY_ARRIVAL and kind != ENCODE):
            s.following[at] = s.first[needs]
            s.first[needs] = at
        if desks.mode == BY_ARRIVAL and kind == ADD:
            s.missing[do.rank[at], do.part[at]] += 1
        if desks.mode == BY_ARRIVAL and kind == ENCODE:
            if needs < 0 or load.values[needs] == 0:
                _push_event(desks.loaded[do.rank[at], do.part[at]], CODES, at, at, 0.0, s)
            else:
                s.sender[do.rank[at], do.part[at]] = at
    starts = np.cumsum(starts)
    order, filled = np.zeros(starts[-1], np.int64), starts[:-1].copy()
    for at in range(do.kind.size):
        if do.kind[at] == SEND and load.values[at] > 0:
            order[filled[ways.way[at]]] = at
            filled[ways.way[at]] += 1
    return order, starts


@part
def _serve(group: int, now: float, sends: Any, call: Any, s: Any) -> None:
    """Start every frame of a group's ways that can leave now."""
    ways = call.ways
    while True:
        best, since = np.int64(-1), 0.0  # of a group's ways, the one that has asked for longest
        for place in range(ways.member_ends[group], ways.member_ends[group + 1]):
            way = ways.members[place]
            at = _next_send(way, now, sends, call.pulls_first, s)
            if at < 0:
                continue
            able = True
            for port in ways.out[ways.out_ends[way] : ways.out_ends[way + 1]]:
                able = able and s.port_free[port] <= now
            asked = max(s.ready[at], s.idle[way])
            if able and (
                best < 0 or asked < since or (asked == since and ways.rank[way] < ways.rank[ways.way[best]])
            ):
                best, since = at, asked
        if best < 0:
            return
        _send(best, now, call, s)


@part
def _read(call: Any, s: Any) -> None:
    """Let hosts read what has been summed, once all frames have come."""
    do, desks = call.do, call.desks
    counts = np.zeros(s.whole.shape, np.int64)
    for at in range(do.kind.size):
        if do.kind[at] == ADD or do.kind[at] == TAKE:
            counts[do.rank[at], do.part[at]] = call.load.values[at]
    for rank in range(desks.reads.shape[0]):
        for sent in desks.reads[rank]:
            if s.whole[rank, sent] >= 0:
                read = fetch(s.desks[rank], s.whole[rank, sent], counts[rank, sent], desks.costs)
                s.finish[rank] = max(s.finish[rank], read)


@njit(cache=True, nogil=True)
def play(call: Any) -> Any:
    """Play all actions; return when ranks finish, waits at ports, results, bars, and what ports carried."""
    do, load, ways, desks = call.do, call.load, call.ways, call.desks
    size, number = do.kind.size, ways.rank.size
    ranks, parts = desks.reads.shape
    shape = max(1, ranks), max(1, parts)
    units = load.unit.max() + 1 if size else 1
    # An empty list takes its type from an element. A comprehension would make numba drop stores to `s`.
    later, now_ready = [[(0.0, 0, 0)][:0]][:0], [[(0, 0)][:0]][:0]
    for _ in range(number):
        later.append([(0.0, 0, 0)][:0])
        now_ready.append([(0, 0)][:0])
    s = Played(
        np.full(size, -1.0), np.full(size, -1.0), np.full(size, -1), np.full(size, -1), np.full(size, -1),
        np.zeros(units), np.full(units, -1), np.zeros(units), np.zeros(ways.cost.size), np.zeros(number),
        np.zeros(number, np.int64), np.zeros(desks.room.size), np.zeros((desks.room.size, DESK)),
        np.full(shape, -1.0), np.zeros(shape, np.int64), np.full(shape, -1), np.zeros(1, np.int64),
        [(0.0, 0, 0, 0, 0, 0.0)][:0], [0][:0], later, now_ready, [(0, 0, 0.0, 0.0)][:0],
        [(0, 0.0, 0.0, 0)][:0],
    )  # fmt: skip

    sends = _link_actions(number, call, s)

    # Coders first do all that needs no frame from others. Then events are taken in order of time.
    heads, met = load.starts[:-1].copy(), 0.0
    for queue in range(heads.size - 1, -1, -1):
        s.queues.append(queue)
    _run_coders(heads, call, s)
    while len(s.events):
        now, kind, _, _, what, leave = heappop(s.events)
        if kind == CODES:
            done = _command(what, now, call, s)
            _complete(what, done, call, s)
        elif kind == ARRIVES:
            arrival, waited = _arrive(what, now, leave, call, s)
            met += waited
            if do.wakes[what] >= 0:
                _complete(do.wakes[what], arrival, call, s)
                _run_coders(heads, call, s)
        else:
            _serve(what, now, sends, call, s)
    if call.desks.mode == BY_ARRIVAL:
        _read(call, s)
    return s.finish, met, s.done, s.bars, s.carried
