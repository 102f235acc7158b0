"""Which schedule to take: by the kind of network alone, or by the time model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.schedule import Schedule
from oscar.timeline.equal import Bits, equal_time, plain
from oscar.timeline.link import LinkModel
from oscar.timeline.scale import PLAYED
from oscar.timeline.topology import MissingLinkError, Topology


def by_kind(topology: Topology | None, nodes: int, *, exact: bool) -> str:
    """Return the name of the schedule that suits a network: direct at a switch, a ring where links are one.

    topology: of `nodes` ranks; None is a switch of equal ports. exact: whether sums are of integers, which
    may be added in any order. Two ranks then exchange their values, in one hop and without frames of sums,
    which are larger. Where groups share a NIC, two of them exchange their sums if these are exact; others are
    hierarchical. Raises ValueError where links are missing for all of these, with one that is.
    """
    if topology is None or topology.kind == "switch":
        return "exchange" if exact and nodes == 2 else "direct"
    n, links = nodes, topology.links
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    missing = [pair for pair in pairs if pair not in links]
    if topology.kind == "links" and not missing:
        if topology.group is None:
            return "direct"
        return "exchange" if exact and n == 2 * topology.group else "hierarchical"
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

    Between more than PLAYED ranks with equal ports at a switch only schedules that are `alike` are compared,
    if there are any: to play all ranks takes seconds. Of a NIC with its driver those are left out that keep
    sums apart, since its memory holds one. Raises ValueError where none has all its links.
    """
    if coded and link.driver is not None:
        candidates = [each for each in candidates if not each.apart] or candidates
    quick = [schedule for schedule in candidates if schedule.alike]
    if plain(link, topology)[1] is None and quick and candidates[0].nodes > PLAYED:
        candidates = quick
    found = times(candidates, values, link, topology, bits, coded=coded)
    best = min(found, key=found.__getitem__)
    if math.isinf(found[best]):
        raise ValueError(
            f"expected a topology with the links of one of {', '.join(found)}, got "
            f"{topology and topology.text}; make a schedule for it: oscar schedule synth"
        )
    return best
