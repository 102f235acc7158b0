"""An AllReduce as a graph of its frames: what `replay` plays, and what begins while values are still made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oscar.collective.actions import Op
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.timeline.engine import Graph, Need
from oscar.timeline.link import CodecTime, LinkModel
from oscar.timeline.lowering import ADD, ENCODE, SEND, TAKE, WAIT, cut_for, fill, lower, work_of

SUM = "sum"  # how names of tasks begin at which a sum is complete, or what has been added to it so far
ORDERS = "rotated", "plain", "pieces"  # in which a rank makes its values


@dataclass(frozen=True)
class Production:
    """What makes a rank's values while they are already sent (T3): `seconds` for all of them.

    order: "rotated", chunks in the order in which the schedule needs them on this rank, as a GEMM may make
    them; "plain", from the first to the last; or "pieces", sub-frame by sub-frame of all chunks, as all ranks
    do in a backward pass. A sub-frame is coded or added to once it is made and what is added to it has
    arrived. triggered: what is complete is coded, in the schedule's order on each link alone, and what has
    come is added; else all is done in the schedule's order.
    """

    seconds: float
    order: str = "rotated"
    triggered: bool = False

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"expected an order of {', '.join(ORDERS)}, got {self.order!r}")


def allreduce(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    *,
    coded: bool = True,
    production: Production | None = None,
) -> Graph:
    """Return one AllReduce at a switch of equal ports, frame by frame: what `replay` plays.

    Every engine, port out and port in is a resource. Raises ValueError as `replay` does, for a link with a
    driver, for cores that are triggered, and for cores that decode, add and code again faster than they
    decode: tasks cannot start before the one that they follow.
    """
    link, codec = link.wired(coded), link.codec(coded)
    if codec.driver is not None:
        raise ValueError("expected a link without a driver, got one: take replay, or link.driver: false")
    if codec.busy and production is not None and production.triggered:
        raise ValueError("expected a NIC for triggers, got cores, which add and code a frame in one")
    schedule, frames = cut_for(schedule, frames, codec.cores)
    return _Frames(_load(schedule, frames, codec), link, codec, schedule, production).graph


def sums_s(graph: Graph) -> float:
    """Return when the last sum is complete at its owner, before it is sent to all.

    For schedules with owners; boomerang and duplex complete sums everywhere as they pass.
    """
    timeline, tasks = graph.run(), enumerate(graph.tasks)
    return max((float(timeline.end[at]) for at, task in tasks if task.name.startswith(SUM)), default=0.0)


WHERE = "kind", "rank", "peer", "phase", "chunk", "sub", "wakes"


@dataclass(eq=False)
class Work:
    """An action of `replay.Program`; input: the one whose result it uses; wakes: the WAIT that it ends."""

    kind: int
    rank: int
    peer: int
    phase: int
    chunk: int
    sub: int
    wakes: int
    size: int
    count: int
    hold: int
    input: Work | None


@dataclass
class Programs:
    """All ranks' work: of each coder, the frames to send, those to come, and how many each rank receives."""

    units: list[list[Work]]
    sends: list[list[Work]]
    waits: dict[int, Work]
    received: list[int]


def _load(schedule: Schedule, frames: Frames, codec: CodecTime) -> Programs:
    do = lower(schedule)
    values, sizes = fill(schedule, frames, do)
    counts, holds = work_of(do, values, frames, codec)
    per_rank, nodes = codec.cores * (1 if codec.busy else 2), schedule.nodes
    out = Programs([[] for _ in range(nodes * per_rank)], [[] for _ in range(nodes)], {}, [0] * nodes)
    made: dict[int, Work] = {}
    for at in (values > 0).nonzero()[0].tolist():
        where = {name: int(getattr(do, name)[at]) for name in WHERE}
        needs = made[int(do.needs[at])] if do.needs[at] >= 0 else None
        work = made[at] = Work(
            **where, size=int(sizes[at]), count=int(counts[at]), hold=int(holds[at]), input=needs
        )
        if work.kind <= TAKE:
            decoder = 0 if codec.busy or work.kind == ENCODE else codec.cores
            out.units[work.rank * per_rank + work.sub % codec.cores + decoder].append(work)
        elif work.kind == SEND:
            out.sends[work.rank].append(work)
        elif work.kind == WAIT:
            out.waits[at] = work
            out.received[work.rank] += 1
    return out


