"""The picture of a schedule: how each chunk goes from rank to rank, above the timeline of its replay."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from oscar.collective.actions import SENDS, Op, Phase
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.plotting import GRID, INK, PALETTE, SOFT, figure
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import Replay, replay
from oscar.timeline.topology import Topology

MOST_CHUNKS = 8  # that have a panel
NAMED_RANKS = 8  # with more, not every lane has its number
LANES = {"send": 0.0, "encode": 0.34, "decode-add": 0.62}  # of a rank's row: where a stage's bars begin
HEIGHTS = {"send": 0.3, "encode": 0.24, "decode-add": 0.24}


class Hop(NamedTuple):
    """A frame on a link. after: how many frames in sequence had to come before its sender had it."""

    chunk: int
    sender: int
    receiver: int
    phase: Phase
    after: int


class Bar(NamedTuple):
    """What a rank, or a slice of a switch, did with a frame of a chunk."""

    stage: str
    rank: int
    chunk: int
    start_s: float
    duration_s: float


def draw_schedule(
    path: Path, schedule: Schedule, topology: Topology, link: LinkModel, frames: Frames
) -> float:
    """Draw `schedule` into a PNG at `path` and return its seconds on `topology`, by replay of `frames`.

    Above: a panel for each of the first chunks, with a lane for each rank and an arrow for each frame (of
    several sub-frames the first), from hop to hop. Below: when every rank sends (its upper bar), codes and
    decodes. A slice of a switch sends while its frame comes in at ranks. Raises ValueError for frames of
    another schedule, and for a topology without a link that it uses.
    """
    done = replay(schedule, frames, link, topology, spans=True)
    title = f"{schedule.describe()}: {done.total_s * 1e6:,.1f} us on {topology.text}"
    chunks = range(min(MOST_CHUNKS, len(schedule.owners)))
    rows = math.ceil(len(chunks) / 4)
    heights = [0.5 + 1.75 * rows, 1.0 + 0.26 * min(schedule.nodes, 16)]
    with figure(path, height=0.4 + sum(heights), title=title) as drawn:
        upper, lower = drawn.subfigures(2, 1, height_ratios=heights)
        _routes(upper, schedule, chunks, rows)
        _timeline(lower.subplots(), schedule, done)
    return done.total_s


def _colour(schedule: Schedule, chunk: int) -> str:
    return PALETTE[schedule.owners[chunk] % len(PALETTE)]


def _name(schedule: Schedule, rank: int) -> str:
    return str(rank) if rank < schedule.valued else f"s{rank - schedule.valued}"


def hops(schedule: Schedule) -> list[Hop]:
    """Return every frame of the first sub-frames, each after those that bring its sender the same chunk."""
    programs = [[a for a in schedule.actions(rank) if a.sub == 0] for rank in range(schedule.nodes)]
    came: dict[tuple[int, int, int], int] = {}  # by sender, receiver, tag: hops up to its arrival
    had: dict[tuple[int, int], int] = {}  # by rank, chunk: hops of what it waited for
    at, found, moved = [0] * schedule.nodes, [], True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while at[rank] < len(program):
                a = program[at[rank]]
                before = had.get((rank, a.chunk), 0)
                if a.op is Op.WAIT:
                    if (a.peer, rank, a.tag) not in came:
                        break
                    had[rank, a.chunk] = max(before, came[a.peer, rank, a.tag])
                elif a.op in SENDS:
                    came[rank, a.peer, a.tag] = before + 1
                    found.append(Hop(a.chunk, rank, a.peer, a.phase, before))
                at[rank], moved = at[rank] + 1, True
    return found


def _routes(part: Any, schedule: Schedule, chunks: range, rows: int) -> None:
    """Draw a panel for each chunk: ranks from left to right, hops downwards."""
    every = [hop for hop in hops(schedule) if hop.chunk in chunks]
    deep = 1 + max((hop.after for hop in every), default=0)
    panels = list(part.subplots(rows, min(4, len(chunks)), squeeze=False, sharex=True, sharey=True).flat)
    step = math.ceil(schedule.nodes / NAMED_RANKS)
    lanes = range(0, schedule.nodes, step)
    for axes in panels:
        axes.set_axis_off()
    for chunk, axes in zip(chunks, panels, strict=False):
        axes.set_axis_on()
        colour = _colour(schedule, chunk)
        axes.vlines(range(schedule.nodes), 0, deep, color=GRID, linewidth=0.8, zorder=0)
        axes.vlines(schedule.owners[chunk], 0, deep, color=colour, linewidth=5, alpha=0.25, zorder=0)
        for hop in every:
            if hop.chunk == chunk:
                _arrow(axes, hop, colour if hop.phase is Phase.REDUCE_SCATTER else INK)
        owner = schedule.owners[chunk]
        adds = f"rank {owner}" if owner < schedule.valued else f"slice {owner - schedule.valued}"
        axes.set_title(f"chunk {chunk}: {adds} adds", color=colour, pad=12)
        axes.set_xticks(lanes, [_name(schedule, rank) for rank in lanes], fontsize=9, color=SOFT)
        axes.tick_params(labeltop=True, labelbottom=False, labelleft=False, pad=0)
        axes.set(xlim=(-0.6, schedule.nodes - 0.4), ylim=(deep + 0.15, -0.15))
    left_out = len(schedule.owners) > len(chunks)
    more = f" (the first {len(chunks)} chunks of {len(schedule.owners)})" * left_out
    part.suptitle(
        f"From rank to rank, hop by hop{more}: reduce-scatter in colour, all-gather in black",
        x=0.012, ha="left", fontsize=9.5, color=SOFT,
    )  # fmt: skip


def _arrow(axes: Any, hop: Hop, colour: str) -> None:
    style = {"arrowstyle": "-|>,head_width=0.14,head_length=0.3", "color": colour, "linewidth": 0.9,
             "shrinkA": 0, "shrinkB": 0}  # fmt: skip
    axes.annotate("", xy=(hop.receiver, hop.after + 1), xytext=(hop.sender, hop.after), arrowprops=style)


def bars(schedule: Schedule, done: Replay) -> list[Bar]:
    """Return what ranks did; a slice, which has all ports, sends while its frames come in at ranks."""
    found = [
        Bar(span.stage, span.rank, span.chunk, span.start_s, span.duration_s)
        for span in done.spans
        if span.stage != "send" or span.rank < schedule.valued
    ]
    copies: dict[tuple[int, int, int], tuple[float, float]] = {}  # of a frame for all: from the first on
    for one in done.carried:
        if one.sender >= schedule.valued:
            frame = one.sender, one.chunk, one.sub
            start_s, end_s = copies.get(frame, (math.inf, 0.0))
            copies[frame] = min(start_s, one.start_s), max(end_s, one.end_s)
    found += [Bar("send", rank, chunk, at, end - at) for (rank, chunk, _), (at, end) in copies.items()]
    return found


def _timeline(axes: Any, schedule: Schedule, done: Replay) -> None:
    """Draw a row for each rank: what it sends on top, below it what its codec does."""
    every = bars(schedule, done)
    coded = any(bar.stage in ("encode", "decode-add") and bar.duration_s > 0 for bar in every)
    heights = HEIGHTS if coded else {"send": 0.86}
    drawn: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for bar in every:
        if bar.stage in heights:
            key = bar.rank + LANES[bar.stage], heights[bar.stage], _colour(schedule, bar.chunk)
            drawn.setdefault(key, []).append((bar.start_s * 1e6, bar.duration_s * 1e6))
    for (low, height, colour), places in drawn.items():
        axes.broken_barh(places, (low, height), facecolors=colour, edgecolor="white", linewidth=0.3)
    axes.set_ylim(schedule.nodes, 0)
    if schedule.nodes <= 32:
        axes.set_yticks(
            [rank + 0.43 for rank in range(schedule.nodes)],
            [_name(schedule, rank) for rank in range(schedule.nodes)],
        )
    axes.set(xlabel="microseconds", ylabel="rank")
    axes.set_xlim(left=0)
    axes.set_title("timeline: sends" + " above, coding and decoding below" * coded)
    axes.grid(axis="x")
