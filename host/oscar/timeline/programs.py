"""Schedules as work for coders and ways out: every action knows the one whose result it needs.

An action waits for its input, and for what comes before it in the program on the same coder. It does not
wait for other WAITs of its rank: a NIC has a queue for each coder, and a frame that is late stops only those
that need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Protocol

import numpy as np

from oscar.collective.actions import SENDS, Action, Op, Phase
from oscar.collective.frames import Frames, Key
from oscar.collective.schedule import Schedule
from oscar.timeline.driver import DESK, Driver, Part, fetch, give, goes_by_arrival, read_order
from oscar.timeline.link import CodecTime
from oscar.timeline.sizes import Engaged, unit_work

CODES = 0  # kind of an event: a coder may begin; of events at once the lowest kind goes first
Note = Callable[[str, float, float, "Work"], None]  # of a bar: stage, start, duration, work
Done = Callable[["Work", float], None]  # of what was decoded, and when


class Waiter(Protocol):
    """What goes on once an input is there."""

    def go(self) -> None: ...


class Work:
    """One action on one rank; done: when its result is there.

    count: the values that units work on for it; hold: until the next. values: of the frame. loads: it is
    the first for which the rank's own values have to be in its NIC. last: its result is the final one.
    """

    __slots__ = (
        "action",
        "count",
        "done",
        "hold",
        "input",
        "last",
        "loads",
        "rank",
        "size",
        "values",
        "waiters",
    )

    def __init__(
        self, action: Action, rank: int, engaged: tuple[int, int], size: int, needs: Work | None, values: int,
        *, loads: bool = False,
    ) -> None:  # fmt: skip
        self.action, self.rank, self.size, self.input = action, rank, size, needs
        self.values, self.loads, self.last = values, loads, True
        if needs is not None and action.phase is Phase.REDUCE_SCATTER:
            needs.last = False
        self.count, self.hold = engaged
        self.done: float | None = None
        self.waiters: list[Waiter] = []

    def complete(self, when: float) -> None:
        """Note the result, and let those go on that wait for it."""
        self.done = when
        for waiter in self.waiters:
            waiter.go()


class Events:
    """What happens, in order of time; of events at once by kind, then by order, then as they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, int, Any]] = []
        self._count = 0

    def add(self, when: float, kind: int, order: int, what: Any) -> None:
        """Let something happen at `when`."""
        heappush(self._heap, (when, kind, order, self._count, what))
        self._count += 1

    def __iter__(self) -> Iterator[tuple[float, int, Any]]:
        while self._heap:
            when, kind, _, _, what = heappop(self._heap)
            yield when, kind, what


class Unit:
    """An encoder, a decoder, or a coder that is both: does its work in the order of the program."""

    def __init__(self, codec: CodecTime, note: Note, done: Done) -> None:
        self.codec, self.note, self.done = codec, note, done
        self.queue: list[Work] = []
        self.at = 0
        self.free = 0.0
        self._last: tuple[tuple[int, int, int], float] | None = None  # the sum decoded last, and its start

    def go(self) -> None:
        """Do all work whose input is there, up to the first whose is not."""
        while self.at < len(self.queue):
            work = self.queue[self.at]
            needs = work.input
            if needs is not None and needs.done is None:
                needs.waiters.append(self)
                return
            self.at += 1
            ready = 0.0 if needs is None or needs.done is None else needs.done
            work.complete(self.do(work, ready))

    def read(self) -> None:
        """Read sums, once all frames have come: see Attendant."""

    def do(self, work: Work, ready: float) -> float:
        """Do the work whose input is there at `ready`; return when its result is."""
        do = self._encode if work.action.op is Op.ENCODE else self._decode
        return do(work, ready)

    def _encode(self, work: Work, ready: float) -> float:
        codec = self.codec
        start, cost = max(ready + codec.encode_front, self.free), work.count * codec.encode_each
        done = start + cost + codec.encode_once
        if codec.busy and self._last is not None and self._last[0] == _sum(work):
            done = self._last[1] + work.count * codec.hop_each + codec.hop_once
        if codec.busy:
            start, cost = min(start, done), max(0.0, done - start)
        held = cost if codec.busy else work.hold * codec.encode_each
        self.free = done if codec.busy else start + max(held + codec.encode_between, codec.encode_least)
        self._last = None
        self.note("encode", start, min(cost, held), work)
        return done

    def _decode(self, work: Work, ready: float) -> float:
        codec = self.codec
        start, cost = max(ready + codec.decode_front, self.free), work.count * codec.decode_each
        done = start + cost + codec.decode_once
        if work.action.op is not Op.ADOPT:
            self.note("wait", self.free, ready - self.free, work)
        if codec.busy:
            cost = done - start
        held = cost if codec.busy else work.hold * codec.decode_each
        self.free = done if codec.busy else start + max(held + codec.decode_between, codec.decode_least)
        self._last = _sum(work), start
        self.note("decode-add", start, min(cost, held), work)
        self.done(work, done)
        return done


