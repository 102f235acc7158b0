"""Time at up to 1,024 nodes from the frame sizes of a small measured run.

Two things carry over: the bits per value, by how many workers' values a frame sums, and how far each chunk
deviates from the mean of its step. A chunk keeps its deviation all the way, since every node waits for the
largest chunk at some hop. Independent draws per frame would hide that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.gather import FORWARD, Gather
from oscar.collective.ring import ring_chunks
from oscar.timeline.link import LinkModel, algbw, busbw
from oscar.timeline.recurrence import equal_ring_time, finish_unchecked
from oscar.timeline.sizes import Sizes, checked_sizes

BITS_PER_DOUBLING = 0.5  # twice as many independent summands: sigma grows by sqrt 2, entropy by half a bit
MAX_NODES = 1024

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measured:
    """Frame sizes of one measured AllReduce, integers [phase 2, step n-1, sender n, sub-frame K].

    `gather`: the all-gather they come from, or duplex for a boomerang's, whose frames are the same.
    `header_bytes`: part of a frame that does not grow with its values. `raw_bits`: width at which the codec
    stops coding and sends values as they are. Needs n >= 2.
    """

    frame_bytes: Sizes
    counts: Sizes
    gather: Gather = FORWARD
    header_bytes: int = HEADER_BYTES
    raw_bits: int = 16
    bits: Floats = field(init=False, repr=False)  # [2, n-1] mean payload bits per value
    deviation: Floats = field(init=False, repr=False)  # [2, n-1, n K] relative to it, by chunk and sub-frame
    share: Floats = field(init=False, repr=False)  # [n K] part of all values, by chunk and sub-frame

    def __post_init__(self) -> None:
        sizes, counts = checked_sizes(self.frame_bytes, self.counts, self.gather)
        nodes, subs = counts.shape[2:]
        if nodes < 2 or not counts.any():
            values = int(counts.sum())
            raise ValueError(
                f"expected a run of 2 nodes or more with values, got {nodes} nodes, {values} values"
            )
        if self.header_bytes < 0 or self.raw_bits < 1:
            raise ValueError(
                f"expected header_bytes >= 0 and raw_bits >= 1, got {self.header_bytes} and {self.raw_bits}"
            )
        payload = np.where(counts > 0, sizes - self.header_bytes, 0)
        if (payload < 0).any():
            raise ValueError(
                f"expected frames of at least the {self.header_bytes} header bytes, got "
                f"{int(sizes[counts > 0].min())}; set header_bytes to what the frames carry"
            )
        values = counts[0, 0].sum()
        bits = 8.0 * payload.sum(axis=(2, 3)) / values
        own = np.divide(8.0 * payload, counts, out=np.zeros(counts.shape), where=counts > 0)
        mean = bits[:, :, None, None]
        relative = np.divide(own, mean, out=np.ones(counts.shape), where=(counts > 0) & (mean > 0))
        sender = np.argsort(ring_chunks(nodes, self.gather), axis=2)  # of each chunk
        relative = np.take_along_axis(relative, sender[..., None], axis=2)
        for name, value in (
            ("frame_bytes", sizes),
            ("counts", counts),
            ("bits", bits),
            ("deviation", relative.reshape(2, nodes - 1, nodes * subs)),
            ("share", counts[0, 0].reshape(-1) / values),
        ):
            object.__setattr__(self, name, value)

    @property
    def nodes(self) -> int:
        """Number of nodes of the measured run."""
        return int(self.counts.shape[2])

    @property
    def values(self) -> int:
        """Number of values it reduced."""
        return int(self.counts[0, 0].sum())

    def slope(self, phase: int) -> float:
        """Return the growth in bits per value for each doubling of the summands.

        Least squares over the measured steps, held to 0 (equal entropy) .. 1 (summands all alike);
        BITS_PER_DOUBLING where there are not two steps to fit. Forwarded frames have no steps of their
        own and grow with the ring as the partial sums do.
        """
        steps = self.nodes - 1
        if steps < 2:
            return BITS_PER_DOUBLING
        row = self.bits[phase if self.gather.boomerang else 0]
        return float(np.clip(np.polyfit(np.log2(np.arange(1, steps + 1)), row, 1)[0], 0.0, 1.0))

    def bits_at(self, nodes: int) -> Floats:
        """Return mean payload bits per value at every step of a larger or smaller ring, [2, nodes-1]."""
        have = np.log2(np.arange(1, self.nodes))
        want = np.log2(np.arange(1, nodes))
        out = np.empty((2, nodes - 1))
        for phase in range(2):
            out[phase] = np.interp(want, have, self.bits[phase])
            out[phase] += self.slope(phase) * np.maximum(want - have[-1], 0.0)
        if not self.gather.boomerang:
            growth = np.log2(nodes) - np.log2(self.nodes)
            out[1] = self.bits[1].mean() + self.slope(1) * growth
        return np.clip(out, 0.0, self.raw_bits)


@dataclass(frozen=True)
class ScalePoint:
    """One AllReduce of `values` at `nodes`: seconds, gain, wire bits per value with headers, bytes/s."""

    nodes: int
    values: int
    time_s: float
    fp32_time_s: float
    speedup: float
    bits_per_value: float
    algbw: float
    busbw: float


def check_nodes(nodes: Iterable[int]) -> None:
    """Raise ValueError unless all are sizes of a ring that is modelled."""
    for count in nodes:
        if not 2 <= count <= MAX_NODES:
            raise ValueError(f"expected 2 to {MAX_NODES} nodes, got {count}")


def draw_sizes(
    measured: Measured, nodes: int, *, values: int | None = None, seed: int = 0
) -> tuple[Sizes, Sizes]:
    """Draw the frames of one AllReduce at `nodes`: bytes and counts, int64 [2, N-1, N, K].

    Every sub-frame of every chunk draws a measured one and takes over its share of the values *and* its
    deviation in bits, since a plan that balances bytes pairs small shares with high rates. Beyond the
    measured steps it follows its deviation at one of the later half of them.
    """
    check_nodes([nodes])
    total = measured.values if values is None else values
    if total < 1:
        raise ValueError(f"expected at least 1 value, got {total}")
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, nodes])))
    known, subs = measured.counts.shape[1], measured.counts.shape[3]
    parts = nodes * subs
    # whole rounds of the measured sub-frames, then a random rest: the mean stays as measured
    source = np.arange(parts + (-parts) % measured.share.size) % measured.share.size
    source[-measured.share.size :] = random.permutation(source[-measured.share.size :])
    source = random.permutation(source[:parts])
    weight = measured.share[source]
    if not weight.any():
        raise ValueError(f"all {parts} sub-frames drawn are empty in the measured run; measure a larger one")
    edges = np.rint(np.cumsum(weight) * (total / weight.sum())).astype(np.int64)
    share = np.diff(edges, prepend=0).reshape(nodes, subs)
    pick = np.arange(nodes - 1) * np.ones((2, 1), np.int64)
    beyond = pick >= known
    pick[beyond] = random.integers(known // 2, known, int(beyond.sum()))
    if not measured.gather.boomerang:
        pick[1] = 0  # forwarded: the owner's frame all the way
    deviation = np.stack([measured.deviation[phase, pick[phase]] for phase in range(2)])
    rate = np.minimum(measured.bits_at(nodes)[:, :, None] * deviation, measured.raw_bits) / 8
    chunks = ring_chunks(nodes, measured.gather)
    origin, counts = source.reshape(nodes, subs)[chunks], share[chunks]
    payload = np.ceil(counts * np.take_along_axis(rate[:, :, None], origin, axis=3)).astype(np.int64)
    return np.where(counts > 0, measured.header_bytes + payload, 0), counts


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
    points = []
    for count in nodes:
        sizes, counts = draw_sizes(measured, count, values=values, seed=seed)
        total = int(counts[0, 0].sum())
        time_s = float(finish_unchecked(sizes, counts, link, measured.gather).max())
        fp32_s = equal_ring_time(total, count, link, subframes=counts.shape[3])
        rate = algbw(total, time_s)
        wire_bits = 8.0 * float(sizes.sum()) / (2 * (count - 1) * total)
        points.append(
            ScalePoint(count, total, time_s, fp32_s, fp32_s / time_s, wire_bits, rate, busbw(rate, count))
        )
    return points
