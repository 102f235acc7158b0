"""Time at up to 1,024 nodes from the frame sizes of a small measured run.

Two things carry over: the bits per value, by how many workers' values a frame sums, and how far each chunk
deviates from the mean of its step. A chunk keeps its deviation all the way, since every node waits for the
largest chunk at some hop. Independent draws per frame would hide that. Every sub-frame of every chunk draws a
measured one and takes over its share of the values *and* its deviation in bits, since a plan that balances
bytes pairs small shares with high rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.equal import equal_time
from oscar.timeline.link import LinkModel, algbw, busbw
from oscar.timeline.lowering import Sizes, divide, fill, kinds_of_frames, lower
from oscar.timeline.replay import time_of, time_of_alike

MAX_NODES = 1024
BITS_PER_DOUBLING = 0.5  # twice as many independent summands: sigma grows by sqrt 2, entropy by half a bit
PLAYED = 64  # most ranks of which each is played, where one may stand for all

Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """One AllReduce as drawn: its values, the bytes of all frames, and its time."""

    values: int
    bytes: int
    time_s: float


def draw_parts(share: Floats, parts: int, total: int, random: np.random.Generator) -> tuple[Sizes, Sizes]:
    """Return which measured sub-frame each of `parts` takes after, and its part of `total` values."""
    # Whole rounds of the measured sub-frames, then a random part of one: the mean stays as measured.
    source = np.arange(parts + (-parts) % share.size) % share.size
    source[-share.size :] = random.permutation(source[-share.size :])
    source = random.permutation(source[:parts])
    weight = share[source]
    if not weight.any():
        raise ValueError(f"all {parts} sub-frames drawn are empty in the measured run; measure a larger one")
    edges = np.rint(np.cumsum(weight) * (total / weight.sum())).astype(np.int64)
    return source, np.diff(edges, prepend=0)


@dataclass(frozen=True, eq=False)
class Law:
    """How the frame sizes of a measured AllReduce carry over to other numbers of nodes.

    Attributes:
        bits: By phase, the numbers of workers that frames sum, in ascending order, and the mean payload in
            bits per value; float64.
        deviation: How far the frames of a chunk and sub-frame are from that mean, float64 [phase, part].
        share: Each part's share of all values, float64 [part].
    """

    schedule: Schedule
    header_bytes: int
    raw_bits: int
    bits: tuple[tuple[Floats, Floats], ...]
    deviation: Floats
    share: Floats

    @classmethod
    def of(cls, schedule: Schedule, frames: Frames, header_bytes: int, raw_bits: int) -> Law:
        """Return the law of measured frames."""
        rows, parts = frames.rows, schedule.chunks * schedule.subframes
        part = rows["chunk"].astype(np.int64) * schedule.subframes + rows["sub"]
        payload, share = 8.0 * (rows["bytes"] - header_bytes), np.zeros(parts)
        share[part] = rows["count"]
        laws, deviation = [], np.ones((2, parts))
        for phase in range(2):
            here = rows["phase"] == phase
            terms, at = np.unique(rows["terms"][here], return_inverse=True)
            mean = np.bincount(at, payload[here]) / np.maximum(np.bincount(at, rows["count"][here]), 1)
            laws.append((terms.astype(float), mean))
            usual = np.bincount(part[here], mean[at] * rows["count"][here], parts)
            sent = np.bincount(part[here], payload[here], parts)
            np.divide(sent, usual, out=deviation[phase], where=usual > 0)
        return cls(schedule, header_bytes, raw_bits, tuple(laws), deviation, share / share.sum())

    def slope(self) -> float:
        """Return the growth in bits per value for each doubling of the summands, over both phases.

        By least squares, clipped to 0 .. 1.
        """
        terms, bits = (np.concatenate([law[i] for law in self.bits]) for i in range(2))
        if len(set(terms.tolist())) < 2:
            return BITS_PER_DOUBLING
        return float(np.clip(np.polyfit(np.log2(terms), bits, 1)[0], 0.0, 1.0))

    def bits_at(self, phase: int, terms: int) -> float:
        """Return mean payload bits per value of frames that sum so many workers' values.

        Between measured numbers of terms in a straight line over their logarithm, beyond them with `slope`.
        """
        have, bits = self.bits[phase]
        want, known = np.log2(terms), np.log2(have)
        beyond = want - np.clip(want, known[0], known[-1])
        return float(np.clip(np.interp(want, known, bits) + self.slope() * beyond, 0.0, self.raw_bits))

    def draw(self, nodes: int, total: int, link: LinkModel, random: np.random.Generator) -> Drawn:
        """Draw one AllReduce of `total` values between `nodes`, and time it.

        Each chunk takes after a measured one with all its sub-frames: an owner sends the sum of all of them,
        and a chunk may be dense at its beginning alone. Between more than PLAYED ranks of a schedule that is
        `alike`, one rank stands for all. Its chunk is the one with the longest sums, since every rank waits
        for it; but a rank that pushes all chunks to their owners has the mean of them to push.
        """
        schedule = replace(self.schedule, nodes=nodes)
        shape = -1, schedule.subframes
        share, measured = self.share.reshape(shape), self.deviation.reshape(2, *shape)
        chunk_share = share.sum(axis=1)
        source, whole = draw_parts(chunk_share, schedule.chunks, total, random)
        count = np.array([divide(int(values), schedule.subframes) for values in whole])
        # A sub-frame that was empty deviates as its chunk does on average.
        mean = (measured * share).sum(axis=2) / np.maximum(chunk_share, np.finfo(float).tiny)
        deviation = np.where(share > 0, measured, mean[:, :, None])[:, source]

        def size(phase: int, terms: int) -> Sizes:
            rate = np.minimum(self.bits_at(phase, terms) * deviation[phase], self.raw_bits) / 8
            return np.where(count > 0, self.header_bytes + np.ceil(count * rate), 0).astype(np.int64)

        if not schedule.alike or nodes <= PLAYED:
            frames = Frames.of(_rows(schedule, count, size))
            return Drawn(int(count.sum()), frames.bytes, time_of(schedule, frames, link))
        sizes = {kind: size(*kind) for kind, _ in kinds_of_frames(schedule)}
        sent = sum(number * int(sizes[kind].sum()) for kind, number in kinds_of_frames(schedule))
        longest = size(1, nodes).sum(axis=1).argmax()
        # Two hops: ranks push every chunk to its owner, so a rank's own frames are of the mean size.
        pushes = schedule.hops <= 2

        def one_ranks_size(phase: int, terms: int) -> Sizes:
            each = sizes[phase, terms]
            return -(-each.sum(axis=0) // nodes) if pushes and terms == 1 else each[longest]

        values = -(-count.sum(axis=0) // nodes) if pushes else count[longest]
        return Drawn(int(count.sum()), sent, time_of_alike(schedule, values, one_ranks_size, link))


def _rows(schedule: Schedule, count: Sizes, size: Callable[[int, int], Sizes]) -> Iterator[tuple[int, ...]]:
    """Yield the rows of a log of `schedule`; size(phase, terms) is by chunk and sub-frame."""
    known: dict[tuple[int, int], list[list[int]]] = {}
    counts = count.tolist()
    for rank in range(schedule.nodes):
        for a in schedule.actions(rank):
            if a.op in SENDS and counts[a.chunk][a.sub]:
                key = int(a.phase), a.workers
                if key not in known:
                    known[key] = size(*key).tolist()
                each = counts[a.chunk][a.sub], known[key][a.chunk][a.sub]
                yield (key[0], a.step, rank, a.peer, a.chunk, a.sub, a.workers, *each)


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
        fill(self.schedule, self.frames, lower(self.schedule))
        if np.unique(self.frames["phase"]).size < 2:
            raise ValueError("expected frames of both phases, got an all-gather alone; measure an AllReduce")
        _ = self.law

    @cached_property
    def law(self) -> Law:
        """How the sizes carry over."""
        return Law.of(self.schedule, self.frames, self.header_bytes, self.raw_bits)

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
        fp32_s = equal_time(Ring(count, subs), total, link, coded=False)
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
