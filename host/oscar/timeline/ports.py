"""Frames in ports: who sends next, when a frame has left, and when it has arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from oscar.timeline.link import LinkModel
from oscar.timeline.programs import CODES, Programs, Work, place
from oscar.timeline.spans import Carried
from oscar.timeline.topology import AtSwitch, Link, Pair, Topology

ROUNDING = 1e-12  # of a time: a frame that follows another without a gap does not wait
_ARRIVES, _SENDS = CODES + 1, CODES + 2  # kinds of events; of two at once, what comes in goes first


class MissingLinkError(ValueError):
    """A schedule sends where the topology has no link."""


class _Frame:
    """A frame that waits for its turn; goes into its way's queue once it is ready."""

    __slots__ = ("link", "network", "order", "ready", "way", "work")

    def __init__(self, network: Network, way: _Way, link: Link, work: Work, order: int) -> None:
        self.network, self.way, self.link, self.work, self.order = network, way, link, work, order
        self.ready = 0.0

    def go(self) -> None:
        assert self.work.input is not None
        assert self.work.input.done is not None
        self.ready = max(self.work.input.done, self.way.room_s)
        self.way.add(self)
        self.network.wake(self.way.group, self.ready)


class _Way:
    """One rank's queue for one set of ports out.

    pulls_first: takes what is ready, frames of the all-gather before others, then in order; otherwise in
    order alone, so that a frame that is not ready holds back those behind it.
    """

    def __init__(
        self, rank: int, number: int, ports: tuple[int, ...], room_s: float, pulls_first: bool
    ) -> None:
        self.rank, self.number, self.ports, self.room_s = rank, number, ports, room_s
        self.pulls_first = pulls_first
        self.group: list[_Way] = []
        self.frames = 0
        self.idle_since = 0.0
        self._turn = 0
        self._known: dict[int, _Frame] = {}
        self._later: list[tuple[float, int, int, _Frame]] = []
        self._now: list[tuple[int, int, float, _Frame]] = []

    def add(self, frame: _Frame) -> None:
        """Take in a frame whose time is known."""
        if self.pulls_first:
            heappush(self._later, (frame.ready, -frame.work.action.phase, frame.order, frame))
        else:
            self._known[frame.order] = frame

    def head(self, now: float) -> _Frame | None:
        """Return the frame that is next at `now`; it may be ready only later."""
        if not self.pulls_first:
            return self._known.get(self._turn)
        while self._later and self._later[0][0] <= now:
            ready, phase, order, frame = heappop(self._later)
            heappush(self._now, (phase, order, ready, frame))
        return self._now[0][3] if self._now else self._later[0][3] if self._later else None

    def take(self) -> None:
        """Remove the frame that `head` returned, which was ready."""
        if self.pulls_first:
            heappop(self._now)
        else:
            del self._known[self._turn]
            self._turn += 1


