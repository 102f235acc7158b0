"""Timelines as Trace Event JSON, which ui.perfetto.dev and chrome://tracing open."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from oscar.files import write_text
from oscar.timeline.replay import STAGES, Span


def write_trace(path: str | Path, spans: Iterable[Span], meta: Mapping[str, Any] | None = None) -> None:
    """Write one process row per node, with a thread each for send and wait, and for each engine's work.

    `meta` (JSON values: configuration, seed) goes into `otherData`. Raises ValueError for unknown stages.
    """
    bars = list(spans)
    threads = {_thread(bar) for bar in bars} | {(0, tid) for tid in range(len(STAGES))}
    names = _names(sorted({bar.rank for bar in bars}), sorted(threads))
    write_events(path, [*names, *(_bar(bar) for bar in bars)], meta)


def write_events(
    path: str | Path, events: Iterable[Mapping[str, Any]], meta: Mapping[str, Any] | None
) -> None:
    """Write events of the Trace Event format; `meta` goes into `otherData`."""
    head = json.dumps(dict(meta or {}), allow_nan=False)
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    text = f'{{"displayTimeUnit": "ns",\n"otherData": {head},\n"traceEvents": [\n{lines}\n]}}\n'
    write_text(path, text)


def when(start_s: float, end_s: float) -> dict[str, float]:
    """Return when a bar begins and how long it is, in microseconds.

    Start and end are rounded to whole nanoseconds, the viewer's resolution: rounding the duration instead
    would make neighbours overlap, and the viewer drops overlapping bars.
    """
    start, end = round(start_s * 1e9), round(end_s * 1e9)
    return {"ts": start / 1000, "dur": (end - start) / 1000}


def _thread(span: Span) -> tuple[int, int]:
    """Return the row of a bar: its engine, and its stage's number."""
    if span.stage not in STAGES:
        raise ValueError(f"expected a stage among {', '.join(STAGES)}, got {span.stage!r}")
    return span.core, STAGES.index(span.stage)


def _names(ranks: Iterable[int], threads: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """Name and order the rows; viewers sort by id or by first event otherwise."""
    for rank in ranks:
        row = {"ph": "M", "pid": rank, "tid": 0}
        yield {**row, "name": "process_name", "args": {"name": f"node {rank}"}}
        yield {**row, "name": "process_sort_index", "args": {"sort_index": rank}}
        for engine, stage in threads:
            tid, name = engine * len(STAGES) + stage, STAGES[stage] + (f" {engine}" if engine else "")
            yield {**row, "tid": tid, "name": "thread_name", "args": {"name": name}}
            yield {**row, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _bar(span: Span) -> dict[str, Any]:
    """Return one complete event."""
    engine, stage = _thread(span)
    return {
        "ph": "X",
        "name": f"{'gather' if span.phase else 'reduce'} {span.step} chunk {span.chunk}.{span.sub}",
        "cat": span.stage,
        "pid": span.rank,
        "tid": engine * len(STAGES) + stage,
        **when(span.start_s, span.start_s + span.duration_s),
        "args": {"phase": span.phase, "step": span.step, "chunk": span.chunk, "sub": span.sub},
    }
