"""Time of one AllReduce from the actions that nodes execute, whatever the schedule and the network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oscar.collective.frames import Frames
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.stats import Moved
from oscar.errors import OscarError
from oscar.timeline.link import CodecTime, LinkModel, least, listed
from oscar.timeline.ports import ROUNDING, Network
from oscar.timeline.programs import Work, load
from oscar.timeline.recurrence import ring_time
from oscar.timeline.sizes import cut_for
from oscar.timeline.spans import Carried, Span
from oscar.timeline.topology import AtSwitch, Topology


@dataclass(frozen=True, eq=False)
class Replay:
    """Result of a replay: `total_s`, `finish_s` (float64 [N]) and, if asked for, what all nodes did.

    `met_s`: how long frames waited at the ports where they arrive, in all, because another one was coming in.
    `spans`: of the nodes. `carried`: of the ports, each frame in each port on its way.
    """

    total_s: float
    finish_s: NDArray[np.float64]
    met_s: float
    spans: list[Span]
    carried: list[Carried]


class _Notes:
    """When each rank finishes, and the bars of its timeline."""

    def __init__(self, nodes: int, codec: CodecTime, *, coded: bool, spans: bool) -> None:
        self.finish = [0.0] * nodes
        self.cores, self.coded = codec.cores, coded
        self.end_s = 0.0 if codec.driver is None else codec.driver.end_s
        self.spans: list[Span] = []
        self._waited = [0.0] * nodes
        self._kept = spans

    def codec(self, stage: str, start: float, duration: float, work: Work) -> None:
        """Note a bar of the codec, or the wait before it; waits of a rank's cores share a row."""
        if not self._kept:
            return
        if stage == "wait":
            until = start + duration
            start = max(start, self._waited[work.rank])
            self._waited[work.rank] = max(until, self._waited[work.rank])
            if until > start:
                self._span(stage, start, until - start, work, 0)
        elif self.coded:
            self._span(stage, start, duration, work, work.action.sub % self.cores)

    def done(self, work: Work, when: float) -> None:
        """Note that a rank has what it decoded."""
        self.finish[work.rank] = max(self.finish[work.rank], when)

    def sent(self, work: Work, start: float, end: float, way: int) -> None:
        """Note that a rank's frame has left."""
        self.done(work, end + self.end_s)
        if self._kept:
            self._span("send", start, end - start, work, way)

    def _span(self, stage: str, start: float, duration: float, work: Work, core: int) -> None:
        a = work.action
        where = int(a.phase), a.step, a.chunk, a.sub
        self.spans.append(Span(work.rank, stage, start, duration, *where, core))


def replay(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    coded: bool = True,
    spans: bool = False,
) -> Replay:
    """Evaluate when everything happens in one AllReduce of `schedule` that sends `frames`.

    link: ports and latency of every rank, at a switch that never blocks, and the codec in front of them.
    topology: other ports and latencies; the codec stays the link's. coded: whether a codec works on the
    frames. spans: keep the bars of nodes and ports. A NIC has its commands by registers or as a list,
    whatever takes less. Where a chunk has fewer sub-frames than the codec has
    cores, frames are cut into more (`cut_for`).

    A frame is not sent where it has no values. An action starts once its input is ready and its core has
    done all earlier work of the program; a frame leaves once it is coded and its port is free. A rank
    finishes when it has its last values and its last frame has left.

    Raises ValueError for frames of another schedule and for a topology without a link that it uses,
    OscarError if the schedule deadlocks.
    """
    if topology is not None and topology.nodes != schedule.nodes:
        raise ValueError(f"expected a topology of {schedule.nodes} ranks, got {topology.nodes}")
    played = _replay(schedule, frames, link, topology, coded=coded, spans=spans)
    by_list = listed(schedule, frames.gradient, link, coded=coded)
    if by_list is None:
        return played
    driven = replace(link, driver=by_list)
    other = _replay(schedule, frames, driven, topology, coded=coded, spans=spans)
    return played if played.total_s <= other.total_s else other


def _replay(
    schedule: Schedule, frames: Frames, link: LinkModel, topology: Topology | None, *, coded: bool,
    spans: bool,
) -> Replay:  # fmt: skip
    """See `replay`; by registers, if there is a driver."""
    link, codec = link.wired(coded), link.codec(coded)
    schedule, frames = cut_for(schedule, frames, codec.cores)
    notes = _Notes(schedule.nodes, codec, coded=coded, spans=spans)
    programs = load(schedule, frames, codec, notes.codec, notes.done)
    network = Network(programs, link, topology, pulls_first=schedule.pulls_first, sent=notes.sent, keep=spans)
    for unit in programs.units:
        unit.go()
    network.run()
    for unit in programs.units:
        unit.read()
    if stuck := programs.unfinished:
        raise OscarError(
            f"expected a send for every wait, got ranks that wait for ever: {stuck}; fix the schedule"
        )
    finish = np.array(notes.finish)
    return Replay(float(finish.max()), finish, network.met_s, notes.spans, network.carried or [])


def time_of(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    coded: bool = True,
) -> float:
    """Return the seconds of one AllReduce; arguments and errors as for `replay`.

    Rings between equal ports at a switch take the compiled recurrence, which leaves out frames that meet.
    """
    link, topology = plain(link, topology)
    if isinstance(schedule, Ring) and topology is None:
        by_list = listed(schedule, frames.gradient, link, coded=coded)
        return least(link, by_list, lambda link: ring_time(schedule, frames, link, coded=coded))
    return replay(schedule, frames, link, topology, coded=coded).total_s


@dataclass(frozen=True)
class Clock:
    """The time model over one network: called with a message that was moved, it returns its seconds."""

    link: LinkModel
    topology: Topology | None = None

    def __call__(self, moved: Moved) -> float:
        return time_of(moved.schedule, moved.frames, self.link, self.topology, coded=moved.coded)


def plain(link: LinkModel, topology: Topology | None) -> tuple[LinkModel, Topology | None]:
    """Return a link with the rate and latency of a switch of equal ports, instead of the topology."""
    if topology is None or not isinstance(topology.links, AtSwitch) or topology.message_s:
        return link, topology
    costs = {port.seconds_per_byte for port in topology.ports}
    if len(costs) > 1:
        return link, topology
    bandwidth_bps = 8 / costs.pop()
    if math.isclose(bandwidth_bps, link.bandwidth_bps, rel_tol=ROUNDING):
        bandwidth_bps = link.bandwidth_bps
    return replace(link, bandwidth_bps=bandwidth_bps, latency_s=topology.links.latency_s), None
