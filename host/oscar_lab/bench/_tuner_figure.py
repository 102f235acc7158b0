"""Pictures of `oscar bench tuner`: an iteration before and after, its time by link rate, timelines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.plotting import PALETTE, figure, logarithmic
from oscar.timeline.engine import BACKWARD, CODEC, COMPUTE, PORT, Timeline
from oscar_studies.perfetto import when, write_events

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
            gaps = [(1e3 * a, 1e3 * (b - a)) for a, b in bubbles(timeline, lane)]
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


def bubbles(timeline: Timeline, resource: int) -> list[tuple[float, float]]:
    """Return from when to when a resource waits between its first and its last task."""
    gaps, until = [], math.inf
    for at in timeline.on(resource):
        if timeline.start[at] > until:
            gaps.append((until, float(timeline.start[at])))
        until = float(timeline.end[at]) if math.isinf(until) else max(until, float(timeline.end[at]))
    return gaps


def write_timelines(
    path: str | Path, timelines: Mapping[str, Timeline], meta: Mapping[str, Any] | None = None
) -> None:
    """Write one process row per timeline of tasks, with a thread for each resource; bubbles are bars, too."""
    events = []
    for pid, (name, timeline) in enumerate(timelines.items()):
        events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
        for tid, resource in enumerate(timeline.graph.resources):
            if not (own := timeline.on(tid)):
                continue
            row = {"ph": "M", "pid": pid, "tid": tid}
            events.append({**row, "name": "thread_name", "args": {"name": resource.name}})
            bars = [(timeline.graph.tasks[at].name, timeline.start[at], timeline.end[at]) for at in own]
            gaps = [("bubble", *gap) for gap in bubbles(timeline, tid)]
            for kind, those in (("task", bars), ("bubble", gaps)):
                for label, start, end in those:
                    place = {"name": label, "cat": kind, "pid": pid, "tid": tid}
                    events.append({"ph": "X", **place, **when(float(start), float(end))})
    write_events(path, events, meta)
