"""Time of one ring AllReduce as a compiled recurrence: `replay` without actions, for up to 1,024 nodes.

It leaves out one thing. Frames may reach a node from both sides: of a boomerang at its turn, of duplex all
the time. They then meet at the node's port, and `replay` lets one wait. Without such a wait the two results
are equal to the bit; with one, the replay takes longer (tests/host/test_timing.py has the bound).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from oscar.collective.frames import Frames
from oscar.collective.gather import RAW, Gather
from oscar.collective.ring import Ring
from oscar.timeline.driver import DESK, fetch, give
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.sizes import Sizes, cut_tables, dense_tables, divide, ring_tables, work_tables


@njit(cache=True, nogil=True)
def _hop_and_sum(
    sizes: Any, counts: Any, holds: Any, first: int, whole: bool, costs: Any, clocks: Any, ready: Any,
    arrive: Any, following: Any, desks: Any, values: Any, driver: Any,
) -> None:  # fmt: skip
    """Run the phases of [phases, steps, ranks, K] tables in which every hop decodes, adds, encodes, sends.

    counts, holds: as of `programs.Work`.
    Two phases (`first` 0: both, duplex) take turns by sub-frame on the same cores and port. `costs`:
    s/byte, latency, s/message, and the fields of `link.Codec`. `clocks`: when encoder and decoder [ranks,
    cores] (a busy core is both, and uses the first) and link [ranks] are free, and the last result
    [ranks]. `ready` [ranks, K]: when the values to send first are ready; on return, the time the last sums of
    the last phase are ready; `whole`: hosts read these. `desks` [ranks, DESK], `values` as counts, `driver`
    (costs or None): of `driver.give`. `arrive`, `following` [2, ranks, K]: room for arrivals by phase.
    """
    per_byte, latency, _, busy, cores, encode, encoded, hop, hopped, decode, decoded = costs[:11]
    front, between, least, front_in, between_in, least_in = costs[11:]
    encoder, decoder, link, last = clocks
    phases, steps, ranks, subs = counts.shape
    for step in range(steps + 1):
        for rank in range(ranks):
            left, right = rank - 1 if rank else ranks - 1, rank + 1 if rank + 1 < ranks else 0
            for sub in range(subs):
                core = sub % cores if cores > 1 else 0  # a division costs as much as all the rest
                for phase in range(phases):
                    peer = left if first + phase == 0 else right
                    summed, start = ready[rank, sub] if step == 0 else 0.0, -1.0
                    if step > 0 and counts[phase, step - 1, peer, sub] > 0:
                        count, own = counts[phase, step - 1, peer, sub], values[phase, step - 1, peer, sub]
                        free = encoder[rank, core] if busy else decoder[rank, core]
                        there = arrive[phase, peer, sub]
                        if driver is not None:
                            there = give(desks[rank], there, own, True, True, driver)
                        start = max(there + front_in, free)
                        summed = start + count * decode + decoded
                        if busy:
                            encoder[rank, core] = summed
                        else:
                            held = holds[phase, step - 1, peer, sub]
                            decoder[rank, core] = start + max(held * decode + between_in, least_in)
                        last[rank] = max(last[rank], summed)
                        if driver is not None and step == steps and whole:
                            last[rank] = max(last[rank], fetch(desks[rank], summed, own, driver))
                    if step == steps:
                        ready[rank, sub] = summed
                    elif counts[phase, step, rank, sub] > 0:
                        count = counts[phase, step, rank, sub]
                        if driver is not None:
                            own, sums = values[phase, step, rank, sub], step > 0
                            summed = give(desks[rank], summed, own, sums, not sums, driver)
                        begin = max(summed + front, encoder[rank, core])
                        frame = begin + count * encode + encoded
                        if busy and start >= 0:  # decoded, added and coded again in one go
                            frame = start + count * hop + hopped
                        held = holds[phase, step, rank, sub]
                        encoder[rank, core] = frame if busy else begin + max(held * encode + between, least)
                        cost = sizes[phase, step, rank, sub] * per_byte
                        link[rank] = max(frame, link[rank]) + cost
                        following[phase, rank, sub] = link[rank] + latency
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _hop_and_forward(
    sizes: Any, counts: Any, holds: Any, adopt: bool, costs: Any, clocks: Any, ready: Any, arrive: Any,
    following: Any, desks: Any, values: Any, driver: Any,
) -> None:  # fmt: skip
    """Run the phase in which owners encode once and every hop forwards the frame, then decodes it."""
    per_byte, latency, _, busy, cores, encode, encoded, _, _, decode, decoded = costs[:11]
    front, between, least, front_in, between_in, least_in = costs[11:]
    encoder, decoder, link, last = clocks
    if busy:
        decoder = encoder
    steps, ranks, subs = counts.shape
    for step in range(steps + 1):
        for rank in range(ranks):
            peer = rank - 1 if rank else ranks - 1
            for sub in range(subs):
                core = sub % cores if cores > 1 else 0  # a division costs as much as all the rest
                count = counts[0, rank, sub] if step == 0 else counts[step - 1, peer, sub]
                held = holds[0, rank, sub] if step == 0 else holds[step - 1, peer, sub]
                if count == 0:
                    continue
                if step == 0:
                    summed = ready[rank, sub]
                    if driver is not None:
                        summed = give(desks[rank], summed, values[0, rank, sub], True, False, driver)
                    begin = max(summed + front, encoder[rank, core])
                    frame = begin + count * encode + encoded
                    encoder[rank, core] = frame if busy else begin + max(held * encode + between, least)
                else:
                    frame = arrive[peer, sub]
                if step < steps:
                    link[rank] = max(frame, link[rank]) + sizes[step, rank, sub] * per_byte
                    following[rank, sub] = link[rank] + latency
                if step > 0 or adopt:
                    own = values[0, rank, sub] if step == 0 else values[step - 1, peer, sub]
                    if driver is not None:
                        frame = give(desks[rank], frame, own, True, False, driver)
                    begin = max(frame + front_in, decoder[rank, core])
                    done = begin + count * decode + decoded
                    decoder[rank, core] = done if busy else begin + max(held * decode + between_in, least_in)
                    last[rank] = max(last[rank], done)
                    if driver is not None:
                        last[rank] = max(last[rank], fetch(desks[rank], done, own, driver))
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _finish(
    sizes: Any, counts: Any, holds: Any, boomerang: bool, duplex: bool, adopt: bool, costs: Any, values: Any,
    driver: Any,
) -> Any:  # fmt: skip
    """Return when every rank finishes; one rank models a symmetric ring, it is its own neighbour."""
    _, steps, ranks, subs = counts.shape
    message, cores = costs[2], costs[4]
    clocks = (np.zeros((ranks, cores)), np.zeros((ranks, cores)), np.zeros(ranks), np.zeros(ranks))
    for phase in range(2 if message > 0 else 0):  # room for all frames is made before the first one leaves
        back = phase == 1 and boomerang
        for step in range(steps):
            for rank in range(ranks):
                receiver = (rank - 1 if back else rank + 1) % ranks
                for _ in range(np.count_nonzero(counts[phase, step, rank])):
                    clocks[2][receiver] += message
    ready, desks = np.zeros((ranks, subs)), np.zeros((ranks, DESK))
    arrive, following = np.zeros((2, ranks, subs)), np.zeros((2, ranks, subs))
    if steps > 0 and duplex:
        _hop_and_sum(
            sizes, counts, holds, 0, False, costs, clocks, ready, arrive, following, desks, values, driver
        )
    elif steps > 0:
        _hop_and_sum(
            sizes[:1], counts[:1], holds[:1], 0, not adopt, costs, clocks, ready, arrive, following, desks,
            values, driver,
        )  # fmt: skip
        if boomerang:
            _hop_and_sum(
                sizes[1:], counts[1:], holds[1:], 1, False, costs, clocks, ready, arrive, following, desks,
                values, driver,
            )  # fmt: skip
        else:
            _hop_and_forward(
                sizes[1], counts[1], holds[1], adopt, costs, clocks, ready, arrive[0], following[0], desks,
                values[1], driver,
            )  # fmt: skip
    return np.maximum(clocks[2], clocks[3])


def tables_finish(
    sizes: Sizes, counts: Sizes, link: LinkModel, gather: Gather, holds: Sizes | None = None,
    values: Sizes | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Return `ring_finish` of a ring's tables, contiguous int64 [2, N-1, N, K] (`ring_tables`).

    holds: of units that share frames, as counts; None: the same. values: of frames, where counts are work.
    """
    codec = link.codec(gather.coded)
    sizes, counts = cut_tables(sizes, counts, codec.cores)
    costs = (link.seconds_per_byte, link.latency_s, link.message_s, *codec[:-3])
    holds, values = (counts if other is None else other for other in (holds, values))
    ways = gather.boomerang, gather.duplex, gather.adopt
    driver = None if codec.driver is None or gather.boomerang else codec.driver.costs  # no NIC runs these
    return np.asarray(_finish(sizes, counts, holds, *ways, costs, values, driver))


