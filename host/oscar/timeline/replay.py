"""When everything happens in one AllReduce, and how long it takes.

This is the only definition of how long an AllReduce takes. `lowering` turns a schedule into arrays once. Then
`player`, compiled code, plays any frames, codec, driver and topology. Where all ranks do the same at the same
time, one rank that is its own peer stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.collective.frames import Frames, Moved
from oscar.collective.schedule import Schedule
from oscar.errors import OscarError
from oscar.timeline.driver import DriverCosts, goes_by_arrival, read_order
from oscar.timeline.link import CodecTime, LinkModel, listed
from oscar.timeline.lowering import (
    ADD,
    BY_ARRIVAL,
    ENCODE,
    IN_ORDER,
    NO_DRIVER,
    SEND,
    TAKE,
    WAIT,
    Desks,
    Ints,
    Load,
    Program,
    Ways,
    cut,
    cut_for,
    dense_work,
    fill,
    kinds_of_frames,
    lower,
    ways_of,
    work_of,
)  # fmt: skip
from oscar.timeline.player import SENT, WAITED, PlayInput, play
from oscar.timeline.topology import Topology

STAGES = ("encode", "send", "wait", "decode-add")
STAGE_NAMES = "encode", "decode-add", "wait", "send"  # by stage of a bar
NO_COSTS = DriverCosts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, by_list=False)
SECONDS = tuple(name for name, default in CodecTime._field_defaults.items() if isinstance(default, float))


@dataclass(frozen=True)
class Span:
    """One bar of a timeline: seconds since the AllReduce began; `step` counts within `phase`.

    stage: One of STAGES. "send" includes forwarding, "decode-add" plain decoding. Both codec stages hold the
        time that the codec is occupied, without the latency of its pipeline.
    core: Number of the core; of a "send", which of the rank's ways out (always 0 at a switch).
    """

    rank: int
    stage: str
    start_s: float
    duration_s: float
    phase: int
    step: int
    chunk: int
    sub: int
    core: int = 0


class Carried(NamedTuple):
    """One frame in one port, in seconds since the AllReduce began."""

    port: int
    start_s: float
    end_s: float
    sender: int
    receiver: int
    phase: int
    chunk: int
    sub: int


@dataclass(frozen=True, eq=False)
class Replay:
    """What happened in one AllReduce.

    Attributes:
        total_s: Seconds until the last rank has finished.
        finish_s: Seconds until each rank has finished, float64 [nodes].
        met_s: How long frames waited at the ports where they arrive, in all, because another was coming in.
        spans: What nodes did, if asked for.
        carried: Each frame in each port on its way, if asked for.
    """

    total_s: float
    finish_s: NDArray[np.float64]
    met_s: float
    spans: list[Span]
    carried: list[Carried]


def replay(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    coded: bool = True,
    spans: bool = False,
) -> Replay:
    """Play one AllReduce of `schedule` that sends `frames`.

    A frame is not sent where it has no values. A frame leaves once it is coded and its port is free. A rank
    finishes when it has its last values and its last frame has left. A NIC has its commands by registers or
    as a list, whichever takes less. Where a chunk has fewer sub-frames than the codec has cores, frames are
    cut into more (`cut_for`).

    Args:
        schedule: Who sends what to whom.
        frames: Sizes of the frames of one call.
        link: Ports and latency of every rank, at a switch that never blocks, and the codec in front of them.
        topology: Other ports and latencies; the codec stays the link's.
        coded: Whether a codec works on the frames.
        spans: Whether to keep what nodes and ports did.

    Raises:
        ValueError: Frames of another schedule, or a topology without a link that it uses.
        OscarError: The schedule deadlocks.
    """
    if topology is not None and topology.nodes != schedule.nodes:
        raise ValueError(f"expected a topology of {schedule.nodes} ranks, got {topology.nodes}")
    by_list = listed(schedule, frames.gradient, link, coded=coded)
    link, codec = link.wired(coded), link.codec(coded)
    schedule, frames = cut_for(schedule, frames, codec.cores)
    do = lower(schedule)
    values, sizes = fill(schedule, frames, do)
    work = work_of(do, values, frames, codec)
    drivers = [codec.driver] if by_list is None else [codec.driver, by_list]
    each = [
        _run(
            schedule, do, values, sizes, work, link, codec._replace(driver=driver), topology, coded=coded,
            spans=spans,
        )
        for driver in drivers
    ]  # fmt: skip
    return min(each, key=lambda one: one.total_s)


def time_of(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    coded: bool = True,
) -> float:
    """Return the seconds of one AllReduce; arguments and errors as for `replay`."""
    return replay(schedule, frames, link, topology, coded=coded).total_s


@dataclass(frozen=True)
class Clock:
    """The time model over one network: called with a message that was moved, it returns its seconds."""

    link: LinkModel
    topology: Topology | None = None

    def __call__(self, moved: Moved) -> float:
        return time_of(moved.schedule, moved.frames, self.link, self.topology, coded=moved.coded)


def time_of_alike(
    schedule: Schedule,
    count: Ints,
    size: Callable[[int, int], Ints],
    link: LinkModel,
    *,
    coded: bool = True,
) -> float:
    """Return the seconds of an AllReduce between ranks that all do the same at the same time.

    One rank that is its own peer stands for all, so 1,024 ranks take no longer than the actions of one.

    Args:
        schedule: A schedule that is `alike`.
        count: Values of every sub-frame of a chunk, int64 [subframes].
        size: Returns the bytes of every sub-frame, int64 [subframes], by phase and by how many workers'
            values a frame sums.
        link, coded: As for `replay`.
    """
    by_list = listed(schedule, int(count.sum()) * schedule.chunks, link, coded=coded)
    link, codec = link.wired(coded), link.codec(coded)
    kinds = [kind for kind, _ in kinds_of_frames(schedule)] or [(0, 1)]
    sizes, counts = cut(
        np.stack([size(*kind) for kind in kinds]),
        np.stack([count] * len(kinds)),
        schedule.subframes,
        codec.cores,
    )
    schedule = replace(schedule, subframes=counts.shape[1])
    do = lower(schedule, alone=True)
    row = np.zeros((2, schedule.nodes + 1), np.int64)
    row[tuple(np.transpose(kinds))] = np.arange(len(kinds))
    sent = np.where(do.kind == SEND, sizes[row[do.phase, do.workers], do.sub], 0)
    work = hold = counts[0, do.sub]
    if codec.nic is not None:
        work, hold = dense_work(counts[0], codec.nic)[(do.kind != ENCODE).astype(int), :, do.sub].T
    return min(
        _run(
            schedule, do, counts[0, do.sub], sent, (work, hold), link,
            codec._replace(driver=driver), None, alone=True,
        ).total_s
        for driver in ([codec.driver] if by_list is None else [codec.driver, by_list])
    )  # fmt: skip


def _run(
    schedule: Schedule, do: Program, values: Ints, sizes: Ints, work: tuple[Ints, Ints], link: LinkModel,
    codec: CodecTime, topology: Topology | None, *, coded: bool = True, alone: bool = False,
    spans: bool = False,
) -> Replay:  # fmt: skip
    """Play with one driver."""
    ranks = min(1, schedule.nodes) if alone else schedule.nodes
    desks = _desks(schedule, do, values, ranks, link.message_s, codec)
    per_rank, decodes = codec.cores * (1 if codec.busy else 2), (do.kind == ADD) | (do.kind == TAKE)
    unit = do.rank * per_rank + do.sub % codec.cores + (0 if codec.busy else codec.cores) * decodes
    # A driver that gives commands in order has one queue, unless a list has given them all.
    by_registers = desks.mode == IN_ORDER and not desks.costs.by_list
    queue, queues = (do.rank, ranks) if by_registers else (unit, ranks * per_rank)
    coding = np.flatnonzero(do.kind <= TAKE) if desks.mode != BY_ARRIVAL else np.zeros(0, np.int64)
    order = coding[np.argsort(queue[coding], kind="stable")]
    starts = np.searchsorted(queue[order], np.arange(queues + 1))
    turns, held = map(np.ascontiguousarray, work)  # the player is compiled for one layout
    load = Load(values, sizes, turns, held, unit, order, starts)
    ways = ways_of(do, values, schedule.nodes, link, topology, alone=alone)
    # Compiled code takes numbers of one type: a cost may be an integer.
    seconds: dict[str, Any] = {name: float(getattr(codec, name)) for name in SECONDS}
    costs = codec._replace(nic=None, driver=None, **seconds)
    finish, met_s, done, bars, carried = play(
        PlayInput(do, load, ways, costs, desks, schedule.pulls_first, spans)
    )
    if (stuck := (do.kind >= SEND) & (values > 0) & (done < 0)).any():
        first = {int(do.rank[at]): _place(do, at) for at in np.flatnonzero(stuck)[::-1]}
        raise OscarError(
            f"expected a send for every wait, got ranks that wait for ever: {first}; fix the schedule"
        )
    return Replay(
        float(finish.max(initial=0.0)), finish, float(met_s), _spans(do, ways, codec, bars, coded=coded),
        [_carried(do, *one) for one in carried],
    )  # fmt: skip


def _desks(
    schedule: Schedule, do: Program, values: Ints, ranks: int, message_s: float, codec: CodecTime
) -> Desks:  # fmt: skip
    """Return the ranks' drivers; no NIC runs a schedule that keeps sums apart."""
    # message_s is added once a message: a product would round differently, and tests compare bits.
    received = np.bincount(do.rank[(do.kind == WAIT) & (values > 0)], minlength=ranks)
    room = np.cumsum(np.r_[0.0, np.full(received.max(initial=0), message_s)])[received]
    driver, none = codec.driver, np.zeros((0, 1))
    if driver is None or schedule.apart:
        return Desks(NO_DRIVER, NO_COSTS, none, none.astype(np.int64), room)
    if not goes_by_arrival(schedule):
        return Desks(IN_ORDER, driver.costs, none, none.astype(np.int64), room)
    parts = {(int(do.chunk[at]), int(do.sub[at])): int(values[at]) for at in np.flatnonzero(values)}
    loaded, reads = np.zeros((ranks, schedule.chunks * schedule.subframes)), []
    for rank in range(ranks):
        for (chunk, sub), when in driver.loaded(schedule, rank, parts).items():
            loaded[rank, chunk * schedule.subframes + sub] = when
        reads.append([chunk * schedule.subframes + sub for chunk, sub in read_order(schedule, rank)])
    return Desks(BY_ARRIVAL, driver.costs, loaded, np.array(reads, np.int64), room)