class Desk(Unit):
    """A NIC's encoder and decoder behind its driver, which gives commands in the order of the program.

    A list has given them already: then each has a queue of its own. desk: of `driver.give`, of both.
    """

    def __init__(self, driver: Driver, codec: CodecTime, note: Note, done: Done, desk: Any) -> None:
        super().__init__(codec, note, done)
        self.costs, self.end_s, self.desk = driver.costs, driver.end_s, desk
        self.units = {encodes: Unit(codec, note, self._done) for encodes in (True, False)}

    def do(self, work: Work, ready: float) -> float:
        """See Unit.do; final sums count once the host has read them."""
        encodes, noticed = work.action.op is Op.ENCODE, work.input is not None
        given = give(self.desk, ready, work.values, noticed=noticed, loads=work.loads, costs=self.costs)
        return self.units[encodes].do(work, given)

    def _done(self, work: Work, when: float) -> None:
        self.done(work, when + self.end_s)
        if work.last:
            self.done(work, fetch(self.desk, when, work.values, self.costs))


class Turn:
    """A frame of an Attendant: its command is given when its input is there."""

    __slots__ = "attendant", "order", "work"

    def __init__(self, attendant: Attendant, order: int, work: Work) -> None:
        self.attendant, self.order, self.work = attendant, order, work

    def go(self) -> None:
        """Take in the frame that has come; what it is added to has to be loaded."""
        assert self.work.input is not None
        assert self.work.input.done is not None
        action, when = self.work.action, self.work.input.done + self.attendant.notice_s
        if action.op is Op.DECODE_ADD:
            when = max(when, self.attendant.loaded[action.chunk, action.sub])
        self.at(when)

    def at(self, when: float) -> None:
        """Wait for the time at which the driver knows of the input."""
        self.attendant.events.add(when, CODES, self.order, self)

    def take(self, now: float) -> None:
        """Give the command."""
        self.attendant.take(self.work, now)


class Attendant(Unit):
    """A NIC's encoder and decoder of direct, whose commands are given as values, frames and sums are there.

    loaded: when own values are, by chunk and sub-frame; reads: the order in which sums are read.
    """

    def __init__(
        self, driver: Driver, codec: CodecTime, note: Note, done: Done, events: Events,
        loaded: Mapping[Part, float], reads: Sequence[Part],
    ) -> None:  # fmt: skip
        super().__init__(codec, note, done)
        self.costs, self.notice_s, self.end_s = driver.costs, driver.notice_s, driver.end_s
        self.desk = np.zeros(DESK)
        self.events, self.loaded, self.reads = events, loaded, reads
        self.units = {encodes: Unit(codec, note, self._decoded) for encodes in (True, False)}
        self.sums: dict[Part, Turn] = {}  # what sends a sum
        self.missing: Counter[Part] = Counter()  # frames that are added to a sum and have still to come
        self.whole: dict[Part, tuple[float, Work]] = {}

    def go(self) -> None:
        """See Unit.go; what waits for nothing has its turn when its values are loaded."""
        for order, work in enumerate(self.queue):
            part, turn = (work.action.chunk, work.action.sub), Turn(self, order, work)
            if work.input is None:
                turn.at(self.loaded[part])
            elif work.action.op is Op.ENCODE:
                self.sums[part] = turn
            else:
                self.missing[part] += work.action.op is Op.DECODE_ADD
                work.input.waiters.append(turn)

    def take(self, work: Work, now: float) -> None:
        """Give the command of a frame whose input is there."""
        given = give(self.desk, now, work.values, noticed=False, loads=False, costs=self.costs)
        work.complete(self.units[work.action.op is Op.ENCODE].do(work, given))

    def _decoded(self, work: Work, when: float) -> None:
        self.done(work, when + self.end_s)
        part = work.action.chunk, work.action.sub
        if work.action.op is Op.DECODE_ADD:
            self.missing[part] -= 1
            when = max(when, self.whole[part][0]) if part in self.whole else when
        self.whole[part] = when, work
        if work.action.op is Op.DECODE_ADD and not self.missing[part]:
            self.sums[part].at(when + self.notice_s)

    def read(self) -> None:
        """See Unit.read."""
        for when, work in (self.whole[part] for part in self.reads if part in self.whole):
            self.done(work, fetch(self.desk, when, work.values, self.costs))


def _sum(work: Work) -> tuple[int, int, int]:
    return int(work.action.phase), work.action.chunk, work.action.sub


