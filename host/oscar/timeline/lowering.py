"""Schedules as arrays: the actions of all ranks, the ports between them, and the frames of one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES, SENDS, Op, Phase
from oscar.collective.frames import Frames, Key
from oscar.collective.schedule import Schedule
from oscar.timeline.clocks import Engaged, dense_cells
from oscar.timeline.driver import DriverCosts
from oscar.timeline.link import CodecTime, LinkModel, Pipeline
from oscar.timeline.topology import AtSwitch, Link, MissingLinkError, Pair, Topology

Sizes = NDArray[np.int64]
_Schedule = TypeVar("_Schedule", bound=Schedule)
ENCODE, ADD, TAKE, SEND, WAIT = range(5)  # kinds of actions; ADD and TAKE decode
NO_DRIVER, IN_ORDER, BY_ARRIVAL = range(3)  # who gives a NIC its commands, and when
Ints = NDArray[np.int64]


def divide(values: int, parts: int) -> NDArray[np.int64]:
    """Cut `values` into `parts` that differ by one at most, the larger ones first."""
    low, extra = divmod(values, parts)
    return np.where(np.arange(parts) < extra, low + 1, low).astype(np.int64)


def cut(frame_bytes: Sizes, counts: Sizes, subframes: int, cores: int) -> tuple[Sizes, Sizes]:
    """Return bytes and counts, int64 [.., frame], with every frame cut into equal parts: one for each core.

    Each part has a header. A chunk has at most MAX_SUBFRAMES sub-frames after the cut. Bits per value
    stay as they are: each core has tables of its own, and how much less these learn is not known.
    """
    parts = min(-(-cores // subframes), MAX_SUBFRAMES // subframes)
    if parts <= 1:
        return frame_bytes, counts
    edges = counts[..., None] * np.arange(parts + 1) // parts
    payload = np.maximum(frame_bytes - HEADER_BYTES, 0)[..., None]
    part_counts = np.diff(edges)
    sizes = np.where(
        part_counts > 0, HEADER_BYTES + np.diff(payload * edges // np.maximum(counts, 1)[..., None]), 0
    )
    shape = *counts.shape[:-1], counts.shape[-1] * parts
    return sizes.reshape(shape), part_counts.reshape(shape)


def cut_for(schedule: _Schedule, frames: Frames, cores: int) -> tuple[_Schedule, Frames]:
    """Return both with every frame cut as `cut` does."""
    sizes, counts = cut(
        frames.rows["bytes"][:, None], frames.rows["count"][:, None], schedule.subframes, cores
    )
    parts = counts.shape[1] if len(frames) else 1
    if parts == 1:
        return schedule, frames
    rows = np.repeat(frames.rows, parts)
    rows["sub"] = rows["sub"] * parts + np.tile(np.arange(parts), len(frames))
    rows["count"], rows["bytes"] = counts.ravel(), sizes.ravel()
    return replace(schedule, subframes=schedule.subframes * parts), Frames.of(rows[rows["count"] > 0])


Works = tuple[dict[Key, Engaged], dict[Key, Engaged]]
_WORKS = deque[tuple[Frames, Pipeline, Works]](maxlen=8)


def unit_work(frames: Frames, nic: Pipeline) -> Works:
    """Return what encoding and decoding every frame takes, by its key.

    Frames whose cells are not known count as dense. The last results are kept, since the same frames are
    timed at many rates.
    """
    for known, known_nic, works in tuple(_WORKS):
        if known is frames and known_nic == nic:
            return works
    cells, encode, decode = frames.work(), dict[Key, Engaged](), dict[Key, Engaged]()
    ways: dict[
        tuple[int, int], tuple[Engaged, Engaged]
    ] = {}  # a frame that goes to several has the same cells
    for key, (count, _) in frames.sizes().items():
        frame = id(cells.get(key)), count
        if frame not in ways:
            ways[frame] = nic.engaged(cells[key] if key in cells else dense_cells(count), count)
        encode[key], decode[key] = ways[frame]
    _WORKS.append((frames, nic, (encode, decode)))
    return encode, decode


def dense_work(counts: Sizes, nic: Pipeline) -> Sizes:
    """Return how long dense frames engage a NIC, int64 [encode or decode, work or hold, frame]."""
    ways = [
        nic.engaged(dense_cells(count), count) if count else ((0, 0), (0, 0)) for count in counts.tolist()
    ]
    return np.array(ways, np.int64).reshape(-1, 2, 2).transpose(1, 2, 0)


class Program(NamedTuple):
    """The actions of all ranks but those that make room, int64 [action].

    kind: ENCODE, ADD (decode and add), TAKE (decode a final sum), SEND or WAIT.
    rank, peer, phase, step, chunk, sub: as of `Action`.
    source: the rank that encoded the frame.
    part: chunk * subframes + sub.
    needs: the action whose result it uses, or -1.
    wakes: for a SEND, the WAIT that its arrival ends, or -1.
    sums: a number for each rank, phase and part. A core decodes and codes the same sum in one go.
    workers: how many workers' values the frame sums.
    loads: 1 where the rank's own values must be in its NIC.
    final: 1 for the decode whose result is the rank's final sum.
    adopts: 1 for the decode of an owner's own frame.
    """

    kind: Ints
    rank: Ints
    peer: Ints
    phase: Ints
    step: Ints
    chunk: Ints
    sub: Ints
    source: Ints
    part: Ints
    needs: Ints
    wakes: Ints
    sums: Ints
    workers: Ints
    loads: Ints
    final: Ints
    adopts: Ints


@lru_cache(maxsize=8)
def lower(schedule: Schedule, alone: bool = False) -> Program:
    """Return the actions of all ranks as arrays.

    alone: rank 0's actions only. A frame to distance d then ends the WAIT for the frame from distance -d,
    which needs a schedule that is the same for all ranks (`Schedule.alike`).
    """
    n, subs = schedule.nodes, schedule.subframes
    rows: list[list[int]] = []
    sent: list[tuple[int, tuple[int, ...]]] = []
    waits: dict[tuple[int, ...], int] = {}
    numbers: dict[tuple[int, ...], int] = {}
    columns = {name: at for at, name in enumerate(Program._fields)}
    final = columns["final"]
    for rank in range(min(n, 1) if alone else n):
        frames: dict[tuple[int, ...], int] = {}  # what made or received a frame
        sums: dict[tuple[int, int], int] = {}  # the last decode of each part
        for op, phase, step, chunk, sub, peer, source, _, terms, _ in schedule.actions(rank):
            if op is Op.POST_RECV:
                continue
            at, frame, place = len(rows), (phase, source, chunk, sub), (chunk, sub)
            kind, needs, loads = TAKE, -1, 0
            if op is Op.WAIT:
                kind = WAIT
                # One rank stands for all: the frame from distance -d is, with chunks turned by d, this
                # rank's own frame to distance d.
                turn = peer if alone else 0
                to, sender = (-peer % n, 0) if alone else (rank, peer)
                frames[frame] = waits[to, sender, phase, (chunk - turn) % schedule.chunks, sub] = at
            elif op is Op.ENCODE:
                kind, needs = ENCODE, sums.get(place, -1)
                frames[frame], loads = at, needs < 0
            elif op in SENDS:
                kind, needs = SEND, frames[frame]
                sent.append((at, (peer, rank, phase, chunk, sub)))
            else:
                kind = ADD if op is Op.DECODE_ADD else TAKE
                needs, loads = frames[frame], kind == ADD and place not in sums
                if place in sums:
                    rows[sums[place]][final] = 0
                sums[place] = at
            # A sum that is sent on in the reduce-scatter is not the rank's final one.
            if needs >= 0 and phase is Phase.REDUCE_SCATTER:
                rows[needs][final] = 0
            number = numbers.setdefault((rank, phase, chunk, sub), len(numbers))
            rows.append([
                kind, rank, peer, phase, step, chunk, sub, source, chunk * subs + sub, needs, -1, number,
                terms.bit_count(), loads, kind in (ADD, TAKE), op is Op.ADOPT,
            ])  # fmt: skip
    for at, key in sent:
        rows[at][columns["wakes"]] = waits.get(key, -1)
    return Program(*np.array(rows, np.int64).reshape(-1, len(columns)).T.copy())


@lru_cache(maxsize=32)
def kinds_of_frames(schedule: Schedule) -> list[tuple[tuple[int, int], int]]:
    """Return the (phase, workers) of the frames of a chunk's sub-frame, and how many of them are sent.

    For a schedule that is `alike`.
    """
    do = lower(replace(schedule, subframes=1), alone=True)
    sends = do.kind == SEND
    kinds, count = np.unique(np.stack([do.phase[sends], do.workers[sends]], 1), axis=0, return_counts=True)
    return list(zip(map(tuple, kinds.tolist()), count.tolist(), strict=True))


class Ways(NamedTuple):
    """The ports between ranks. A way is one rank's queue for one set of ports out.

    A frame occupies all ports of its way at once. Ways that share a port form a group and take turns: the one
    that has asked for longest goes first. A rank's ways are independent of each other.

    way, link: of sends, int64 [action].
    rank, number: the rank of a way, and which of the rank's ways it is.
    out, out_ends: the ports of a way.
    into, into_ends, latency: the ports and seconds of a link.
    group: of a way.
    members, member_ends: the ways of a group.
    cost: seconds per byte of a port.
    message_s: how long a message occupies a port beside its bytes.
    """

    way: Ints
    link: Ints
    rank: Ints
    number: Ints
    out: Ints
    out_ends: Ints
    into: Ints
    into_ends: Ints
    latency: NDArray[np.float64]
    group: Ints
    members: Ints
    member_ends: Ints
    cost: NDArray[np.float64]
    message_s: float


def ways_of(
    do: Program, values: Ints, nodes: int, link: LinkModel, topology: Topology | None, *, alone: bool
) -> Ways:  # fmt: skip
    """Return the ways that frames with values take; raises MissingLinkError for a link that is not there."""
    sends = np.flatnonzero((do.kind == SEND) & (values > 0))
    pairs, at, of_pair = np.unique(
        do.rank[sends] * nodes + do.peer[sends], return_index=True, return_inverse=True
    )
    by_use = np.argsort(at)
    pairs, of_pair = pairs[by_use], np.argsort(by_use)[of_pair]
    costs, message_s = [link.seconds_per_byte] * (2 if alone else 2 * nodes), 0.0
    links: Mapping[Pair, Link] = AtSwitch(nodes, link.latency_s)
    if topology is not None:
        links, message_s = topology.links, topology.message_s
        costs = [port.seconds_per_byte for port in topology.ports]
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    per_rank: dict[int, int] = {}
    number, latency, into, way_of_pair = [], [], [], []
    for pair in (divmod(int(pair), nodes) for pair in pairs):
        if alone:  # one rank is its own peer: port 0 out, port 1 in
            one = Link(link.latency_s, (0,), (1,))
        elif pair in links:
            one = links[pair]
        else:
            raise MissingLinkError(
                f"expected a link from rank {pair[0]} to {pair[1]}, which the schedule uses, got none"
            )
        key = pair[0], one.out
        if key not in numbers:
            numbers[key] = len(numbers)
            number.append(per_rank.setdefault(pair[0], 0))
            per_rank[pair[0]] += 1
        way_of_pair.append(numbers[key])
        latency.append(one.latency_s)
        into.append(one.into)
    groups = _groups([out for _, out in numbers])
    group = np.zeros(len(numbers), np.int64)
    for at, members in enumerate(groups):
        group[members] = at
    way, of_link = (np.full(do.kind.size, -1, np.int64) for _ in range(2))
    way[sends], of_link[sends] = np.array(way_of_pair, np.int64)[of_pair], of_pair
    ranks, outs = np.array([rank for rank, _ in numbers], np.int64), [out for _, out in numbers]
    return Ways(
        way, of_link, ranks, np.array(number, np.int64), *_joined(outs), *_joined(into),
        np.array(latency, float), group, *_joined(groups), np.array(costs, float), message_s,
    )  # fmt: skip


def _joined(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return all lists as one array, and where each begins in it."""
    ends = np.cumsum([0, *map(len, lists)])
    return np.array([one for each in lists for one in each], np.int64), ends.astype(np.int64)


