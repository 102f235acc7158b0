"""Pictures of schedules.

`draw_schedule` shows how each chunk goes from rank to rank, above the timeline of its replay. `draw_points`
shows the modelled time of every built-in schedule against the number of ranks, on one switch, from assumed
sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import SENDS, Op, Phase
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.plotting import GRID, INK, PALETTE, SOFT, End, figure, label_ends, logarithmic
from oscar.tables import Table
from oscar.timeline.equal import equal_time, in_switch_time
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.replay import Replay, replay
from oscar.timeline.scale import PLAYED, check_nodes
from oscar.timeline.topology import Topology

MOST_CHUNKS = 8  # that have a panel
NAMED_RANKS = 8  # with more, not every lane has its number
LANES = {"send": 0.0, "encode": 0.34, "decode-add": 0.62}  # of a rank's row: where a stage's bars begin
HEIGHTS = {"send": 0.3, "encode": 0.24, "decode-add": 0.24}
FEW = ("star",)  # frames that a replay is fast
IN_SWITCH = "star in the switch"
RAW = ("ring", "direct")  # by which fp32 goes
RAW_COLOURS = {"fp32 ring": INK, "fp32 direct": SOFT}
TABLE = Table("name:#schedule <20", "nodes >6", "time_us:time(us) >12.2f", "speedup:x fp32 >8.2f")


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
    arrived: dict[tuple[int, int, int], int] = {}  # by sender, receiver, tag: hops up to its arrival
    waited: dict[tuple[int, int], int] = {}  # by rank, chunk: hops of what it waited for
    done, result, moved = [0] * schedule.nodes, [], True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while done[rank] < len(program):
                a = program[done[rank]]
                before = waited.get((rank, a.chunk), 0)
                if a.op is Op.WAIT:
                    if (a.peer, rank, a.tag) not in arrived:
                        break
                    waited[rank, a.chunk] = max(before, arrived[a.peer, rank, a.tag])
                elif a.op in SENDS:
                    arrived[rank, a.peer, a.tag] = before + 1
                    result.append(Hop(a.chunk, rank, a.peer, a.phase, before))
                done[rank], moved = done[rank] + 1, True
    return result


def _routes(part: Any, schedule: Schedule, chunks: range, rows: int) -> None:
    """Draw a panel for each chunk: ranks from left to right, hops downwards."""
    drawn = [hop for hop in hops(schedule) if hop.chunk in chunks]
    deep = 1 + max((hop.after for hop in drawn), default=0)
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
        arrow = {
            "arrowstyle": "-|>,head_width=0.14,head_length=0.3",
            "linewidth": 0.9,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        for hop in drawn:
            if hop.chunk == chunk:
                style = arrow | {"color": colour if hop.phase is Phase.REDUCE_SCATTER else INK}
                to, origin = (hop.receiver, hop.after + 1), (hop.sender, hop.after)
                axes.annotate("", xy=to, xytext=origin, arrowprops=style)
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


def bars(schedule: Schedule, done: Replay) -> list[Bar]:
    """Return what ranks did; a slice, which has all ports, sends while its frames come in at ranks."""
    bars = [
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
    bars += [Bar("send", rank, chunk, at, end - at) for (rank, chunk, _), (at, end) in copies.items()]
    return bars


def _timeline(axes: Any, schedule: Schedule, done: Replay) -> None:
    """Draw a row for each rank: what it sends on top, below it what its codec does."""
    all_bars = bars(schedule, done)
    coded = any(bar.stage in ("encode", "decode-add") and bar.duration_s > 0 for bar in all_bars)
    heights = HEIGHTS if coded else {"send": 0.86}
    drawn: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for bar in all_bars:
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


def schedule_points(
    nodes: Sequence[int],
    values: int,
    link: LinkModel,
    *,
    bits: float = 1.25,
    doubling: float = 0.55,
    subframes: int = 1,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> dict[str, Any]:
    """Model all built-in schedules at each of `nodes` (2 to 1,024); fp32's ring and direct beside them.

    A frame that sums t workers has `bits + doubling * log2(t)` bits of payload per value, and a header; fp32
    has neither header nor codec. progress: told the stage, networks done, all. Hierarchical and exchange end
    at PLAYED ranks, and the star in the switch, which counts as a rank, before 1,024. Raises ValueError
    for numbers out of range.
    """
    check_nodes(nodes)
    whole = bits + doubling * math.log2(max(nodes, default=2))
    if values < 1 or not all(0 < number < math.inf for number in (bits, whole)):
        raise ValueError(
            f"expected values of 1 or more and bits above 0 for any number of workers, got {values}, {bits} "
            f"and {doubling} for each doubling"
        )

    def rate(terms: int) -> float:
        return bits + doubling * math.log2(terms)

    points = []
    for done, count in enumerate(wanted := sorted(set(nodes))):
        progress("modelling", done, len(wanted))
        raw = {
            f"fp32 {name}": equal_time(
                make_schedule(name, count, subframes=subframes), values, link, bits=FP32_BITS, coded=False
            )
            for name in RAW
        }
        coded: dict[str, Any] = {"bits": rate, "header_bytes": HEADER_BYTES}
        times = dict(raw)
        for name in SCHEDULES:
            schedule = make_schedule(name, count, subframes=subframes)
            if count <= PLAYED or schedule.alike or name in FEW:
                times[name] = equal_time(schedule, values, link, **coded)
        if count < 1024:
            times[IN_SWITCH] = in_switch_time(count, values, link, **coded, subframes=subframes)
        ring_s, direct_s = raw.values()
        points += [
            {"name": name, "nodes": count, "time_s": time_s, "speedup": ring_s / time_s,
             "speedup_direct": direct_s / time_s}
            for name, time_s in times.items()
        ]  # fmt: skip
    progress("modelling", len(wanted), len(wanted))
    assumed = {"values": values, "bits": bits, "doubling": doubling, "subframes": subframes}
    network = {"gbps": link.bandwidth_bps / 1e9, "latency_us": link.latency_s * 1e6}
    return {**assumed, **network, "codec_values_per_s": link.codec_values_per_s, "points": points}


def points_table(results: Mapping[str, Any]) -> str:
    """Return the points as text."""
    lines = [f"# {_assumed(results)}", TABLE.heading]
    if max(point["nodes"] for point in results["points"]) > PLAYED:
        lines.insert(1, f"# hierarchical and exchange to {PLAYED} ranks: a replay of more takes seconds each")
    lines += [TABLE.line(point, time_us=point["time_s"] * 1e6) for point in results["points"]]
    return "\n".join(lines)


def _assumed(results: Mapping[str, Any]) -> str:
    rate = results["codec_values_per_s"]
    return (
        f"{results['values']:,} values, {results['bits']:g} + {results['doubling']:g} log2(terms) "
        f"bits/value, K = {results['subframes']}; {results['gbps']:g} Gb/s, {results['latency_us']:g} us, "
        + ("ideal codec" if rate is None else f"codec {rate / 1e9:g} G values/s")
    )


def draw_points(results: Mapping[str, Any], path: Path) -> None:
    """Draw time against the number of ranks, a line for each schedule, into a PNG at `path`."""
    names = list(dict.fromkeys(point["name"] for point in results["points"]))
    nodes = sorted({point["nodes"] for point in results["points"]})
    with figure(path, height=5, title="AllReduce time in us, modelled") as drawn:
        axes, ends = drawn.subplots(), []
        for name in names:
            line = [point for point in results["points"] if point["name"] == name]
            raw = name in RAW_COLOURS
            colour = RAW_COLOURS.get(name) or PALETTE[1 + names.index(name) % (len(PALETTE) - 1)]
            x, y = [point["nodes"] for point in line], [point["time_s"] * 1e6 for point in line]
            style = (0, (4, 2)) if raw else "-"
            axes.plot(x, y, color=colour, linestyle=style, linewidth=2, marker="o", markersize=3.5)
            ends.append(End(x[-1], y[-1], name, colour))
        axes.set_xscale("log", base=2)
        axes.set_xticks(nodes, [str(count) for count in nodes])
        axes.minorticks_off()
        axes.set_xlim(nodes[0] * 0.9, nodes[-1] * 1.1)
        logarithmic(axes.yaxis)
        axes.set(xlabel="ranks")
        axes.set_title(_assumed(results))
        axes.grid(axis="y")
        label_ends(axes, ends)
