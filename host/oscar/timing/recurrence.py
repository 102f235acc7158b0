"""Time of one ring AllReduce as a compiled recurrence: `replay` without actions, for up to 1,024 nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from oscar.allreduce.schedule import check_gather
from oscar.timing.link import FP32_BITS, LinkModel
from oscar.timing.sizes import Sizes, checked_sizes, divide


@njit(cache=True, nogil=True)
def _hop_and_sum(
    sizes: Any, counts: Any, first: int, costs: Any, clocks: Any, ready: Any, arrive: Any, following: Any
) -> None:
    """Run the phases of [phases, steps, ranks, K] tables in which every hop decodes, adds, encodes, sends.

    Two phases (`first` 0: both, duplex) take turns by sub-frame on the same engines and port.
    `costs`: s/byte, latency, s/value, encoder's and decoder's latency. `clocks` [4, ranks]: encoder, decoder,
    link, last result.
    `ready` [ranks, K]: when the values to send first are ready; returns when the last sums are (of the
    last phase). `arrive`, `following` [2, ranks, K]: room for arrivals by phase.
    """
    per_byte, latency, per_value, encoding, decoding = costs
    encoder, decoder, link, last = clocks[0], clocks[1], clocks[2], clocks[3]
    phases, steps, ranks, subs = counts.shape
    for step in range(steps + 1):
        for rank in range(ranks):
            left, right = rank - 1 if rank else ranks - 1, rank + 1 if rank + 1 < ranks else 0
            for sub in range(subs):
                for phase in range(phases):
                    peer = left if first + phase == 0 else right
                    values = ready[rank, sub] if step == 0 else 0.0
                    if step > 0 and counts[phase, step - 1, peer, sub] > 0:
                        start = max(arrive[phase, peer, sub], decoder[rank])
                        decoder[rank] = start + counts[phase, step - 1, peer, sub] * per_value
                        values = decoder[rank] + decoding
                        last[rank] = max(last[rank], values)
                    if step == steps:
                        ready[rank, sub] = values
                    elif counts[phase, step, rank, sub] > 0:
                        encoder[rank] = (
                            max(values, encoder[rank]) + counts[phase, step, rank, sub] * per_value
                        )
                        start = max(encoder[rank] + encoding, link[rank])
                        link[rank] = start + sizes[phase, step, rank, sub] * per_byte
                        following[phase, rank, sub] = link[rank] + latency
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _hop_and_forward(
    sizes: Any, counts: Any, adopt: bool, costs: Any, clocks: Any, ready: Any, arrive: Any, following: Any
) -> None:
    """Run the phase in which owners encode once and every hop forwards the frame, then decodes it."""
    per_byte, latency, per_value, encoding, decoding = costs
    encoder, decoder, link, last = clocks[0], clocks[1], clocks[2], clocks[3]
    steps, ranks, subs = counts.shape
    for step in range(steps + 1):
        for rank in range(ranks):
            peer = rank - 1 if rank else ranks - 1
            for sub in range(subs):
                if step == 0:
                    count = counts[0, rank, sub]
                    if count == 0:
                        continue
                    encoder[rank] = max(ready[rank, sub], encoder[rank]) + count * per_value
                    frame = encoder[rank] + encoding
                else:
                    count = counts[step - 1, peer, sub]
                    if count == 0:
                        continue
                    frame = arrive[peer, sub]
                if step < steps:
                    link[rank] = max(frame, link[rank]) + sizes[step, rank, sub] * per_byte
                    following[rank, sub] = link[rank] + latency
                if step > 0 or adopt:
                    decoder[rank] = max(frame, decoder[rank]) + count * per_value
                    last[rank] = max(last[rank], decoder[rank] + decoding)
        arrive, following = following, arrive


@njit(cache=True, nogil=True)
def _finish(sizes: Any, counts: Any, boomerang: bool, duplex: bool, adopt: bool, costs: Any) -> Any:
    """Return when every rank finishes; a table with one rank stands for a ring of equals, its own peer."""
    _, steps, ranks, subs = counts.shape
    clocks = np.zeros((4, ranks))
    ready = np.zeros((ranks, subs))
    arrive, following = np.zeros((2, ranks, subs)), np.zeros((2, ranks, subs))
    if steps > 0 and duplex:
        _hop_and_sum(sizes, counts, 0, costs, clocks, ready, arrive, following)
    elif steps > 0:
        _hop_and_sum(sizes[:1], counts[:1], 0, costs, clocks, ready, arrive, following)
        if boomerang:
            _hop_and_sum(sizes[1:], counts[1:], 1, costs, clocks, ready, arrive, following)
        else:
            _hop_and_forward(sizes[1], counts[1], adopt, costs, clocks, ready, arrive[0], following[0])
    return np.maximum(clocks[2], clocks[3])


def finish_unchecked(
    sizes: Sizes, counts: Sizes, link: LinkModel, *, boomerang: bool, duplex: bool, adopt: bool, coded: bool
) -> NDArray[np.float64]:
    """Return `ring_finish` of tables known to be contiguous, int64 and consistent."""
    check_gather(boomerang=boomerang, duplex=duplex)
    costs = (link.seconds_per_byte, link.latency_s, *link.codec_cost(coded))
    return np.asarray(_finish(sizes, counts, boomerang, duplex, adopt, costs))


def ring_finish(
    frame_bytes: ArrayLike,
    counts: ArrayLike,
    link: LinkModel,
    *,
    boomerang: bool = False,
    duplex: bool = False,
    adopt: bool = False,
    coded: bool = True,
) -> NDArray[np.float64]:
    """Return when every rank finishes, float64 [N] in seconds; arguments and errors as for `replay`."""
    sizes, values = checked_sizes(frame_bytes, counts, boomerang=boomerang)
    return finish_unchecked(sizes, values, link, boomerang=boomerang, duplex=duplex, adopt=adopt, coded=coded)


def ring_time(
    frame_bytes: ArrayLike,
    counts: ArrayLike,
    link: LinkModel,
    *,
    boomerang: bool = False,
    duplex: bool = False,
    adopt: bool = False,
    coded: bool = True,
) -> float:
    """Return the seconds until the last rank finishes; arguments and errors as for `replay`."""
    how = {"boomerang": boomerang, "duplex": duplex, "adopt": adopt, "coded": coded}
    return float(ring_finish(frame_bytes, counts, link, **how).max())


def equal_ring_time(
    values: int,
    nodes: int,
    link: LinkModel,
    *,
    bits_per_value: float = FP32_BITS,
    subframes: int = 1,
    header_bytes: int = 0,
    boomerang: bool = False,
    duplex: bool = False,
    adopt: bool = False,
    coded: bool = False,
) -> float:
    """Return the time when all chunks are as large as the largest of an even cut; raw fp32 by default.

    All ranks then do the same at the same time, so one that is its own peer stands for all: the cost is
    O(N K) instead of O(N^2 K).
    """
    if nodes < 1 or values < 0 or subframes < 1 or not bits_per_value > 0 or header_bytes < 0:
        raise ValueError(
            "expected nodes and subframes of 1 or more, bits_per_value above 0, values and header_bytes of 0 "
            f"or more, got {nodes}, {subframes}, {bits_per_value}, {values}, {header_bytes}"
        )
    count = divide(-(-values // nodes), subframes)
    size = header_bytes + np.ceil(count * (bits_per_value / 8)).astype(np.int64)
    shape = (2, nodes - 1, 1, subframes)
    sizes, counts = (np.broadcast_to(row, shape).copy() for row in (size, count))
    how = {"boomerang": boomerang, "duplex": duplex, "adopt": adopt, "coded": coded}
    return float(finish_unchecked(sizes, counts, link, **how)[0])