class _Frames:
    """Makes the graph of an AllReduce from the programs of its ranks."""

    def __init__(
        self,
        programs: Programs,
        link: LinkModel,
        codec: CodecTime,
        schedule: Schedule,
        production: Production | None,
    ) -> None:
        self.link, self.codec, self.graph = link, codec, Graph()
        self.made: dict[tuple[int, int, int], int] = {}  # the tasks that make a rank's sub-frames
        self.triggered = production is not None and production.triggered
        self.last: dict[tuple[int, int, int], int] = {}  # the task that codes the last frame of a link
        self.to = _destinations(schedule)
        if production is not None:
            self._produce(programs, schedule, production)
        self.numbers: dict[int, int] = {}  # of the task of each work
        self.sent: dict[int, Work] = {}  # by the WAIT that it ends
        self.room = [link.message_s * count for count in programs.received]
        graph, pulls_first, made = self.graph, schedule.pulls_first, len(self.graph.tasks)
        # Tasks are numbered first, since programs of ranks need each other.
        order = [(unit, work) for unit, queue in enumerate(programs.units) for work in queue]
        sends = [work for own in programs.sends for work in own]
        for at, (_, work) in enumerate(order, made):
            self.numbers[id(work)] = at
        for at, work in enumerate(sends, made + len(order)):
            self.numbers[id(work)] = at
            self.sent[work.wakes] = work
        self.adds = _adds(order)
        self.arrivals = {id(work): at for at, work in enumerate(sends, made + len(order) + len(sends))}
        self.waits = {id(wait): self.sent[key] for key, wait in programs.waits.items() if key in self.sent}
        self._code(programs)
        ports = [
            graph.resource(f"out {rank}", in_order=not pulls_first) for rank in range(len(programs.sends))
        ]
        for rank, own in enumerate(programs.sends):
            for at, work in enumerate(own):
                # Of those that are ready, frames of the all-gather go first, then in order.
                priority = at - work.phase * len(own) if pulls_first else 0
                self._add("send", work, ports[rank], work.size * link.seconds_per_byte, priority)
        into = [graph.resource(f"in {rank}") for rank in range(len(programs.sends))]
        for work in sends:
            first = Need(self.numbers[id(work)], link.latency_s, of_start=True)
            graph.add(self._name("arrive", work), into[work.peer], work.size * link.seconds_per_byte, [first])
        self._finish(order)

    def _produce(self, programs: Programs, schedule: Schedule, production: Production) -> None:
        works = [work for unit in programs.units for work in unit]
        counts = {_key(work): work.count for work in works if _takes_own(work)}
        for rank in range(schedule.nodes):
            needed = (a for a in schedule.actions(rank) if a.op in (Op.ENCODE, Op.DECODE_ADD))
            order = dict.fromkeys((rank, a.chunk, a.sub) for a in needed)
            own = [key for key in order if key in counts]
            total = sum(counts[key] for key in own)
            producer = self.graph.resource(f"produce {rank}", in_order=True)
            if production.order != "rotated":
                own.sort(key=lambda key: key[2:] if production.order == "pieces" else key)
            for key in own:
                took = production.seconds * counts[key] / total
                self.made[key] = self.graph.add(f"make {key[1]}.{key[2]} on {rank}", producer, took)

    def _code(self, programs: Programs) -> None:
        codec = self.codec
        for at, unit in enumerate(programs.units):
            engine = self.graph.resource(f"engine {at}", in_order=not self.triggered)
            before: Work | None = None
            for work in unit:
                encodes = work.kind == ENCODE
                took = self._result(work)
                if codec.busy and encodes and before is not None and _same_sum(before, work):
                    took = work.count * codec.hop_each + codec.hop_once - self._result(before)
                    if took < 0:
                        raise ValueError("expected a hop that takes an engine at least as long as decoding")
                elif not codec.busy:
                    took = work.hold * (codec.encode_each if encodes else codec.decode_each)
                self._add("encode" if encodes else "decode", work, engine, took, 0)
                before = None if encodes else work

    def _result(self, work: Work) -> float:
        """Return from the start of the engine's work to its result."""
        codec = self.codec
        if work.kind == ENCODE:
            return work.count * codec.encode_each + codec.encode_once
        return work.count * codec.decode_each + codec.decode_once

    def _add(self, what: str, work: Work, resource: int, took: float, priority: int) -> None:
        front = 0.0
        if what != "send":
            front = self.codec.encode_front if what == "encode" else self.codec.decode_front
        inputs = [] if work.input is None else [work.input]
        if self.triggered and inputs:  # what a sum takes is added in any order
            inputs = self.adds.get(id(inputs[0]), inputs)
        needs = [self._after(one, front) for one in inputs]
        own = self.made.get((work.rank, work.chunk, work.sub))
        if own is not None and _takes_own(work):
            needs.append(Need(own, front))
        if self.triggered and what == "encode":
            rank, chunk, sub = _key(work)
            link = rank, int(work.phase), self.to[rank, int(work.phase), chunk, sub]
            if link in self.last:
                needs.append(Need(self.last[link], 0.0, of_start=True))
            self.last[link] = self.numbers[id(work)]
        release = self.room[work.rank] if what == "send" else front
        self.graph.add(self._name(what, work), resource, took, needs, priority=priority, release_s=release)

    def _after(self, work: Work, lag_s: float) -> Need:
        """Return the need of a result: of a frame that arrived, or of an engine."""
        if id(work) in self.waits:
            return Need(self.arrivals[id(self.waits[id(work)])], lag_s)
        if self.codec.busy:
            return Need(self.numbers[id(work)], lag_s)
        return Need(self.numbers[id(work)], self._result(work) + lag_s, of_start=True)

    def _finish(self, order: Iterable[tuple[object, Work]]) -> None:
        """Let what is decoded count until its result is out."""
        for _, work in order:
            if work.kind != ENCODE:
                what = SUM if work.kind == ADD else "done"
                self.graph.add(self._name(what, work), None, 0.0, [self._after(work, 0.0)])

    @staticmethod
    def _name(what: str, work: Work) -> str:
        return f"{what} {work.chunk}.{work.sub} on {work.rank}"


def _adds(order: Iterable[tuple[object, Work]]) -> dict[int, list[Work]]:
    """Return for each addition all of its sum up to it, in the program's order."""
    result: dict[tuple[int, int, int], list[Work]] = {}
    every = {}
    for _, work in order:
        if work.kind == ADD:
            result[_key(work)] = [*result.get(_key(work), []), work]
            every[id(work)] = result[_key(work)]
    return every


def _destinations(schedule: Schedule) -> dict[tuple[int, ...], int]:
    """Return to whom each frame goes, by rank, phase, chunk and sub-frame; -1: to several."""
    result: dict[tuple[int, ...], int] = {}
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op is Op.SEND:
                key = rank, int(a.phase), a.chunk, a.sub
                result[key] = -1 if key in result else a.peer
    return result


def _key(work: Work) -> tuple[int, int, int]:
    return work.rank, work.chunk, work.sub


def _takes_own(work: Work) -> bool:
    """Whether a rank's own values go into this: what it codes first, and what it adds to."""
    return work.kind == ADD or (work.kind == ENCODE and work.input is None)


def _same_sum(one: Work, other: Work) -> bool:
    return (one.phase, one.chunk, one.sub) == (
        other.phase,
        other.chunk,
        other.sub,
    )