@dataclass
class Programs:
    """All ranks' work: of each coder, the frames to send, those to come, and the receives posted."""

    units: list[Unit] = field(default_factory=list)
    sends: list[list[Work]] = field(default_factory=list)  # by rank, in order of the program
    waits: dict[tuple[int, int, int, int, int], Work] = field(default_factory=dict)
    received: list[int] = field(default_factory=list)  # messages that each rank makes room for
    events: Events = field(default_factory=Events)

    @property
    def unfinished(self) -> dict[int, Action]:
        """The first action of every rank that never happened."""
        every = [*self.waits.values(), *(work for sends in self.sends for work in sends)]
        return {work.rank: work.action for work in reversed(every) if work.done is None}


def place(work: Work) -> tuple[int, int, int, int, int]:
    """Return where a frame to send is waited for: receiver, sender, phase, chunk, sub-frame."""
    a = work.action
    return a.peer, work.rank, int(a.phase), a.chunk, a.sub


def load(schedule: Schedule, frames: Frames, codec: CodecTime, note: Note, done: Done) -> Programs:
    """Return the work of `schedule` with `frames`; sub-frames without values are left out.

    Raises ValueError where the frames are those of another schedule.
    """
    sizes = frames.sizes()
    values = {(chunk, sub): count for (_, _, chunk, sub), (count, _) in sizes.items() if count}
    if any(values.get(key[2:], 0) != count for key, (count, _) in sizes.items()):
        raise ValueError("expected a chunk to hold the same values in all its frames; take one call's frames")
    out = Programs()
    work = unit_work(frames, codec.sharing, codec.block) if codec.sharing else ({}, {})
    for rank in range(schedule.nodes):
        units = [Unit(codec, note, done) for _ in range((1 if codec.busy else 2) * codec.cores)]
        if codec.driver is not None and goes_by_arrival(schedule):
            loaded, reads = codec.driver.loaded(schedule, rank, values), read_order(schedule, rank)
            units = [Attendant(codec.driver, codec, note, done, out.events, loaded, reads)]
        elif codec.driver is not None and not schedule.apart:  # no NIC runs one that keeps sums apart
            desk, queues = np.zeros(DESK), 2 if codec.driver.by_list else 1
            units = [Desk(codec.driver, codec, note, done, desk) for _ in range(queues)]
        out.units += units
        _load_rank(out, schedule, rank, values, sizes, work, units[: codec.cores], units[-codec.cores :])
    sent, rows = sum(map(len, out.sends)), int((frames["count"] > 0).sum())
    if sent != rows:
        raise ValueError(
            f"expected the frames of {schedule.describe()}: it sends {sent}, got {rows}; "
            "give the schedule that ran"
        )
    return out


def _load_rank(
    out: Programs,
    schedule: Schedule,
    rank: int,
    values: dict[tuple[int, int], int],
    sizes: dict[tuple[int, int, int, int], tuple[int, int]],
    works: tuple[dict[Key, Engaged], dict[Key, Engaged]],
    encoders: list[Unit],
    decoders: list[Unit],
) -> None:
    held: dict[tuple[int, int, int, int], Work] = {}  # frames by phase, source, chunk, sub
    summed: dict[tuple[int, int], Work] = {}
    sends: list[Work] = []
    posts = 0
    for action in schedule.actions(rank):
        op, phase, _, chunk, sub, peer, source = action[:7]
        count = values.get((chunk, sub), 0)
        if not count:
            continue
        if op is Op.POST_RECV:
            posts += 1
            continue
        frame, plain = (phase, source, chunk, sub), Engaged(count, count)
        if op is Op.WAIT:
            held[frame] = out.waits[rank, peer, phase, chunk, sub] = Work(action, rank, plain, 0, None, count)
        elif op is Op.ENCODE:
            needs, engaged = summed.get((chunk, sub)), works[0].get(frame, plain)
            work = held[frame] = Work(action, rank, engaged, 0, needs, count, loads=needs is None)
            encoders[sub % len(encoders)].queue.append(work)
        elif op in SENDS:
            _, size = sizes.get((phase, rank, chunk, sub), (0, 0))
            if not size:
                raise ValueError(
                    f"expected a frame of chunk {chunk}, sub-frame {sub} from rank {rank} to {peer}, as "
                    f"{schedule.describe()} sends it, got none; give the schedule that ran"
                )
            sends.append(Work(action, rank, plain, size, held[frame], count))
        else:
            loads = op is Op.DECODE_ADD and (chunk, sub) not in summed
            engaged = works[1].get(frame, plain)
            if (chunk, sub) in summed:
                summed[chunk, sub].last = False
            work = summed[chunk, sub] = Work(action, rank, engaged, 0, held[frame], count, loads=loads)
            decoders[sub % len(decoders)].queue.append(work)
    out.sends.append(sends)
    out.received.append(posts)