def ring_finish(
    schedule: Ring, frames: Frames, link: LinkModel, *, coded: bool = True
) -> NDArray[np.float64]:
    """Return when every rank finishes, float64 [N] in seconds; arguments and errors as for `replay`."""
    sizes, counts = ring_tables(schedule, frames)
    codec, holds, values = link.codec(coded), None, counts
    if codec.sharing:
        counts, holds = work_tables(counts, frames, codec.sharing, codec.block)
    return tables_finish(sizes, counts, link, replace(schedule.form, coded=coded), holds, values)


def ring_time(schedule: Ring, frames: Frames, link: LinkModel, *, coded: bool = True) -> float:
    """Return the seconds until the last rank finishes; arguments and errors as for `replay`."""
    return float(ring_finish(schedule, frames, link, coded=coded).max())


def equal_ring_time(
    values: int,
    nodes: int,
    link: LinkModel,
    gather: Gather = RAW,
    *,
    bits_per_value: Callable[[int], float] | float = FP32_BITS,
    subframes: int = 1,
    header_bytes: int = 0,
) -> float:
    """Return the time when all chunks are as large as the largest of an even cut; raw fp32 by default.

    bits_per_value: one number, or one by how many workers' values a frame sums. All ranks do the same at the
    same time, so one rank that is its own neighbour models them all, at a cost of O(N K) instead of O(N^2 K).
    """
    if nodes < 1 or values < 0 or subframes < 1 or header_bytes < 0:
        raise ValueError(
            "expected nodes and subframes of 1 or more, values and header_bytes of 0 or more, got "
            f"{nodes}, {subframes}, {values}, {header_bytes}"
        )
    given = bits_per_value
    bits = np.array([given(terms) if callable(given) else given for terms in range(1, nodes + 1)])
    if not (bits > 0).all():
        raise ValueError(f"expected bits_per_value above 0, got {bits.min()}")
    count = divide(-(-values // nodes), subframes)
    terms = np.stack([np.arange(nodes - 1)] * 2)  # workers, less one, by phase and step
    if not gather.boomerang:
        terms[1] = nodes - 1
    sizes = header_bytes + np.ceil(count * (bits[terms][..., None, None] / 8)).astype(np.int64)
    counts = np.broadcast_to(count, sizes.shape).copy()
    codec, work, hold = link.codec(gather.coded), counts, counts
    if codec.sharing:
        work, hold = dense_tables(counts, codec.sharing, codec.block)
    return float(tables_finish(sizes, work, link, gather, hold, values=counts)[0])
