"""How long a schedule takes on a network: what picks the winner."""

from __future__ import annotations

from math import ceil

from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.errors import ConfigError
from oscar.planning.synthesis.problem import RoutingProblem
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import replay

VALUE_BYTES = 4  # where a problem does not say how many values there are


def time_of(schedule: Schedule, problem: RoutingProblem) -> float:
    """Return the seconds of one AllReduce, by replay; coding takes no time.

    Raises ConfigError where the network lacks a link that the schedule uses, ValueError for another number of
    ranks.
    """
    rows = []
    values = problem.values or problem.frame_bytes(problem.nodes, 1) / VALUE_BYTES
    count = ceil(values / schedule.chunks / schedule.subframes)
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op not in SENDS:
                continue
            if (rank, a.peer) not in problem.topology.links:
                raise ConfigError(
                    f"schedule {schedule.name}: rank {rank} sends to rank {a.peer}, and the topology has no "
                    "such link; add it, or take another schedule"
                )
            size = ceil(problem.frame_bytes(a.workers, schedule.chunks) / schedule.subframes)
            rows.append((a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, count, size))
    if not rows:
        return 0.0
    link = LinkModel(message_s=problem.topology.message_s)
    return replay(schedule, Frames.of(rows), link, problem.topology, coded=False).total_s
