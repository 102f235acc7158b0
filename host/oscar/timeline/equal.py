"""Times of schedules before anything was sent: from sizes that are assumed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.node import ChunkLayout
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Switch
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.lowering import divide
from oscar.timeline.player import ROUNDING
from oscar.timeline.replay import time_of, time_of_alike
from oscar.timeline.topology import AtSwitch, Topology, adding_switch

# Payload bits per value: one number, or a function of how many workers' values a frame sums.
Bits = Callable[[int], float] | float


def assumed_frames(
    schedule: Schedule,
    values: int | Sequence[int],
    bits: Bits = FP32_BITS,
    *,
    header_bytes: int = HEADER_BYTES,
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
        layout = ChunkLayout(tuple(values), schedule.subframes)
        spans = [
            [high - low for low, high in (layout.span(chunk, sub) for sub in range(schedule.subframes))]
            for chunk in range(schedule.chunks)
        ]
    rate = bits if callable(bits) else lambda _: bits
    rows = []
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op in SENDS and (count := spans[a.chunk][a.sub]):
                size = header_bytes + math.ceil(count * (rate(a.workers) / 8))
                rows.append((a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, count, size))
    return Frames.of(rows)


def equal_time(
    schedule: Schedule,
    values: int,
    link: LinkModel,
    topology: Topology | None = None,
    *,
    bits: Bits = FP32_BITS,
    header_bytes: int = 0,
    coded: bool = True,
) -> float:
    """Return the time when all chunks are as large as the largest of an even cut; raw fp32 by default.

    Between equal ports at a switch, one rank stands for all where the schedule is `alike`.
    Raises ValueError for values or header_bytes under 0, bits of 0, and a topology without the links needed.
    """
    link, topology = plain(link, topology)
    rate = bits if callable(bits) else lambda _: bits
    if values < 0 or header_bytes < 0 or not min(map(rate, (1, schedule.nodes))) > 0:
        raise ValueError(
            "expected values and header_bytes of 0 or more and bits above 0, got "
            f"{values}, {header_bytes} and {min(map(rate, (1, schedule.nodes)))}"
        )
    count = -(-values // schedule.chunks)
    if topology is not None or not schedule.alike:
        frames = assumed_frames(schedule, count * schedule.chunks, bits, header_bytes=header_bytes)
        return time_of(schedule, frames, link, topology, coded=coded)
    whole = divide(count, schedule.subframes)

    def size(_: int, workers: int) -> Any:
        return np.where(whole > 0, header_bytes + np.ceil(whole * (rate(workers) / 8)), 0).astype(np.int64)

    return time_of_alike(schedule, whole, size, link, coded=coded)


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


def in_switch_time(
    nodes: int,
    values: int,
    link: LinkModel,
    *,
    bits: Bits = FP32_BITS,
    header_bytes: int = 0,
    subframes: int = 1,
    slices: int = 1,
) -> float:
    """Return the time of the schedule switch: slices of the switch add, code once and send to all at once.

    A model only. A slice is half a link's latency away, and has the codec of a rank. Errors as for
    `equal_time`, and ValueError for less than one slice.
    """
    schedule = Switch(nodes + slices, subframes, slices=slices)
    topology = adding_switch(nodes, slices, link.wired(coded=True).bandwidth_bps / 1e9, link.latency_s)
    return equal_time(schedule, values, link, topology, bits=bits, header_bytes=header_bytes)
