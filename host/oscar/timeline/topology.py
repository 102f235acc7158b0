"""The network between ranks: which links there are, and which ports their bytes go through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["switch", "ring", "links"]
Pair = tuple[int, int]


class MissingLinkError(ValueError):
    """A schedule sends where the topology has no link."""


@dataclass(frozen=True)
class Port:
    """What carries one frame at a time: a rank's way out or in, a NIC that several ranks share, a wire."""

    name: str
    seconds_per_byte: float


@dataclass(frozen=True)
class Link:
    """One direction between two ranks.

    out, into: numbers of the ports that a frame occupies where it leaves, and where it arrives. A frame has
    arrived latency_s after its last bit left, if no port there was busy.
    """

    latency_s: float
    out: tuple[int, ...]
    into: tuple[int, ...]


class AtSwitch(Mapping[Pair, Link]):
    """The links of equal ports at a switch, made when they are asked for: port r out, port N + r in."""

    def __init__(self, nodes: int, latency_s: float) -> None:
        self.nodes, self.latency_s = nodes, latency_s

    def __getitem__(self, pair: Pair) -> Link:
        if pair[0] == pair[1] or not 0 <= min(pair) <= max(pair) < self.nodes:
            raise KeyError(pair)
        return Link(self.latency_s, (pair[0],), (self.nodes + pair[1],))

    def __iter__(self) -> Iterator[Pair]:
        return ((i, j) for i in range(self.nodes) for j in range(self.nodes) if i != j)

    def __len__(self) -> int:
        return self.nodes * (self.nodes - 1)


@dataclass(frozen=True)
class Topology:
    """The network between ranks.

    Attributes:
        nodes: Number of ranks.
        links: By (sender, receiver); ranks without a link cannot send to each other.
        kind: Kind of the network.
        text: One line for people.
        message_s: Seconds that each message occupies a port beside its bytes.
        group: Number of consecutive ranks that share a NIC; None: none do.

    >>> switch([100.0, 25.0], latency_s=2e-6).text
    '2 ranks at a switch, 100, 25 Gb/s'
    """

    nodes: int
    ports: tuple[Port, ...]
    links: Mapping[Pair, Link]
    kind: Kind
    text: str
    message_s: float = 0.0
    group: int | None = None


def switch(gbps: Sequence[float], latency_s: float) -> Topology:
    """Return ranks at one switch that never blocks: rank r's port carries gbps[r] in each direction."""
    n = len(gbps)
    ports = [Port(f"{way} {rank}", 8e-9 / rate) for way in ("out", "in") for rank, rate in enumerate(gbps)]
    rates = f"{gbps[0]:g} Gb/s each" if len(set(gbps)) == 1 else f"{', '.join(f'{g:g}' for g in gbps)} Gb/s"
    return Topology(n, tuple(ports), AtSwitch(n, latency_s), "switch", f"{n} ranks at a switch, {rates}")


def adding_switch(ranks: int, slices: int, gbps: float, latency_s: float) -> Topology:
    """Return ranks at a switch that adds: its slices are the last ranks, half a link away, with all ports.

    >>> adding_switch(4, 2, 100.0, 2e-6).text
    '4 ranks at a switch that adds in 2 slices, 100 Gb/s each'
    """
    ports = tuple(Port(f"{way} {rank}", 8e-9 / gbps) for way in ("out", "in") for rank in range(ranks))
    links = {}
    for rank in range(ranks):
        for slice in range(ranks, ranks + slices):
            links[rank, slice] = Link(latency_s / 2, (rank,), ())
            links[slice, rank] = Link(latency_s / 2, (), (ranks + rank,))
    text = f"{ranks} ranks at a switch that adds in {slices} slices, {gbps:g} Gb/s each"
    return Topology(ranks + slices, ports, links, "links", text)


def wires(nodes: int, rates: Mapping[Pair, tuple[float, float]]) -> Topology:
    """Return point-to-point links of their own: every[i, j] is (Gb/s, seconds of latency)."""
    ports = tuple(Port(f"{i} -> {j}", 8e-9 / rate) for (i, j), (rate, _) in rates.items())
    links = {pair: Link(late, (at,), ()) for at, (pair, (_, late)) in enumerate(rates.items())}
    ring = {(i, (i + 1) % nodes) for i in range(nodes)}
    kind: Kind = "ring" if set(links) <= ring | {(j, i) for i, j in ring} else "links"
    return Topology(nodes, ports, links, kind, f"{nodes} ranks, {len(links)} links")


def grouped(groups: int, size: int, *, inside: tuple[float, float], between: tuple[float, float]) -> Topology:
    """Return groups of ranks with a link of its own for each pair inside, and one NIC that a group shares.

    inside, between: (Gb/s, seconds of latency), each direction.
    """
    n = groups * size
    ports = [Port(f"NIC {way} {g}", 8e-9 / between[0]) for way in ("out", "in") for g in range(groups)]
    links: dict[Pair, Link] = {}
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            if i // size == j // size:
                links[i, j] = Link(inside[1], (len(ports),), ())
                ports.append(Port(f"{i} -> {j}", 8e-9 / inside[0]))
            else:
                links[i, j] = Link(between[1], (i // size,), (groups + j // size,))
    text = f"{groups} groups of {size} ranks, {inside[0]:g} Gb/s inside, one NIC of {between[0]:g} Gb/s each"
    return Topology(n, tuple(ports), links, "links", text, group=size)
