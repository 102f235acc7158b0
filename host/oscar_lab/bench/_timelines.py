"""Timelines of `oscar bench tuner`, for Perfetto."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oscar.timeline.engine import Timeline
from oscar_studies.perfetto import when, write_events


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