def _groups(outs: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the ways that share a port, or are linked by others that do."""
    group: dict[int, list[int]] = {}
    for way, ports in enumerate(outs):
        joined = [way]
        for one in {id(group[port]): group[port] for port in ports if port in group}.values():
            joined = [*one, *joined]
        for member in joined:
            for port in outs[member]:
                group[port] = joined
    alone = [[way] for way, ports in enumerate(outs) if not ports]
    return [*alone, *{id(one): one for one in group.values()}.values()]


class Load(NamedTuple):
    """What one call gives the actions, [action]: values and bytes of frames, and how long these are coded.

    work: values to code, or a NIC's clocks until the result.
    hold: the same until the next frame may begin.
    unit: which coder.
    order, starts: the actions of each queue, in its order, and where each queue begins.
    """

    values: Ints
    bytes: Ints
    work: Ints
    hold: Ints
    unit: Ints
    order: Ints
    starts: Ints


class Desks(NamedTuple):
    """The ranks' drivers.

    mode: NO_DRIVER, IN_ORDER or BY_ARRIVAL. costs: seconds.
    loaded [rank, part]: when own values are in a NIC. reads [rank, part]: in which order sums are read.
    room [rank]: when a rank has made room for all that it receives, and may send.
    """

    mode: int
    costs: DriverCosts
    loaded: NDArray[np.float64]
    reads: Ints
    room: NDArray[np.float64]


def fill(schedule: Schedule, frames: Frames, do: Program) -> tuple[Ints, Ints]:
    """Return the values and bytes of each action's frame; raises ValueError as `replay` does."""
    rows, described = frames.rows, schedule.describe()
    part = rows["chunk"].astype(np.int64) * schedule.subframes + rows["sub"]
    inside = (rows["sub"] < schedule.subframes) & (rows["chunk"] < schedule.chunks)
    if not (inside & (rows["sender"] < schedule.nodes)).all():
        raise ValueError(f"expected the frames of {described}, got others; give the schedule that ran")
    counts = np.zeros(schedule.chunks * schedule.subframes, np.int64)
    counts[part] = rows["count"]
    if (counts[part] != rows["count"]).any():
        raise ValueError("expected a chunk to hold the same values in all its frames; take one call's frames")
    table = np.zeros((2, schedule.nodes, counts.size), np.int64)
    table[rows["phase"], rows["sender"], part] = rows["bytes"]
    # An all-gather alone has no frames of the first phase, so that phase is not played.
    has_first_phase = bool((rows["phase"][rows["count"] > 0] == Phase.REDUCE_SCATTER).any())
    played, sends = has_first_phase | (do.phase == Phase.ALL_GATHER), do.kind == SEND
    values = np.where(played, counts[do.part], 0)
    sizes = np.where(sends, table[do.phase, do.rank, do.part], 0)
    lacking = np.flatnonzero(sends & (values > 0) & (sizes == 0))
    if lacking.size:
        at = lacking[0]
        raise ValueError(
            f"expected a frame of chunk {do.chunk[at]}, sub-frame {do.sub[at]} from rank {do.rank[at]} to "
            f"{do.peer[at]}, as {described} sends it, got none; give the schedule that ran"
        )
    sent, given = int((sends & (values > 0)).sum()), int((rows["count"] > 0).sum())
    if sent != given:
        raise ValueError(
            f"expected the frames of {described}: it sends {sent}, got {given}; give the schedule that ran"
        )
    return values, sizes


def work_of(do: Program, values: Ints, frames: Frames, codec: CodecTime) -> tuple[Ints, Ints]:
    """Return for each action the values to code or a NIC's clocks, and the same until the next frame."""
    if codec.nic is None:
        return values, values
    encode, decode = unit_work(frames, codec.nic)
    work, hold = values.copy(), values.copy()
    for at in np.flatnonzero((do.kind <= TAKE) & (values > 0)).tolist():
        key = int(do.phase[at]), int(do.source[at]), int(do.chunk[at]), int(do.sub[at])
        engaged = (encode if do.kind[at] == ENCODE else decode).get(key)
        if engaged is not None:
            work[at], hold[at] = engaged
    return work, hold
