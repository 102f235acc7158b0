"""Which schedule to take: by the kind of network alone, or by the time model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.schedule import Schedule
from oscar.timeline.equal import Bits, equal_time
from oscar.timeline.link import LinkModel
from oscar.timeline.ports import MissingLinkError
from oscar.timeline.topology import Topology


def by_kind(topology: Topology | None, *, exact: bool) -> str:
    """Return the name of the schedule that suits a network: direct at a switch, a ring where links are one.

    topology: None is a switch of equal ports. exact: whether sums are of integers, so that duplex may add in
    any order. Where ranks share a port, groups come first (hierarchical). Raises ValueError where links
    are missing for all of these, with one that is.
    """
    if topology is None or topology.kind == "switch":
        return "direct"
    n, links = topology.nodes, topology.links
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    missing = [pair for pair in pairs if pair not in links]
    if topology.kind == "links" and not missing:
        ranks = Counter(port for _, port in {(pair[0], port) for pair in pairs for port in links[pair].out})
        return "hierarchical" if max(ranks.values(), default=1) > 1 else "direct"
    ring = [(i, (i + 1) % n) for i in range(n) if n > 1]
    if all(pair in links for pair in ring):
        return "duplex" if exact and all((j, i) in links for i, j in ring) else "ring"
    raise ValueError(
        "expected links between all ranks, or a ring of them, got none from rank "
        f"{missing[0][0]} to {missing[0][1]}; make a schedule for it: oscar schedule synth"
    )


def times(
    candidates: Sequence[Schedule],
    values: int,
    link: LinkModel,
    topology: Topology | None = None,
    bits: Bits = 32.0,
    *,
    coded: bool = True,
) -> dict[str, float]:
    """Return each candidate's seconds with equal chunks, by name; infinite where it has no links.

    bits: of payload per value, by how many workers' values a frame sums. Nothing is measured or drawn: equal
    arguments give equal times on every rank.
    """
    found = {}
    for schedule in candidates:
        try:
            found[schedule.name] = equal_time(
                schedule, values, link, topology, bits=bits, header_bytes=HEADER_BYTES, coded=coded
            )
        except MissingLinkError:
            found[schedule.name] = math.inf
    return found


def choose(
    candidates: Sequence[Schedule],
    values: int,
    link: LinkModel,
    topology: Topology | None = None,
    bits: Bits = 32.0,
    *,
    coded: bool = True,
) -> str:
    """Return the name of the candidate that takes least by `times`; of equals the first.

    Raises ValueError where none has all its links.
    """
    found = times(candidates, values, link, topology, bits, coded=coded)
    best = min(found, key=found.__getitem__)
    if math.isinf(found[best]):
        raise ValueError(
            f"expected a topology with the links of one of {', '.join(found)}, got "
            f"{topology and topology.text}; make a schedule for it: oscar schedule synth"
        )
    return best
