"""Which schedule to take, and how much of the work each rank gets where ranks are unequal.

A schedule is chosen by the kind of network alone, or by the time model. Chunks are shared out by ports,
batches by speed. Shares by ports follow AutoHAAP: ownership in proportion to what heterogeneous ports
carry. Shares are plain data that every rank must hold alike: compute them once and put them into the
configuration, or compare digests.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from oscar.array import Array
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.schedule import Schedule
from oscar.errors import needed
from oscar.numerics.plans import SHARE_PARTS
from oscar.timeline.equal import Bits, equal_time, plain
from oscar.timeline.link import LinkModel
from oscar.timeline.scale import PLAYED
from oscar.timeline.topology import MissingLinkError, Topology

SLACK = 1e-9  # of a time; what linear programs leave open
BOUND = 1e-9  # a dual value above it: the port bounds the time


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
    result = {}
    for schedule in candidates:
        try:
            result[schedule.name] = equal_time(
                schedule, values, link, topology, bits=bits, header_bytes=HEADER_BYTES, coded=coded
            )
        except MissingLinkError:
            result[schedule.name] = math.inf
    return result


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
    if there are any: to play all ranks takes seconds. With a NIC and its driver, schedules that keep sums
    apart are left out: the NIC's memory holds one sum. Raises ValueError where none has all its links.
    """
    if coded and link.driver is not None:
        candidates = [each for each in candidates if not each.apart] or candidates
    quick = [schedule for schedule in candidates if schedule.alike]
    if plain(link, topology)[1] is None and quick and candidates[0].nodes > PLAYED:
        candidates = quick
    result = times(candidates, values, link, topology, bits, coded=coded)
    best = min(result, key=result.__getitem__)
    if math.isinf(result[best]):
        raise ValueError(
            f"expected a topology with the links of one of {', '.join(result)}, got "
            f"{topology and topology.text}; make a schedule for it: oscar schedule synth"
        )
    return best


def auto_shares(topology: Topology, bits_one: float, bits_all: float, values: int) -> tuple[float, ...]:
    """Return each rank's share of the chunks with which a direct schedule's busiest port is free earliest.

    bits_one, bits_all: measured, per value, of frames of one worker and of the sum of all workers; values: of
    the gradient. Rank i pushes chunk j to its owner j in a frame of one worker, and sends the sum of its own
    chunk to each other rank. Among equals, the second busiest port is free earliest, and so on. Shares are
    multiples of 2^-20 and sum to 1; a rank with a share of 0 owns nothing. Latency and the wait for pushes
    are not counted; `settled` does. Raises ValueError for bits or values out of range and for ranks without
    a link, MissingExtraError without scipy.
    """
    n = topology.nodes
    load, fixed = port_loads(topology, bits_one, bits_all, values)
    if n == 1:
        return (1.0,)
    scale = float(load.max()) or 1.0
    return rounded(_fairest(load / scale, fixed / scale))


def settled(
    shares: Sequence[float], seconds: Callable[[tuple[float, ...]], float], *, steps: int = 8
) -> tuple[tuple[float, ...], float]:
    """Return the fastest of `steps` + 1 mixtures of equal shares and `shares`, and its time.

    seconds: returns the time of an AllReduce with given shares, by a replay. A replay counts latency and sums
    that wait, which the linear program leaves out; so few sub-frames and small gradients are faster with
    nearly equal shares. Both ends are tried: the result is never slower than either. Of equally fast mixtures
    the nearest to `shares` wins.
    """
    if steps < 1:
        raise ValueError(f"steps: expected 1 or more, got {steps}")
    n = len(shares)
    ways = [
        rounded([(at * share + (steps - at) / n) / steps for share in shares]) for at in range(steps, -1, -1)
    ]
    times = [seconds(way) for way in ways]
    best = min(range(len(ways)), key=times.__getitem__)
    return ways[best], times[best]