def _place(do: Program, at: int) -> str:
    half = "all-gather" if do.phase[at] else "reduce-scatter"
    return f"step {do.step[at]} of the {half}, chunk {do.chunk[at]}"


def _spans(do: Program, ways: Ways, codec: CodecTime, bars: Sequence[Any], *, coded: bool) -> list[Span]:
    """Return the bars of nodes; the waits of a rank's cores share a row."""
    waited: dict[int, float] = {}
    out = []
    for stage, at, start, duration in bars:
        rank, core = int(do.rank[at]), int(do.sub[at]) % codec.cores
        if stage == WAITED:
            core, until = 0, start + duration
            start = max(start, waited.get(rank, 0.0))
            waited[rank] = max(until, waited.get(rank, 0.0))
            if until <= start:
                continue
            duration = until - start
        elif stage == SENT:
            core = int(ways.number[ways.way[at]])
        elif not coded:
            continue
        where = int(do.phase[at]), int(do.step[at]), int(do.chunk[at]), int(do.sub[at])
        out.append(Span(rank, STAGE_NAMES[stage], start, duration, *where, core))
    return out


def _carried(do: Program, port: int, start: float, end: float, at: int) -> Carried:
    where = (int(column[at]) for column in (do.rank, do.peer, do.phase, do.chunk, do.sub))
    return Carried(port, start, end, *where)
