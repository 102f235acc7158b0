"""Time at up to 1,024 nodes from the frame sizes of a small measured run.

Two things carry over: the bits per value, by how many workers' values a frame sums, and how far each chunk
deviates from the mean of its step. A chunk keeps its deviation all the way, since every node waits for the
largest chunk at some hop. Independent draws per frame would hide that. Every sub-frame of every chunk draws a
measured one and takes over its share of the values *and* its deviation in bits, since a plan that balances
bytes pairs small shares with high rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.frames import Frames
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.equal import equal_time
from oscar.timeline.laws import RingLaw, RoutedLaw
from oscar.timeline.link import LinkModel, algbw, busbw
from oscar.timeline.recurrence import equal_ring_time

MAX_NODES = 1024


@dataclass(frozen=True, eq=False)
class Measured:
    """The frames of one measured AllReduce, and the schedule that sent them.

    A duplex ring has a boomerang's frames, and takes them. header_bytes: part of a frame that does not grow
    with its values. raw_bits: width at which the codec stops coding and sends raw values. Raises ValueError
    for fewer than 2 nodes, no values, and frames of another schedule.
    """

    frames: Frames
    schedule: Schedule
    header_bytes: int = HEADER_BYTES
    raw_bits: int = 16

    def __post_init__(self) -> None:
        if self.schedule.nodes < 2 or not self.frames.values:
            raise ValueError(
                "expected a run of 2 nodes or more with values, got "
                f"{self.schedule.nodes} nodes, {self.frames.values} values"
            )
        if self.header_bytes < 0 or self.raw_bits < 1:
            raise ValueError(
                f"expected header_bytes >= 0 and raw_bits >= 1, got {self.header_bytes} and {self.raw_bits}"
            )
        least = int(self.frames["bytes"].min())
        if least < self.header_bytes:
            raise ValueError(
                f"expected frames of at least the {self.header_bytes} header bytes, got "
                f"{least}; set header_bytes to what the frames carry"
            )
        _ = self.law

    @cached_property
    def law(self) -> RingLaw | RoutedLaw:
        """How the sizes carry over."""
        kind = RingLaw.of if isinstance(self.schedule, Ring) else RoutedLaw.of
        return kind(self.schedule, self.frames, self.header_bytes, self.raw_bits)  # type: ignore[arg-type]

    @property
    def values(self) -> int:
        """Number of values it reduced."""
        rows = self.frames.rows
        _, first = np.unique(rows[["chunk", "sub"]], return_index=True)
        return int(rows["count"][first].sum())


@dataclass(frozen=True)
class ScalePoint:
    """One AllReduce of `values` at `nodes`: seconds, gain, wire bits per value with headers, bytes/s.

    fp32_time_s, speedup: of fp32's ring, and against it. fp32_direct_s: of fp32's direct schedule.
    """

    nodes: int
    values: int
    time_s: float
    fp32_time_s: float
    fp32_direct_s: float
    speedup: float
    bits_per_value: float
    algbw: float
    busbw: float


def check_nodes(nodes: Iterable[int]) -> None:
    """Raise ValueError unless all are sizes of a ring that is modelled."""
    for count in nodes:
        if not 2 <= count <= MAX_NODES:
            raise ValueError(f"expected 2 to {MAX_NODES} nodes, got {count}")


def scale(
    measured: Measured,
    nodes: Sequence[int],
    *,
    link: LinkModel,
    values: int | None = None,
    seed: int = 0,
) -> list[ScalePoint]:
    """Model the measured AllReduce at each of `nodes` (2 to 1,024) and compare it with fp32 on that link.

    `values` (default: as measured) is the model's size, the same at every N. fp32 gets the same number of
    sub-frames, no headers and no codec. Equal seeds give equal results. Raises ValueError.
    """
    check_nodes(nodes)
    wanted = measured.values if values is None else values
    if wanted < 1:
        raise ValueError(f"expected at least 1 value, got {wanted}")
    points = []
    for count in nodes:
        total, sent, time_s = measured.law.draw(count, wanted, link, generator(seed, count))
        subs = measured.schedule.subframes
        fp32_s = equal_ring_time(total, count, link, subframes=subs)
        direct_s = equal_time(Direct(count, subs), total, link, coded=False)
        rate = algbw(total, time_s)
        wire_bits = 8.0 * float(sent) / (2 * (count - 1) * total)
        gain = fp32_s / time_s
        points.append(
            ScalePoint(count, total, time_s, fp32_s, direct_s, gain, wire_bits, rate, busbw(rate, count))
        )
    return points


def generator(seed: int, nodes: int) -> np.random.Generator:
    """Return what draws the frames of `nodes`."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, nodes])))