def port_loads(topology: Topology, bits_one: float, bits_all: float, values: int) -> tuple[Array, Array]:
    """Return the seconds that each port is busy in a direct AllReduce: load @ shares + fixed.

    load: float64 [ports, ranks], for the bytes of chunks; fixed: float64 [ports], for headers and messages.
    Arguments and errors are those of `auto_shares`.
    """
    n = topology.nodes
    for name, bits in (("bits_one", bits_one), ("bits_all", bits_all)):
        if not 0 < bits < float("inf"):
            raise ValueError(f"{name}: expected bits per value above 0, got {bits!r}")
    if values < 1:
        raise ValueError(f"values: expected 1 or more, got {values}")
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    missing = [pair for pair in pairs if pair not in topology.links]
    if missing:
        raise ValueError(
            f"shares are for a direct schedule, which needs a link between all ranks; there is none from "
            f"rank {missing[0][0]} to rank {missing[0][1]} in {topology.text}"
        )
    load, fixed = np.zeros((len(topology.ports), n)), np.zeros(len(topology.ports))
    for i, j in pairs:
        link = topology.links[i, j]
        for at in (*link.out, *link.into):
            byte = topology.ports[at].seconds_per_byte
            load[at, j] += values * bits_one / 8 * byte  # the push of j's chunk
            load[at, i] += values * bits_all / 8 * byte  # the sum of i's chunk
            fixed[at] += 2 * (HEADER_BYTES * byte + topology.message_s)
    return load, fixed


def rounded(shares: Sequence[float] | Array) -> tuple[float, ...]:
    """Return shares as multiples of 2^-20 that sum to 1, the nearest by largest remainder."""
    exact = [Fraction(max(0.0, float(share))) for share in shares]
    whole = sum(exact)
    parts = [SHARE_PARTS * share / whole for share in exact]
    floors = [int(part) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda rank: (floors[rank] - parts[rank], rank))
    for rank in by_rest[: SHARE_PARTS - sum(floors)]:
        floors[rank] += 1
    return tuple(part / SHARE_PARTS for part in floors)


def _fairest(load: Array, fixed: Array) -> Array:
    """Return the shares that minimise the largest load @ shares + fixed, then the next largest, and so on.

    In each round the ports that bound the time keep it, and those left are minimised.
    """
    ports, n = load.shape
    open_ports: Array = np.any(load, axis=1)
    ceiling = np.full(ports, np.inf)
    shares = np.full(n, 1 / n)
    while open_ports.any():
        fixed_ports = np.isfinite(ceiling)
        rows = np.concatenate([load[open_ports], load[fixed_ports]])
        slope = np.concatenate([-np.ones(open_ports.sum()), np.zeros(fixed_ports.sum())])
        most = np.concatenate([-fixed[open_ports], (ceiling - fixed)[fixed_ports]])
        result = needed("scipy.optimize", "shares: auto", "schedule").linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.column_stack([rows, slope]),
            b_ub=most,
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0, 1)] * n + [(0, None)],
            method="highs-ds",
        )
        if result.x is None:  # nothing but rounding is left to gain
            return shares
        shares, time = result.x[:n], result.x[n]
        binding = np.flatnonzero(open_ports)[result.ineqlin.marginals[: open_ports.sum()] < -BOUND]
        if not binding.size:
            return shares
        ceiling[binding] = time * (1 + SLACK) + SLACK**2
        open_ports[binding] = False
    return shares


def batch_shares(seconds: Sequence[float], batch: int, *, least: int = 1) -> tuple[tuple[int, ...], Array]:
    """Return each rank's batch size, and the float32 weight of its mean gradient, by rank.

    seconds: per sample, by rank; batch: samples of all ranks together; least: of a rank. The slowest rank is
    as fast as whole samples allow. The mean over the batch is the mean over N ranks of weight times a rank's
    own mean, with weight = size N / batch: a reducer multiplies a rank's float32 gradients by its weight
    before anything else (error feedback, steps, rounding), since its result is the plain mean over ranks.
    Integers that are summed are then those of the weighted gradients, and nothing else changes. A rank of
    size 0 hands in zeros. Raises ValueError for times that are not above 0, or too few samples for `least`.
    """
    n = len(seconds)
    wrong = [f"{each!r} of rank {rank}" for rank, each in enumerate(seconds) if not 0 < each < float("inf")]
    if wrong or not n:
        raise ValueError(f"seconds per sample: expected a time above 0 for each rank, got {wrong or 'none'}")
    if least < 0 or batch < max(1, n * least):
        raise ValueError(f"batch: expected {max(1, n * least)} samples or more for {n} ranks, got {batch}")
    each = [Fraction(value) for value in seconds]
    time = (batch - n * least) / sum(1 / value for value in each)  # not above that of the best sizes
    sizes = [max(least, int(time / value)) for value in each]
    ends = [((size + 1) * value, rank) for rank, (size, value) in enumerate(zip(sizes, each, strict=True))]
    heapq.heapify(ends)
    for _ in range(batch - sum(sizes)):
        end, rank = ends[0]
        sizes[rank] += 1
        heapq.heapreplace(ends, (end + each[rank], rank))
    return tuple(sizes), (np.array(sizes, np.float64) * n / batch).astype(np.float32)
