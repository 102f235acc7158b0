"""The picture of a schedule: the network with routes coloured by owner, beside the timeline of its replay."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.studies.plotting import GRID, INK, PALETTE, SOFT, figure
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import replay
from oscar.timeline.spans import Span
from oscar.timeline.topology import Topology

MOST_ROUTES = 4096  # arrows; with more there is nothing to see
LANES = {"send": 0.0, "encode": 0.34, "decode-add": 0.62}  # of a rank's row: where a stage's bars begin
HEIGHTS = {"send": 0.3, "encode": 0.24, "decode-add": 0.24}


def draw_schedule(
    path: Path, schedule: Schedule, topology: Topology, link: LinkModel, frames: Frames
) -> float:
    """Draw `schedule` into a PNG at `path` and return its seconds on `topology`, by replay of `frames`.

    Left: which rank sends which owner's chunks to whom; in grey links of the network that carry nothing.
    Right: when every rank sends (its upper bar), codes and decodes. Raises ValueError for frames of another
    schedule, and for a topology without a link that it uses.
    """
    done = replay(schedule, frames, link, topology, spans=True)
    title = f"{schedule.describe()}: {done.total_s * 1e6:,.1f} us on {topology.text}"
    with figure(path, height=6, title=title) as drawn:
        left, right = drawn.subplots(1, 2, width_ratios=(1, 1.5))
        _network(left, schedule, topology)
        _timeline(right, schedule, done.spans)
    return done.total_s


def _colour(schedule: Schedule, chunk: int) -> str:
    return PALETTE[schedule.owners[chunk] % len(PALETTE)]


def _network(axes: Any, schedule: Schedule, topology: Topology) -> None:
    """Draw ranks on a circle, links in grey, and an arrow for each owner's chunks on a link."""
    n = schedule.nodes
    places = [
        (math.sin(2 * math.pi * rank / n), math.cos(2 * math.pi * rank / n)) if n > 1 else (0.0, 0.0)
        for rank in range(n)
    ]
    routes = Counter(
        (rank, a.peer, schedule.owners[a.chunk])
        for rank in range(n)
        for a in schedule.actions(rank)
        if a.op in SENDS and a.sub == 0
    )
    used = {(sender, receiver) for sender, receiver, _ in routes}
    for sender, receiver in topology.links:
        if n <= 32 and (sender, receiver) not in used:
            _arrow(axes, places[sender], places[receiver], GRID, 0.1)
    for sender, receiver, owner in sorted(routes)[:MOST_ROUTES]:
        bend = 0.08 + 0.18 * owner / max(1, n - 1)
        _arrow(axes, places[sender], places[receiver], PALETTE[owner % len(PALETTE)], bend)
    for rank, (x, y) in enumerate(places):
        face = PALETTE[rank % len(PALETTE)] if rank in schedule.owners else SOFT
        axes.text(
            x, y, str(rank), ha="center", va="center", color="white", fontweight="bold", zorder=5,
            bbox={"boxstyle": "circle,pad=0.35", "facecolor": face, "edgecolor": INK, "linewidth": 0.8},
        )  # fmt: skip
    axes.set_title("routes, in the colour of the rank that adds")
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
    axes.axis("off")


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], colour: str, bend: float) -> None:
    style = {
        "arrowstyle": "-|>", "color": colour, "linewidth": 1.1, "alpha": 0.8, "shrinkA": 14, "shrinkB": 14,
        "connectionstyle": f"arc3,rad={bend:.3f}",
    }  # fmt: skip
    axes.annotate("", xy=end, xytext=start, arrowprops=style)


def _timeline(axes: Any, schedule: Schedule, spans: Sequence[Span]) -> None:
    """Draw a row for each rank: what it sends on top, below it what its codec does."""
    coded = any(span.stage in ("encode", "decode-add") and span.duration_s > 0 for span in spans)
    heights = HEIGHTS if coded else {"send": 0.86}
    bars: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for span in spans:
        if span.stage in heights:
            key = span.rank + LANES[span.stage], heights[span.stage], _colour(schedule, span.chunk)
            bars.setdefault(key, []).append((span.start_s * 1e6, span.duration_s * 1e6))
    for (low, height, colour), places in bars.items():
        axes.broken_barh(places, (low, height), facecolors=colour, edgecolor="white", linewidth=0.3)
    axes.set_ylim(schedule.nodes, 0)
    if schedule.nodes <= 32:
        axes.set_yticks(
            [rank + 0.43 for rank in range(schedule.nodes)], [str(r) for r in range(schedule.nodes)]
        )
    axes.set(xlabel="microseconds", ylabel="rank")
    axes.set_xlim(left=0)
    axes.set_title("timeline: sends" + " above, coding and decoding below" * coded)
    axes.grid(axis="x")