class Network:
    """Ports, the queues in front of them, and the frames under way.

    A frame occupies all ports of its link's way out at once. Ways that share a port take turns: the one that
    has asked for longest goes first. A rank's ways are independent of each other.
    """

    def __init__(
        self,
        programs: Programs,
        link: LinkModel,
        topology: Topology | None,
        *,
        pulls_first: bool,
        sent: Callable[[Work, float, float, int], None],
        keep: bool = False,
    ) -> None:
        self.programs, self.sent = programs, sent
        nodes = len(programs.sends)
        if topology is None:
            self.links: Mapping[Pair, Link] = AtSwitch(nodes, link.latency_s)
            self.costs, self.message_s = [link.seconds_per_byte] * (2 * nodes), 0.0
        else:
            self.links, self.message_s = topology.links, topology.message_s
            self.costs = [port.seconds_per_byte for port in topology.ports]
        self.free = [0.0] * len(self.costs)
        self.met_s = 0.0
        self.carried: list[Carried] | None = [] if keep else None
        self._events = programs.events
        ways = [self._queue(rank, link.message_s, pulls_first) for rank in range(nodes)]
        _group([way for own in ways for way in own])

    def _queue(self, rank: int, message_s: float, pulls_first: bool) -> list[_Way]:
        """Make the queues of a rank; room for all its messages is made before the first one leaves."""
        room_s = 0.0
        for _ in range(self.programs.received[rank] if message_s else 0):
            room_s += message_s
        ways: dict[tuple[int, ...], _Way] = {}
        for work in self.programs.sends[rank]:
            pair = rank, work.action.peer
            link = self.links.get(pair)
            if link is None:
                raise MissingLinkError(
                    f"expected a link from rank {pair[0]} to {pair[1]}, which the schedule uses, got none"
                )
            way = ways.setdefault(link.out, _Way(rank, len(ways), link.out, room_s, pulls_first))
            assert work.input is not None
            work.input.waiters.append(_Frame(self, way, link, work, way.frames))
            way.frames += 1
        return list(ways.values())

    def wake(self, ways: list[_Way], when: float) -> None:
        """Look at the queues of a group at `when`."""
        self._events.add(when, _SENDS, ways[0].rank, ways)

    def run(self) -> None:
        """Send everything, in order of time."""
        for now, kind, what in self._events:
            if kind == CODES:
                what.take(now)
            elif kind == _ARRIVES:
                self._arrive(now, *what)
            else:
                self._serve(what, now)

    def _serve(self, ways: Sequence[_Way], now: float) -> None:
        """Start every frame that can leave now; come back when the next one may."""
        while True:
            able: list[tuple[float, int, _Way, _Frame]] = []
            for way in ways:
                frame = way.head(now)
                if frame is not None and frame.ready <= now and all(self.free[p] <= now for p in way.ports):
                    able.append((max(frame.ready, way.idle_since), way.rank, way, frame))
            if not able:
                return
            *_, way, frame = min(able, key=lambda entry: entry[:2])
            way.take()
            self._start(way, frame, now)

    def _start(self, way: _Way, frame: _Frame, now: float) -> None:
        """Put a frame on the wire."""
        work, begin = frame.work, now + self.message_s
        leave = begin
        for port in way.ports:
            self.free[port] = begin + work.size * self.costs[port]
            leave = max(leave, self.free[port])
            self._keep(port, now, self.free[port], work)
            if self.free[port] > now:
                self.wake(way.group, self.free[port])
        way.idle_since = leave
        self.sent(work, now, leave, way.number)
        work.done = leave
        self._events.add(begin + frame.link.latency_s, _ARRIVES, 0, (frame, leave))

    def _arrive(self, first: float, frame: _Frame, leave: float) -> None:
        """Let the first bit in at the receiver's ports; from then on it is known when the last one is in."""
        work, link = frame.work, frame.link
        alone = leave + link.latency_s
        slowest = first + work.size * max((self.costs[port] for port in link.into), default=0.0)
        if slowest > alone * (1 + ROUNDING):
            alone = slowest
        arrival = alone
        for port in link.into:
            end = max(self.free[port], first) + work.size * self.costs[port]
            if end > arrival * (1 + ROUNDING):
                arrival = end
        self.met_s += arrival - alone
        for port in link.into:
            self._keep(port, max(self.free[port], first), arrival, work)
            self.free[port] = arrival
        wait = self.programs.waits.get(place(work))
        if wait is not None:
            wait.complete(arrival)

    def _keep(self, port: int, start: float, end: float, work: Work) -> None:
        if self.carried is not None:
            a = work.action
            self.carried.append(Carried(port, start, end, work.rank, a.peer, int(a.phase), a.chunk, a.sub))


def _group(ways: Sequence[_Way]) -> None:
    """Put ways that share a port, or are linked by others that do, into one group."""
    group: dict[int, list[_Way]] = {}
    for way in ways:
        joined = [way]
        for one in {id(group[port]): group[port] for port in way.ports if port in group}.values():
            joined = [*one, *joined]
        for member in joined:
            member.group = joined
            for port in member.ports:
                group[port] = joined
