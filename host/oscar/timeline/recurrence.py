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
from numpy.typing import NDArray

from oscar.collective.frames import Frames
from oscar.collective.gather import RAW, Gather
from oscar.collective.ring import Ring
from oscar.kernels import njit
from oscar.timeline.driver import DESK, fetch, give
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.sizes import Sizes, cut_tables, dense_tables, divide, ring_tables, work_tables


@njit(cache=True, nogil=True)
def _hop_and_sum(
    sizes: Any, counts: Any, holds: Any, wire: Any, codec: Any, clocks: Any, ready: Any, arrive: Any,
    following: Any, desks: Any, values: Any, driver: Any, first: int, whole: bool,
) -> None:  # fmt: skip
    """Run the phases of [phases, steps, ranks, K] tables in which every hop decodes, adds, encodes, sends.

    counts, holds: as of `programs.Work`.
    Two phases (`first` 0: both, duplex) take turns by sub-frame on the same cores and port. `wire`: s/byte
    and latency. `codec`: CodecTime. `clocks`: when encoder and decoder [ranks, cores] (a busy core is both,
    and uses the first) and link [ranks] are free, and the last result [ranks]. `ready` [ranks, K]: when the
    values to send first are ready; on return, the time the last sums of the last phase are ready; `whole`:
    hosts read these. `desks` [ranks, DESK], `values` as counts, `driver` (costs or None): of `driver.give`.
    `arrive`, `following` [2, ranks, K]: room for arrivals by phase.
    """
    (per_byte, latency), busy, cores = wire, codec.busy, codec.cores
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
                            there = give(desks[rank], there, own, noticed=True, loads=True, costs=driver)
                        start = max(there + codec.decode_front, free)
                        summed = start + count * codec.decode_each + codec.decode_once
                        if busy:
                            encoder[rank, core] = summed
                        else:
                            held = holds[phase, step - 1, peer, sub]
                            hold = held * codec.decode_each + codec.decode_between
                            decoder[rank, core] = start + max(hold, codec.decode_least)
                        last[rank] = max(last[rank], summed if driver is None else summed + driver.end_s)
                        if driver is not None and step == steps and whole:
                            last[rank] = max(last[rank], fetch(desks[rank], summed, own, driver))
                    if step == steps:
                        ready[rank, sub] = summed
                    elif counts[phase, step, rank, sub] > 0:
                        count = counts[phase, step, rank, sub]
                        if driver is not None:
                            own, desk = values[phase, step, rank, sub], desks[rank]
                            summed = give(desk, summed, own, noticed=step > 0, loads=step == 0, costs=driver)
                        begin = max(summed + codec.encode_front, encoder[rank, core])
                        frame = begin + count * codec.encode_each + codec.encode_once
                        if busy and start >= 0:  # decoded, added and coded again in one go
                            frame = start + count * codec.hop_each + codec.hop_once
                        hold = holds[phase, step, rank, sub] * codec.encode_each + codec.encode_between
                        encoder[rank, core] = frame if busy else begin + max(hold, codec.encode_least)
                        cost = sizes[phase, step, rank, sub] * per_byte
                        link[rank] = max(frame, link[rank]) + cost
                        following[phase, rank, sub] = link[rank] + latency
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _hop_and_forward(
    sizes: Any, counts: Any, holds: Any, wire: Any, codec: Any, clocks: Any, ready: Any, arrive: Any,
    following: Any, desks: Any, values: Any, driver: Any, adopt: bool,
) -> None:  # fmt: skip
    """Run the phase in which owners encode once and every hop forwards the frame, then decodes it."""
    (per_byte, latency), busy, cores = wire, codec.busy, codec.cores
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
                        own = values[0, rank, sub]
                        summed = give(desks[rank], summed, own, noticed=True, loads=False, costs=driver)
                    begin = max(summed + codec.encode_front, encoder[rank, core])
                    frame = begin + count * codec.encode_each + codec.encode_once
                    hold = held * codec.encode_each + codec.encode_between
                    encoder[rank, core] = frame if busy else begin + max(hold, codec.encode_least)
                else:
                    frame = arrive[peer, sub]
                if step < steps:
                    link[rank] = max(frame, link[rank]) + sizes[step, rank, sub] * per_byte
                    following[rank, sub] = link[rank] + latency
                if step > 0 or adopt:
                    own = values[0, rank, sub] if step == 0 else values[step - 1, peer, sub]
                    if driver is not None:
                        frame = give(desks[rank], frame, own, noticed=True, loads=False, costs=driver)
                    begin = max(frame + codec.decode_front, decoder[rank, core])
                    done = begin + count * codec.decode_each + codec.decode_once
                    hold = held * codec.decode_each + codec.decode_between
                    decoder[rank, core] = done if busy else begin + max(hold, codec.decode_least)
                    last[rank] = max(last[rank], done if driver is None else done + driver.end_s)
                    if driver is not None:
                        last[rank] = max(last[rank], fetch(desks[rank], done, own, driver))
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _finish(
    sizes: Any, counts: Any, holds: Any, wire: Any, message: float, codec: Any, values: Any, driver: Any,
    boomerang: bool, duplex: bool, adopt: bool,
) -> Any:  # fmt: skip
    """Return when every rank finishes; one rank models a symmetric ring, it is its own neighbour."""
    _, steps, ranks, subs = counts.shape
    rooms = ranks, codec.cores
    clocks = (np.zeros(rooms), np.zeros(rooms), np.zeros(ranks), np.zeros(ranks))
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
            sizes, counts, holds, wire, codec, clocks, ready, arrive, following, desks, values, driver,
            first=0, whole=False,
        )  # fmt: skip
    elif steps > 0:
        _hop_and_sum(
            sizes[:1], counts[:1], holds[:1], wire, codec, clocks, ready, arrive, following, desks, values,
            driver, first=0, whole=not adopt,
        )  # fmt: skip
        if boomerang:
            _hop_and_sum(
                sizes[1:], counts[1:], holds[1:], wire, codec, clocks, ready, arrive, following, desks,
                values, driver, first=1, whole=False,
            )  # fmt: skip
        else:
            _hop_and_forward(
                sizes[1], counts[1], holds[1], wire, codec, clocks, ready, arrive[0], following[0], desks,
                values[1], driver, adopt=adopt,
            )  # fmt: skip
    left = clocks[2] if driver is None else np.where(clocks[2] > 0, clocks[2] + driver.end_s, 0.0)
    return np.maximum(left, clocks[3])


def tables_finish(
    sizes: Sizes, counts: Sizes, link: LinkModel, gather: Gather, holds: Sizes | None = None,
    values: Sizes | None = None,
) -> NDArray[np.float64]:  # fmt: skip
    """Return `ring_finish` of a ring's tables, contiguous int64 [2, N-1, N, K] (`ring_tables`).

    holds: of units that share frames, as counts; None: the same. values: of frames, where counts are work.
    """
    link, codec = link.wired(gather.coded), link.codec(gather.coded)
    sizes, counts = cut_tables(sizes, counts, codec.cores)
    wire = link.seconds_per_byte, link.latency_s
    holds, values = (counts if other is None else other for other in (holds, values))
    driver = None if codec.driver is None or gather.boomerang else codec.driver.costs  # no NIC runs these
    finish = _finish(
        sizes, counts, holds, wire, link.message_s, codec._replace(driver=None), values, driver,
        boomerang=gather.boomerang, duplex=gather.duplex, adopt=gather.adopt,
    )  # fmt: skip
    return np.asarray(finish)


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
