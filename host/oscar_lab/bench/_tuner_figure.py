"""The figure of `oscar bench tuner`: an iteration before and after, and its time by the rate of the link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.studies.plotting import PALETTE, figure, logarithmic
from oscar.timeline.engine import Timeline
from oscar.timeline.graph import BACKWARD, CODEC, COMPUTE, PORT

SHOWN = {COMPUTE: "compute", CODEC: "other core", PORT: "port"}
BACK, CODING, SENDING, BUBBLE = PALETTE[0], PALETTE[1], PALETTE[2], "#dddddd"


def draw(
    path: Path,
    timelines: Mapping[str, Timeline],
    rates: Sequence[float],
    times: Mapping[str, Sequence[float]],
) -> None:
    """Draw timelines below each other with their bubbles, and seconds by rate in Gb/s, into `path`."""
    with figure(path, height=6.6, title="A transformer's iteration, 4 nodes at 500 Mb/s") as drawn:
        upper, lower = drawn.subplots(2, 1, height_ratios=[1.2, 1])
        _bars(upper, timelines)
        for index, (name, seconds) in enumerate(times.items()):
            lower.plot(
                rates, [1e3 * s for s in seconds], "o-", color=PALETTE[index], markersize=3, label=name
            )
        lower.set_xscale("log")
        lower.set_yscale("log")
        logarithmic(lower.xaxis)
        logarithmic(lower.yaxis)
        lower.set_xlabel("Gb/s")
        lower.set_title("ms of an iteration")
        lower.grid()
        lower.legend()


def _bars(axes: Any, timelines: Mapping[str, Timeline]) -> None:
    height, ticks, labels = 0.0, [], []
    for name, timeline in timelines.items():
        top = height
        for lane, label in SHOWN.items():
            if not (own := timeline.on(lane)):
                continue
            for at in own:
                task = timeline.graph.tasks[at]
                back = lane == COMPUTE and task.priority == BACKWARD
                colour = BACK if back else SENDING if lane == PORT else CODING
                bar = (1e3 * timeline.start[at], 1e3 * (timeline.end[at] - timeline.start[at]))
                axes.broken_barh([bar], (-height - 0.8, 0.8), color=colour, edgecolor="white", linewidth=0.3)
            gaps = [(1e3 * a, 1e3 * (b - a)) for a, b in timeline.bubbles(lane)]
            axes.broken_barh(gaps, (-height - 0.8, 0.8), color=BUBBLE)
            ticks.append(-height - 0.4)
            labels.append(label)
            height += 1
        axes.text(
            1e3 * timeline.total_s, -top - 0.4, f"  {name}: {1e3 * timeline.total_s:.1f} ms", va="center"
        )
        height += 0.6
    axes.set_yticks(ticks, labels)
    axes.set_xlabel("ms")
    axes.set_xlim(0, 1.15e3 * max(timeline.total_s for timeline in timelines.values()))
    axes.set_title("backward pass, coding, sending; grey: a bubble")
