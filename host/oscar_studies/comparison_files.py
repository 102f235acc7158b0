"""What `oscar allreduce` leaves on disk: results, the Markdown table, the figure, the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.collective.stats import Stats
from oscar.config import Config, ScheduleSection
from oscar.files import write_text
from oscar.results import Results, write_results
from oscar.timeline.link import LinkModel
from oscar.timeline.perfetto import write_trace
from oscar.timeline.replay import replay
from oscar.timeline.spans import Span
from oscar_studies.comparison_figure import draw
from oscar_studies.comparison_table import markdown_table
from oscar_studies.recording import Recording


def write_outputs(results: Results, folder: Path) -> list[Path]:
    """Write results.json, table.md and allreduce.png; return their paths."""
    paths = [folder / name for name in ("results.json", "table.md", "allreduce.png")]
    write_results(paths[0], results)
    write_text(paths[1], markdown_table(results))
    draw(results, paths[2])
    return paths


def kept_schedule(results: Results, row: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a row of a comparison's results."""
    options = ScheduleSection(**results["config"]["schedule"]).named(row["schedule"])
    adopt = not row["lossless"]
    return make_schedule(nodes=results["nodes"], adopt=adopt, **options.model_dump())


def write_timeline(recording: Recording, config: Config, path: Path) -> None:
    """Write the timeline of the last AllReduce of the training run, for ui.perfetto.dev."""
    stats = recording.stats[-1]
    meta = {"config": config.model_dump(mode="json"), "iteration": stats.iteration, "plan": stats.plan}
    meta["clock"] = config.link.clock_text()
    write_trace(path, _spans(stats, config.link.model()), meta)


def _spans(stats: Stats, link: LinkModel) -> list[Span]:
    """Return the bars of all messages, one message after the other."""
    bars, began = [], 0.0
    for one in stats.moved:
        played = replay(one.schedule, one.frames, link, coded=one.coded, spans=True)
        bars += [replace(bar, start_s=began + bar.start_s) for bar in played.spans]
        began += played.total_s
    return bars
