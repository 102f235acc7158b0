"""Times of schedules: from frames that were sent, or from sizes that are assumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.node import Layout
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.recurrence import equal_ring_time, ring_time
from oscar.timeline.replay import replay
from oscar.timeline.sizes import divide
from oscar.timeline.symmetric import symmetric_time
from oscar.timeline.topology import Topology

Bits = (
    Callable[[int], float] | float
)  # of payload per value: by how many workers' values a frame sums, or all alike


def time_of(
    schedule: Schedule,
    frames: Frames,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    coded: bool = True,
) -> float:
    """Return the seconds of one AllReduce; arguments and errors as for `replay`.

    Rings at the link's own ports take the compiled recurrence, which leaves out frames that meet at a port.
    """
    if isinstance(schedule, Ring) and topology is None:
        return ring_time(schedule, frames, link, coded=coded)
    return replay(schedule, frames, link, topology, coded=coded).total_s


def assumed_frames(
    schedule: Schedule, values: int | Sequence[int], bits: Bits = FP32_BITS, *, header: int = HEADER_BYTES
) -> Frames:
    """Return the frames of `schedule` with sizes as assumed: a header and ceil(count bits / 8) bytes.

    values: how many there are, cut into equal chunks and sub-frames; or the bounds of chunks as a plan makes
    them, cut into sub-frames as nodes do. Raises ValueError for bounds of another number of chunks.
    """
    if isinstance(values, int):
        spans = [divide(int(chunk), schedule.subframes).tolist() for chunk in divide(values, schedule.chunks)]
    else:
        if len(values) != schedule.chunks + 1:
            raise ValueError(f"expected bounds of {schedule.chunks} chunks, got {len(values)} bounds")
        layout = Layout(tuple(values), schedule.subframes)
        spans = [
            [high - low for low, high in (layout.span(chunk, sub) for sub in range(schedule.subframes))]
            for chunk in range(schedule.chunks)
        ]
    rate = bits if callable(bits) else lambda _: bits
    rows = []
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op in SENDS and (count := spans[a.chunk][a.sub]):
                size = header + math.ceil(count * (rate(a.workers) / 8))
                rows.append((a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, count, size))
    return Frames.of(rows)


def equal_time(
    schedule: Schedule,
    values: int,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    bits: Bits = FP32_BITS,
    header: int = 0,
    coded: bool = False,
) -> float:
    """Return the time when all chunks are as large as the largest of an even cut; raw fp32 by default.

    Rings and direct at the link's own ports take one rank for all, O(N K); others are replayed. Raises
    ValueError for values or header under 0.
    """
    if values < 0 or header < 0:
        raise ValueError(f"expected values and header of 0 or more, got {values} and {header}")
    count = -(-values // schedule.chunks)
    if topology is None and type(schedule) is Direct:
        rate = bits if callable(bits) else lambda _: bits
        return symmetric_time(schedule, count, link, bits=rate, header=header, coded=coded)
    if topology is None and isinstance(schedule, Ring):
        return equal_ring_time(schedule, values, link, bits=bits, header_bytes=header, coded=coded)
    frames = assumed_frames(schedule, count * schedule.chunks, bits, header=header)
    return time_of(schedule, frames, link, topology, coded=coded)
