"""How the frame sizes of one measured AllReduce carry over to other numbers of nodes (see `scale`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.gather import Gather
from oscar.collective.ring import Ring, ring_chunks
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.link import LinkModel, least, listed
from oscar.timeline.recurrence import tables_finish
from oscar.timeline.replay import time_of
from oscar.timeline.sizes import Sizes, dense_tables, divide, ring_tables
from oscar.timeline.symmetric import symmetric_time

BITS_PER_DOUBLING = 0.5  # twice as many independent summands: sigma grows by sqrt 2, entropy by half a bit
REPLAYED = 64  # most ranks of a direct schedule whose every frame is replayed

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


def _slope(terms: Floats, bits: Floats) -> float:
    """Return the growth in bits for each doubling of `terms`: least squares, held to 0 .. 1."""
    if len(set(terms.tolist())) < 2:
        return BITS_PER_DOUBLING
    return float(np.clip(np.polyfit(np.log2(terms), bits, 1)[0], 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class RingLaw:
    """Of a ring's frames, by phase and step.

    bits: [2, n-1] mean payload bits per value. deviation: [2, n-1, n K] relative to it, by chunk and
    sub-frame. share: [n K] part of all values.
    """

    schedule: Ring
    header_bytes: int
    raw_bits: int
    bits: Floats
    deviation: Floats
    share: Floats

    @classmethod
    def of(cls, schedule: Ring, frames: Frames, header_bytes: int, raw_bits: int) -> RingLaw:
        """Return the law of measured frames."""
        sizes, counts = ring_tables(schedule, frames)
        nodes, subs = counts.shape[2:]
        payload = np.where(counts > 0, sizes - header_bytes, 0)
        values = counts[0, 0].sum()
        bits = 8.0 * payload.sum(axis=(2, 3)) / values
        own = np.divide(8.0 * payload, counts, out=np.zeros(counts.shape), where=counts > 0)
        mean = bits[:, :, None, None]
        relative = np.divide(own, mean, out=np.ones(counts.shape), where=(counts > 0) & (mean > 0))
        sender = np.argsort(ring_chunks(nodes, schedule.gather), axis=2)  # of each chunk
        relative = np.take_along_axis(relative, sender[..., None], axis=2)
        deviation = relative.reshape(2, nodes - 1, nodes * subs)
        return cls(schedule, header_bytes, raw_bits, bits, deviation, counts[0, 0].reshape(-1) / values)

    @property
    def gather(self) -> Gather:
        """How the ring's sums come back."""
        return self.schedule.form

    def slope(self, phase: int) -> float:
        """Return the growth in bits per value for each doubling of the summands.

        Least squares over the measured steps, held to 0 (equal entropy) .. 1 (summands all alike);
        BITS_PER_DOUBLING where there are not two steps to fit. Forwarded frames have no steps of their
        own and grow with the ring as the partial sums do.
        """
        row = self.bits[phase if self.gather.boomerang else 0]
        return _slope(np.arange(1.0, row.size + 1), row)

    def bits_at(self, nodes: int) -> Floats:
        """Return mean payload bits per value at every step of a larger or smaller ring, [2, nodes-1]."""
        measured = self.schedule.nodes
        have = np.log2(np.arange(1, measured))
        want = np.log2(np.arange(1, nodes))
        out = np.empty((2, nodes - 1))
        for phase in range(2):
            out[phase] = np.interp(want, have, self.bits[phase])
            out[phase] += self.slope(phase) * np.maximum(want - have[-1], 0.0)
        if not self.gather.boomerang:
            growth = np.log2(nodes) - np.log2(measured)
            out[1] = self.bits[1].mean() + self.slope(1) * growth
        return np.clip(out, 0.0, self.raw_bits)

    def tables(self, nodes: int, total: int, random: np.random.Generator) -> tuple[Sizes, Sizes]:
        """Draw the frames of one AllReduce: bytes and counts, int64 [2, N-1, N, K].

        Frames of steps that were not measured take deviations of measured steps, drawn from the later half.
        """
        known, subs = self.bits.shape[1], self.schedule.subframes
        source, share = draw_parts(self.share, nodes * subs, total, random)
        pick = np.arange(nodes - 1) * np.ones((2, 1), np.int64)
        beyond = pick >= known
        pick[beyond] = random.integers(known // 2, known, int(beyond.sum()))
        if not self.gather.boomerang:
            pick[1] = 0  # forwarded: the owner's frame all the way
        deviation = np.stack([self.deviation[phase, pick[phase]] for phase in range(2)])
        rate = np.minimum(self.bits_at(nodes)[:, :, None] * deviation, self.raw_bits) / 8
        chunks = ring_chunks(nodes, self.gather)
        origin, counts = source.reshape(nodes, subs)[chunks], share.reshape(nodes, subs)[chunks]
        payload = np.ceil(counts * np.take_along_axis(rate[:, :, None], origin, axis=3)).astype(np.int64)
        return np.where(counts > 0, self.header_bytes + payload, 0), counts

    def draw(self, nodes: int, total: int, link: LinkModel, random: np.random.Generator) -> Drawn:
        """Draw one AllReduce between `nodes` and time it.

        The rows of drawn frames are not known, so the units of a NIC take the time of dense ones.
        """
        sizes, counts = self.tables(nodes, total, random)
        codec, work, hold = link.codec(self.gather.coded), counts, counts
        if codec.sharing:
            work, hold = dense_tables(counts, codec.sharing, codec.block)

        def ring_s(link: LinkModel) -> float:
            return float(tables_finish(sizes, work, link, self.gather, hold, values=counts).max())

        time_s = least(link, listed(replace(self.schedule, nodes=nodes), total, link), ring_s)
        return Drawn(int(counts[0, 0].sum()), int(sizes.sum()), time_s)


@dataclass(frozen=True, eq=False)
class RoutedLaw:
    """Of any schedule's frames, by phase and number of terms.

    bits: by phase, (terms, mean payload bits per value), each float64 in ascending order of terms. deviation:
    [2, chunks K] relative to it, of all a phase's frames of that chunk and sub-frame. share: [chunks K] part
    of all values.
    """

    schedule: Schedule
    header_bytes: int
    raw_bits: int
    bits: tuple[tuple[Floats, Floats], ...]
    deviation: Floats
    share: Floats

    @classmethod
    def of(cls, schedule: Schedule, frames: Frames, header_bytes: int, raw_bits: int) -> RoutedLaw:
        """Return the law of measured frames."""
        rows, parts = frames.rows, schedule.chunks * schedule.subframes
        part = rows["chunk"].astype(np.int64) * schedule.subframes + rows["sub"]
        if len(rows) and int(part.max()) >= parts:
            raise ValueError(f"expected the frames of {schedule.describe()}; give the schedule that ran")
        payload, share = 8.0 * (rows["bytes"] - header_bytes), np.zeros(parts)
        share[part] = rows["count"]
        laws, deviation = [], np.ones((2, parts))
        for phase in range(2):
            here = rows["phase"] == phase
            terms, at = np.unique(rows["terms"][here], return_inverse=True)
            mean = np.bincount(at, payload[here]) / np.maximum(np.bincount(at, rows["count"][here]), 1)
            laws.append((terms.astype(float), mean))
            usual = np.bincount(part[here], mean[at] * rows["count"][here], parts)
            own = np.bincount(part[here], payload[here], parts)
            np.divide(own, usual, out=deviation[phase], where=usual > 0)
        return cls(schedule, header_bytes, raw_bits, tuple(laws), deviation, share / share.sum())

    def _kept(self) -> Floats:
        """Return the deviations; a sub-frame that was empty has the mean one of its chunk."""
        shape = -1, self.schedule.subframes
        share, own = self.share.reshape(shape), self.deviation.reshape(2, *shape)
        total = np.maximum(share.sum(axis=1), np.finfo(float).tiny)
        mean = (own * share).sum(axis=2) / total
        return np.where(share > 0, own, mean[:, :, None])

    def slope(self) -> float:
        """Return the growth in bits per value for each doubling of the summands, over both phases."""
        return _slope(*(np.concatenate([law[i] for law in self.bits]) for i in range(2)))

    def bits_at(self, phase: int, terms: int) -> float:
        """Return mean payload bits per value of frames that sum so many workers' values.

        Between measured numbers of terms in a straight line over their logarithm, beyond them with `slope`.
        """
        have, bits = self.bits[phase]
        want, known = np.log2(terms), np.log2(have)
        beyond = want - np.clip(want, known[0], known[-1])
        return float(np.clip(np.interp(want, known, bits) + self.slope() * beyond, 0.0, self.raw_bits))

    def draw(self, nodes: int, total: int, link: LinkModel, random: np.random.Generator) -> Drawn:
        """Draw one AllReduce between `nodes` and time it.

        Each chunk takes after a measured one with all its sub-frames: an owner sends the sum of all of them,
        and a chunk may be dense at its beginning alone. Of direct between more than REPLAYED ranks,
        all are as the one that has the longest sum to send.
        """
        schedule = replace(self.schedule, nodes=nodes)
        shape = -1, schedule.subframes
        source, whole = draw_parts(self.share.reshape(shape).sum(axis=1), schedule.chunks, total, random)
        count = np.array([divide(int(values), schedule.subframes) for values in whole])
        deviation = self._kept().reshape(2, *shape)[:, source]

        def size(phase: int, terms: int) -> Sizes:
            rate = np.minimum(self.bits_at(phase, terms) * deviation[phase], self.raw_bits) / 8
            return np.where(count > 0, self.header_bytes + np.ceil(count * rate), 0).astype(np.int64)

        if type(schedule) is Direct and nodes > REPLAYED:
            push, pull = size(0, 1), size(1, nodes)
            longest = pull[pull.sum(axis=1).argmax()]
            mean = -(-push.sum(axis=0) // nodes), -(-count.sum(axis=0) // nodes)
            sizes = {1: mean[0], nodes: longest}
            by_list = listed(schedule, total, link)
            time_s = least(link, by_list, lambda one: symmetric_time(schedule, mean[1], sizes, one))
            return Drawn(int(count.sum()), int((nodes - 1) * (push + pull).sum()), time_s)
        frames = Frames.of(_rows(schedule, count, size))
        return Drawn(int(count.sum()), frames.bytes, time_of(schedule, frames, link))


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
